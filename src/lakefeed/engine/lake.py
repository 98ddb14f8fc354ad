"""The tables of a run: opened once, shared by all flows, each changed by one thread at a time."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa

from lakefeed.engine.plan import Stamp
from lakefeed.errors import TableError
from lakefeed.files.parquet import FileTarget
from lakefeed.pipeline.model import Pipeline, Table
from lakefeed.pipeline.partitioning import PartitionField, check_partitioning
from lakefeed.pipeline.types import METADATA, stored
from lakefeed.pipeline.upkeep import Upkeep
from lakefeed.rows.letters import DEAD_LETTER_SCHEMA
from lakefeed.sources import Offsets, source_of
from lakefeed.stores import open_store
from lakefeed.tables.evolution import add_columns, keep_properties, missing_columns
from lakefeed.tables.table import LakeTable

LETTERS = "dead letters"
_MOST_COLUMNS = 2_000


class Place:
    """A table's place in the lake: what the file says about it, and the table itself once it exists."""

    def __init__(
        self,
        name: str,
        path: str,
        storage: Mapping[str, str],
        spec: Table | None,
        upkeep: Upkeep | None = None,
    ) -> None:
        self.name = name
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
    def metadata(self) -> bool:
        """Whether the table keeps where its events came from."""
        return self.spec is not None and self.spec.metadata

    @property
    def made(self) -> dict[str, str]:
        """Columns that no event has, and the key of the pipeline file that makes them."""
        metadata = dict.fromkeys(METADATA.names, "metadata") if self.metadata else {}
        return metadata | {field.name: "partition_by" for field in self.partition_fields if field.derived}

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
                self._table = LakeTable.open(self.name, self.path, self.storage, self.store)
            else:
                self._table.refresh()
            if self._table is None:
                self._refuse_if_not_to_be_created()
            else:
                self._conform(self._table, pipeline)
            return self._table

    def create(
        self, columns: pa.Schema, transactions: Mapping[str, int], account: Mapping[str, Any]
    ) -> LakeTable:
        """Create the table for these declared columns, with its first positions, unless another flow has."""
        with self.lock:
            if self._table is not None:
                return self._table
            fields = self.partition_fields
            check_partitioning(fields, columns)
            self._table = LakeTable.create(
                self.name,
                self.path,
                self.storage,
                self.store,
                schema=self._stored(columns),
                partition_by=[field.name for field in fields],
                properties=self.properties,
                transactions=transactions,
                account=account,
            )
            return self._table

    def add(self, proposal: pa.Schema, account: Mapping[str, Any]) -> list[pa.Field]:
        """Add the proposed columns that the table lacks; somebody else may have added them meanwhile."""
        with self.lock:
            self.table.refresh()
            columns = self._missing(self.table, stored(proposal))
            if columns:
                add_columns(self.table, columns, account)
            return columns

    def columns(self) -> pa.Schema | None:
        """The columns to decode, in declared types; None while they are to be inferred."""
        declared = self.spec.declared if self.spec else None
        if self._table is None:
            return declared
        known = {field.name: field for field in declared or ()}
        have = [field for field in self._table.schema if field.name not in self.made]
        return pa.schema([_declared(field, known.get(field.name)) for field in have])

    def target(self) -> FileTarget:
        """How files of this table are written."""
        assert self.spec is not None
        return FileTarget(
            self.table.schema,
            partition_columns=tuple(self.table.partition_columns),
            compression=self.spec.compression,
            target_file_size=self.spec.target_file_size,
            max_rows_per_file=self.spec.max_rows_per_file,
            properties=self.table.properties,
        )

    def _stored(self, columns: pa.Schema) -> pa.Schema:
        if self.spec is None:
            return DEAD_LETTER_SCHEMA
        made = [
            pa.field(field.name, field.arrow_type(stored(columns).field(field.column).type))
            for field in self.spec.partition_fields
            if field.derived
        ]
        return pa.schema([*stored(columns), *made, *(METADATA if self.spec.metadata else ())])

    def _conform(self, table: LakeTable, pipeline: str) -> None:
        account = {"pipeline": pipeline, "kind": "alter"}
        if self.spec is None:
            if table.partition_columns or self._missing(table, DEAD_LETTER_SCHEMA):
                raise TableError(
                    f"{self.path} is not a table of dead letters.\nChoose another path for `dead_letters`."
                )
            keep_properties(table, self.properties, account)
            return
        wanted = [field.name for field in self.spec.partition_fields]
        if table.partition_columns != wanted:
            raise TableError(
                f"table {self.name}: {self.path} is partitioned by "
                f"{table.partition_columns or 'nothing'}, the pipeline file says {wanted or 'nothing'}.\n"
                "Change `partition_by` or choose another path."
            )
        declared = self.spec.declared
        if declared is not None or self.spec.metadata:
            columns = self._missing(table, self._stored(declared or pa.schema([])))
            if columns:
                add_columns(table, columns, account)
        keep_properties(table, self.properties, account)

    def _missing(self, table: LakeTable, wanted: pa.Schema) -> list[pa.Field]:
        try:
            return missing_columns(table.schema, wanted)
        except TableError as error:
            raise TableError(f"table {self.name}: {self.path}: {error}") from error

    def _refuse_if_not_to_be_created(self) -> None:
        if self.spec is not None and not self.spec.create:
            raise TableError(
                f"table {self.name}: there is no Delta table at {self.path} and `create` is false.\n"
                "Create the table, correct `path`, or set `create: true`."
            )


