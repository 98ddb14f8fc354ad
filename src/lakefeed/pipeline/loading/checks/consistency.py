"""What must hold between the parts of a pipeline: names, paths, columns and partitions that fit together.

The checks read an outline and not the models, so that they run on whatever part of a broken file is sound.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefeed.columns.change_columns import POSTGRES, WHOLE_ROW, WHOLE_ROW_TYPES
from lakefeed.columns.column_types import type_text
from lakefeed.pipeline.loading.checks.ingest import group_problems, ingest_problems
from lakefeed.pipeline.loading.checks.kept import kept_problems
from lakefeed.pipeline.loading.checks.keys import key_problems
from lakefeed.pipeline.loading.checks.made_columns import made_problems
from lakefeed.pipeline.loading.checks.queries import query_problems
from lakefeed.pipeline.loading.checks.streams import stream_problems
from lakefeed.pipeline.loading.checks.upkeep import upkeep_problems
from lakefeed.pipeline.loading.graph import circles
from lakefeed.pipeline.loading.outline import Outline, TableOutline
from lakefeed.pipeline.options.changes import BROUGHT, CHANGING, KEYED, column_problems, option_problems
from lakefeed.pipeline.options.evolve import RESCUED
from lakefeed.pipeline.options.partition_by import partition_problems
from lakefeed.pipeline.options.paths import is_inside, same_location
from lakefeed.pipeline.options.route import Route, can_route
from lakefeed.text import did_you_mean, listed, suggestion

if TYPE_CHECKING:
    from lakefeed.pipeline.secrets import Path

    Problems = Iterator[tuple[Path, str]]

_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-*?\[\]]")
"""What stands in a pattern of names, and as `_` in a path."""
_OF_SOME_ROWS = frozenset(
    ("where", "select", "expect", "python", "delete_when", "truncate_when", "sequence_by", "ignore_nulls")
)
"""Options that leave out changes, or take them for others."""


@dataclass(frozen=True)
class FieldProblem:
    """Something wrong at a path of the file."""

    path: Path
    message: str

    def __str__(self) -> str:
        """`tables.clicks.from: unknown source`."""
        return f"{dotted(self.path)}: {self.message}" if self.path else self.message


def dotted(path: Path) -> str:
    """`tables.clicks.partition_by.0`."""
    return ".".join(str(step) for step in path)


def consistency_problems(outline: Outline) -> Iterator[FieldProblem]:
    """Everything that does not fit together."""
    for path, message in _problems(outline):
        yield FieldProblem(path, message)


def _problems(outline: Outline) -> Problems:
    yield from _unknown_sources(outline)
    yield from _misfit_inputs(outline)
    yield from _idle_sources(outline)
    yield from _shared_paths(outline)
    yield from _shared_folders(outline)
    yield from _shared_slots(outline)
    yield from query_problems(outline)
    yield from key_problems(outline)
    yield from kept_problems(outline)
    yield from made_problems(outline)
    yield from group_problems(outline)
    for name, table in outline.tables.items():
        for path, message in _table_problems(name, table, outline):
            yield ("tables", name, *path), message
        yield from _misfit_upkeep(name, table)
    yield from _strangers_in_tests(outline)


def _table_problems(name: str, table: TableOutline, outline: Outline) -> Problems:
    """What does not fit in one table, by its own keys."""
    yield from _path_or_route(table)
    own = {source: outline.streams.get(source) for source in table.sources or ()}
    yield from stream_problems(table, own)
    yield from _misfit_route(table)
    yield from _misfit_mode(name, table, outline)
    yield from _misfit_whole_rows(table, outline)
    yield from _misfit_changes(table, outline)
    yield from _misfit_python(table)
    yield from _idle_shuffle(table)
    yield from _column_clashes(table)
    yield from _name_clashes(table)
    yield from _misfit_partitions(table)
    yield from ingest_problems(outline, table)


def _shared_folders(outline: Outline) -> Problems:
    """Files that one source takes away and another one reads; folders of files with tables in them do not."""
    folders = {name: path for name, one in outline.sound.items() if (path := one.reads_folder())}
    for name, mine in sorted(folders.items()):
        for other, folder in folders.items() if outline.sound[name].takes_away() else ():
            if other != name and (is_inside(folder, mine) or is_inside(mine, folder)):
                message = f"takes files away that source '{other}' reads too; set `after: keep`"
                yield ("sources", name, "after"), message


def _shared_slots(outline: Outline) -> Problems:
    """A slot gives each change to one reader: two sources would take them from each other."""
    owners: dict[Hashable, str] = {}
    for name, source in sorted(outline.sound.items()):
        slot = source.reads_slot()
        if slot and owners.setdefault(slot, name) != name:
            message = f"source '{owners[slot]}' has the replication slot '{slot[0]}' already"
            yield ("sources", name, "slot"), f"{message}; give each its own `slot`"


def _unknown_sources(outline: Outline) -> Problems:
    if outline.sources is None:
        return
    for name, table in outline.tables.items():
        for source in table.sources or ():
            if source not in outline.sources and source not in outline.reads:
                yield ("tables", name, "from"), _unknown_input(outline, name, source)


def _unknown_input(outline: Outline, table: str, source: str) -> str:
    """That nothing has this name, and what there is: sources, and tables that may feed this one."""
    sources, tables = outline.sources or (), [other for other in outline.tables if other != table]
    known = f"; known are {listed(sources)}"
    if tables:
        known += f", and as tables {listed(tables)}"
    return f"unknown source '{source}'{did_you_mean(source, [*sources, *tables]) or known}"


def _misfit_inputs(outline: Outline) -> Problems:
    """Tables that cannot feed others, or that feed themselves."""
    wanted = {name: table.sources or () for name, table in outline.tables.items()}
    for circle in circles(wanted, outline.reads):
        way = " from ".join(f"'{name}'" for name in (*circle, circle[0]))
        message = f"tables feed each other in a circle: {way}; one of them needs a source"
        yield ("tables", circle[0], "from"), message
    for name, names in wanted.items():
        for source in names:
            is_table = source in outline.reads and source not in (outline.sources or ())
            reason = _why_not_feeding(source, outline.tables[source]) if is_table else None
            if reason:
                yield ("tables", name, "from"), reason


def _why_not_feeding(name: str, table: TableOutline) -> str | None:
    """Why a table cannot feed others: only what is appended to one table can be followed."""
    if table.route:
        return (
            f"'{name}' has a `route`, so its rows lie in many tables. Feed this table from the source of "
            f"'{name}', or from one of these tables by a source with `type: delta`"
        )
    if "query" in table.keys:
        return f"'{name}' has a `query`, which replaces all its rows; use it in a `query` of this table"
    if table.mode == "overwrite":
        return (
            f"'{name}' has `mode: {table.mode}`, which replaces its rows; only appended and changed rows can "
            f"be followed. Feed this table from the source of '{name}', or use it in a `query`"
        )
    return None


def _strangers_in_tests(outline: Outline) -> Problems:
    for name, (sources, tables) in outline.tests.items():
        for source in sources if outline.sources else ():
            if source not in (outline.sources or ()):
                message = f"unknown source '{source}'{suggestion(source, outline.sources or ())}"
                yield ("tests", name, "events", source), message
        for table in tables if outline.tables else ():
            if table.partition("/")[0] not in outline.tables:
                message = f"unknown table '{table}'{suggestion(table, outline.tables)}"
                yield ("tests", name, "tables", table), message


def _idle_sources(outline: Outline) -> Problems:
    wanted = [source for table in outline.tables.values() for source in table.sources or ()]
    unclear = any(table.sources is None and not table.query for table in outline.tables.values())
    # A misspelt `from` is reported already; that its source then feeds no table would be noise.
    if outline.sources is None or unclear or not outline.tables:
        return
    if set(wanted) - {*outline.sources, *outline.reads}:
        return
    for source in outline.sources:
        if source not in wanted:
            message = f"feeds no table; add `from: {source}` to a table, or remove this source"
            yield ("sources", source), message


def _path_or_route(table: TableOutline) -> Problems:
    if "path" not in table.keys and "route" not in table.keys:
        yield ("path",), "required, but missing"
    if "path" in table.keys and "route" in table.keys:
        yield ("route",), "the table has a `path` as well; remove one of them"
    if "max_tables" in table.keys and "route" not in table.keys:
        yield ("max_tables",), "has an effect only with `route`; add that, or remove this"


def _misfit_route(table: TableOutline) -> Problems:
    if not table.route or not table.columns or table.reshapes:
        return
    for key in table.route.columns:
        declared = table.columns.get(key)
        if key not in table.columns:
            message = f"column '{key}' is not in `schema`{suggestion(key, table.columns)}"
            yield ("route",), message
        elif declared and not can_route(declared.type):
            message = f"a column of type {type_text(declared.type)} cannot choose a table"
            yield ("route",), message


def _idle_shuffle(table: TableOutline) -> Problems:
    if "shuffle_by_partition" in table.keys and "partition_by" not in table.keys:
        message = "has an effect only with `partition_by`; add that, or remove this"
        yield ("shuffle_by_partition",), message


def _misfit_changes(table: TableOutline, outline: Outline) -> Problems:
    """What does not go together with sources that bring changes."""
    if table.mode not in CHANGING or "delete_when" in table.keys or not table.sources:
        return
    databases = [name for name in table.sources if name in outline.sound]
    databases = [name for name in databases if outline.sound[name].brings_whole_rows]
    if len(databases) > 1:
        message = (
            f"'{databases[0]}' and '{databases[1]}' are two Postgres sources: their changes have no common "
            f"order, and their keys may be alike. With `mode: {table.mode}`, give each its own table"
        )
        yield ("from",), message
    feeds = [source for source in table.sources if source in outline.feeds]
    if not feeds:
        return
    if others := [source for source in table.sources if source not in feeds]:
        message = (
            f"'{feeds[0]}' is a change feed, and '{others[0]}' is none; a table with `mode: {table.mode}` "
            "takes one kind. Give each its own table, or say with `delete_when` which events delete"
        )
        yield ("from",), message
    sequence = table.keyed_by.get("sequence_by", ())
    if sequence and (sequence[0] != BROUGHT[0] or not set(sequence) <= set(BROUGHT)):
        message = (
            f"the change feed '{feeds[0]}' brings the order of its changes, and a deleted row has its old "
            "values; remove this, or use [__sequence, __timestamp]: the version, and when it was committed"
        )
        yield ("sequence_by",), message


def _misfit_mode(name: str, table: TableOutline, outline: Outline) -> Problems:
    if table.mode == "overwrite" and table.route:
        message = (
            "`overwrite` replaces the rows of one table; with `route`, a table that a run has no event for "
            "would keep its old rows. Use `path`, or `mode: append`"
        )
        yield ("mode",), message
    for option, message in option_problems(table.mode, table.keys):
        yield (option,), message
    brought = table.mode != "deduplicate" and outline.envelopes.issuperset(table.sources or ("",))
    feed = outline.feeds_table(name)
    keyed = brought and "delete_when" not in table.keys and (not feed or outline.row_keys(name))
    if table.mode in KEYED and "keys" not in table.keys and not keyed:
        yield ("keys",), f"required with `mode: {table.mode}`, but missing"
    if table.mode == "history" and "sequence_by" not in table.keys and not brought:
        message = "required with `mode: history`, but missing: intervals begin and end with it"
        yield ("sequence_by",), message
    if table.columns and not table.reshapes and table.mode in KEYED:
        made = [*table.metadata.schema, *(pa.field(RESCUED, pa.string()) for _ in range(table.rescues))]
        columns = {**table.columns, **{field.name: field for field in made}}
        columns |= {field.name: None for field in table.partition_by if field and field.derived}
        columns |= dict.fromkeys(BROUGHT) if feed else {}
        columns |= dict.fromkeys((*POSTGRES.others, *WHOLE_ROW_TYPES)) if brought else {}
        for option, message in column_problems(table.keyed_by, columns):
            yield (option,), message


def _misfit_whole_rows(table: TableOutline, outline: Outline) -> Problems:
    """What does not go with `keys: all`: each change counts, with the row as its source has it."""
    if table.keyed_by.get("keys") != WHOLE_ROW or table.mode not in KEYED:
        return
    others = [name for name in table.sources or () if name in outline.sound]
    others = [name for name in others if not outline.sound[name].brings_whole_rows]
    if table.mode != "upsert":
        yield ("keys",), f"`all` has an effect only with `mode: upsert`, and not with `{table.mode}`"
    elif others:
        message = f"`all` is for tables of a Postgres source, and '{others[0]}' is none; name the columns"
        yield ("keys",), message
    for option in sorted(table.keys & _OF_SOME_ROWS):
        yield (option,), "does not go with `keys: all`, which counts all rows as they are; remove one of them"


def _misfit_python(table: TableOutline) -> Problems:
    if "python" not in table.keys:
        return
    if table.route:
        message = (
            "a table with a `route` has no `python`; give it to a table with a `path`, and let the one with "
            "the route take its rows with `from`"
        )
        yield ("python",), message
    for key in table.columns or ():
        if key.casefold() == "_event":
            message = "is the name of the column that numbers the rows for `python`; choose another"
            yield ("schema", key), message


def _may_lead_to(outline: Outline, table: TableOutline, route: Route, path: str) -> bool:
    """Whether a route may make a table at a path: not where no stream of its sources has that name."""
    key = route.key_of(path)
    read = [outline.sound.get(source) for source in table.sources or ()]
    given = [None if one is None else one.stream_patterns() for one in read]
    if key is None or route.columns != ("_stream",) or table.reshapes or table.rename or None in given:
        return key is not None
    return any(fnmatchcase(key[0], _UNSAFE.sub("?", one)) for patterns in given for one in patterns or ())


def _shared_paths(outline: Outline) -> Problems:
    paths = [(name, table.path) for name, table in outline.tables.items() if table.path is not None]
    for at, (name, path) in enumerate(paths):
        for other, taken in paths[:at]:
            if message := _overlap(path, taken, f"table '{other}'"):
                yield ("tables", name, "path"), message
    for name, table in outline.tables.items():
        for other, taken in paths:
            if table.route and _may_lead_to(outline, table, table.route, taken):
                message = f"would put a table at '{taken}', the path of table '{other}'"
                yield ("tables", name, "route"), message
    for name, path in paths:
        if outline.dead_letters and (message := _overlap(outline.dead_letters, path, f"table '{name}'")):
            yield ("dead_letters", "path"), message


def _overlap(path: str, taken: str, owner: str) -> str | None:
    if same_location(path, taken):
        return f"'{path}' is the path of {owner} already; each needs its own"
    if is_inside(path, taken):
        return f"'{path}' is inside {owner} at '{taken}'; choose a path outside of it"
    if is_inside(taken, path):
        return f"'{path}' contains {owner} at '{taken}'; choose a path outside of it"
    return None


def _column_clashes(table: TableOutline) -> Problems:
    seen: dict[str, str] = {}
    made = {column.casefold(): "metadata" for column in table.metadata.schema.names}
    made |= {RESCUED: "evolve"} if table.rescues else {}
    made |= {column.casefold(): option for column, option in table.interval.items()}
    for key in table.columns or ():
        if key.casefold() in seen:
            message = f"differs from '{seen[key.casefold()]}' only in case; engines treat both as one column"
            yield ("schema", key), message
        if key.casefold() in made:
            maker = made[key.casefold()]
            message = f"`{maker}` adds a column '{key.lower()}' already; rename this one, or change `{maker}`"
            yield ("schema", key), message
        seen.setdefault(key.casefold(), key)


def _name_clashes(table: TableOutline) -> Problems:
    """Renames and drops that contradict each other or the schema."""
    seen: dict[str, str] = {}
    for old, new in table.rename.items():
        path: Path = ("rename", old)
        if old in table.drop:
            yield path, f"'{old}' is in `drop` as well; remove it from one of them"
        if new.casefold() in seen:
            yield path, f"'{new}' is the new name of '{seen[new.casefold()]}' already"
        seen.setdefault(new.casefold(), old)
    filled = set(table.rename.values())
    for key in table.columns or ():
        if key in table.rename and key not in filled:
            message = f"no event fills it, as `rename` calls '{key}' '{table.rename[key]}'; declare that"
            yield ("schema", key), message
        if key in table.drop and key not in filled:
            yield ("schema", key), "no event fills it, as it is in `drop`"


def _misfit_partitions(table: TableOutline) -> Problems:
    if not table.columns or table.reshapes:
        return
    broken = {key for key, field in table.columns.items() if field is None}
    columns = [field or pa.field(key, pa.string()) for key, field in table.columns.items()]
    schema = pa.schema([*columns, *table.metadata.schema])
    sound = [
        (at, field) for at, field in enumerate(table.partition_by) if field and field.column not in broken
    ]
    for index, message in partition_problems([field for _, field in sound], schema):
        yield ("partition_by", sound[index][0]), message


def _misfit_upkeep(name: str, table: TableOutline) -> Problems:
    # What `select` and `python` make is known when the table is opened.
    columns: dict[str, pa.Field | None] = dict((not table.reshapes and table.columns) or {})
    if columns and table.metadata:
        columns |= {field.name: field for field in table.metadata.schema}
    laid_out = {field.name for field in table.partition_by if field}
    if columns:
        columns |= dict.fromkeys(laid_out - columns.keys())
    yield from upkeep_problems(name, table.upkeep, table.path, columns, laid_out)
