"""What one table takes of a source: the partitions of some of its streams, and rows by keys of its own."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from lakefeed.errors import TableError
from lakefeed.events import EPOCH, Offsets
from lakefeed.pipeline.connectors import Connector
from lakefeed.pipeline.options.route import safe_value
from lakefeed.pipeline.table import Table
from lakefeed.sources import Source, SourceClient

_STREAM = "_stream"
_NAMES_STREAM = re.compile(r"\b_stream\b`?$", re.IGNORECASE)
"""An item of `select` that ends with the name of a column, which is then another."""


class StreamsClient(SourceClient):
    """A client as one table sees it: with the partitions of the streams that the table takes."""

    def __init__(self, client: SourceClient, source: Source, table: Table) -> None:
        self._client, self._source, self._table = client, source, table

    def start(self) -> Offsets:
        """Where the table begins."""
        return self._taken(self._client.start())

    def start_beside(self, held: Offsets) -> Offsets:
        """Where the table begins with what it does not know yet."""
        return self._taken(self._client.start_beside(held))

    def start_again(self, dead_letters: Callable[[], Collection[int]]) -> Offsets:
        """Where a table begins that has dead letters."""
        return self._taken(self._client.start_again(dead_letters))

    def latest(self) -> Offsets:
        """The ends of what the table takes."""
        return self._taken(self._client.latest())

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Positions in streams that the table does not take any more need not be served."""
        own = taken_marks(self._source, self._table, marks)
        return self._taken(self._client.check(self._taken(positions), own))

    def marks(self) -> dict[str, int]:
        """Those of the streams that the table takes."""
        return taken_marks(self._source, self._table, self._client.marks())

    def _taken(self, offsets: Offsets) -> Offsets:
        return taken(self._source, self._table, offsets)


def is_by_stream(table: Table, sources: Iterable[Connector]) -> bool:
    """Whether each table of a route takes one stream, and has positions in that alone."""
    route = table.routed
    if route is None or route.columns != (_STREAM,) or table.python or not _keeps_stream(table.select):
        return False
    renamed = _STREAM in (*table.rename, *table.rename.values())
    return not renamed and all(source.types_by_stream for source in sources)


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


def refuse_streams(client: SourceClient, sources: Iterable[Connector], name: str, table: Table) -> None:
    """Raise TableError where the names, the keys or the types of streams do not fit the table.

    `sources` are all that feed it. A route would make one table of streams with one name in a path; the key
    of a table of changes must be one of its source. What SQL or a function makes of columns shows with the
    first events.
    """
    problem = None
    if table.routed is not None and table.routed.columns == (_STREAM,):
        problem = _name_problem([one for one in client.streams() if table.takes(one)])
    if problem is None and (table.select or table.python):
        return
    if problem is None and table.mode in ("upsert", "history"):
        renamed = {new: old for old, new in table.rename.items()}
        problem = client.key_problem([renamed.get(one, one) for one in table.keys], table.takes)
    if problem is None and not (table.columns or table.drop or table.rename):
        parted = has_types_by_stream(table, sources)
        problem = client.type_problem(table.takes, safe_value if parted else lambda _: None)
    if problem is not None:
        raise TableError(f"table {name}: {problem}")


def _name_problem(streams: Iterable[str]) -> str | None:
    """Streams of a route whose names are one in a path: each would change and delete rows of the other."""
    seen: dict[str, str] = {}
    for stream in streams:
        path = safe_value(stream)
        other = None if path is None else seen.setdefault(path, stream)
        if other == stream:
            continue
        text = (
            f"{stream} has a name that is too long for a path"
            if other is None
            else f"{other} and {stream} are both {path} in a path, and would be one table"
        )
        return (
            f"{text}.\nGive {stream} a table with a `path` and `streams: {stream}`, and name in `streams` "
            "here those that the route takes."
        )
    return None


def taken(source: Source, table: Table, offsets: Offsets) -> Offsets:
    """What is told of the partitions of those streams that a table takes."""
    return {name: at for name, at in offsets.items() if table.takes(source.stream_of(name))}


def taken_marks(source: Source, table: Table, marks: Mapping[str, int]) -> dict[str, int]:
    """The marks of those streams that a table takes.

    Its log may hold positions of others, which belong to the marks that it has taken with them.
    """
    streams = {
        name: source.stream_of(name.removesuffix(EPOCH)) if name.endswith(EPOCH) else name for name in marks
    }
    return {name: number for name, number in marks.items() if table.takes(streams[name])}
