"""A Delta table that a pipeline writes."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Any, Literal, Self

import pyarrow as pa
from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    ModelWrapValidatorHandler,
    PrivateAttr,
    model_validator,
)

from lakefeed.columns.column_types import column, declared_schema
from lakefeed.columns.names import ColumnName, keeping_names
from lakefeed.pipeline.options.changes import (
    INTERVAL,
    KEYED,
    ColumnNames,
    KeyNames,
    Mode,
    Updates,
    Within,
    interval_columns,
)
from lakefeed.pipeline.options.client_options import Options
from lakefeed.pipeline.options.evolve import Evolve, EvolveField
from lakefeed.pipeline.options.file_name import FileName, FileNameField
from lakefeed.pipeline.options.metadata import MetadataColumns, MetadataField, metadata_columns
from lakefeed.pipeline.options.names import Names
from lakefeed.pipeline.options.partition_by import PartitionField, parse_partition_field
from lakefeed.pipeline.options.paths import Location
from lakefeed.pipeline.options.properties import Properties
from lakefeed.pipeline.options.query import QueryText
from lakefeed.pipeline.options.route import Route, RouteText, safe_value
from lakefeed.pipeline.options.shaping import Expect, FunctionName, Select, Sql
from lakefeed.pipeline.options.transform import Transforms
from lakefeed.pipeline.section import NAMES, SOME_NAMES, Section, Shorthand, as_list, without_repeats
from lakefeed.pipeline.upkeep import UpkeepField
from lakefeed.units import Duration, Size

_REFRESH = 60.0
MAX_COLUMNS = 2_000
"""Columns of a table that are added automatically, unless `max_columns` says otherwise."""


def _check_type(text: str) -> str:
    column("", text)
    return text


def _check_partition_field(text: str) -> str:
    parse_partition_field(text)
    return text


From = Annotated[
    tuple[str, ...],
    Field(min_length=1),
    BeforeValidator(as_list),
    AfterValidator(without_repeats),
    SOME_NAMES,
]
Streams = Annotated[
    tuple[Annotated[str, Field(min_length=1)], ...],
    BeforeValidator(as_list),
    AfterValidator(without_repeats),
    NAMES,
]
ColumnText = Annotated[str, AfterValidator(_check_type)]
Columns = Annotated[dict[ColumnName, ColumnText] | None, Field(min_length=1), Shorthand({"infer": None})]
PartitionText = Annotated[str, AfterValidator(_check_partition_field)]


class Table(Section):
    """A Delta table that a pipeline writes."""

    @model_validator(mode="wrap")
    @classmethod
    def _with_names(cls, given: Any, validated: ModelWrapValidatorHandler[Self]) -> Self:
        """Let options name columns that only column mapping allows, where the table has it."""
        with keeping_names(kept=isinstance(given, dict) and given.get("names") == "keep"):
            return validated(given)

    path: Location = Field(
        default="",
        description="The path of the table: a local path, `file://`, `s3://`, `gs://`, `az://` or "
        "`abfss://`. Required, unless there is a `route`.",
        examples=["s3://lake/clicks"],
    )
    route: RouteText | None = Field(
        default=None,
        description="Instead of `path`: a path with columns in braces. Each value gets its own table, with "
        "the columns of its own events.",
        examples=["lake/events_{event_type}"],
    )
    max_tables: int | None = Field(
        default=None,
        gt=0,
        description="With `route`: the maximum number of tables; events with further values are dead "
        "letters. Left out: 100.",
    )
    from_: From = Field(
        default=(),
        validation_alias="from",
        serialization_alias="from",
        description="The source that feeds the table, or another table of the file whose rows it gets; or a "
        "list of them. Required, unless there is a `query`.",
        examples=["clicks", ["bronze", "corrections"]],
    )
    query: QueryText | None = Field(
        default=None,
        description="Instead of `from`: a Spark SQL query over other tables of the file, by their names. Its "
        "result replaces all rows of the table, in one commit, whenever these tables have changed.",
        examples=["SELECT country, count(*) AS orders FROM orders GROUP BY country"],
    )
    refresh: Duration | None = Field(
        default=None,
        description="With `query`: how long to wait between two refreshes at least. Left out: 1m.",
        examples=["5m"],
    )
    streams: Streams = Field(
        default=(),
        description="Which streams of its sources the table takes, such as topics: names, or patterns with "
        "`*`, `?` and `[abc]`. Left out: all.",
        examples=[["orders", "orders.*"]],
    )
    exclude: Streams = Field(
        default=(),
        description="Which of these streams the table does not take: names, or patterns as in `streams`.",
        examples=[["orders.tmp_*"]],
    )
    create: bool = Field(
        default=True, description="Create the table if it is missing; otherwise a missing table is an error."
    )
    share: bool = Field(
        default=False,
        description="Let pipelines with other names feed the table from the same topics, each with its own "
        "copy of the events. Without it such a pipeline is refused, because a renamed pipeline "
        "would write all events again.",
    )
    app_id: str | None = Field(
        default=None,
        min_length=1,
        description="Also keeps positions as kafka-delta-ingest does, as `<app_id>-<partition>`, and goes on "
        "from there if it has come further. For a table that takes one topic of one Kafka source.",
        examples=["clickstream_ecomm"],
    )
    mode: Mode = Field(
        default="append",
        description="`append` adds the rows of each batch. With `overwrite`, the first rows of each run "
        "replace all rows of the table, in one commit, and later ones are added. With `upsert`, each event "
        "changes the row of its key, with `history` it adds a state of that row, and with `deduplicate` it "
        "is left out if its key is there already.",
    )
    keys: KeyNames = Field(
        default=(),
        description="With `upsert`, `history` and `deduplicate`: the columns that tell rows apart. `all`, "
        "with `upsert` of a Postgres table without a key: all of them; equal rows are one row, and `_count` "
        "says how often it is there. A column named all is `[all]`.",
        examples=["id", ["country", "customer_id"], "all"],
    )
    sequence_by: ColumnNames = Field(
        default=(),
        description="With `upsert` and `history`: the columns by which a change is newer than another. "
        "`history` needs it. `upsert` without it goes by the position in the source, which is right while a "
        "key stays in one partition.",
        examples=["updated_at", ["epoch", "number"]],
    )
    delete_when: Sql | None = Field(
        default=None,
        description="With `upsert` and `history`: a condition in Spark SQL over the columns of the events, "
        "by which an event deletes the row of its key.",
        examples=["op = 'delete'"],
    )
    truncate_when: Sql | None = Field(
        default=None,
        description="With `upsert` and `history`: a condition by which an event deletes every row that is no "
        "newer.",
        examples=["op = 'truncate'"],
    )
    ignore_nulls: bool = Field(
        default=False,
        description="With `upsert` and `history`: whether a null leaves the value that the row has.",
    )
    tombstones: Duration | None = Field(
        default=None,
        description="With `upsert` and `history`: for how long a deletion is remembered, so that a late "
        "older change does not bring the row back, by the time of events and by the clock. Left out: 2d.",
        examples=["2d"],
    )
    updates: Updates | None = Field(
        default=None,
        description="With `upsert` and `history`: `copy_on_write` writes files that hold a changed row "
        "again, and every engine reads them. `merge_on_read` marks the rows in deletion vectors, which costs "
        "far less for scattered keys, and needs readers of protocol 3. Left out: `copy_on_write`.",
    )
    track: ColumnNames | None = Field(
        default=None,
        description="With `history`: the columns whose values begin a new interval. Left out: all but keys, "
        "`sequence_by` and `track_except`.",
        examples=[["name", "address"]],
    )
    track_except: ColumnNames = Field(
        default=(),
        description="With `history`: columns whose values begin no new interval; the row has the newest.",
        examples=["last_seen"],
    )
    valid_from: ColumnName | None = Field(
        default=None,
        description="With `history`: the column that says from where in the sequence on a row holds. Left "
        "out: `valid_from`.",
    )
    valid_to: ColumnName | None = Field(
        default=None,
        description="With `history`: the column that says where in the sequence a row ends to hold; null: it "
        "holds. Left out: `valid_to`.",
    )
    is_current: ColumnName | None = Field(
        default=None,
        description="With `history`: a further column that says whether a row holds, as true or false.",
        examples=["is_current"],
    )
    time_by: ColumnName | None = Field(
        default=None,
        description="With `history`: a column with the time of each change. Adds `valid_from_time` and "
        "`valid_to_time`, the times of the changes that begin and end an interval. It must grow with "
        "`sequence_by`.",
        examples=["_commit_time"],
    )
    within: Within | None = Field(
        default=None,
        description="With `deduplicate`: how far back to look for the same key. Left out: all rows count.",
        examples=[{"column": "event_time", "age": "7d"}],
    )
    columns: Columns = Field(
        default=None,
        validation_alias="schema",
        serialization_alias="schema",
        description="The columns and their types. Left out, or `infer`: inferred from the first events.",
        examples=[{"event_id": "string not null", "price": "decimal(10,2)"}],
    )
    evolve: EvolveField = Field(
        default=Evolve(),
        description="What happens to events that do not fit the columns; a single word is the rule for new "
        "columns.",
        examples=[{"new_column": "rescue", "type_change": "rescue"}, "ignore"],
    )
    transform: Transforms = Field(
        default_factory=dict,
        description="Fields that are set in each event before it is decoded: `field: expression`, where a "
        "dot in the field leads into an object. An expression is JMESPath over the event as it came, or one "
        "of `kafka.topic`, `partition`, `offset`, `timestamp` and `timestamp_type`. For json and avro.",
        examples=[{"date": "substr(event_time, `0`, `10`)", "meta.offset": "kafka.offset"}],
    )
    coerce: Literal["kafka-delta-ingest"] | None = Field(
        default=None,
        description="Makes values fit that would make an event a dead letter, by the rules of "
        "`kafka-delta-ingest`: any value into a string column as JSON text, whole numbers into a timestamp "
        "as microseconds since 1970. For json and avro. Left out: values must fit.",
    )
    drop: Annotated[tuple[str, ...], AfterValidator(without_repeats)] = Field(
        default=(),
        description="Fields of the events that are left out.",
        examples=[["debug"]],
    )
    rename: dict[str, ColumnName] = Field(
        default_factory=dict,
        description="Fields of the events that get another name in the table: `old: new`. A field inside "
        "another one is written with its path on both sides; lists and maps on the way have no name.",
        examples=[{"ts": "event_time", "meta.ip": "meta.address"}],
    )
    names: Names = Field(
        default="clean",
        description="What a column is called whose field has a name that a Delta table does not take: "
        "`clean` puts `_` for spaces and the characters `,;{}()=`, also in nested fields; `lower` also makes "
        "new names lower case; `keep` leaves names as they are, in a new table with column mapping. With all "
        "three, names that differ only by case are one column. `strict` makes such events dead letters.",
        examples=["lower", "keep", "strict"],
    )
    python: FunctionName | None = Field(
        default=None,
        description="A function of yours, from `pyarrow.RecordBatch` to `pyarrow.RecordBatch`, that gets the "
        "decoded events before `where` and `select`. Its module is beside the pipeline file, or installed.",
        examples=["shop.clean:enrich"],
    )
    where: Sql | None = Field(
        default=None,
        description="A condition in Spark SQL over the columns of the events; rows that do not meet it are "
        "left out and counted as filtered.",
        examples=["country <> 'test'"],
    )
    select: Select | None = Field(
        default=None,
        description="What the columns of the table are made of: items of a Spark SQL `SELECT`. `schema` then "
        "declares the columns of the events. Left out: all columns.",
        examples=[["*", "price * 1.2 AS gross", "date(event_time) AS day"]],
    )
    expect: Expect = Field(
        default_factory=dict,
        description="Named rules that every row must meet, in Spark SQL over the columns of the table. Rows "
        "that do not are dead letters, or what `otherwise` says.",
        examples=[{"positive": "price > 0", "known": {"that": "country IS NOT NULL", "otherwise": "warn"}}],
    )
    partition_by: tuple[PartitionText, ...] = Field(
        default=(),
        description="Columns, or year, month, day, hour or strftime of a timestamp, that partition the "
        "table; `as NAME` names the column.",
        examples=[["country", "day(event_time)", "strftime(event_time, '%Y-%m') as month"]],
    )
    sort_by: Annotated[tuple[ColumnName, ...], AfterValidator(without_repeats)] = Field(
        default=(),
        description="Columns that the rows of each data file are sorted by, nulls last, so that its "
        "statistics are narrow and a filter skips more of it.",
        examples=[["user_id", "event_time"]],
    )
    cluster_by: tuple[ColumnName, ...] = Field(
        default=(),
        description="Columns that readers filter by: upkeep sorts rows by them, so that a filter opens few "
        "files.",
        examples=[["user_id", "product_id"]],
    )
    metadata: MetadataField = Field(
        default=False,
        description="Add the columns _topic, _partition, _offset, _timestamp, _key and _headers: all, those "
        "in a list, those in a mapping under other names, or with `as` all of them in one column of JSON.",
        examples=[True, ["_topic", "_offset"], {"_topic": "source_topic"}, {"as": "_metadata"}],
    )
    shuffle_by_partition: bool = Field(
        default=False,
        description="Rows of one partition value meet in one task before they are committed, so that a batch "
        "makes one file for each value and not one for each value and task.",
    )
    compression: Literal["zstd", "snappy", "gzip", "lz4", "none"] = Field(
        default="zstd", description="How Parquet pages are compressed."
    )
    target_file_size: Size = Field(
        default=128 * 1024**2,
        description="A data file is closed when it reaches this size.",
        examples=["128MB"],
    )
    max_rows_per_file: int | None = Field(
        default=None,
        gt=0,
        description="A data file is closed when it has this many rows. Left out: only the size counts.",
    )
    file_name: FileNameField = Field(
        default=FileName(),
        description="How data files are named; a single word is the strategy.",
        examples=[{"prefix": "clicks", "strategy": "uuid7"}, "serial"],
    )
    properties: Properties = Field(
        default_factory=dict,
        description="Delta table properties, set when the table is created.",
        examples=[{"delta.logRetentionDuration": "interval 30 days"}],
    )
    max_columns: int = Field(
        default=MAX_COLUMNS,
        gt=0,
        description="How many columns the table may have before no more are added automatically. Each field "
        "of a nested column counts.",
        examples=[500],
    )
    commit_retries: int = Field(
        default=5,
        ge=0,
        description="How often a commit is tried again on conflict, after 100 ms, 200 ms, 400 ms and so on.",
    )
    storage: Options | None = Field(
        default=None, description="Options of its store, in addition to the pipeline's `storage`."
    )

    upkeep: UpkeepField | None = Field(
        default=None,
        description="Its own upkeep: each key overrides the same key of the pipeline; `off` turns upkeep "
        "off.",
    )

    _stream: str | None = PrivateAttr(default=None)
    _stream_key: str | None = PrivateAttr(default=None)

    @property
    def stream_key(self) -> str | None:
        """The column that is part of the key, as it says which of several streams a row is of."""
        return self._stream_key

    def of_streams(self, column: str) -> Self:
        """The same, where a column that says which stream a row is of is part of the key."""
        keys = (column, *self.keys) if self.keys and column not in self.keys else self.keys
        copy = self.model_copy(update={"keys": keys})
        copy._stream_key = column
        return copy

    def of_stream(self, stream: str) -> Self:
        """The table that a route makes for one stream, by the stream's name as it stands in a path."""
        copy = self.model_copy()
        copy._stream = stream
        return copy

    def takes(self, stream: str | None) -> bool:
        """Whether the table takes the events of a stream; None where the source has no streams."""
        named = not self.streams or any(fnmatchcase(stream or "", one) for one in self.streams)
        named = named and not any(fnmatchcase(stream or "", one) for one in self.exclude)
        return named and (self._stream is None or safe_value(stream or "") == self._stream)

    @property
    def refresh_every(self) -> float:
        """Seconds between the beginnings of two refreshes, at least."""
        return self.refresh or _REFRESH

    @property
    def takes_envelopes(self) -> bool:
        """Whether the key, the sequence and deletions come from the events, where they bring them."""
        return self.mode in KEYED and self.mode != "deduplicate" and self.delete_when is None

    @property
    def routed(self) -> Route | None:
        """The route, read."""
        return Route(self.route) if self.route else None

    @property
    def sql(self) -> dict[str, str]:
        """The texts of Spark SQL, by their keys below the table."""
        texts = {f"select[{at}]": text for at, text in enumerate(self.select or ())}
        others = {"where": self.where, "delete_when": self.delete_when, "truncate_when": self.truncate_when}
        texts |= {key: text for key, text in others.items() if text}
        return texts | {f"expect.{name}": rule.that for name, rule in self.expect.items()}

    @property
    def reshapes(self) -> bool:
        """Whether the columns of the table are others than those of its events."""
        return self.select is not None or self.python is not None

    @property
    def interval(self) -> dict[str, str]:
        """The columns that `mode: history` makes, with the option that names each; otherwise none."""
        if self.mode != "history":
            return {}
        return interval_columns({option: getattr(self, option) for option in (*INTERVAL, "time_by")})

    @property
    def neighbour(self) -> str:
        """A path that others may lie beside: the path, or that of any table of the route."""
        return f"{Route(self.route).base}/any" if self.route else self.path

    @property
    def declared(self) -> pa.Schema | None:
        """The declared schema, or None where it is inferred; see `lakefeed.columns.column_types`."""
        with keeping_names(kept=self.keeps_names):
            return None if self.columns is None else declared_schema(self.columns)

    @property
    def keeps_names(self) -> bool:
        """Whether columns are called as their fields, in a table with column mapping."""
        return self.names == "keep"

    @property
    def metadata_columns(self) -> MetadataColumns:
        """The metadata columns, and what the table calls them."""
        return metadata_columns(self.metadata)

    @property
    def partition_fields(self) -> tuple[PartitionField, ...]:
        """The entries of `partition_by`, read."""
        with keeping_names(kept=self.keeps_names):
            return tuple(parse_partition_field(text) for text in self.partition_by)
