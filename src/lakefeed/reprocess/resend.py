"""Sending again: the dead letters of one table through today's pipeline, exactly once."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakefeed.columns.column_types import TIMESTAMP, stored, type_text
from lakefeed.columns.widening import merge_proposals
from lakefeed.dead_letters.find import DeadLetterEvents, DeadLetterFilter, read_dead_letters
from lakefeed.dead_letters.reconcile import (
    IDENTITY_COLUMNS,
    Identity,
    grouped,
    identities,
    reconcile,
    to_commit_info,
    unreconciled,
)
from lakefeed.engine.batch.manifest import TableManifest
from lakefeed.engine.batch.not_met import not_met
from lakefeed.engine.batch.plan import FlowPlan, format_of
from lakefeed.engine.faultpoints import passing
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.errors import LakefeedError, TableError, UnknownValues
from lakefeed.events import OffsetRange, Offsets
from lakefeed.files import WrittenFile
from lakefeed.handles.growth import refuse_new_columns, refuse_too_wide
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.table_plan import StagedPosition, TableId, TablePlan
from lakefeed.handles.tables import Tables
from lakefeed.handles.widening import plan as plan_widening
from lakefeed.handles.widening import widen
from lakefeed.pipeline.options.changes import KEYED
from lakefeed.reprocess.former_keys import FORMER_KEY, FormerKeys
from lakefeed.reprocess.held_back import held_back
from lakefeed.rows.dead_letter import DEAD_LETTER_SCHEMA
from lakefeed.sources import source_of
from lakefeed.tables.positions import positions_of, replay_id
from lakefeed.tables.schema import missing_columns
from lakefeed.tables.shape import Shape
from lakefeed.tables.write.append import AppendMode
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.mode import Change

_MOST_LETTERS = 5_000
_MOST_BYTES = 32 * 2**20
"""What a commit sends at most."""

_ATTEMPTS = 5


@dataclass
class FailedAgain:
    """Letters that failed again for the same reason, and what the first of them was told."""

    stage: str
    code: str
    dead_letters: int
    example: str


@dataclass
class TableReplay:
    """What became of the dead letters of one table."""

    table: str
    rows: int = 0
    again: list[FailedAgain] = field(default_factory=list)
    left_out: int = 0
    """Letters that today's pipeline takes and makes no row of, as a filter leaves them out."""
    waiting: int = 0
    """Letters at offsets that the table has not read up to yet; the next run decides about them."""
    stranded: int = 0
    """Letters of a source that the pipeline file no longer names for this table."""
    past: int = 0
    """Letters of a former table of that name, which may have read their events again."""
    of_no_table: int = 0
    """Letters of a route that has no table yet: nothing says how far it has read."""
    without_table: int = 0
    """Letters of a table that does not exist yet."""
    new_columns: list[str] = field(default_factory=list)
    widened: list[str] = field(default_factory=list)
    """Columns that get a wider type, and those that cannot, in words."""
    versions: list[int] = field(default_factory=list)
    error: str | None = None
    """Why the table stopped: nothing more of its letters was sent."""

    @property
    def dead_letters(self) -> int:
        """All that were looked at."""
        again = sum(one.dead_letters for one in self.again)
        others = self.waiting + self.stranded + self.past + self.of_no_table + self.without_table
        return self.rows + again + self.left_out + others


