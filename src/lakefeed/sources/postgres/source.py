"""Postgres: the rows of tables first, then every change of them, out of a logical replication slot."""

from __future__ import annotations

import json
import re
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import BeforeValidator, Field, PrivateAttr, StringConstraints, field_validator, model_validator

from lakefeed.columns.change_columns import POSTGRES, WHOLE_ROW, ChangeColumns
from lakefeed.events import Events, OffsetRange, Offsets
from lakefeed.figures import readable_size
from lakefeed.pipeline.connectors import FormatField
from lakefeed.pipeline.options.client_options import Options
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.section import NAMES, as_list
from lakefeed.sources import Source, SourceClient, SourceRows
from lakefeed.sources.postgres.positions import (
    AGAIN,
    ALL_ROWS,
    is_rows,
    partition_name,
    position_in_words,
    stream_of,
)
from lakefeed.text import counted

BEFORE = "_before"
"""The column with the row as it was."""
_LONGEST_NAME = 63
SlotName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,63}$")]
ColumnName = Annotated[str, StringConstraints(pattern=r"^[^.]+\.[^.]+\..+$")]
FiniteColumns = Annotated[
    dict[Literal["max"], Annotated[tuple[ColumnName, ...], BeforeValidator(as_list), NAMES]],
    Field(min_length=1),
]
TableName = Annotated[str, StringConstraints(pattern=r"^[^.]+\.[^.]+$")]
_OURS = ("options", "replication", "client_encoding", "dbname", "host", "port", "user", "password")


