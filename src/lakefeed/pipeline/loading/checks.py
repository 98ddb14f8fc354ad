"""What must hold between the parts of a pipeline: names, paths, columns and partitions that fit together.

The checks read an outline and not the models, so that they run on whatever part of a broken file is sound.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from lakefeed.columns.column_types import column, type_text
from lakefeed.columns.names import PipelineName
from lakefeed.pipeline.connectors import Connector, SourceField
from lakefeed.pipeline.loading.stream_checks import stream_problems
from lakefeed.pipeline.loading.upkeep_checks import UpkeepOutline, upkeep_problems
from lakefeed.pipeline.options.evolve import RESCUED, Evolve, EvolveField
from lakefeed.pipeline.options.metadata import MetadataColumns, MetadataField, metadata_columns
from lakefeed.pipeline.options.partition_by import PartitionField, parse_partition_field, partition_problems
from lakefeed.pipeline.options.paths import FileContext, Location, is_inside, same_location, sibling
from lakefeed.pipeline.options.route import Route, RouteText, can_route
from lakefeed.pipeline.table import ColumnText, From, Streams
from lakefeed.text import suggestion

if TYPE_CHECKING:
    from lakefeed.pipeline.pipeline import Pipeline
    from lakefeed.pipeline.secrets import Path

_LOCATION: TypeAdapter[str] = TypeAdapter(Location)
_NAME: TypeAdapter[str] = TypeAdapter(PipelineName)
_FROM: TypeAdapter[tuple[str, ...]] = TypeAdapter(From)
_STREAMS: TypeAdapter[tuple[str, ...]] = TypeAdapter(Streams)
_SOURCE: TypeAdapter[Connector] = TypeAdapter(SourceField)
_COLUMN: TypeAdapter[str] = TypeAdapter(ColumnText)
_ROUTE: TypeAdapter[str] = TypeAdapter(RouteText)
_METADATA: TypeAdapter[Any] = TypeAdapter(MetadataField)
_EVOLVE: TypeAdapter[Evolve] = TypeAdapter(EvolveField)


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


@dataclass(frozen=True)
class TableOutline:
    """The parts of a table that others depend on; None for what is missing or broken."""

    path: str | None
    route: Route | None
    sources: tuple[str, ...] | None
    streams: tuple[str, ...]
    columns: dict[str, pa.Field | None] | None
    partition_by: tuple[PartitionField | None, ...]
    metadata: MetadataColumns
    rescues: bool
    drop: tuple[str, ...]
    rename: Mapping[str, str]
    keys: frozenset[str]
    """The keys that have a value, sound or not."""
    upkeep: UpkeepOutline
    mode: str = "append"


@dataclass(frozen=True)
class Outline:
    """The parts of a pipeline that depend on each other; None for what is missing or broken."""

    sources: tuple[str, ...] | None
    tables: dict[str, TableOutline]
    dead_letters: str | None
    tests: dict[str, tuple[tuple[str, ...], tuple[str, ...]]]
    """The sources and the tables that each test names."""
    streams: dict[str, tuple[str, ...] | None]
    """The streams of each source; None where the file does not name them."""

    @classmethod
    def of(cls, pipeline: Pipeline) -> Outline:
        """The outline of a sound pipeline: of what it was given, as a file would hold it."""
        data = pipeline.model_dump(by_alias=True, exclude_unset=True)
        # Tests are left out of a dump.
        return cls.of_data(data | {"tests": {name: vars(one) for name, one in pipeline.tests.items()}})

    @classmethod
    def of_data(cls, data: Mapping[str, Any], context: FileContext | None = None) -> Outline:
        """The outline of what the file holds, as far as it can be read."""
        tables = {
            name: _table_outline(name, table, data.get("upkeep"), context)
            for name, table in _mapping(data.get("tables")).items()
        }
        sources = data.get("sources")
        name = _valid(_NAME, data.get("name"))
        given = _mapping(data.get("dead_letters")).get("path")
        dead_letters = _valid(_LOCATION, given, context)
        first = next(iter(tables.values()), None)
        if given is None and name and first and (first.path or first.route):
            neighbour = f"{first.route.base}/any" if first.route else first.path or ""
            dead_letters = sibling(neighbour, f"{name}_dead_letters")
        tests = {
            name: (
                tuple(_mapping(_mapping(case).get("events"))),
                tuple(_mapping(_mapping(case).get("tables"))),
            )
            for name, case in _mapping(data.get("tests")).items()
        }
        streams = {name: _streams(value, context) for name, value in _mapping(sources).items()}
        named = tuple(sources) if isinstance(sources, dict) else None
        return cls(named, tables, dead_letters, tests, streams)


def _mapping(value: object) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _sequence(value: object) -> Sequence[Any]:
    return value if isinstance(value, list | tuple) else ()


def _valid(adapter: TypeAdapter[Any], value: object, context: FileContext | None = None) -> Any:
    try:
        return None if value is None else adapter.validate_python(value, context=context)
    except ValidationError:
        return None


def _table_outline(name: str, value: object, upkeep: object, context: FileContext | None) -> TableOutline:
    table = _mapping(value)
    columns = table.get("schema")
    entries = table.get("partition_by")
    route = _valid(_ROUTE, table.get("route"), context)
    return TableOutline(
        _valid(_LOCATION, table.get("path"), context),
        Route(route) if route else None,
        _valid(_FROM, table.get("from")),
        _valid(_STREAMS, table.get("streams")) or (),
        {name: _column(name, text) for name, text in columns.items()} if isinstance(columns, dict) else None,
        tuple(_partition_field(entry) for entry in entries) if isinstance(entries, list | tuple) else (),
        metadata_columns(_valid(_METADATA, table.get("metadata")) or False),
        (_valid(_EVOLVE, table.get("evolve")) or Evolve()).rescues,
        tuple(each for each in _sequence(table.get("drop")) if isinstance(each, str)),
        {old: new for old, new in _mapping(table.get("rename")).items() if isinstance(new, str)},
        frozenset(key for key, given in table.items() if given not in (None, "", False)),
        UpkeepOutline.of_data(name, table, upkeep),
        str(table.get("mode", "append")),
    )


def _streams(source: object, context: FileContext | None) -> tuple[str, ...] | None:
    model = _valid(_SOURCE, source, context)
    return None if model is None else model.known_streams()


def _column(name: str, text: object) -> pa.Field | None:
    return column(name, text) if isinstance(text, str) and _valid(_COLUMN, text) is not None else None


def _partition_field(entry: object) -> PartitionField | None:
    try:
        return parse_partition_field(entry) if isinstance(entry, str) else None
    except ValueError:
        return None


def consistency_problems(outline: Outline) -> Iterator[FieldProblem]:
    """Everything that does not fit together."""
    yield from _unknown_sources(outline)
    yield from _idle_sources(outline)
    yield from _shared_paths(outline)
    for name, table in outline.tables.items():
        yield from _path_or_route(name, table)
        own = {source: outline.streams.get(source) for source in table.sources or ()}
        for path, message in stream_problems(table.streams, own):
            yield FieldProblem(("tables", name, *path), message)
        yield from _misfit_route(name, table)
        yield from _misfit_mode(name, table)
        yield from _idle_shuffle(name, table)
        yield from _column_clashes(name, table)
        yield from _name_clashes(name, table)
        yield from _misfit_partitions(name, table)
        yield from _misfit_upkeep(name, table)
    yield from _strangers_in_tests(outline)


def _unknown_sources(outline: Outline) -> Iterator[FieldProblem]:
    if outline.sources is None:
        return
    for name, table in outline.tables.items():
        for source in table.sources or ():
            if source not in outline.sources:
                message = f"unknown source '{source}'{suggestion(source, outline.sources)}"
                yield FieldProblem(("tables", name, "from"), message)


def _strangers_in_tests(outline: Outline) -> Iterator[FieldProblem]:
    for name, (sources, tables) in outline.tests.items():
        for source in sources if outline.sources else ():
            if source not in (outline.sources or ()):
                message = f"unknown source '{source}'{suggestion(source, outline.sources or ())}"
                yield FieldProblem(("tests", name, "events", source), message)
        for table in tables if outline.tables else ():
            if table.partition("/")[0] not in outline.tables:
                message = f"unknown table '{table}'{suggestion(table, outline.tables)}"
                yield FieldProblem(("tests", name, "tables", table), message)


def _idle_sources(outline: Outline) -> Iterator[FieldProblem]:
    wanted = [source for table in outline.tables.values() for source in table.sources or ()]
    unclear = any(table.sources is None for table in outline.tables.values())
    # A misspelt `from` is reported already; that its source then feeds no table would be noise.
    if outline.sources is None or unclear or not outline.tables or set(wanted) - set(outline.sources):
        return
    for source in outline.sources:
        if source not in wanted:
            message = f"feeds no table; add `from: {source}` to a table, or remove this source"
            yield FieldProblem(("sources", source), message)


def _path_or_route(name: str, table: TableOutline) -> Iterator[FieldProblem]:
    if "path" not in table.keys and "route" not in table.keys:
        yield FieldProblem(("tables", name, "path"), "required, but missing")
    if "path" in table.keys and "route" in table.keys:
        yield FieldProblem(("tables", name, "route"), "the table has a `path` as well; remove one of them")
    if "max_tables" in table.keys and "route" not in table.keys:
        yield FieldProblem(
            ("tables", name, "max_tables"), "has an effect only with `route`; add that, or remove this"
        )


def _misfit_route(name: str, table: TableOutline) -> Iterator[FieldProblem]:
    if not table.route or not table.columns:
        return
    for key in table.route.columns:
        declared = table.columns.get(key)
        if key not in table.columns:
            message = f"column '{key}' is not in `schema`{suggestion(key, table.columns)}"
            yield FieldProblem(("tables", name, "route"), message)
        elif declared and not can_route(declared.type):
            message = f"a column of type {type_text(declared.type)} cannot choose a table"
            yield FieldProblem(("tables", name, "route"), message)


def _idle_shuffle(name: str, table: TableOutline) -> Iterator[FieldProblem]:
    if "shuffle_by_partition" in table.keys and "partition_by" not in table.keys:
        message = "has an effect only with `partition_by`; add that, or remove this"
        yield FieldProblem(("tables", name, "shuffle_by_partition"), message)


def _misfit_mode(name: str, table: TableOutline) -> Iterator[FieldProblem]:
    if table.mode == "overwrite" and table.route:
        message = (
            "`overwrite` replaces the rows of one table; with `route`, a table that a run has no event for "
            "would keep its old rows. Use `path`, or `mode: append`"
        )
        yield FieldProblem(("tables", name, "mode"), message)


def _shared_paths(outline: Outline) -> Iterator[FieldProblem]:
    paths = [(name, table.path) for name, table in outline.tables.items() if table.path is not None]
    for at, (name, path) in enumerate(paths):
        for other, taken in paths[:at]:
            if message := _overlap(path, taken, f"table '{other}'"):
                yield FieldProblem(("tables", name, "path"), message)
    for name, table in outline.tables.items():
        for other, taken in paths:
            if table.route and table.route.key_of(taken):
                message = f"would put a table at '{taken}', the path of table '{other}'"
                yield FieldProblem(("tables", name, "route"), message)
    for name, path in paths:
        if outline.dead_letters and (message := _overlap(outline.dead_letters, path, f"table '{name}'")):
            yield FieldProblem(("dead_letters", "path"), message)


def _overlap(path: str, taken: str, owner: str) -> str | None:
    if same_location(path, taken):
        return f"'{path}' is the path of {owner} already; each needs its own"
    if is_inside(path, taken):
        return f"'{path}' is inside {owner} at '{taken}'; choose a path outside of it"
    if is_inside(taken, path):
        return f"'{path}' contains {owner} at '{taken}'; choose a path outside of it"
    return None


def _column_clashes(name: str, table: TableOutline) -> Iterator[FieldProblem]:
    seen: dict[str, str] = {}
    made = {column.casefold(): "metadata" for column in table.metadata.schema.names}
    made |= {RESCUED: "evolve"} if table.rescues else {}
    for key in table.columns or ():
        if key.casefold() in seen:
            message = f"differs from '{seen[key.casefold()]}' only in case; engines treat both as one column"
            yield FieldProblem(("tables", name, "schema", key), message)
        if key.casefold() in made:
            maker = made[key.casefold()]
            message = f"`{maker}` adds a column '{key.lower()}' already; rename this one, or change `{maker}`"
            yield FieldProblem(("tables", name, "schema", key), message)
        seen.setdefault(key.casefold(), key)


def _name_clashes(name: str, table: TableOutline) -> Iterator[FieldProblem]:
    """Renames and drops that contradict each other or the schema."""
    seen: dict[str, str] = {}
    for old, new in table.rename.items():
        path: Path = ("tables", name, "rename", old)
        if old in table.drop:
            yield FieldProblem(path, f"'{old}' is in `drop` as well; remove it from one of them")
        if new.casefold() in seen:
            yield FieldProblem(path, f"'{new}' is the new name of '{seen[new.casefold()]}' already")
        seen.setdefault(new.casefold(), old)
    filled = set(table.rename.values())
    for key in table.columns or ():
        if key in table.rename and key not in filled:
            message = f"no event fills it, as `rename` calls '{key}' '{table.rename[key]}'; declare that"
            yield FieldProblem(("tables", name, "schema", key), message)
        if key in table.drop and key not in filled:
            yield FieldProblem(("tables", name, "schema", key), "no event fills it, as it is in `drop`")


def _misfit_partitions(name: str, table: TableOutline) -> Iterator[FieldProblem]:
    if not table.columns:
        return
    broken = {key for key, field in table.columns.items() if field is None}
    columns = [field or pa.field(key, pa.string()) for key, field in table.columns.items()]
    schema = pa.schema([*columns, *table.metadata.schema])
    sound = [
        (at, field) for at, field in enumerate(table.partition_by) if field and field.column not in broken
    ]
    for index, message in partition_problems([field for _, field in sound], schema):
        yield FieldProblem(("tables", name, "partition_by", sound[index][0]), message)


def _misfit_upkeep(name: str, table: TableOutline) -> Iterator[FieldProblem]:
    columns: dict[str, pa.Field | None] = dict(table.columns or {})
    if columns and table.metadata:
        columns |= {field.name: field for field in table.metadata.schema}
    laid_out = {field.name for field in table.partition_by if field}
    if columns:
        columns |= dict.fromkeys(laid_out - columns.keys())
    for path, message in upkeep_problems(name, table.upkeep, table.path, columns, laid_out):
        yield FieldProblem(path, message)
