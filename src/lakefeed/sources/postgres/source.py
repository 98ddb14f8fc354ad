"""Postgres: the rows of tables first, then every change of them, out of a logical replication slot."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Annotated, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import BeforeValidator, Field, PrivateAttr, StringConstraints, field_validator, model_validator

from lakefeed.columns.change_columns import POSTGRES, ChangeColumns
from lakefeed.events import Events, OffsetRange, Offsets
from lakefeed.figures import readable_size
from lakefeed.pipeline.connectors import FormatField
from lakefeed.pipeline.options.client_options import Options
from lakefeed.pipeline.section import NAMES, as_list
from lakefeed.sources import Source, SourceClient
from lakefeed.sources.postgres.positions import is_rows, partition_name, position_in_words, stream_of
from lakefeed.text import counted

_LONGEST_NAME = 63
SlotName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9_]{1,63}$")]
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
        description="The logical replication slot, made if it is missing. Left out: named like the "
        "publication.",
        examples=["lakefeed_shop"],
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

    _again: dict[str, int] = PrivateAttr(default_factory=dict)

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
        return self

    @property
    def change_columns(self) -> ChangeColumns:
        """An event is a change of a row."""
        return POSTGRES

    @property
    def ends(self) -> bool:
        """Rows alone come to an end."""
        return self.snapshot == "only"

    def client(self, pipeline: str, name: str) -> SourceClient:
        """Connect, on the driver."""
        from lakefeed.sources.postgres.client import PostgresClient

        return PostgresClient(self, pipeline, name)

    def reading_anew(self, streams: Sequence[str], now: int) -> PostgresSource:
        """The same source, where tables that have read no further than an LSN begin with a new snapshot."""
        copy = self.model_copy()
        copy._again = dict.fromkeys(streams, now)
        return copy

    def is_read_anew(self, stream: str, at: int) -> bool:
        """Whether a table at an LSN begins with a new snapshot."""
        return at <= self._again.get(stream, -1)

    @property
    def anew_since(self) -> int:
        """Where the WAL ended when new snapshots were asked for; they end behind it, so each comes once."""
        return max(self._again.values(), default=0)

    def named(self, pipeline: str, name: str) -> tuple[str, str]:
        """The names of publication and slot."""
        plain = re.sub(r"[^a-z0-9_]", "_", f"lakefeed_{pipeline}_{name}".lower())[:_LONGEST_NAME]
        publication = self.publication or plain
        return publication, self.slot or re.sub(r"[^a-z0-9_]", "_", publication.lower())

    def reads_slot(self) -> tuple[str, Hashable] | None:
        """The slot, where the file names it or the publication; names that are made differ by source."""
        if self.snapshot == "only" or not (self.slot or self.publication):
            return None
        _, slot = self.named("", "")
        return slot, (self.connection, self.host, self.port, self.database)

    def known_streams(self) -> tuple[str, ...] | None:
        """The tables, unless there is a wild card among them."""
        if not self.tables or any(sign in name for name in self.tables for sign in "*?["):
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
        """Without the key of the row, which only a dead letter has."""
        at = origin.schema.get_field_index("key")
        return origin.set_column(at, origin.schema.field(at), pa.nulls(len(origin), pa.binary()))

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
