"""The outline of a pipeline: what its parts need to know of each other, as far as it is sound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pydantic import TypeAdapter, ValidationError

from lakefeed.columns.column_types import column
from lakefeed.columns.names import PipelineName, keeping_names
from lakefeed.pipeline.connectors import Connector, SourceField
from lakefeed.pipeline.loading.checks.upkeep import UpkeepOutline
from lakefeed.pipeline.loading.graph import feeding_tables, tables_read
from lakefeed.pipeline.options.changes import CHANGING, ColumnNames, KeyNames, interval_columns
from lakefeed.pipeline.options.evolve import Evolve, EvolveField
from lakefeed.pipeline.options.metadata import MetadataColumns, MetadataField, metadata_columns
from lakefeed.pipeline.options.partition_by import PartitionField, parse_partition_field
from lakefeed.pipeline.options.paths import FileContext, Location, sibling
from lakefeed.pipeline.options.query import QueryText
from lakefeed.pipeline.options.route import Route, RouteText
from lakefeed.pipeline.table import ColumnText, From, Streams

if TYPE_CHECKING:
    from lakefeed.pipeline.pipeline import Pipeline

_LOCATION: TypeAdapter[str] = TypeAdapter(Location)
_NAME: TypeAdapter[str] = TypeAdapter(PipelineName)
_FROM: TypeAdapter[tuple[str, ...]] = TypeAdapter(From)
_STREAMS: TypeAdapter[tuple[str, ...]] = TypeAdapter(Streams)
_SOURCE: TypeAdapter[Connector] = TypeAdapter(SourceField)
_NAMES: TypeAdapter[tuple[str, ...]] = TypeAdapter(ColumnNames)
_KEYS: TypeAdapter[tuple[str, ...]] = TypeAdapter(KeyNames)
_COLUMN: TypeAdapter[str] = TypeAdapter(ColumnText)
_ROUTE: TypeAdapter[str] = TypeAdapter(RouteText)
_METADATA: TypeAdapter[Any] = TypeAdapter(MetadataField)
_QUERY: TypeAdapter[str] = TypeAdapter(QueryText)
_EVOLVE: TypeAdapter[Evolve] = TypeAdapter(EvolveField)


@dataclass(frozen=True)
class TableOutline:
    """The parts of a table that others depend on; None for what is missing or broken."""

    path: str | None
    route: Route | None
    sources: tuple[str, ...] | None
    streams: tuple[str, ...]
    exclude: tuple[str, ...]
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
    query: str | None = None
    evolve_rules: frozenset[str] = frozenset()
    """The rules of `evolve` that are given."""
    new_column: str = "add"
    """What `evolve` says of fields without a column."""
    keyed_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns that `keys`, `sequence_by`, `track`, `track_except`, `time_by` and `within` name."""
    interval: Mapping[str, str] = field(default_factory=dict)
    """The columns that `history` makes, and the option that names each."""

    @property
    def reshapes(self) -> bool:
        """Whether `schema` declares the columns of the events, and the table gets others."""
        return bool(self.keys & {"select", "python"})

    def takes(self, stream: str) -> bool:
        """Whether the table takes a stream, by `streams` and `exclude`."""
        named = not self.streams or any(fnmatchcase(stream, one) for one in self.streams)
        return named and not any(fnmatchcase(stream, one) for one in self.exclude)


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
    sound: Mapping[str, Connector]
    """The sources that can be read."""
    reads: dict[str, str]
    """The tables that sources read, or that are named as sources themselves."""
    envelopes: frozenset[str] = frozenset()
    """The sources whose events are changes, with a key of their own."""
    feeds: frozenset[str] = frozenset()
    """Those among them that read the change data feed of a Delta table."""

    @property
    def shared(self) -> frozenset[str]:
        """The sources whose partitions several processes share."""
        return frozenset(name for name, one in self.sound.items() if one.shares_partitions)

    def feeds_table(self, name: str) -> bool:
        """Whether all sources of a table read a change data feed."""
        sources = self.tables[name].sources
        return bool(sources) and self.feeds.issuperset(sources or ())

    def row_keys(self, name: str) -> tuple[str, ...]:
        """What tells the rows of a table apart: its `keys`, or those of the tables that it is fed from."""
        table = self.tables[name]
        if (keys := table.keyed_by.get("keys", ())) or not self.feeds_table(name):
            return keys
        found = {self.row_keys(self.reads[one]) if one in self.reads else () for one in table.sources or ()}
        return found.pop() if len(found) == 1 else ()

    @classmethod
    def of(cls, pipeline: Pipeline) -> Outline:
        """The outline of a sound pipeline: of what it was given, as a file would hold it."""
        data = pipeline.model_dump(by_alias=True, exclude_unset=True)
        # A dump has no tests, and not the type of each source.
        tests = {name: vars(one) for name, one in pipeline.tests.items()}
        return cls.of_data(data | {"tests": tests, "sources": dict(pipeline.sources)})

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
        tests = {name: _named_in(_mapping(case)) for name, case in _mapping(data.get("tests")).items()}
        models = {name: _valid(_SOURCE, value, context) for name, value in _mapping(sources).items()}
        sound: dict[str, Connector] = {name: one for name, one in models.items() if one is not None}
        streams = {name: sound[name].known_streams() if name in sound else None for name in models}
        named = tuple(sources) if isinstance(sources, dict) else None
        wanted = {name: table.sources or () for name, table in tables.items()}
        reads = tables_read(
            {name: one.reads_table() for name, one in sound.items()},
            {name: table.path for name, table in tables.items() if table.path},
        )
        feeding = feeding_tables(named or (), wanted)
        reads |= {name: name for name in feeding}
        streams |= dict.fromkeys(feeding, ())
        changes = [name for name, one in sound.items() if one.brings_changes]
        feeds = [name for name, one in sound.items() if one.is_change_feed]
        followed = [name for name in feeding if tables[name].mode in CHANGING]
        return cls(
            named,
            tables,
            dead_letters,
            tests,
            streams,
            sound,
            reads,
            frozenset([*changes, *followed]),
            frozenset([*feeds, *followed]),
        )


