"""Dead letters, found again: which ones are meant, where they lie, and their events as a source gave them."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import cache

import numpy as np
import numpy.typing as npt
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.dead_letters.form import own_names
from lakefeed.errors import TableError, UsageError
from lakefeed.events import ORIGIN, Events
from lakefeed.formats.refusal import refused_column
from lakefeed.handles.tables import Tables
from lakefeed.rows.dead_letter import DEAD_LETTER_SCHEMA
from lakefeed.sources import Source
from lakefeed.stores import store_errors
from lakefeed.tables.data_files import undeleted
from lakefeed.tables.file_rows import conformed
from lakefeed.tables.log.log import Log
from lakefeed.text import suggestion

_MOST_SAMPLES = 3
_MOST_KINDS = 1_000
"""From so many kinds on, columns are not told apart any more: new fields may have any number of names."""
_ROWS_AT_A_TIME = 256
"""Payloads may be large: so many are in memory together."""


Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class DeadLetterFilter:
    """Which dead letters are meant; what is None does not matter. `since` counts in, `until` does not."""

    table: str | None = None
    source: str | None = None
    stage: str | None = None
    code: str | None = None
    topic: str | None = None
    partition: int | None = None
    offset: int | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None

    def mask(self, rows: pa.RecordBatch, pipeline: str) -> Mask:
        """Which of some dead letters are of the pipeline and meant."""
        parts = [pc.equal(rows.column("pipeline"), pipeline)]
        parts += [pc.equal(rows.column(name), value) for name, value in self._equal().items()]
        if self.since:
            parts.append(pc.greater_equal(rows.column("dead_at"), pa.scalar(self.since, TIMESTAMP)))
        if self.until:
            parts.append(pc.less(rows.column("dead_at"), pa.scalar(self.until, TIMESTAMP)))
        # What is null is not equal.
        masks = [pc.fill_null(part, False).to_numpy(zero_copy_only=False) for part in parts]
        meant: Mask = np.logical_and.reduce(masks)
        return meant

    @property
    def columns(self) -> set[str]:
        """The columns by which dead letters are chosen."""
        return {*self._equal(), *(["dead_at"] if self.since or self.until else [])}

    def _equal(self) -> dict[str, str | int]:
        names = [field.name for field in fields(self) if field.name not in ("since", "until")]
        return {name: getattr(self, name) for name in names if getattr(self, name) is not None}


def read_dead_letters(
    tables: Tables, wanted: DeadLetterFilter, columns: Sequence[str] | None = None, version: int | None = None
) -> Iterator[pa.RecordBatch]:
    """The dead letters of a pipeline that are meant, as of one version of their table.

    The files are chosen at once: what others delete meanwhile is still read.
    """
    log = Log.open(tables.dead_letters.store)
    if log is None:
        return
    names = list(columns or DEAD_LETTER_SCHEMA.names)
    files = log.snapshot(log.newest if version is None else version).files
    for path, file in files.items():
        batches = stored_dead_letters(tables, path, {*names, *wanted.columns, "pipeline"})
        for rows in undeleted(tables.dead_letters.store, file, batches):
            found = rows.filter(pa.array(wanted.mask(rows, tables.pipeline.name)))
            if found.num_rows:
                yield found.select(names)


def stored_dead_letters(tables: Tables, path: str, columns: Collection[str]) -> Iterator[pa.RecordBatch]:
    """Some columns of all rows of a data file, deleted ones as well, of any pipeline."""
    needed = [name for name in DEAD_LETTER_SCHEMA.names if name in columns]
    stored = own_names(needed, ingest=tables.pipeline.dead_letters.form != "lakefeed")
    own = pa.schema([DEAD_LETTER_SCHEMA.field(name) for name in needed])
    with store_errors(tables.dead_letters.path):
        try:
            parquet = pq.ParquetFile(tables.dead_letters.store.open_input_file(path))
        except FileNotFoundError as error:
            raise TableError(
                f"{tables.dead_letters.path}: {path}, which holds dead letters, is missing.\n"
                "It was deleted by hand, or by a vacuum with a retention shorter than the replay."
            ) from error
        if not stored.keys() <= set(parquet.schema_arrow.names):
            # Written by kafka-delta-ingest: letters of nobody that is known here.
            return
        for batch in parquet.iter_batches(_ROWS_AT_A_TIME, columns=list(stored)):
            yield conformed(batch.rename_columns([stored[name] for name in batch.schema.names]), own)


class DeadLetterEvents(Events):
    """Dead letters as the events that they once were."""

    def __init__(self, letters: pa.RecordBatch, source: Source, pipeline: str, name: str) -> None:
        """Take letters of the source of that name."""
        self._source, self._names = source, (pipeline, name)
        self._origin = pa.RecordBatch.from_arrays(
            [
                letters.column("topic" if field.name == "stream" else field.name).cast(field.type)
                for field in ORIGIN
            ],
            schema=ORIGIN,
        )
        streams, numbers = (self._origin.column(name).to_pylist() for name in ("stream", "partition"))
        self._partitions = list(map(source.partition_of, streams, numbers))
        self.stream = streams[0] if len(set(streams)) == 1 else None
        self.typed_rows = source.types_by_stream
        self.payloads = letters.column("payload").to_pylist()

    def payloads_for(self, columns: pa.Schema) -> Sequence[bytes | None]:
        """The rows as today's options of their source write them."""
        origins = self._origin.drop_columns(["timestamp"]).to_pylist()
        return [
            payload and self._source.row_again(payload, columns, origin)
            for payload, origin in zip(self.payloads, origins, strict=True)
        ]

    def lacking(self, columns: Collection[str]) -> Mapping[int, str]:
        """Looks at the names in each row."""
        found: dict[int, str] = {}
        for at, payload in enumerate(self.payloads if self.typed_rows and columns else ()):
            names = orjson.loads(payload).keys() if payload else columns
            if lost := next((name for name in columns if name not in names), None):
                found[at] = lost
        return found

    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """Where they came from, as their letters say."""
        return self._origin if rows is None else self._origin.take(pa.array(rows, pa.int64()))

    def shown(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """The same as a run would have shown it."""
        return self._source.shown(self.origin(rows), *self._names)

    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        """How many of each partition."""
        return Counter(self._chosen(rows))

    def partitions(self, rows: Sequence[int] | None = None) -> pa.Array:
        """The partition of each."""
        return pa.array(self._chosen(rows), pa.string())

    def _chosen(self, rows: Sequence[int] | None) -> list[str]:
        return self._partitions if rows is None else [self._partitions[row] for row in rows]


@dataclass
class DeadLetterSummary:
    """Dead letters of one table and source with the same reason."""

    table: str
    source: str
    stage: str
    code: str
    column: str | None
    """The column that refused a value; None where the reason is about no column."""
    past: bool
    """Whether they are of a former table of that name, so that a replay leaves them."""
    dead_letters: int
    first: dt.datetime
    last: dt.datetime
    samples: list[str]
    """Some of their messages, which differ."""


def summaries(tables: Tables, wanted: DeadLetterFilter) -> list[DeadLetterSummary]:
    """What kinds of dead letters there are, the most frequent first."""
    if tables.dead_letters.look() is None:
        return []
    columns = ["table", "source", "stage", "code", "dead_at", "error"]
    found: dict[tuple[str, str, str, str, str | None, bool], DeadLetterSummary] = {}
    newest_past = cache(tables.newest_past_letter)
    for batch in read_dead_letters(tables, wanted, columns):
        for row in batch.to_pylist():
            at, error, past = row["dead_at"], row["error"], newest_past(row["source"], row["table"])
            column = refused_column(row["stage"], error) if len(found) < _MOST_KINDS else None
            names = (row["table"], row["source"], row["stage"], row["code"], column)
            key = (*names, past is not None and at <= past)
            summary = found.setdefault(key, DeadLetterSummary(*key, 0, at, at, []))
            summary.dead_letters += 1
            summary.first, summary.last = min(summary.first, at), max(summary.last, at)
            if len(summary.samples) < _MOST_SAMPLES and error not in summary.samples:
                summary.samples.append(error)
    return sorted(found.values(), key=lambda one: -one.dead_letters)


def refuse_unknown_table(tables: Tables, table: str | None) -> None:
    """Raise UsageError for a table that neither the file has nor any dead letter; old names may have some."""
    tables.find_routed()
    names = {**tables.handles, **tables.routes}
    if table is None or table in names:
        return
    for batch in read_dead_letters(tables, DeadLetterFilter(), ["table"]):
        names |= dict.fromkeys(batch.column("table").to_pylist())
    if table not in names:
        raise UsageError(f"--table: there is no table {table!r}{suggestion(table, names)}")


def count_dead_letters(tables: Tables, wanted: DeadLetterFilter | None = None) -> int:
    """How many dead letters the pipeline has: those that are wanted, or all of them."""
    found = read_dead_letters(tables, wanted or DeadLetterFilter(), ["offset"])
    return sum(batch.num_rows for batch in found)


def newest_dead_letters(tables: Tables, wanted: DeadLetterFilter, limit: int) -> pa.Table:
    """The dead letters that came last, newest first."""
    kept = DEAD_LETTER_SCHEMA.empty_table()
    order = [(name, "descending") for name in ("dead_at", "timestamp", "offset")]
    order += [("topic", "ascending"), ("partition", "ascending")]
    for batch in read_dead_letters(tables, wanted):
        rows = pa.Table.from_batches([batch]).cast(DEAD_LETTER_SCHEMA)
        kept = pa.concat_tables([kept, rows]).sort_by(order).slice(0, limit)
    return kept