class Resend:
    """Sends the dead letters of one table again."""

    def __init__(
        self,
        tables: Tables,
        handle: TableHandle,
        wanted: DeadLetterFilter,
        who: str,
        dry_run: bool,
        here: LocalTasks,
    ) -> None:
        self._here = here
        self._tables = tables
        self._handle = handle
        self._wanted = replace(wanted, table=handle.name)
        self._who = who
        self._dry_run = dry_run
        self.report = TableReplay(handle.name)
        self._version = 0
        self._shape: Shape | None = None
        self._done: frozenset[Identity] = frozenset()
        self._numbers: dict[str, int | None] = {}
        """How often letters of each table had been sent, when those were looked at that are sent now."""
        self._former_keys = FormerKeys(tables, handle.name, handle.spec)
        self._apart: tuple[str, ...] = ("source",)
        """Columns of letters that are sent together only where they have the same values there."""

    def run(self) -> TableReplay:
        """Send all of them that are meant."""
        if self._dry_run:
            self._foresee()
        else:
            self._reconcile()
            key = replay_id(self._tables.pipeline.name)
            self._numbers = {one.name: one.table.transactions.get(key) for one in self._opened()}
        letters = self._tables.dead_letters.table
        self._version = letters.version
        for source, rows in self._batches():
            self._send(source, rows)
        return self.report

    def _foresee(self) -> None:
        """What is done to the table before anything is sent: the same checks, and columns that it lacks."""
        handle = self._handle
        lacking = handle.changes(handle.table)
        self._done = unreconciled(self._tables, handle)
        self._shape = handle.shape
        if lacking and self._shape:
            self._shape = self._shape.with_columns(merge_proposals(self._shape.schema, pa.schema(lacking)))

    def _reconcile(self) -> None:
        """Finish what was cut short."""
        reconcile(self._tables, self._handle)

    def _opened(self) -> list[TableHandle]:
        """The tables that there are."""
        return [self._handle]

    def _batches(self) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Letters that may be sent, by source, in portions that fit into a commit."""
        waiting: dict[tuple[str, ...], _Portion] = {}
        for batch in read_dead_letters(self._tables, self._wanted, version=self._version):
            groups = list(zip(*(batch.column(name).to_pylist() for name in self._apart), strict=True))
            for group in sorted(set(groups), key=str):
                rows = self._ready(group[0], batch.filter(pa.array([one == group for one in groups])))
                rows = self._of_keys_of_now(group[0], rows)
                portion = waiting.setdefault(group, _Portion())
                if rows.num_rows and portion.is_full_with(rows):
                    yield group[0], portion.take()
                if rows.num_rows:
                    portion.add(rows)
        for group, portion in waiting.items():
            if portion.rows:
                yield group[0], portion.take()

    def _ready(self, source: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those whose events the table has passed.

        What lies ahead is read by the next run, which looks for letters: sent now, they would be rows twice.
        """
        spec = self._handle.spec
        if spec is None or source not in spec.from_:
            self.report.stranded += rows.num_rows
            return rows.slice(0, 0)
        if (newest := self._tables.newest_past_letter(source, self._handle.name)) is not None:
            is_past = pc.less_equal(rows.column("dead_at"), pa.scalar(newest, TIMESTAMP))
            self.report.past += pc.sum(is_past).as_py() or 0
            rows = rows.filter(pc.invert(is_past))
        name = source_of(self._tables.pipeline, source).partition_of
        at = self._passed(source)
        events = zip(*(rows.column(key).to_pylist() for key in ("topic", "partition", "offset")), strict=True)
        passed = [offset < at.get(name(topic, number), 0) for topic, number, offset in events]
        self.report.waiting += passed.count(False)
        if self._done:
            passed = [
                one and who not in self._done for one, who in zip(passed, identities(rows), strict=True)
            ]
        return rows.filter(pa.array(passed, pa.bool_()))

    def _of_keys_of_now(self, source: str, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Those whose change names its row by the key that its table has now. The others fail again."""
        keep = np.ones(rows.num_rows, np.bool_)
        refused = []
        for stream in rows.column("topic").unique():
            own = np.flatnonzero(pc.equal(rows.column("topic"), stream).to_numpy(zero_copy_only=False))
            handle = self._table_of(stream.as_py())
            for at, text in self._former_keys.among(source, handle, rows.take(pa.array(own))):
                keep[own[at]] = False
                refused.append({"stage": "write", "code": FORMER_KEY, "error": text})
        self._count(refused)
        return rows.filter(pa.array(keep))

    def _table_of(self, stream: str | None) -> TableHandle | None:
        """The table of a stream."""
        return self._handle

    def _passed(self, source: str) -> Offsets:
        """The next offsets of the table."""
        return positions_of(self._handle.table.transactions, self._tables.pipeline.name, source)

    def _send(self, source: str, rows: pa.RecordBatch) -> None:
        """Send one portion; a table that must change first is changed, and it is sent again."""
        held: frozenset[StagedPosition] = frozenset()
        for _ in range(_ATTEMPTS):
            with tempfile.TemporaryDirectory(prefix="lakefeed-replay-") as scratch:
                results = self._run(source, rows, Path(scratch), held)
                result = results[self._handle.id]
                if result.error:
                    raise result.error
                if result.failed:
                    if not self._dry_run:
                        self._delete(results)
                    raise not_met(self._handle.id, result)
                refused = _refused(Path(scratch), result)
            if all(one.proposal is None for one in results.values()):
                if more := self._held_back(source, rows, refused, results) - held:
                    held |= more
                    if not self._dry_run:
                        self._delete(results)
                    continue
                try:
                    self._land(rows, refused, results)
                except UnknownValues as error:
                    if not error.changes - self._handle.unknown_changes:
                        raise
                    # What no row of the table has, fails again.
                    self._handle.unknown_changes |= error.changes
                    continue
                return
            if not self._dry_run:
                self._delete(results)
            for table, one in sorted(results.items()):
                if one.proposal is not None:
                    self._evolve(source, table, one.proposal, one.returned)
                if one.wider is not None:
                    self._widen(source, one.wider)
        raise TableError(
            f"table {self._handle.name}: the dead letters still need other columns after several attempts."
        )

    def _held_back(
        self,
        source: str,
        rows: pa.RecordBatch,
        refused: list[dict[str, Any]],
        results: Mapping[TableId, TableManifest],
    ) -> frozenset[StagedPosition]:
        partial = {position for one in results.values() for position in one.partial_changes}
        if not partial:
            return frozenset()
        every = DeadLetterFilter(table=self._handle.name, source=source)
        spec = source_of(self._tables.pipeline, source)
        return held_back(self._tables, spec, every, rows, taken_dead_letters(rows, refused), partial)

    def _delete(self, results: Mapping[TableId, TableManifest]) -> None:
        """Delete files that nobody will commit."""
        self._handle.drop(results[self._handle.id].files)

    def _run(
        self, source: str, rows: pa.RecordBatch, scratch: Path, held: frozenset[StagedPosition]
    ) -> Mapping[TableId, TableManifest]:
        pipeline = self._tables.pipeline
        spec = source_of(pipeline, source)
        events = DeadLetterEvents(rows, spec, pipeline.name, source)
        ranges = [OffsetRange(partition, 0, 0) for partition in events.counts()]
        table = self._table_plan({span.partition: 0 for span in ranges}, scratch)
        table = replace(table, held_back=held, tells_partial=True)
        if not self._has_one_stream(source):
            # A column that options name may be one of its other streams.
            table = replace(table, reads={})
        plan = FlowPlan(
            pipeline=pipeline.name,
            source_name=source,
            source=spec,
            format=format_of(spec),
            tables=(table,),
            dead_letters_path=str(scratch / "letters"),
            dead_letters_storage={},
            # They are looked at, and thrown away.
            sync=False,
        )
        manifest = self._here.run(plan, ranges, [events])
        if manifest.error:
            raise manifest.error
        return manifest.tables

    def _has_one_stream(self, source: str) -> bool:
        stream_of = source_of(self._tables.pipeline, source).stream_of
        return len({stream_of(partition) for partition in self._passed(source)}) == 1

    def _table_plan(self, rows_from: Offsets, scratch: Path) -> TablePlan:
        """How the letters become rows; nothing is written to the table in a dry run."""
        if not self._dry_run:
            self._shape = self._handle.shape
        table = self._handle.plan(self._shape, rows_from, {})
        return replace(table, path=str(scratch / "rows"), storage={}) if self._dry_run else table

    def _evolve(self, source: str, table: TableId, proposal: pa.Schema, returned: pa.Schema | None) -> None:
        handle, name = self._handle, self._tables.pipeline.name
        proposal = handle.named(proposal, handle.events_at(self._shape))
        for new in filter(None, (proposal, returned)):
            refuse_new_columns(handle, new)
        refuse_too_wide(handle, handle.columns(), proposal)
        if self._dry_run:
            assert self._shape is not None
            before = self._shape.schema
            columns, kept = handle.grown(proposal, returned)
            added = missing_columns(before, stored(columns))
            grown = self._shape.with_columns(merge_proposals(before, pa.schema(added)))
            self._shape = replace(grown, properties={**grown.properties, **kept})
        else:
            added = handle.add(proposal, {"pipeline": name, "source": source, "kind": "evolve"}, returned)
        self.report.new_columns += [f"{one.name} {type_text(one.type)}" for one in added]

    def _widen(self, source: str, wider: pa.Schema) -> None:
        """Give columns the wider types that letters need, which a dry run only foresees."""
        handle, told = self._handle, self.report.widened
        if not self._dry_run:
            info = {"pipeline": self._tables.pipeline.name, "source": source}
            widen(handle, wider, info, told.append)
            return
        assert self._shape is not None
        found = plan_widening(handle, wider)
        handle.narrow |= found.narrow
        self._shape = found.wider(self._shape)
        told += [found.text] if found.columns else []

    def _land(
        self,
        rows: pa.RecordBatch,
        refused: list[dict[str, Any]],
        results: Mapping[TableId, TableManifest],
    ) -> None:
        result = results[self._handle.id]
        good = rows.filter(pa.array(taken_dead_letters(rows, refused), pa.bool_()))
        if good.num_rows and not self._dry_run:
            self._commit(self._handle, good, result.files, self._shape)
        self._count(refused)
        self.report.rows += result.rows
        if not self._handle.python:
            # A function may make any number of rows of an event.
            self.report.left_out += good.num_rows - result.rows

    def _count(self, refused: list[dict[str, Any]]) -> None:
        for one in refused:
            known = next((each for each in self.report.again if each.code == one["code"]), None)
            if known is None:
                self.report.again.append(FailedAgain(one["stage"], one["code"], 1, one["error"]))
            else:
                known.dead_letters += 1

    def _commit(
        self, handle: TableHandle, good: pa.RecordBatch, files: list[WrittenFile], shape: Shape | None
    ) -> None:
        """Rows first, then their letters: killed in between, the next who comes reconciles the letters."""
        name = self._tables.pipeline.name
        letters = self._tables.dead_letters.table
        key, reconciled = replay_id(name), replay_id(name, handle.name)
        # The table may have moved on since, for a new column, past a replay that has sent the same letters.
        before = self._numbers.get(handle.name)
        number = max(before or 0, letters.transactions.get(reconciled, 0)) + 1
        commit_info = {
            "pipeline": name,
            "kind": "replay",
            "who": self._who,
            "rows": sum(file.rows for file in files),
            "dead_letters": to_commit_info(grouped(identities(good.select(IDENTITY_COLUMNS)))),
            "dead_letters_version": self._version,
        }
        change = Change(files, {key: number}, {key: before}, commit_info, shape, replayed=True)
        # What replaces rows at the start of a run must not do so now.
        keyed = handle.spec is not None and handle.spec.mode in KEYED
        mode = handle.mode if keyed else AppendMode()
        try:
            with handle.lock:
                version = commit(handle.table, change, mode, retries=_ATTEMPTS).version
        except LakefeedError as error:
            if error.untried:
                handle.drop(files)
            raise
        self._numbers[handle.name] = number
        self.report.versions.append(version)
        passing("replay_committed")
        reconcile(self._tables, handle)


@dataclass
class _Portion:
    """Letters that wait to be sent together."""

    batches: list[pa.RecordBatch] = field(default_factory=list)
    rows: int = 0
    size: int = 0

    def is_full_with(self, rows: pa.RecordBatch) -> bool:
        """Whether these would be too many."""
        if not self.rows:
            return False
        size: int = self.size + rows.nbytes
        return self.rows + rows.num_rows > _MOST_LETTERS or size > _MOST_BYTES

    def add(self, rows: pa.RecordBatch) -> None:
        self.batches.append(rows)
        self.rows += rows.num_rows
        self.size += rows.nbytes

    def take(self) -> pa.RecordBatch:
        """All of them; the portion is empty again."""
        table = pa.Table.from_batches(self.batches).cast(DEAD_LETTER_SCHEMA).combine_chunks()
        self.batches, self.rows, self.size = [], 0, 0
        return table.to_batches()[0]


def taken_dead_letters(rows: pa.RecordBatch, refused: list[dict[str, Any]]) -> list[bool]:
    """Which letters have not failed again."""
    gone = {one["event"] for one in refused}
    return [event not in gone for event in _events(rows)]


def _refused(scratch: Path, result: TableManifest) -> list[dict[str, Any]]:
    """What the letters that failed again were told this time."""
    found = []
    for file in result.dead_letter_files:
        with pq.ParquetFile(scratch / "letters" / file.path) as parquet:
            rows = parquet.read()
        reasons = rows.select(["stage", "code", "error"]).to_pylist()
        found += [{**one, "event": event} for one, event in zip(reasons, _events(rows), strict=True)]
    return found


def _events(rows: pa.RecordBatch | pa.Table) -> list[tuple[Any, ...]]:
    """What tells the events of one source from each other. Times as numbers: Python cannot count them all."""
    columns = [rows.column(name).to_pylist() for name in ("topic", "partition", "offset")]
    return list(zip(*columns, rows.column("timestamp").cast(pa.int64()).to_pylist(), strict=True))
