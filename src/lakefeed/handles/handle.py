"""The handle of one table: what the pipeline file says about it, and the table itself once it exists."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from shlex import quote
from typing import Any

import pyarrow as pa

from lakefeed.columns.change_columns import ChangeColumns
from lakefeed.columns.column_types import stored, type_text
from lakefeed.columns.mapping import MODE
from lakefeed.errors import StoreUnavailable, TableError
from lakefeed.events import Offsets
from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget, staged_target
from lakefeed.formats import Format
from lakefeed.handles.functions import UserFunctions
from lakefeed.handles.read_columns import read_columns
from lakefeed.handles.shaping import CONDITIONS, Shaping
from lakefeed.handles.table_columns import TableColumns
from lakefeed.handles.table_plan import StagedPosition, Stamp, TableId, TablePlan
from lakefeed.handles.widening import widenable
from lakefeed.pipeline.options.changes import KEYED, column_problems
from lakefeed.pipeline.options.partition_by import check_partitioning
from lakefeed.pipeline.options.route import Key
from lakefeed.pipeline.options.sort_by import check_order
from lakefeed.pipeline.pipeline import DeadLetters, Table
from lakefeed.pipeline.upkeep import Upkeep
from lakefeed.rows.changes import ChangePlan
from lakefeed.rows.envelope import json_names
from lakefeed.rows.user_code import UserFunction
from lakefeed.stores import drop_files, open_store
from lakefeed.tables.allow_vectors import allow_vectors
from lakefeed.tables.data_files import data_files
from lakefeed.tables.positions import feeders_of
from lakefeed.tables.schema import OtherType, add_columns, keep_properties, missing_columns
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import AppendMode
from lakefeed.tables.write.mode import WriteMode

COPIES = ("upsert", "history")
"""The modes whose tables hold the rows of a stream as they are there, or were."""
_ALTER_ATTEMPTS = 10


class TableHandle(TableColumns):
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
        modes: Callable[[Callable[[Shape], FileTarget]], WriteMode] | None = None,
        key: Key = (),
        functions: UserFunctions | None = None,
        shaping: Shaping | None = None,
        envelopes: ChangeColumns | None = None,
        log: ChangeColumns | None = None,
        key_formats: tuple[Format, ...] = (),
        letters: DeadLetters | None = None,
    ) -> None:
        self._functions = functions
        self._envelopes, self._log, self._key_formats = envelopes, log, key_formats
        self.id = TableId(name, key)
        self.name = str(self.id)
        self.mode = modes(self.target) if modes else AppendMode()
        """How a batch becomes a commit."""
        self.file = file
        self.sync = sync
        self.path = path
        self.storage = dict(storage)
        super().__init__(spec, shaping, letters)
        self.upkeep = upkeep
        self.keeps_type: set[str] = set()
        """Columns with values that the type of their stream does not hold; they stay as they are."""
        self.narrow: dict[str, str] = {}
        """Columns of the events whose rows or options do not allow a wider type, each with the reason."""
        self.is_replaced = False
        """Whether the next rows replace all rows: they are those of a new snapshot of the only stream."""
        self.new_types = pa.schema([])
        """Columns in the types that they get in the commit that replaces all rows."""
        self.lock = threading.RLock()
        self.store = open_store(path, self.storage)
        self._table: LakeTable | None = None
        self.asks = False
        """Whether tasks ask the source for all that changes leave out: rows of the table may lack it."""
        self.unknown_changes: frozenset[StagedPosition] = frozenset()
        """Changes that leave out values which nothing else has."""

    @property
    def table(self) -> LakeTable:
        """The table, which must exist."""
        assert self._table is not None, f"{self.name} has not been opened"
        return self._table

    @property
    def python(self) -> UserFunction | None:
        """The function of the user's that the rows pass."""
        return self._functions.of(self.id.table) if self._functions else None

    @property
    def takes_change_events(self) -> bool:
        """Whether its events say themselves what they do to rows."""
        return self._envelopes is not None or self._log is not None

    @property
    def properties(self) -> dict[str, str]:
        """The table properties that the file asks for, those of its log among them."""
        log = self.upkeep.log.properties if self.upkeep else {}
        return {**(self.spec.properties if self.spec else {}), **log}

    @property
    def _mapping(self) -> dict[str, str]:
        """The property that gives a new table column mapping, where the file asks for that."""
        return {MODE: "name"} if self.spec and self.spec.keeps_names else {}

    @property
    def exists(self) -> bool:
        """Whether the table has been opened or created."""
        return self._table is not None

    @property
    def follows_database(self) -> bool:
        """Whether its rows are those of tables of a database, by changes that come in the order of that."""
        return self._envelopes is not None and self._envelopes.follows_keys

    @property
    def is_fed(self) -> bool:
        """Whether Lakefeed has written rows to the table."""
        return self._table is not None and bool(feeders_of(dict(self._table.transactions)))

    def drop(self, files: Iterable[WrittenFile]) -> None:
        """Delete files that no version refers to; a file that cannot be deleted stays for vacuum."""
        drop_files(self.store, (file.path for file in files))

    def open(self, pipeline: str) -> LakeTable | None:
        """Open the table, or look again at what others have done to it, and make it what the file says."""
        with self.lock:
            if self._table is not None:
                self._table.refresh()
                self._table.confirm()
            if (table := self.look()) is None:
                self._refuse_if_not_to_be_created()
            else:
                self._conform(table, pipeline)
            return table

    def look(self) -> LakeTable | None:
        """Open the table as it is, and leave it so; None where there is none."""
        with self.lock:
            if self._table is None:
                self._table = LakeTable.open(
                    self.name, self.path, self.storage, self.store, durable=self.sync
                )
            return self._table

    def create(
        self,
        columns: pa.Schema,
        transactions: Mapping[str, int],
        commit_info: Mapping[str, Any],
        kept: Mapping[str, str] | None = None,
    ) -> LakeTable:
        """Create the table for these columns, with its first positions, unless another flow has.

        `kept` are properties for columns that only the events have.
        """
        with self.lock:
            if self._table is not None:
                return self._table
            fields = self.partition_fields
            check_partitioning(fields, columns)
            schema = self.table_schema(columns)
            self._check_order(schema)
            self._check_keys(schema)
            self._table = LakeTable.create(
                self.name,
                self.path,
                self.storage,
                self.store,
                schema=schema,
                partition_by=[field.name for field in fields],
                properties={**self.properties, **(kept or {}), **self._mapping},
                transactions=transactions,
                commit_info=commit_info,
                durable=self.sync,
            )
            if self.spec and self.spec.updates == "merge_on_read":
                allow_vectors(self._table, {"pipeline": commit_info.get("pipeline"), "kind": "alter"})
            return self._table

    def add(
        self, proposal: pa.Schema, commit_info: Mapping[str, Any], returned: pa.Schema | None = None
    ) -> list[pa.Field]:
        """Add the proposed columns that the table lacks; somebody else may have added them meanwhile.

        What is kept of the events comes first: killed in between, the next run knows what to add.
        """
        with self.lock:
            self.table.refresh()
            self.table.confirm()
            columns, kept = self.grown(proposal, returned)
            keep_properties(self.table, kept, commit_info)
            return self._add_missing(self.table, self._comparable(self.table, stored(columns)), commit_info)

    def _comparable(self, table: LakeTable, columns: pa.Schema) -> pa.Schema:
        """The columns that must be in the table as they are; `select` may make narrower ones."""
        if self.spec is None or self.shaping is None or not self.spec.select:
            return columns
        own = pa.schema([one for one in table.schema if one.name not in self.made])
        return self.shaping.lacking(self.name, own, columns)

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
            shape = self._table.shape if self._table else None
        if shape is None or not len(self.assumed):
            return shape
        return shape.with_columns(pa.schema([*shape.schema, *stored(self.assumed)]))

    def plan(
        self, shape: Shape | None, rows_from: Offsets, pending: Mapping[str, frozenset[Stamp]]
    ) -> TablePlan:
        """How tasks write to a table of this shape; None where there is no table yet."""
        assert self.spec is not None and self.shaping is not None
        columns, events = self._columns(shape), self.events_at(shape)
        returned = self.shaping.returned(shape, columns) if self.spec.python else None
        read = returned if self.spec.python else events
        projection = self.shaping.settled(read, columns) if shape else None
        changes = self.change_plan(columns, read)
        is_open = shape is not None and events is not None and not self.has_exact_names
        widens, fixed = widenable(self.spec, events, self.narrow) if is_open else (frozenset(), {})
        return TablePlan(
            name=self.name,
            path=self.path,
            storage=self.storage,
            columns=columns,
            target=self.task_target(shape) if shape else None,
            partition_by=self.partition_fields,
            metadata=self.metadata,
            rows_from=rows_from,
            pending=pending,
            rules=self.rules(events),
            follows=self.follows(columns) if shape else frozenset(),
            widens=widens,
            fixed=fixed,
            rescues=self.rescues,
            rename=self.rename_of(events),
            shuffles=self.spec.shuffle_by_partition,
            reshapes=self.spec.reshapes,
            events=events if self.spec.reshapes else None,
            projection=projection,
            selects=self.spec.select is not None,
            uses_sql=self.shaping.uses_sql,
            python=self.python,
            changes=changes,
            reads=read_columns(self.spec, self.rename_of(events), projection, changes),
            log=self._log,
            asks=self.asks,
            unknown_changes=self.unknown_changes,
            returned=returned,
        )

    def follows(self, columns: pa.Schema | None) -> frozenset[str]:
        """The columns of a copy whose types follow those of the stream that is copied.

        Declared types stay, those that SQL or a function makes are not the stream's, and the files of a
        partition column lie in folders with its values. A nested column gets another type only with rows
        that replace all others.
        """
        spec = self.spec
        if spec is None or spec.mode not in COPIES or spec.reshapes:
            return frozenset()
        if spec.evolve.type_change not in ("widen", "dead_letter"):
            return frozenset()
        own = {*(spec.declared or pa.schema([])).names, *(one.name for one in self.partition_fields)}
        if self.is_replaced:
            own |= {*spec.sequence_by, *(one.column for one in self.partition_fields)}
        names = [one.name for one in columns or () if self.is_replaced or not pa.types.is_nested(one.type)]
        return frozenset(name for name in names if name not in own | self.keeps_type | self.converts)

    def expect_replacement(self, *, is_replaced: bool) -> None:
        """Take note whether the rows that come next replace all rows of the table."""
        if is_replaced and not self.is_replaced:
            # What old values did not allow is asked for again: they go.
            self.keeps_type.clear()
            self.converts.clear()
        if not is_replaced:
            self.new_types = pa.schema([])
        self.is_replaced = is_replaced

    def becomes(self, shape: Shape | None) -> Shape | None:
        """The shape that the table gets with the rows that replace all others; None where it stays."""
        if shape is None or not len(self.new_types):
            return None
        new = {one.name: one for one in self.new_types}
        return shape.with_columns(pa.schema([new.get(one.name, one) for one in shape.schema]))

    def change_plan(self, columns: pa.Schema | None, read: pa.Schema | None) -> ChangePlan | None:
        """How rows of events are changes, in a table whose rows have keys.

        `columns` are those of the table, `read` those that conditions are over.
        """
        if self.spec is None or self.spec.mode not in KEYED:
            return None
        from lakefeed.formats.key import KeyNames

        # With `ignore_nulls`, a null says nothing: whether a row lacks something shows when it is complete.
        required = [field for field in columns or () if not field.nullable and not self.spec.ignore_nulls]
        return ChangePlan(
            self.spec.keys,
            self.spec.sequence_by,
            # A deletion need not have them.
            required=pa.schema(required) if self.spec.mode != "deduplicate" else None,
            applies=self.spec.mode != "deduplicate",
            keeps_past=self.spec.mode == "history",
            partition_columns=tuple(field.name for field in self.partition_fields),
            envelopes=self._envelopes,
            rename=self.rename,
            # A change event of a database tells when it deleted, which a tombstone behind it does not.
            tombstones=bool(self._key_formats) and (self.spec.mode == "upsert" or not self._envelopes),
            undated=self.spec.mode == "upsert",
            time_by=self.spec.time_by,
            key_names=KeyNames(self._key_formats) if self._key_formats else json_names,
            stream=self.spec.stream_key,
            **{option: self.shaping.condition(option, read) for option in CONDITIONS if self.shaping},
        )

    def task_target(self, shape: Shape) -> FileTarget:
        """How tasks write: files of the table, or changes that the driver applies."""
        target = self.target(shape)
        if self.spec is None or self.spec.mode not in KEYED:
            return target
        brought = [field for field in target.schema if field.name not in self.spec.interval]
        return staged_target(replace(target, schema=pa.schema(brought)))

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

    def changes(self, table: LakeTable) -> list[pa.Field]:
        """Columns that the table lacks by the pipeline file. Raises TableError where the two do not fit."""
        if self.spec is None:
            lacking = self._missing(table, self.letters_schema)
            if table.shape.is_mapped:
                raise TableError(
                    f"{self.path} has column mapping, which a table of dead letters may not have.\n"
                    "Choose another path for `dead_letters`."
                )
            if self.is_ingest_form:
                return lacking
            if table.partition_columns or lacking:
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
        if self.spec.keeps_names and not table.shape.is_mapped:
            raise TableError(
                f"table {self.name}: {self.path} has no column mapping, which `names: keep` needs.\n"
                "Write `names: clean`, choose another path, or turn it on with Spark: ALTER TABLE "
                f"delta.`{self.path}` SET TBLPROPERTIES ('{MODE}' = 'name')"
            )
        self.mode.check(table.shape, self.path)
        missing = self._missing(table, self._comparable(table, self._wanted()))
        if self.shaping and not self.spec.select:
            # `where` and `expect` alone: what is wrong with them is told before anything is read.
            self.shaping.projection(self.rows_read())
        if self.shaping:
            for option in CONDITIONS:
                self.shaping.condition(option, self.rows_read())
        self._check_order(pa.schema([*table.schema, *missing]))
        return missing

    def lacking(self, table: LakeTable, columns: pa.Schema) -> list[pa.Field]:
        """What of the columns that events bring or `select` makes the table lacks."""
        return self._missing(table, self._comparable(table, stored(columns)))

    def _check_order(self, schema: pa.Schema) -> None:
        """Raise TableError where rows cannot be sorted as the file says.

        Tables of a route have the columns of their own events: what one lacks, its rows are not sorted by.
        """
        if self.spec is None:
            return
        names = [name for name in self.spec.sort_by if name in schema.names or not self.spec.route]
        check_order(names, schema, [field.name for field in self.partition_fields])

    def _check_keys(self, schema: pa.Schema) -> None:
        """Raise TableError where a new table would lack a column that its mode goes by."""
        if self.spec is None or self.spec.mode not in KEYED:
            return
        named = {"keys": self.spec.keys, "sequence_by": self.spec.sequence_by}
        named |= {"within": (self.spec.within.column,) if self.spec.within else ()}
        named |= {"track": self.spec.track or (), "track_except": self.spec.track_except}
        named |= {"time_by": (self.spec.time_by,) if self.spec.time_by else ()}
        for option, problem in column_problems(named, {field.name: field for field in schema}):
            raise TableError(
                f"table {self.name}: `{option}`: {problem}.\nDeclare it in `schema`, or correct `{option}`."
            )

    def _conform(self, table: LakeTable, pipeline: str) -> None:
        commit_info = {"pipeline": pipeline, "kind": "alter"}
        self._refuse_rows_of_no_stream(table)
        if self.changes(table):
            wanted = self._wanted() if self.spec else self.letters_schema
            self._add_missing(table, self._comparable(table, wanted), commit_info)
        if self.spec and self.spec.updates == "merge_on_read":
            allow_vectors(table, commit_info)
        kept = self.shaping.kept(self.events()) if self.shaping else {}
        keep_properties(table, {**self.properties, **kept}, commit_info)

    def _missing(self, table: LakeTable, wanted: pa.Schema) -> list[pa.Field]:
        try:
            return missing_columns(table.schema, wanted)
        except OtherType as error:
            declared = self.spec.declared if self.spec else None
            mapped = table.shape.is_mapped
            raise error.with_remedy(self.name, self.path, declared, self.file, is_mapped=mapped) from error
        except TableError as error:
            raise TableError(f"table {self.name}: {self.path}: {error}") from error

    def _refuse_rows_of_no_stream(self, table: LakeTable) -> None:
        column = self.spec.stream_key if self.spec else None
        if column is not None and column not in table.schema.names and data_files(table):
            raise TableError(
                f"table {self.name}: it takes several streams by now, and its rows do not have the column "
                f"{column}, which tells those of each apart.\n"
                "Give the other streams a table of their own; or run "
                f"`lakefeed table drop {quote(self.path)} --yes`, and the next run reads all rows again."
            )

    def _refuse_if_not_to_be_created(self) -> None:
        if self.spec is not None and not self.spec.create:
            raise TableError(
                f"table {self.name}: there is no Delta table at {self.path} and `create` is false.\n"
                "Create the table, correct `path`, or set `create: true`."
            )
