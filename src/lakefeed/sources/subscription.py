"""What one table takes of a source: the partitions of some of its streams, and rows by keys of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

import pyarrow as pa

from lakefeed.columns.change_columns import WHOLE_ROW
from lakefeed.errors import TableError
from lakefeed.events import Offsets, marked_partition
from lakefeed.pipeline.connectors import Connector
from lakefeed.pipeline.options.evolve import RESCUED
from lakefeed.pipeline.options.route import safe_value
from lakefeed.pipeline.table import Table
from lakefeed.sources import Reread, Source, SourceClient
from lakefeed.text import listed

_STREAM = "_stream"
_PATTERN = re.compile(r"[*?\[]")
_NAMES_STREAM = re.compile(r"\b_stream\b`?$", re.IGNORECASE)
"""An item of `select` that ends with the name of a column, which is then another."""


class StreamsClient(SourceClient):
    """A client as one table sees it: with the partitions of the streams that the table takes.

    `left_out` are streams among them that it does not read; it may grow meanwhile.
    """

    def __init__(
        self, client: SourceClient, source: Source, table: Table, left_out: Collection[str] = ()
    ) -> None:
        self._client, self._source, self._table = client, source, table
        self._left_out = left_out

    def start(self) -> Offsets:
        """Where the table begins."""
        return self._taken(self._client.start())

    def start_beside(self, held: Offsets) -> Offsets:
        """Where the table begins with what it does not know yet."""
        return self._taken(self._client.start_beside(held))

    def start_again(self, dead_letters: Callable[[], Collection[int]]) -> Offsets:
        """Where a table begins that has dead letters."""
        return self._taken(self._client.start_again(dead_letters))

    def replaced_from(self, start: Offsets) -> Offsets:
        """From where on dead letters of the table are outdated."""
        return self._client.replaced_from(start)

    def unreadable(self, offsets: Collection[int]) -> Collection[int]:
        """Dead letters whose events cannot be read again."""
        return self._client.unreadable(offsets)

    def reread(self, start: Offsets, dead_letters: Collection[int]) -> Reread:
        """Whether events of dead letters come again under other offsets."""
        return self._client.reread(start, dead_letters)

    def latest(self) -> Offsets:
        """The ends of what the table takes."""
        return self._taken(self._client.latest())

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Positions in streams that the table does not take any more need not be served."""
        own = taken_marks(self._source, self._table, marks, self._left_out)
        start = self._taken(self._client.check(self._taken(positions), own))
        if self._table.mode in ("upsert", "history"):
            self._client.refuse_lost_keys(own, start, self._table.rename)
        return start

    def outdated(self, marks: Mapping[str, int], start: Offsets) -> dict[str, str]:
        """What the table has not got of the streams that it takes."""
        return self._client.outdated(taken_marks(self._source, self._table, marks), start)

    def marks(self) -> dict[str, int]:
        """Those of the streams that the table takes."""
        return taken_marks(self._source, self._table, self._client.marks(), self._left_out)

    def begun(self, start: Offsets, marks: Mapping[str, int]) -> dict[str, int]:
        """As of the source."""
        return self._client.begun(start, marks)

    def column_types(self, takes: Callable[[str], bool]) -> list[pa.Schema]:
        """As the source has them."""
        return self._client.column_types(takes)

    def _taken(self, offsets: Offsets) -> Offsets:
        own = taken(self._source, self._table, offsets)
        return {name: at for name, at in own.items() if self._source.stream_of(name) not in self._left_out}


def is_by_stream(table: Table, sources: Iterable[Connector]) -> bool:
    """Whether each table of a route takes one stream, and has positions in that alone."""
    route = table.routed
    if route is None or route.columns != (_STREAM,) or table.python or not _keeps_stream(table.select):
        return False
    renamed = _STREAM in (*table.rename, *table.rename.values())
    return not renamed and all(source.types_by_stream for source in sources)


