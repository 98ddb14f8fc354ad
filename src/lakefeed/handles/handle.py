"""The handle of one table: what the pipeline file says about it, and the table itself once it exists."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any

import pyarrow as pa

from lakefeed.columns.change_columns import ChangeColumns
from lakefeed.columns.column_types import stored, type_text
from lakefeed.errors import StoreUnavailable, TableError
from lakefeed.events import Offsets
from lakefeed.files.parquet import FileTarget, staged_target
from lakefeed.formats import Format
from lakefeed.handles.functions import UserFunctions
from lakefeed.handles.shaping import CONDITIONS, Shaping
from lakefeed.handles.table_columns import TableColumns
from lakefeed.handles.table_plan import Stamp, TableId, TablePlan
from lakefeed.pipeline.options.changes import KEYED, column_problems
from lakefeed.pipeline.options.partition_by import check_partitioning
from lakefeed.pipeline.options.route import Key
from lakefeed.pipeline.options.sort_by import check_order
from lakefeed.pipeline.pipeline import DeadLetters, Table
from lakefeed.pipeline.upkeep import Upkeep
from lakefeed.rows.changes import ChangePlan
from lakefeed.rows.envelope import json_names
from lakefeed.rows.user_code import UserFunction
from lakefeed.stores import open_store
from lakefeed.tables.allow_vectors import allow_vectors
from lakefeed.tables.positions import feeders_of
from lakefeed.tables.schema import OtherType, add_columns, keep_properties, missing_columns
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import AppendMode
from lakefeed.tables.write.mode import WriteMode

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
        key_formats: tuple[Format, ...] = (),
        letters: DeadLetters | None = None,
    ) -> None:
        self._functions = functions
        self._envelopes, self._key_formats = envelopes, key_formats
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
        self.lock = threading.RLock()
        self.store = open_store(path, self.storage)
        self._table: LakeTable | None = None

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
    def properties(self) -> dict[str, str]:
        """The table properties that the file asks for, those of its log among them."""
        log = self.upkeep.log.properties if self.upkeep else {}
        return {**(self.spec.properties if self.spec else {}), **log}

    @property
    def exists(self) -> bool:
        """Whether the table has been opened or created."""
        return self._table is not None

    @property
    def is_fed(self) -> bool:
        """Whether Lakefeed has written rows to the table."""
        return self._table is not None and bool(feeders_of(dict(self._table.transactions)))

    def delete(self, path: str) -> None:
        """Delete a file that no version refers to; a file that cannot be deleted stays for vacuum."""
        with suppress(Exception):
            self.store.delete_file(path)

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
                properties={**self.properties, **(kept or {})},
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
            return self._table.shape if self._table else None

    def plan(
        self, shape: Shape | None, rows_from: Offsets, pending: Mapping[str, frozenset[Stamp]]
    ) -> TablePlan:
        """How tasks write to a table of this shape; None where there is no table yet."""
        assert self.spec is not None and self.shaping is not None
        columns, events = self._columns(shape), self._events(shape)
        returned = self.shaping.returned(shape, columns) if self.spec.python else None
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
            rescues=self.rescues,
            rename=self.rename,
            shuffles=self.spec.shuffle_by_partition,
            reshapes=self.spec.reshapes,
            events=events if self.spec.reshapes else None,
            projection=self.shaping.settled(returned if self.spec.python else events, columns)
            if shape
            else None,
            selects=self.spec.select is not None,
            uses_sql=self.shaping.uses_sql,
            python=self.python,
            changes=self.change_plan(columns, returned if self.spec.python else events),
            returned=returned,
        )

    def change_plan(self, columns: pa.Schema | None, read: pa.Schema | None) -> ChangePlan | None:
        """How rows of events are changes, in a table whose rows have keys.

        `columns` are those of the table, `read` those that conditions are over.
        """
        if self.spec is None or self.spec.mode not in KEYED:
            return None
        from lakefeed.formats.key import KeyNames

        names = {field.name for field in self.partition_fields}
        # With `ignore_nulls`, a null says nothing: whether a row lacks something shows when it is complete.
        required = [field for field in columns or () if not field.nullable and not self.spec.ignore_nulls]
        return ChangePlan(
            self.spec.keys,
            self.spec.sequence_by,
            # A deletion need not have them.
            required=pa.schema(required) if self.spec.mode != "deduplicate" else None,
            partition_keys=tuple(name for name in self.spec.keys if name in names),
            envelopes=self._envelopes,
            # A change event of a database tells when it deleted, which a tombstone behind it does not.
            tombstones=bool(self._key_formats) and (self.spec.mode == "upsert" or not self._envelopes),
            undated=self.spec.mode == "upsert",
            key_names=KeyNames(self._key_formats) if self._key_formats else json_names,
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
        for option, problem in column_problems(named, {field.name: field for field in schema}):
            raise TableError(
                f"table {self.name}: `{option}`: {problem}.\nDeclare it in `schema`, or correct `{option}`."
            )

    def _conform(self, table: LakeTable, pipeline: str) -> None:
        commit_info = {"pipeline": pipeline, "kind": "alter"}
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
            raise error.with_remedy(self.name, self.path, declared, self.file) from error
        except TableError as error:
            raise TableError(f"table {self.name}: {self.path}: {error}") from error

    def _refuse_if_not_to_be_created(self) -> None:
        if self.spec is not None and not self.spec.create:
            raise TableError(
                f"table {self.name}: there is no Delta table at {self.path} and `create` is false.\n"
                "Create the table, correct `path`, or set `create: true`."
            )
