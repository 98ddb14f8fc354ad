"""The tables of a run: opened once, shared by all flows, each changed by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.events import Offsets
from lakefeed.handles.functions import UserFunctions
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.modes import mode_of, with_envelopes
from lakefeed.handles.shaping import Analyze, Shaping, located, nobody
from lakefeed.handles.table_plan import Stamp, TableId
from lakefeed.pipeline.options.route import Key, Route
from lakefeed.pipeline.pipeline import Pipeline, Table
from lakefeed.rows.dead_letter import DEAD_LETTER_SCHEMA
from lakefeed.sources import source_of
from lakefeed.tables.data_files import data_files, read_rows
from lakefeed.tables.rewrite.conditions import quoted
from lakefeed.tables.routes import keys_in
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.overwrite import OverwriteMode

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
        self.handles = {
            name: self._handle(name, table.path, table)
            for name, table in pipeline.tables.items()
            if not table.route
        }
        self.routes = {
            name: TableHandle(
                name,
                table.routed.base,
                pipeline.storage_for(name),
                table,
                None,
                functions=self.functions,
                shaping=self._shaping(name, table),
            )
            for name, table in pipeline.tables.items()
            if table.routed
        }
        """What stands for all tables of a route; there is no table at its path."""
        self.dead_letters = TableHandle(
            DEAD_LETTERS,
            pipeline.dead_letters_path,
            pipeline.dead_letters_storage,
            None,
            pipeline.dead_letters_upkeep,
            sync=pipeline.sync,
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
        brought = [pipeline.sources[name].brings_changes for name in spec.from_ if name in pipeline.sources]
        envelopes = spec.takes_envelopes and bool(brought) and all(brought)
        if envelopes:
            spec = with_envelopes(spec)
        return TableHandle(
            table,
            path,
            storage,
            spec,
            upkeep,
            sync=pipeline.sync,
            file=pipeline.file_argument,
            modes=lambda targets: mode_of(pipeline.name, spec, targets),
            key=key,
            functions=self.functions,
            envelopes=envelopes,
            shaping=self._shaping(table, spec),
        )

    def _shaping(self, table: str, spec: Table) -> Shaping:
        return Shaping(spec, self._analyze, partial(located, self.pipeline, table))

    def routed_handles(self, table: str) -> dict[Key, TableHandle]:
        """The tables that a route has made so far, by value."""
        route = self.pipeline.tables[table].routed
        assert route is not None
        keys = keys_in(route, self.pipeline.storage_for(table))
        return {key: self.routed_handle(table, key) for key in keys if key not in self.reserved(route)}

    def reserved(self, route: Route) -> frozenset[Key]:
        """The values whose table would lie where the dead letters are; other tables the file refuses."""
        key = route.key_of(self.dead_letters.path)
        return frozenset() if key is None else frozenset([key])

    def open_dead_letters(self) -> LakeTable:
        """The dead-letter table, created when the first letter is due."""
        with self.dead_letters.lock:
            found = self.dead_letters.open(self.pipeline.name)
            commit_info = {"pipeline": self.pipeline.name, "kind": "create"}
            return found or self.dead_letters.create(DEAD_LETTER_SCHEMA, {}, commit_info)

    def end_runs(self, names: Iterable[str]) -> None:
        """Tell tables that each run replaces that this one is over: the next one starts anew."""
        for name in names:
            handle = self.handles.get(name)
            if handle and handle.spec and handle.exists and isinstance(handle.mode, OverwriteMode):
                with handle.lock:
                    handle.mode.end(handle.table, handle.spec.commit_retries)

    def dead_letters_from(self, source: str, table: str, start: Offsets) -> dict[str, frozenset[Stamp]]:
        """The events from `start` on that are dead letters of a table, by partition."""
        partition_of = source_of(self.pipeline, source).partition_of
        of = {"pipeline": self.pipeline.name, "source": source, "table": table}
        names = (*of, "topic", "partition", "offset", "timestamp")
        schema = pa.schema([DEAD_LETTER_SCHEMA.field(name) for name in names])
        letters = self.dead_letters.table
        found: dict[str, set[Stamp]] = {partition: set() for partition in start}
        first = min(start.values())
        for batch in read_rows(letters, data_files(letters, f"{quoted('offset')} >= {first}"), schema):
            wanted = pc.greater_equal(batch.column("offset"), pa.scalar(first, pa.int64()))
            for name, value in of.items():
                wanted = pc.and_(wanted, pc.equal(batch.column(name), value))
            rows = batch.filter(wanted)
            # As a number: a timestamp may lie beyond what Python can count.
            moments = rows.column("timestamp").cast(pa.int64()).to_pylist()
            streams, numbers, offsets = (rows.column(name).to_pylist() for name in names[3:6])
            for topic, number, offset, moment in zip(streams, numbers, offsets, moments, strict=True):
                partition = partition_of(topic, number)
                if partition in start and offset >= start[partition]:
                    found[partition].add((offset, moment))
        return {partition: frozenset(stamps) for partition, stamps in found.items()}