def takes_several_streams(table: Table, sources: Sequence[Connector]) -> bool:
    """Whether the rows of a table of changes may be those of several streams, whose keys may be alike."""
    if is_by_stream(table, sources) or not all(source.brings_whole_rows for source in sources):
        # Samples of tests, which stand for a source, need no column that says of which stream they are.
        return False
    if table.streams and not any(_PATTERN.search(one) for one in table.streams):
        return len(table.streams) > 1
    known = [source.known_streams() for source in sources]
    named = [one for streams in known for one in streams or ()]
    return None in known or len([one for one in named if table.takes(one)]) > 1


def of_several_streams(name: str, table: Table) -> Table:
    """A table of changes of several streams: the stream is part of its key. Raises TableError without it."""
    if _STREAM in table.drop:
        raise TableError(
            f"table {name}: `drop` names {_STREAM}, which tells the rows of several streams apart.\n"
            "Remove it from `drop`, or name one stream in `streams`."
        )
    if table.keys == WHOLE_ROW:
        raise TableError(
            f"table {name}: with `keys: all` a table takes one stream.\n"
            f"Name it in `streams`, or let `route: lake/{{{_STREAM}}}` make a table for each."
        )
    return table.of_streams(table.rename.get(_STREAM, _STREAM))


def _keeps_stream(select: Sequence[str] | None) -> bool:
    """Whether rows have the stream that their event has, as far as the text of `select` tells."""
    items = [one.strip() for one in select or ()]
    others = [one for one in items if one != _STREAM]
    return not items or (
        ("*" in items or _STREAM in items) and not any(_NAMES_STREAM.search(one) for one in others)
    )


def has_types_by_stream(table: Table, sources: Iterable[Connector]) -> bool:
    """Whether each table of a route has the columns of one stream, with the types that they have there.

    What SQL reads has one type for a name, whichever table a row is for.
    """
    return is_by_stream(table, sources) and not table.sql


def unfit_streams(
    client: SourceClient, sources: Sequence[Connector], name: str, table: Table
) -> dict[str, str]:
    """Streams that the table takes by a pattern and that do not fit it, by their names or keys, with why.

    `sources` are all that feed it. A route would make one table of streams with one name in a path; the key
    of a table of changes must be one of its source. What SQL or a function makes of columns shows with the
    first events. Raises TableError for a stream that the file names, where a table that is no route has no
    other stream, and where the types of streams do not fit together.
    """
    streams = [one for one in client.streams() if table.takes(one)]
    unfit: dict[str, str] = {}
    if table.routed is not None and table.routed.columns == (_STREAM,):
        unfit |= _name_problems(streams)
    if not (table.select or table.python):
        unfit |= _column_problems(client, table) | _key_problems(client, table)
    named = {*table.streams, *(one for source in sources for one in source.stream_patterns() or ())}
    left = [one for one in streams if one not in unfit]
    for stream, problem in unfit.items():
        if (stream in named and not client.goes_on) or (not left and table.routed is None):
            raise TableError(f"table {name}: {problem}")
    for stream, finding in client.left_out().items():
        if stream in table.streams and finding.state != "warn" and not client.goes_on:
            raise TableError(f"table {name}: {finding.text}.\n{finding.remedy}")
    if not (table.select or table.python or table.columns or table.drop or table.rename):
        parted = has_types_by_stream(table, sources)
        misfit = client.type_problem(left.__contains__, safe_value if parted else lambda _: None)
        if misfit is not None:
            raise TableError(f"table {name}: {misfit}")
    return unfit


def untaken_streams(client: SourceClient, tables: Iterable[Table]) -> dict[str, str]:
    """Streams that the source could read, and that no table of the file takes, with what to do about it."""
    fed = list(tables)
    return {
        one: f"no table of the file takes {one}\nAdd it to `streams` of a table, or to the source's `exclude`"
        for one in client.streams()
        if not any(table.takes(one) for table in fed)
    }