def _named_in(case: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """The sources and the tables that a test names."""
    return tuple(_mapping(case.get("events"))), tuple(_mapping(case.get("tables")))


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
    with keeping_names(kept=table.get("names") == "keep"):
        return _outline_of(name, table, upkeep, context)


def _outline_of(
    name: str, table: Mapping[str, Any], upkeep: object, context: FileContext | None
) -> TableOutline:
    columns = table.get("schema")
    entries = table.get("partition_by")
    route = _valid(_ROUTE, table.get("route"), context)
    evolve = _valid(_EVOLVE, table.get("evolve")) or Evolve()
    return TableOutline(
        _valid(_LOCATION, table.get("path"), context),
        Route(route) if route else None,
        _valid(_FROM, table.get("from")),
        _valid(_STREAMS, table.get("streams")) or (),
        _valid(_STREAMS, table.get("exclude")) or (),
        {name: _column(name, text) for name, text in columns.items()} if isinstance(columns, dict) else None,
        tuple(_partition_field(entry) for entry in entries) if isinstance(entries, list | tuple) else (),
        metadata_columns(_valid(_METADATA, table.get("metadata")) or False),
        evolve.rescues,
        tuple(each for each in _sequence(table.get("drop")) if isinstance(each, str)),
        {old: new for old, new in _mapping(table.get("rename")).items() if isinstance(new, str)},
        # What a pipeline says when it is shown has these two names in every table.
        frozenset(key for key, given in table.items() if given not in (None, "", False, (), [], {}, key)),
        UpkeepOutline.of_data(name, table, upkeep),
        str(table.get("mode", "append")),
        _valid(_QUERY, table.get("query")),
        _evolve_rules(table.get("evolve")),
        evolve.new_column,
        _keyed_by(table),
        _interval(table),
    )


def _evolve_rules(given: object) -> frozenset[str]:
    return frozenset(map(str, given.values() if isinstance(given, dict) else [given] if given else []))


def _keyed_by(table: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    options = ("sequence_by", "track", "track_except", "time_by")
    named = {option: _valid(_NAMES, table.get(option)) or () for option in options}
    named["keys"] = _valid(_KEYS, table.get("keys")) or ()
    column = _mapping(table.get("within")).get("column")
    return named | {"within": (column,) if isinstance(column, str) else ()}


def _interval(table: Mapping[str, Any]) -> dict[str, str]:
    if table.get("mode") != "history":
        return {}
    return interval_columns(table)


def _column(name: str, text: object) -> pa.Field | None:
    return column(name, text) if isinstance(text, str) and _valid(_COLUMN, text) is not None else None


def _partition_field(entry: object) -> PartitionField | None:
    try:
        return parse_partition_field(entry) if isinstance(entry, str) else None
    except ValueError:
        return None
