"""The tables of a run: opened once, shared by all flows, each changed by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from lakefeed.columns.column_types import meant, stored, type_text
from lakefeed.errors import StoreUnavailable, TableError
from lakefeed.events import Offsets
from lakefeed.files.parquet import FileTarget
from lakefeed.formats import Rules
from lakefeed.handles.table_plan import Stamp, TableId, TablePlan
from lakefeed.pipeline.options.evolve import RESCUED
from lakefeed.pipeline.options.metadata import MetadataColumns
from lakefeed.pipeline.options.partition_by import PartitionField, check_partitioning
from lakefeed.pipeline.options.route import Key, Route
from lakefeed.pipeline.options.sort_by import check_order
from lakefeed.pipeline.pipeline import Pipeline, Table
from lakefeed.pipeline.upkeep import Upkeep
from lakefeed.rows.dead_letter import DEAD_LETTER_SCHEMA
from lakefeed.sources import source_of
from lakefeed.stores import open_store
from lakefeed.tables.routes import keys_in
from lakefeed.tables.schema import OtherType, add_columns, keep_properties, missing_columns
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import AppendMode
from lakefeed.tables.write.mode import WriteMode
from lakefeed.tables.write.overwrite import OverwriteMode

DEAD_LETTERS = "dead letters"
_ALTER_ATTEMPTS = 10


class TableHandle:
    """What the file says about a table, and the table itself once it exists."""

    def __init__(
        self,
        name: str,
        path: str,
        storage: Mapping[str, str],
        spec: Table | None,
        upkeep: Upkeep | None = None,
        *,
        sync: bool = True,
        file: str = "FILE",
        mode: WriteMode | None = None,
        key: Key = (),
    ) -> None:
        self.id = TableId(name, key)
        self.name = str(self.id)
        self.mode = mode or AppendMode()
        """How a batch becomes a commit."""
        self.file = file
        self.sync = sync
        self.path = path
        self.storage = dict(storage)
        self.spec = spec
        self.upkeep = upkeep
        self.lock = threading.RLock()
        self.store = open_store(path, self.storage)
        self._table: LakeTable | None = None

    @property
    def table(self) -> LakeTable:
        """The table, which must exist."""
        assert self._table is not None, f"{self.name} has not been opened"
        return self._table

    @property
    def partition_fields(self) -> tuple[PartitionField, ...]:
        """The entries of `partition_by`."""
        return self.spec.partition_fields if self.spec else ()

    @property
    def metadata(self) -> MetadataColumns:
        """The columns that say where events came from."""
        return self.spec.metadata_columns if self.spec else MetadataColumns()

    def rules(self, columns: pa.Schema | None) -> Rules:
        """What becomes of events that do not fit; while columns are inferred, every field is welcome."""
        assert self.spec is not None
        evolve, rename = self.spec.evolve, self.spec.rename
        filled = {new for new in rename.values() if new not in rename}
        return Rules(
            new_column="add" if columns is None else evolve.new_column,
            type_change=evolve.type_change,
            dropped=frozenset(self.spec.drop),
            taken=frozenset(name.lower() for name in {*self.made, *filled}),
            renamed=frozenset(rename),
        )

    @property
    def rescues(self) -> bool:
        """Whether the table keeps what does not fit."""
        return self.spec is not None and self.spec.evolve.rescues

    @property
    def rename(self) -> Mapping[str, str]:
        """Fields of the events that have another name in the table."""
        return self.spec.rename if self.spec else {}

    @property
    def made(self) -> dict[str, str]:
        """Columns that no event has, and the key of the pipeline file that makes them."""
        made = dict.fromkeys(self.metadata.schema.names, "metadata")
        made |= {field.name: "partition_by" for field in self.partition_fields if field.derived}
        return made | ({RESCUED: "evolve"} if self.rescues else {})

    @property
    def properties(self) -> dict[str, str]:
        """The table properties that the file asks for, those of its log among them."""
        log = self.upkeep.log.properties if self.upkeep else {}
        return {**(self.spec.properties if self.spec else {}), **log}

    @property
    def exists(self) -> bool:
        """Whether the table has been opened or created."""
        return self._table is not None

    def delete(self, path: str) -> None:
        """Delete a file that no version refers to; a file that cannot be deleted stays for vacuum."""
        with suppress(Exception):
            self.store.delete_file(path)

    def open(self, pipeline: str) -> LakeTable | None:
        """Open the table, or look again at what others have done to it, and make it what the file says."""
        with self.lock:
            if self._table is None:
                self._table = LakeTable.open(
                    self.name, self.path, self.storage, self.store, durable=self.sync
                )
            else:
                self._table.refresh()
                self._table.confirm()
            if self._table is None:
                self._refuse_if_not_to_be_created()
            else:
                self._conform(self._table, pipeline)
            return self._table

    def look(self) -> LakeTable | None:
        """Open the table as it is, and leave it so; None where there is none."""
        with self.lock:
            if self._table is None:
                self._table = LakeTable.open(
                    self.name, self.path, self.storage, self.store, durable=self.sync
                )
            return self._table

    def create(
        self, columns: pa.Schema, transactions: Mapping[str, int], commit_info: Mapping[str, Any]
    ) -> LakeTable:
        """Create the table for these declared columns, with its first positions, unless another flow has."""
        with self.lock:
            if self._table is not None:
                return self._table
            fields = self.partition_fields
            check_partitioning(fields, columns)
            schema = self.table_schema(columns)
            self._check_order(schema)
            self._table = LakeTable.create(
                self.name,
                self.path,
                self.storage,
                self.store,
                schema=schema,
                partition_by=[field.name for field in fields],
                properties=self.properties,
                transactions=transactions,
                commit_info=commit_info,
                durable=self.sync,
            )
            return self._table

    def add(self, proposal: pa.Schema, commit_info: Mapping[str, Any]) -> list[pa.Field]:
        """Add the proposed columns that the table lacks; somebody else may have added them meanwhile."""
        with self.lock:
            self.table.refresh()
            self.table.confirm()
            return self._add_missing(self.table, stored(proposal), commit_info)

    def _add_missing(
        self, table: LakeTable, wanted: pa.Schema, commit_info: Mapping[str, Any]
    ) -> list[pa.Field]:
        """Add what the table lacks, looking again whenever another writer was faster."""
        for _ in range(_ALTER_ATTEMPTS):
            columns = self._missing(table, wanted)
            if not columns:
                return []
            named = {field.name: type_text(field.type) for field in columns}
            if add_columns(table, columns, {**commit_info, "columns": named}):
                return columns
        raise StoreUnavailable(
            f"table {self.name}: other writers changed {self.path} {_ALTER_ATTEMPTS} times while columns "
            f"were added."
        )

    @property
    def shape(self) -> Shape | None:
        """What the table is now; None while there is none."""
        with self.lock:
            return self._table.shape if self._table else None

    def columns(self) -> pa.Schema | None:
        """The columns to decode, in declared types; None while they are to be inferred."""
        return self._columns(self.shape)

    def _columns(self, shape: Shape | None) -> pa.Schema | None:
        declared = self.spec.declared if self.spec else None
        if shape is None:
            return declared
        known = {field.name: field for field in declared or ()}
        have = [meant(field) for field in shape.schema if field.name not in self.made]
        return pa.schema([_declared(field, known.get(field.name)) for field in have])

    def plan(
        self, shape: Shape | None, rows_from: Offsets, pending: Mapping[str, frozenset[Stamp]]
    ) -> TablePlan:
        """How tasks write to a table of this shape; None where there is no table yet."""
        columns = self._columns(shape)
        return TablePlan(
            name=self.name,
            path=self.path,
            storage=self.storage,
            columns=columns,
            target=self.target(shape) if shape else None,
            partition_by=self.partition_fields,
            metadata=self.metadata,
            rows_from=rows_from,
            pending=pending,
            rules=self.rules(columns),
            rescues=self.rescues,
            rename=self.rename,
            shuffles=self.spec is not None and self.spec.shuffle_by_partition,
        )

    def target(self, shape: Shape) -> FileTarget:
        """How files of a table of this shape are written."""
        assert self.spec is not None
        return FileTarget(
            shape.schema,
            partition_columns=shape.partition_columns,
            compression=self.spec.compression,
            target_file_size=self.spec.target_file_size,
            max_rows_per_file=self.spec.max_rows_per_file,
            properties=shape.properties,
            sync=self.sync,
            sort_by=tuple(name for name in self.spec.sort_by if name in shape.schema.names),
            prefix=self.spec.file_name.prefix,
            naming=self.spec.file_name.strategy,
        )

    def table_schema(self, columns: pa.Schema) -> pa.Schema:
        """What the table has when events have these declared columns: further columns are made."""
        if self.spec is None:
            return DEAD_LETTER_SCHEMA
        made = [
            pa.field(field.name, field.arrow_type(stored(columns).field(field.column).type))
            for field in self.spec.partition_fields
            if field.derived
        ]
        return pa.schema([*stored(columns), *made, *self._added_columns()])

    def _added_columns(self) -> list[pa.Field]:
        """The columns that hold what is not in the columns of the events."""
        rescued = [pa.field(RESCUED, pa.string())] if self.rescues else []
        return [*rescued, *self.metadata.schema]

    def changes(self, table: LakeTable) -> list[pa.Field]:
        """Columns that the table lacks by the pipeline file. Raises TableError where the two do not fit."""
        if self.spec is None:
            if table.partition_columns or self._missing(table, DEAD_LETTER_SCHEMA):
                raise TableError(
                    f"{self.path} is not a table of dead letters.\nChoose another path for `dead_letters`."
                )
            return []
        wanted = [field.name for field in self.spec.partition_fields]
        if table.partition_columns != wanted:
            raise TableError(
                f"table {self.name}: {self.path} is partitioned by "
                f"{table.partition_columns or 'nothing'}, the pipeline file says {wanted or 'nothing'}.\n"
                "Change `partition_by` or choose another path."
            )
        self.mode.check(table.shape, self.path)
        missing = self._missing(table, self._wanted())
        self._check_order(pa.schema([*table.schema, *missing]))
        return missing

    def _check_order(self, schema: pa.Schema) -> None:
        """Raise TableError where rows cannot be sorted as the file says.

        Tables of a route have the columns of their own events: what one lacks, its rows are not sorted by.
        """
        if self.spec is None:
            return
        names = [name for name in self.spec.sort_by if name in schema.names or not self.spec.route]
        check_order(names, schema, [field.name for field in self.partition_fields])

    def _wanted(self) -> pa.Schema:
        """The columns that the pipeline file asks for, derived ones aside."""
        assert self.spec is not None
        return pa.schema([*stored(self.spec.declared or pa.schema([])), *self._added_columns()])

    def _conform(self, table: LakeTable, pipeline: str) -> None:
        commit_info = {"pipeline": pipeline, "kind": "alter"}
        if self.changes(table):
            self._add_missing(table, self._wanted(), commit_info)
        keep_properties(table, self.properties, commit_info)

    def _missing(self, table: LakeTable, wanted: pa.Schema) -> list[pa.Field]:
        try:
            return missing_columns(table.schema, wanted)
        except OtherType as error:
            declared = self.spec.declared if self.spec else None
            raise error.with_remedy(self.name, self.path, declared, self.file) from error
        except TableError as error:
            raise TableError(f"table {self.name}: {self.path}: {error}") from error

    def _refuse_if_not_to_be_created(self) -> None:
        if self.spec is not None and not self.spec.create:
            raise TableError(
                f"table {self.name}: there is no Delta table at {self.path} and `create` is false.\n"
                "Create the table, correct `path`, or set `create: true`."
            )


class Tables:
    """All tables of one run, the dead letters among them.

    The tables of a route are found by `find_routed` and made as their values come.
    """

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self._lock = threading.RLock()
        self.handles = {
            name: self._handle(name, table.path, table)
            for name, table in pipeline.tables.items()
            if not table.route
        }
        self.routes = {
            name: TableHandle(name, table.routed.base, pipeline.storage_for(name), table, None)
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
        mode = OverwriteMode(pipeline.name) if spec.mode == "overwrite" else None
        return TableHandle(
            table,
            path,
            storage,
            spec,
            upkeep,
            sync=pipeline.sync,
            file=pipeline.file_argument,
            mode=mode,
            key=key,
        )

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
        # Imports pandas, which no command needs that only looks.
        import pyarrow.dataset as ds

        partition_of = source_of(self.pipeline, source).partition_of
        wanted = (ds.field("pipeline") == self.pipeline.name) & (ds.field("source") == source)
        wanted &= (ds.field("table") == table) & (ds.field("offset") >= min(start.values()))
        dead_letters = self.dead_letters.table.delta.to_pyarrow_dataset(filesystem=self.dead_letters.store)
        # As a number: a timestamp may lie beyond what Python can count.
        moment = ds.field("timestamp").cast(pa.int64())
        columns = {name: ds.field(name) for name in ("topic", "partition", "offset")} | {"moment": moment}
        found: dict[str, set[Stamp]] = {partition: set() for partition in start}
        for row in dead_letters.to_table(columns=columns, filter=wanted).to_pylist():
            partition = partition_of(row["topic"], row["partition"])
            if partition in start and row["offset"] >= start[partition]:
                found[partition].add((row["offset"], row["moment"]))
        return {partition: frozenset(stamps) for partition, stamps in found.items()}


def _declared(have: pa.Field, declared: pa.Field | None) -> pa.Field:
    """The table's column with the declared type, which also says how the payload writes it."""
    if declared is None:
        return have
    if pa.types.is_struct(have.type) and pa.types.is_struct(declared.type):
        known = {field.name: field for field in declared.type}
        kind = pa.struct([_declared(field, known.get(field.name)) for field in have.type])
        return pa.field(have.name, kind, have.nullable)
    return pa.field(have.name, declared.type, have.nullable)