class PostgresSource(Source):
    """Tables of a Postgres database. A stream is a table, named `schema.table`.

    An item is a row of the snapshot, or one change of a row by a committed transaction. Parts of a snapshot
    are read in parallel, changes by one task in the order of their commits. It guarantees each row and each
    change once, and it stops where the slot no longer has what a table needs next.
    """

    types_by_stream: ClassVar[bool] = True
    unbounded: ClassVar[bool] = True
    event_mark_shift: ClassVar[int] = 32
    answers: ClassVar[bool] = True
    type: Literal["postgres"] = "postgres"
    format: FormatField | None = Field(
        None, description="Not for this source: the tables have columns already."
    )
    connection: str | None = Field(
        None,
        description="How to connect, as a URI or in the words of libpq. Several hosts may be given. Words "
        "below take precedence.",
        examples=["postgresql://lakefeed@db:5432/shop"],
        repr=False,
    )
    host: str | None = Field(None, description="The host, or several with commas between.", examples=["db"])
    port: int | None = Field(None, description="The port; left out: libpq's, 5432.", examples=[5432])
    database: str | None = Field(None, description="The database.", examples=["shop"])
    user: str | None = Field(None, description="The role to connect as.", examples=["lakefeed"])
    password: str | None = Field(
        None, description="Its password, best from the environment.", examples=["${PGPASSWORD}"], repr=False
    )
    options: Options = Field(
        default={},
        description="Further words of libpq.",
        examples=[{"sslmode": "verify-full", "connect_timeout": "5"}],
    )
    tables: Annotated[tuple[TableName, ...], BeforeValidator(as_list), NAMES] = Field(
        (),
        description="The tables to read, as `schema.table`; `*` and `?` are wild cards. Left out: all "
        "tables of the publication.",
        examples=[["public.orders", "public.customers"], "public.*"],
    )
    exclude: Annotated[tuple[TableName, ...], BeforeValidator(as_list), NAMES] = Field(
        (),
        description="Tables that are left out, as `schema.table`; `*` and `?` are wild cards. The partitions "
        "of a table are left out with it.",
        examples=[["public.tmp_*"]],
    )
    publication: str | None = Field(
        None,
        min_length=1,
        max_length=_LONGEST_NAME,
        description="The publication, made if it is missing. Left out: `lakefeed_`, the names of the "
        "pipeline and of the source.",
        examples=["lakefeed_shop"],
    )
    slot: SlotName | None = Field(
        None,
        description="The logical replication slot, made if it is missing. Left out: named after pipeline and "
        "source, `lakefeed_<pipeline>_<source>`.",
        examples=["lakefeed_shop"],
    )
    before: bool = Field(
        False,
        description="Add `_before` to the changes: the row as it was before an update or a deletion, as a "
        "struct. Postgres sends it for tables with `REPLICA IDENTITY FULL`; for others it is null. Tables "
        "with `mode: upsert` or `history` leave it out.",
    )
    snapshot: Literal["initial", "never", "only"] = Field(
        "initial",
        description="Whether the rows that are there are read first: `initial` reads them and then every "
        "change, `never` only changes, `only` the rows and no change.",
    )
    snapshot_rate: int | None = Field(
        None,
        ge=1,
        description="How many rows of a snapshot are copied in a second at most, over all its tasks; left "
        "out: as many as the server gives.",
        examples=[50000],
    )
    on_slot_loss: Literal["fail", "snapshot"] = Field(
        "fail",
        description="What to do when the slot no longer has the changes that a table needs next: `fail` "
        "stops and says since when, `snapshot` makes a new slot and reads the rows anew; a table with "
        "`mode: append` then holds rows of both snapshots, and changes between them are missing in it.",
    )
    on_recreate: Literal["fail", "snapshot"] = Field(
        "fail",
        description="What to do with a table that was dropped and recreated, got the name of another one, or "
        "was taken out of the publication and added again: `fail` stops reading this table alone, `snapshot` "
        "replaces its rows by those of the new one; a table with `mode: append` gets a `truncate` and the "
        "rows.",
    )

    infinity: Literal["refuse", "max"] | FiniteColumns = Field(
        "refuse",
        description="What an infinite date or timestamp becomes, which no column of Delta holds: `refuse` "
        "leaves it to `evolve` of the table, as any value that does not fit; `max` makes `infinity` the last "
        "day of the year 9999 and `-infinity` the first of the year 1, but in columns of the key, where two "
        "keys would become one; `{max: [COLUMNS]}` does so for these columns, as `schema.table.column`, `*` "
        "and `?` being wild cards, and refuses it in others.",
        examples=["max", {"max": ["public.orders.due"]}],
    )

    _again: dict[str, int] = PrivateAttr(default_factory=dict)
    _warned: set[str] = PrivateAttr(default_factory=set)
    _kept: dict[str, object] = PrivateAttr(default_factory=dict)
    _by_whole_rows: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = PrivateAttr(default=())
    """The `streams` and the `exclude` of each table with `keys: all`."""

    @field_validator("format")
    @classmethod
    def _no_format(cls, value: object) -> None:
        if value is not None:
            raise ValueError("the tables have columns already; remove this key")

    @field_validator("options")
    @classmethod
    def _options_that_are_ours(cls, value: dict[str, str]) -> dict[str, str]:
        for name in _OURS:
            if name in value:
                own = {"dbname": "database"}.get(name, name)
                known = own in cls.model_fields and own != "options"
                raise ValueError(f"{name} is set by {f'`{own}` of the source' if known else 'Lakefeed'}")
        return value

    @model_validator(mode="after")
    def _reaches_something(self) -> Self:
        if not (self.connection or self.host or self.database):
            raise ValueError("give connection, or host, database and user")
        if not self.tables and not self.publication:
            raise ValueError("give tables, or the publication that has them")
        for name in self.tables:
            if name in self.exclude or (not is_pattern(name) and matches(name, self.exclude)):
                raise ValueError(
                    f"{name} is in `tables` and left out by `exclude`; remove it from one of them"
                )
        if self.on_recreate == "snapshot" and self.snapshot == "never":
            raise ValueError("`on_recreate: snapshot` reads rows, and `snapshot: never` reads none")
        return self

    @property
    def brings_whole_rows(self) -> bool:
        """With `REPLICA IDENTITY FULL`, changes have the row as it was."""
        return True

    def within(self, pipeline: Pipeline, name: str) -> Self:
        """With the streams whose changes name their row by all columns."""
        tables = (one for one in pipeline.tables.values() if name in one.from_ and one.keys == WHOLE_ROW)
        by_whole_rows = tuple((one.streams, one.exclude) for one in tables)
        if by_whole_rows == self._by_whole_rows:
            return self
        found = self.model_copy()
        found._by_whole_rows = by_whole_rows
        return found

    def has_whole_rows(self, stream: str) -> bool:
        """Whether changes of a stream name their row by all columns, for a table with `keys: all`."""
        return any(
            (not streams or matches(stream, streams)) and not matches(stream, exclude)
            for streams, exclude in self._by_whole_rows
        )

    def event_name(self, name: str) -> str:
        """The name of a column in events."""
        from lakefeed.sources.postgres.values.column_names import event_name

        return event_name(name)

    @property
    def finite(self) -> tuple[str, ...]:
        """The columns whose infinite values become finite, as patterns of `schema.table.column`."""
        if isinstance(self.infinity, str):
            return ("*",) if self.infinity == "max" else ()
        return self.infinity["max"]

    def row_again(self, row: bytes, columns: pa.Schema, origin: Mapping[str, Any]) -> bytes:
        """A row of a dead letter, with the days that `infinity` asks for today, and texts of the server."""
        from lakefeed.sources.postgres.values.finite import is_finite
        from lakefeed.sources.postgres.values.letter_rows import row_again

        texts = {one["key"]: one["value"].decode() for one in origin["headers"] or ()}
        keys = () if origin["key"] is None else tuple(json.loads(origin["key"]))
        finite = partial(is_finite, origin["stream"], keys=keys, patterns=self.finite)
        return row_again(row, columns, texts, finite)

    @property
    def change_columns(self) -> ChangeColumns:
        """An event is a change of a row."""
        return replace(POSTGRES, logged=(BEFORE,)) if self.before else POSTGRES

    @property
    def ends(self) -> bool:
        """Rows alone come to an end."""
        return self.snapshot == "only"

    def client(self, pipeline: str, name: str) -> SourceClient:
        """Connect, on the driver."""
        from lakefeed.sources.postgres.client import PostgresClient

        return PostgresClient(self, pipeline, name)

    def rows_now(self, pipeline: str, name: str, streams: Sequence[str]) -> SourceRows:
        """The rows under one snapshot of the server."""
        from lakefeed.sources.postgres.rows_now import PostgresRows

        return PostgresRows(self, pipeline, name, streams)

    def reading_anew(self, streams: Sequence[str], now: int) -> PostgresSource:
        """The same source, where tables that have read no further than an LSN begin with a new snapshot."""
        copy = self.model_copy()
        copy._again = dict.fromkeys(streams, now)
        return copy

    @property
    def kept(self) -> dict[str, object]:
        """What the clients of the source leave to each other, on the driver."""
        return self._kept

    @property
    def warned(self) -> set[str]:
        """Warnings that were logged: each once, however often a run connects."""
        return self._warned

    def replaces_rows(self, span: OffsetRange) -> bool:
        """Those of a second snapshot do."""
        return is_rows(span.partition) and span.start == AGAIN

    def has_all_rows(self, span: OffsetRange) -> bool:
        """A large table is read in several batches."""
        return self.replaces_rows(span) and span.end >= ALL_ROWS

    def outdated_marks(
        self, held: Mapping[str, int], now: Mapping[str, int], starts: Offsets, *, is_copy: bool
    ) -> dict[str, int]:
        """Those of names and values that only a snapshot brings."""
        from lakefeed.sources.postgres.checks.marks import outdated_marks

        return outdated_marks(held, now, starts, is_copy=is_copy)

    def is_read_anew(self, stream: str, at: int) -> bool:
        """Whether a table at an LSN begins with a new snapshot."""
        return at <= self._again.get(stream, -1)

    @property
    def anew_since(self) -> int:
        """Where the WAL ended when new snapshots were asked for; they end behind it, so each comes once."""
        return max(self._again.values(), default=0)

    def named(self, pipeline: str, name: str) -> tuple[str, str]:
        """The names of publication and slot, unless another source has them: see `settled_names`."""
        plain = plain_name(f"lakefeed_{pipeline}_{name}")
        return self.publication or plain, self.slot or plain

    def reads_slot(self) -> tuple[str, Hashable] | None:
        """The slot, where the file names it; names that are made differ by source."""
        if self.snapshot == "only" or not self.slot:
            return None
        return self.slot, (self.connection, self.host, self.port, self.database)

    def known_streams(self) -> tuple[str, ...] | None:
        """The tables, unless there is a wild card among them."""
        if not self.tables or any(map(is_pattern, self.tables)):
            return None
        return self.tables

    def stream_patterns(self) -> tuple[str, ...] | None:
        """The tables as the file names them."""
        return self.tables or None

    def partition_of(self, stream: str | None, number: int) -> str:
        """Changes are one partition of a table, and the rows of its snapshot, numbered below 0, another."""
        return partition_name(stream or "", rows=number < 0)

    def stream_of(self, partition: str) -> str | None:
        """The table."""
        return stream_of(partition)

    def shown(self, origin: pa.RecordBatch, pipeline: str, name: str) -> pa.RecordBatch:
        """Without the key of the row and its texts, which only a dead letter has."""
        for name in ("key", "headers"):
            at = origin.schema.get_field_index(name)
            origin = origin.set_column(at, name, pa.nulls(len(origin), origin.schema.field(at).type))
        return origin

    def describe_offset(self, offset: int) -> str | None:
        """`0/16B3748`."""
        return position_in_words(offset)

    def describe_lag(self, position: Offsets, ends: Offsets, rows: Mapping[str, int]) -> str | None:
        """`8.8 MB of WAL`, which all tables share; while a snapshot is not done, `about 50 rows` with it."""
        changes = [ends.get(name, at) - at for name, at in position.items() if not is_rows(name)]
        waiting, left = max(changes, default=0), sum(rows[name] for name in position if is_rows(name))
        words = [f"about {counted(left, 'row')}"] if left else []
        return " and ".join([*words, *([f"{readable_size(waiting)} of WAL"] if waiting > 0 else [])]) or None

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
        """Yield rows of a snapshot, or changes. Runs on a worker."""
        from lakefeed.sources.postgres.read import read

        return read(self, ranges)


def plain_name(text: str) -> str:
    """A text as the name of a slot, for which Postgres takes few characters."""
    return re.sub(r"[^a-z0-9_]", "_", text.lower())[:_LONGEST_NAME]


def is_pattern(name: str) -> bool:
    """Whether a name of the file has wild cards."""
    return any(sign in name for sign in "*?[")


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether one of the patterns means a table."""
    return any(fnmatchcase(name, one) for one in patterns)