def skipped_streams(client: SourceClient, tables: Iterable[Table]) -> dict[str, str]:
    """Streams that are not read, whatever table they would go to, with what to do about it."""
    left_out = {name: f"{one.text}\n{one.remedy}".strip() for name, one in client.left_out().items()}
    return untaken_streams(client, tables) | left_out


def _key_problems(client: SourceClient, table: Table) -> dict[str, str]:
    if table.mode not in ("upsert", "history"):
        return {}
    renamed = {new: old for old, new in table.rename.items()}
    declared = {renamed.get(one, one) for one in table.columns or ()}
    keys = [renamed.get(one, one) for one in table.keys if one != table.stream_key]
    return client.key_problems(keys, table.takes, declared)


def _column_problems(client: SourceClient, table: Table) -> dict[str, str]:
    """Streams with columns that one Delta table cannot have together, or that the table makes itself."""
    made = {one.name: "partition_by" for one in table.partition_fields if one.derived} | table.interval
    made |= {RESCUED: "evolve"} if table.evolve.rescues else {}
    own = {name.lower(): option for name, option in made.items()}
    declared = set(table.columns or ()) if table.columns and table.evolve.new_column != "add" else None
    found: dict[str, str] = {}
    for stream, columns in client.column_names(table.takes).items():
        read = [one for one in columns if one not in table.drop]
        read = [one for one in read if declared is None or table.rename.get(one, one) in declared]
        own_table = f"Give {stream} a table with `streams: {stream}` and `rename` or `drop` for "
        alike: dict[str, list[str]] = {}
        for name in read:
            alike.setdefault(name.lower(), []).append(name)
        for several in alike.values():
            # Of such names, events keep the first in the order of code points.
            first, *others = sorted(set(several))
            left = [name for name in others if table.rename.get(name, name).lower() == first.lower()]
            if left:
                text = (
                    f"{stream} has the columns {listed(several)}, and a Delta table can have only one of them"
                )
                found[stream] = f"{text}.\n{own_table}{listed(left)}."
        for name in read:
            if (made_by := own.get(table.rename.get(name, name).lower())) and stream not in found:
                text = f"{stream} has the column {name}, and `{made_by}` makes one of this name"
                found[stream] = f"{text}.\n{own_table}{name}, or change `{made_by}`."
    return found


def _name_problems(streams: Iterable[str]) -> dict[str, str]:
    """Streams of a route whose names are one in a path: each would change and delete rows of the other.

    None of them is read: which one the table at that path has does not show in its name.
    """
    by_path: dict[str | None, list[str]] = {}
    for stream in streams:
        by_path.setdefault(safe_value(stream), []).append(stream)
    problems: dict[str, str] = {}
    for path, alike in by_path.items():
        for stream in alike if path is None or len(alike) > 1 else ():
            text = (
                f"{stream} has a name that is too long for a path"
                if path is None
                else f"{listed(alike)} are both {path} in a path, and would be one table"
            )
            problems[stream] = (
                f"{text}.\nGive {stream} a table with a `path` and `streams: {stream}`, and name in "
                "`streams` here those that the route takes."
            )
    return problems


def taken(source: Source, table: Table, offsets: Offsets) -> Offsets:
    """What is told of the partitions of those streams that a table takes."""
    return {name: at for name, at in offsets.items() if table.takes(source.stream_of(name))}


def taken_marks(
    source: Source, table: Table, marks: Mapping[str, int], left_out: Collection[str] = ()
) -> dict[str, int]:
    """The marks of those streams that a table takes, without streams that it leaves out.

    Its log may hold positions of others, which belong to the marks that it has taken with them.
    """
    streams = {name: stream_of_mark(source, name) for name in marks}
    return {
        name: number
        for name, number in marks.items()
        if table.takes(streams[name]) and streams[name] not in left_out
    }


def stream_of_mark(source: Source, name: str) -> str | None:
    """The stream that a mark is of: some are named like a partition."""
    partition = marked_partition(name)
    return name if partition is None else source.stream_of(partition)