class Lake:
    """All tables of one run, the dead letters among them."""

    def __init__(self, pipeline: Pipeline) -> None:
        self.pipeline = pipeline
        self.places = {
            name: Place(name, table.path, pipeline.storage_for(name), table, pipeline.upkeep_for(name))
            for name, table in pipeline.tables.items()
        }
        self.letters = Place(
            LETTERS,
            pipeline.dead_letters_path,
            pipeline.dead_letters_storage,
            None,
            pipeline.dead_letters_upkeep,
        )

    def open_letters(self) -> LakeTable:
        """The dead-letter table, created when the first letter is due."""
        with self.letters.lock:
            found = self.letters.open(self.pipeline.name)
            account = {"pipeline": self.pipeline.name, "kind": "create"}
            return found or self.letters.create(DEAD_LETTER_SCHEMA, {}, account)

    def lettered(self, source: str, table: str, start: Offsets) -> dict[str, frozenset[Stamp]]:
        """The events from `start` on that are dead letters of a table, by partition."""
        # Imports pandas, which no command needs that only looks.
        import pyarrow.dataset as ds

        partition_of = source_of(self.pipeline, source).partition_of
        wanted = (ds.field("pipeline") == self.pipeline.name) & (ds.field("source") == source)
        wanted &= (ds.field("table") == table) & (ds.field("offset") >= min(start.values()))
        letters = self.letters.table.delta.to_pyarrow_dataset(filesystem=self.letters.store)
        # As a number: a timestamp may lie beyond what Python can count.
        moment = ds.field("timestamp").cast(pa.int64())
        columns = {name: ds.field(name) for name in ("topic", "partition", "offset")} | {"moment": moment}
        found: dict[str, set[Stamp]] = {partition: set() for partition in start}
        for row in letters.to_table(columns=columns, filter=wanted).to_pylist():
            partition = partition_of(row["topic"], row["partition"])
            if partition in start and row["offset"] >= start[partition]:
                found[partition].add((row["offset"], row["moment"]))
        return {partition: frozenset(stamps) for partition, stamps in found.items()}


def refuse_made_columns(place: Place, proposal: pa.Schema) -> None:
    """Raise TableError when events have a field by the name of a column that is made: it has no column."""
    made = {name.lower(): (name, key) for name, key in place.made.items()}
    for field in proposal:
        if field.name.lower() in made:
            name, key = made[field.name.lower()]
            raise TableError(
                f"table {place.name}: events have a field {field.name!r}, but `{key}` makes column {name}.\n"
                + ("Turn `metadata` off." if key == "metadata" else "Name it otherwise, with `as NAME`.")
            )


def refuse_too_wide(table: str, columns: pa.Schema | None, proposal: pa.Schema) -> None:
    """Raise TableError when events would make thousands of columns: then their keys are data."""
    wide = sum(map(_leaves, columns or ())) + sum(map(_leaves, proposal))
    if wide > _MOST_COLUMNS:
        names = ", ".join(proposal.names[:3])
        raise TableError(
            f"table {table}: events ask for {len(proposal)} new columns ({names}, ...), {wide:,} in all; "
            f"at most {_MOST_COLUMNS:,} are made by themselves.\n"
            "Declare `schema`, with a map where keys are data."
        )


def _leaves(field: pa.Field) -> int:
    return sum(map(_leaves, field.type)) if pa.types.is_struct(field.type) else 1


def _declared(have: pa.Field, declared: pa.Field | None) -> pa.Field:
    """The table's column with the declared type, which also says how the payload writes it."""
    if declared is None:
        return have
    if pa.types.is_struct(have.type) and pa.types.is_struct(declared.type):
        known = {field.name: field for field in declared.type}
        kind = pa.struct([_declared(field, known.get(field.name)) for field in have.type])
        return pa.field(have.name, kind, have.nullable)
    return pa.field(have.name, declared.type, have.nullable)
