"""The tables of a run: opened once, shared by all flows, each changed by one thread at a time."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Iterable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.change_columns import CHANGE_FEED, DEBEZIUM, ChangeColumns
from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.columns.names import column_name_problem
from lakefeed.events import Offsets
from lakefeed.formats import Format
from lakefeed.handles.functions import UserFunctions
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.modes import mode_of, with_envelopes, with_feed
from lakefeed.handles.shaping import Analyze, Shaping, located, nobody
from lakefeed.handles.shaping_digest import shaping_digest
from lakefeed.handles.table_plan import Stamp, TableId
from lakefeed.pipeline.connectors import Connector
from lakefeed.pipeline.options.route import Key, Route
from lakefeed.pipeline.pipeline import Pipeline, Table
from lakefeed.rows.dead_letter import stored_name
from lakefeed.sources import source_of
from lakefeed.sources.subscription import is_by_stream, of_several_streams, takes_several_streams
from lakefeed.tables.data_files import data_files, read_rows
from lakefeed.tables.log.change_feed import FEED
from lakefeed.tables.positions import past_letters_id
from lakefeed.tables.routes import keys_in
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.overwrite import OverwriteMode
from lakefeed.text import in_backticks

DEAD_LETTERS = "dead letters"


class Tables:
    """All tables of one run, the dead letters among them.

    The tables of a route are found by `find_routed` and made as their values come.
    """

    def __init__(self, pipeline: Pipeline, analyze: Analyze = nobody) -> None:
        """`analyze` is asked what `select`, `where` and `expect` of a table make of its events."""
        self.pipeline = pipeline
        self.functions = UserFunctions(pipeline)
        self._analyze = analyze
        self._lock = threading.RLock()
        self._digests: dict[str, str] = {}
        self.handles = {
            name: self._handle(name, table.path, table)
            for name, table in pipeline.tables.items()
            if not table.route
        }
        self.routes = {
            name: self._handle(name, table.routed.base, table)
            for name, table in pipeline.tables.items()
            if table.routed
        }
        """What stands for all tables of a route, as events are taken like those of one table.

        There is no table at its path.
        """
        self.dead_letters = TableHandle(
            DEAD_LETTERS,
            pipeline.dead_letters_path,
            pipeline.dead_letters_storage,
            None,
            pipeline.dead_letters_upkeep,
            sync=pipeline.sync,
            letters=pipeline.dead_letters,
        )

    def find_routed(self) -> None:
        """Look for the tables that routes have made so far."""
        for name in self.routes:
            self.routed_handles(name)

    def routed_handle(self, table: str, key: Key) -> TableHandle:
        """The handle of one table of a route."""
        spec = self.pipeline.tables[table]
        assert spec.routed is not None
        name = str(TableId(table, key))
        with self._lock:
            if name not in self.handles:
                self.handles[name] = self._handle(table, spec.routed.path(key), spec, key)
            return self.handles[name]

    def _handle(self, table: str, path: str, spec: Table, key: Key = ()) -> TableHandle:
        pipeline = self.pipeline
        storage, upkeep = pipeline.storage_for(table), pipeline.upkeep_for(table)
        spec, envelopes = self._with_envelopes(table, self._with_event_names(spec))
        if key and is_by_stream(spec, self.sources_of(spec)):
            spec = spec.of_stream(key[0])
        if pipeline.tells_changes(table):
            spec = spec.model_copy(update={"properties": {**spec.properties, FEED: "true"}})
        handle = TableHandle(
            table,
            path,
            storage,
            spec,
            upkeep,
            sync=pipeline.sync,
            file=pipeline.file_argument,
            modes=lambda targets: mode_of(pipeline.name, spec, targets, envelopes),
            key=key,
            functions=self.functions,
            envelopes=envelopes,
            log=self._log_columns(spec),
            key_formats=self._key_formats(spec),
            shaping=Shaping(spec, self._analyze, partial(located, pipeline, table)),
        )
        handle.has_exact_names = any(one.types_by_stream for one in self.sources_of(spec))
        return handle

    def _with_envelopes(self, table: str, spec: Table) -> tuple[Table, ChangeColumns | None]:
        """The table as it is where its events say what they do, and by which columns they do."""
        inputs = self.sources_of(spec)
        if not (spec.takes_envelopes and inputs and all(one.brings_changes for one in inputs)):
            return spec, None
        if inputs[0].is_change_feed:
            return with_feed(spec, self.pipeline.keys_of_feeders(table)), CHANGE_FEED
        columns = inputs[0].change_columns or DEBEZIUM
        if takes_several_streams(spec, inputs):
            spec = of_several_streams(table, spec)
        return with_envelopes(spec, columns), columns

    def _with_event_names(self, spec: Table) -> Table:
        """The table with the names that fields have in events, where the file has those of the source."""
        sources = self.sources_of(spec)

        def named(name: str) -> str:
            names = {source.event_name(name) for source in sources} if column_name_problem(name) else {name}
            return names.pop() if len(names) == 1 else name

        rename = {named(old): new for old, new in spec.rename.items()}
        drop = tuple(map(named, spec.drop))
        if (rename, drop) == (spec.rename, spec.drop):
            return spec
        return spec.model_copy(update={"rename": rename, "drop": drop})

    def _log_columns(self, spec: Table) -> ChangeColumns | None:
        """By which columns all events of a table say what they do, whatever its mode is."""
        columns = [one.change_columns for one in self.sources_of(spec)]
        return columns[0] if columns and all(one == columns[0] for one in columns) else None

    def sources_of(self, spec: Table) -> list[Connector]:
        """What feeds a table: sources of the file, or other tables of it."""
        return [self.pipeline.inputs[name] for name in spec.from_]

    def _key_formats(self, spec: Table) -> tuple[Format, ...]:
        """How the keys of events are read that delete by them; deduplicate knows no deletions."""
        if spec.mode not in ("upsert", "history"):
            return ()
        sources = self.pipeline.sources
        found = [sources[name].key_format for name in spec.from_ if name in sources]
        return tuple(one for one in found if isinstance(one, Format))

    def routed_handles(self, table: str) -> dict[Key, TableHandle]:
        """The tables that a route has made so far, by value."""
        route = self.pipeline.tables[table].routed
        assert route is not None
        keys, reserved = keys_in(route, self.pipeline.storage_for(table)), self.reserved(route)
        return {key: self.routed_handle(table, key) for key in keys if key not in reserved}

    def reserved(self, route: Route) -> frozenset[Key]:
        """The values whose table would be at the path of another table of the file, or of a source's own."""
        kept = [source_of(self.pipeline, name).own_table for name in self.pipeline.sources]
        others = [handle.path for handle in self.handles.values() if not handle.id.key]
        keys = [route.key_of(path) for path in (self.dead_letters.path, *others, *kept) if path]
        return frozenset(key for key in keys if key is not None)

    def open_dead_letters(self) -> LakeTable:
        """The dead-letter table, created when the first letter is due."""
        with self.dead_letters.lock:
            found = self.dead_letters.open(self.pipeline.name)
            commit_info = {"pipeline": self.pipeline.name, "kind": "create"}
            return found or self.dead_letters.create(self.dead_letters.letters_schema, {}, commit_info)

    def end_runs(self, names: Iterable[str]) -> None:
        """Tell tables that each run replaces that this one is over: the next one starts anew."""
        for name in names:
            handle = self.handles.get(name)
            if handle and handle.spec and handle.exists and isinstance(handle.mode, OverwriteMode):
                with handle.lock:
                    handle.mode.end(handle.table, handle.spec.commit_retries)

    def shaping_of(self, table: str) -> str:
        """The digest of the shaping options of a table."""
        if table not in self._digests:
            function = self.functions.of(table)
            self._digests[table] = shaping_digest(self.pipeline.tables[table], function)
        return self._digests[table]

    def newest_past_letter(self, source: str, table: str) -> dt.datetime | None:
        """The newest `dead_at` of dead letters that are never replayed, as they are of a former table."""
        at = self.dead_letters.table.transactions.get(past_letters_id(self.pipeline.name, source, table))
        return None if at is None else pa.scalar(at, TIMESTAMP).as_py()

    def dead_letters_from(self, source: str, table: str, start: Offsets) -> dict[str, frozenset[Stamp]]:
        """The events from `start` on that are dead letters of a table, by partition; no past ones."""
        partition_of = source_of(self.pipeline, source).partition_of
        of = {"pipeline": self.pipeline.name, "source": source, "table": table}
        moment = stored_name("timestamp", ingest=self.pipeline.dead_letters.form != "lakefeed")
        names = (*of, "topic", "partition", "offset", "key", moment, "dead_at")
        past = self.newest_past_letter(source, table)
        schema = pa.schema([self.dead_letters.letters_schema.field(name) for name in names])
        letters = self.dead_letters.table
        found: dict[str, set[Stamp]] = {partition: set() for partition in start}
        first = min(start.values())
        for batch in read_rows(letters, data_files(letters, f"{in_backticks('offset')} >= {first}"), schema):
            wanted = pc.greater_equal(batch.column("offset"), pa.scalar(first, pa.int64()))
            for name, value in of.items():
                wanted = pc.and_(wanted, pc.equal(batch.column(name), value))
            if past is not None:
                wanted = pc.and_(wanted, pc.greater(batch.column("dead_at"), pa.scalar(past, TIMESTAMP)))
            rows = batch.filter(wanted)
            # As a number: a timestamp may lie beyond what Python can count.
            moments = rows.column(moment).cast(pa.int64()).to_pylist()
            streams, numbers, offsets, keys = (rows.column(name).to_pylist() for name in names[3:7])
            for topic, number, offset, key, stamp in zip(
                streams, numbers, offsets, keys, moments, strict=True
            ):
                partition = partition_of(topic, number)
                if partition in start and offset >= start[partition]:
                    found[partition].add((offset, stamp, number, key))
        return {partition: frozenset(stamps) for partition, stamps in found.items()}
