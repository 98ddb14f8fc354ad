"""The committer: the files of a batch become versions of tables, with the positions that they reach.

Dead letters are committed first. So a table's position says that its dead letters up to there are in place
as well, and a crash between the two commits repeats only the table's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

from lakefeed.dead_letters.predecessor import (
    ANY_TABLE,
    NO_TABLE,
    of_stream,
    offset_rules,
    stream_name,
    table_number,
)
from lakefeed.dead_letters.reconcile import order_to_settle, reconcile, remove_former
from lakefeed.engine.batch.awaiting_schema import AwaitingSchema
from lakefeed.engine.batch.lost_columns import Why, expected_columns, lost_error
from lakefeed.engine.batch.manifest import (
    MOST_SAMPLES,
    Manifest,
    TableManifest,
    added,
    check_covered,
    largest,
    merged,
    parts_read,
    unreadable_parts,
    various,
)
from lakefeed.engine.batch.not_met import not_met
from lakefeed.engine.batch.outcome import Outcome
from lakefeed.engine.batch.refusals import Refusals, RefusedShare
from lakefeed.engine.faultpoints import passing
from lakefeed.engine.run_events import (
    CommitFailed,
    Committed,
    DeadLettersWritten,
    RowsShaped,
    SequencesFell,
    TableChanged,
    TableReached,
    Watcher,
)
from lakefeed.errors import Fenced, LakefeedError, TableError, UnknownValues
from lakefeed.events import OffsetRange, Offsets, Reload, lowest
from lakefeed.files import WrittenFile
from lakefeed.handles.handle import COPIES, TableHandle
from lakefeed.handles.progress import Expectations, TableProgress
from lakefeed.handles.reloading import reload_mode, reloads_of, unread_former
from lakefeed.handles.shaping_digest import rebuild_problem
from lakefeed.handles.table_plan import StagedPosition, TableId, is_missing
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.route import safe_value
from lakefeed.sources import source_of
from lakefeed.sources.held_positions import ingest_transactions
from lakefeed.sources.subscription import is_by_stream, stream_of_mark, taken_marks
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.data_file import extent, small_below
from lakefeed.tables.positions import application_id, mark_id, shaping_id, table_number_id
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.commit import check_fence, commit
from lakefeed.tables.write.mode import Change, Reloads
from lakefeed.text import counted, listed


class Committer:
    """Commits the batches of one flow. Used by one thread; tables commit side by side."""

    def __init__(
        self,
        tables: Tables,
        source: str,
        marks: dict[str, int],
        opened: Iterable[TableProgress],
        watch: Watcher,
        refusals: Refusals | None = None,
        why_lost: Why = lambda *_: {},
        begun: Callable[[Offsets, Mapping[str, int]], dict[str, int]] = lambda *_: {},
    ) -> None:
        self._tables = tables
        self._source = source
        self.marks = marks
        """Which source the positions are of: see `SourceClient.marks`."""
        self._progress = {progress.handle.id: progress for progress in opened}
        self._begun = begun
        self._watch = watch
        self._why_lost = why_lost
        self._refusals = refusals or Refusals(source, tables.pipeline.dead_letters.stop_above)
        self.awaiting_schema = AwaitingSchema(watch)
        self._pipeline = tables.pipeline.name
        self._answers = source_of(tables.pipeline, source).answers
        self._lacking: dict[TableId, frozenset[StagedPosition]] = {}
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="commit")

    def commit(
        self,
        spans: list[OffsetRange],
        manifests: list[Manifest],
        confirm: Callable[[], None] = lambda: None,
        reloads: Sequence[Reload] = (),
    ) -> Outcome:
        """Commit what the tasks of a batch wrote; raises what the source failed with.

        `confirm` raises when the offsets that were read stand for something else by now. `reloads` are parts
        of the batch whose rows replace others.
        """
        results = merged(manifests)
        try:
            for manifest in manifests:
                if manifest.error:
                    raise manifest.error
            confirm()
        except LakefeedError:
            self._drop(results.values())
            raise
        # Files of a batch that is not the planned one may be somebody's; they stay until a vacuum.
        check_covered(spans, manifests)
        if overfull := [manifest for manifest in manifests if manifest.overfull]:
            self._drop(results.values())
            return Outcome(overfull=largest(overfull))
        if ends := lowest(manifest.ends for manifest in manifests):
            self._drop(results.values())
            return Outcome(ends=ends)
        outcome = Outcome(size=sum(manifest.bytes_read for manifest in manifests))
        read = outcome.read = added(manifest.read for manifest in manifests)
        self._judge(spans, results, outcome)
        waiting = {table.table for table in (*outcome.failures, *outcome.proposals)}
        self._drop(result for table, result in results.items() if table.table in waiting)
        accepted = {table: result for table, result in results.items() if table.table not in waiting}
        try:
            self._commit_dead_letters(spans, accepted)
        except LakefeedError as error:
            self._drop_after(error, accepted.values())
            raise
        self._note_read(spans, read, accepted)
        reloads = self._readable(reloads, manifests)
        self._remove_former(accepted, reloads)
        failed = self._commit_tables(self._due(accepted, reloads), reloads)
        outcome.failures |= self._as_failures(failed)
        outcome.lacking, self._lacking = self._lacking, {}
        outcome.parts = parts_read(manifests, accepted, self._progress)
        for table in accepted.keys() - failed.keys() - outcome.lacking.keys():
            share = self._refused_share(spans, read, accepted[table])
            if refused := self._refusals.judge_first(str(table), share, partial(self._has_rows, table)):
                self._watch(refused)
            if told := self._refusals.add(str(table), share):
                self._watch(told)
            for one, own in self._shares(spans, read, accepted[table]).items():
                self._refusals.count(str(one), own)
        self.tell_positions()
        return outcome

    def _judge(
        self, spans: list[OffsetRange], results: Mapping[TableId, TableManifest], outcome: Outcome
    ) -> None:
        """Find the tables that the batch must not be committed to."""
        read = outcome.read
        for table, result in results.items():
            if result.error:
                outcome.failures |= self._as_failures({table: result.error})
            elif lost := self._lost(result):
                outcome.failures |= lost
            elif result.proposal is not None:
                outcome.proposals[table] = result.proposal
                outcome.returned[table], outcome.wider[table] = result.returned, result.wider
            elif result.failed:
                outcome.failures[TableId(table.table)] = not_met(table, result)
            else:
                for one, share in self._shares(spans, read, result).items():
                    if too_many := self._refusals.limit(str(one), share):
                        outcome.failures[one] = too_many
                outcome.failures |= self._unfit_to_replace(spans, read, result)

    def _lost(self, result: TableManifest) -> dict[TableId, LakefeedError]:
        """Why the events of streams lack columns that options name, where they should have them."""
        source, found = source_of(self._tables.pipeline, self._source), dict[TableId, LakefeedError]()
        for stream, columns in result.lost.items():
            front = self._progress[result.table]
            handle, by_stream = self._handle_of(front.handle, stream), self._is_by_stream(result.table)
            progress = self._progress.get(handle.id, front)
            alone = expected_columns(columns, source, handle, front.rows_from, by_stream=by_stream)
            why = self._why_lost(stream, columns, alone, progress.marks)
            is_only = by_stream or len({source.stream_of(one) for one in front.rows_from}) == 1
            error = lost_error(
                self._tables.pipeline, self._source, handle, stream, columns, why, is_only=is_only
            )
            if error:
                found[handle.id] = error
        return found

    def _as_failures(self, errors: Mapping[TableId, LakefeedError]) -> dict[TableId, LakefeedError]:
        """What fails with each table: itself, or all tables of its route where they share their streams."""
        return {one if self._is_by_stream(one) else TableId(one.table): errors[one] for one in errors}

    def _is_by_stream(self, table: TableId) -> bool:
        """Whether the table is of a route whose tables take one stream each."""
        spec = self._tables.pipeline.tables[table.table]
        return spec.routed is not None and is_by_stream(spec, self._tables.sources_of(spec))

    def _shares(
        self, spans: list[OffsetRange], read: dict[str, int], result: TableManifest
    ) -> dict[TableId, RefusedShare]:
        """What a table has refused of a batch; of a route by stream, by the table of each stream."""
        if not self._is_by_stream(result.table):
            return {result.table: self._refused_share(spans, read, result)}
        known_before = sum(result.dead_letters.values()) != sum(result.refusals.values())
        if result.table.key or known_before:
            # The front of the route counts for all of them; what was refused before a kill is not parted.
            return {}
        own: dict[str, list[str]] = {}
        for span in spans:
            stream = source_of(self._tables.pipeline, self._source).stream_of(span.partition) or ""
            if read.get(span.partition):
                own.setdefault(safe_value(stream) or "", []).append(span.partition)
        return {
            TableId(result.table.table, (value,)): RefusedShare.of_partitions(partitions, read, result)
            for value, partitions in own.items()
        }

    def _readable(self, reloads: Sequence[Reload], manifests: Sequence[Manifest]) -> list[Reload]:
        """Those of which something was read: what cannot be read is no reason to lose what was there."""
        part_of = source_of(self._tables.pipeline, self._source).part_of if reloads else str
        unreadable = unreadable_parts(manifests) if reloads else ()
        return [one for one in reloads if part_of(one.start) not in unreadable]

    def _remove_former(self, accepted: Iterable[TableId], reloads: Sequence[Reload]) -> None:
        """Remove dead letters of the former content of files that a table reads for the first time.

        Before the position of the table moves: after a kill, the next run does it again.
        """
        for table in accepted if reloads else ():
            for span in self._progress[table].open.values() if not table.key else ():
                own = OffsetRange("", span.start, span.end)
                former = unread_former(self._tables, table.table, self._source, own, reloads)
                if count := remove_former(self._tables, self._source, table.table, former):
                    text = f"{counted(count, 'dead letter')} of the former content of files removed"
                    self._watch(TableChanged(table.table, text))

    def _due(
        self, accepted: Mapping[TableId, TableManifest], reloads: Sequence[Reload]
    ) -> list[TableManifest]:
        """Tables that have got rows, and those with rows that nothing may come in place of."""
        due = [result for result in accepted.values() if result.files]
        for table, progress in self._progress.items() if reloads else ():
            own = accepted.get(table) or TableManifest(table)
            takes = TableId(table.table) in accepted and progress.shape is not None and not own.files
            if takes and self._reloads_of(progress, reloads):
                due.append(own)
        return due

    def _reloads_of(self, progress: TableProgress, reloads: Sequence[Reload]) -> Reloads | None:
        """What of them replaces rows of a table: those of offsets that it has read before this batch."""
        for partition, span in progress.open.items() if reloads else ():
            own = OffsetRange(partition, span.start, span.end)
            if found := reloads_of(self._tables, progress.handle, self._source, own, reloads):
                return found
        return None

    def _note_read(
        self, spans: list[OffsetRange], read: dict[str, int], accepted: Mapping[TableId, TableManifest]
    ) -> None:
        """Let every table that takes the batch know what was read for it."""
        for table, progress in self._progress.items():
            if TableId(table.table) in accepted:
                own = TableManifest(table) if progress.is_routed else accepted[table]
                # Dead letters are those of the route; a table counts them where events of a stream are its.
                front = accepted[TableId(table.table)] if progress.by_stream else own
                progress.take(spans, read, front.dead_letters, front.skipped, front.filtered)
                progress.expected(own.expectations, own.taken)
                missed = progress.missed(spans) if progress.by_stream else None
                progress.refused += front.new_dead_letters(missed)
                self.awaiting_schema.add(progress.handle, own.without_columns, progress.shape is not None)
        for table, result in accepted.items():
            handle = self._progress[table].handle
            if handle.spec and handle.spec.route and not table.key:
                self._tell_shaped(handle.name, sum(result.filtered.values()), result.expectations)

    def _tell_shaped(self, table: str, filtered: int, expectations: Expectations) -> None:
        if filtered or expectations:
            self._watch(RowsShaped(table, self._source, filtered, expectations))

    def tell_positions(self) -> None:
        """Tell those who watch how far each table has come."""
        for table, progress in self._progress.items():
            self._watch(TableReached(str(table), self._source, progress.read_to))

    @property
    def is_kept(self) -> bool:
        """Whether every table, or one of its route, has a log that positions can be recorded in."""
        made = {table.table for table, progress in self._progress.items() if progress.shape}
        return made == {table.table for table in self._progress}

    def committed(self) -> dict[TableId, Offsets]:
        """The positions that the log of each table holds by now."""
        return {table: progress.recorded for table, progress in self._progress.items()}

    def pass_over(self, spans: list[OffsetRange]) -> None:
        """Let every table know of ranges that hold no event: its position moves along when it is recorded."""
        for progress in self._progress.values():
            progress.take(spans)

    def record_positions(self, at_least: int = 0) -> dict[TableId, LakefeedError]:
        """Commit the positions of tables that have read so many events without getting rows."""
        return self._record(one for one in self._progress.values() if one.read >= at_least)

    def record_when_due(self) -> dict[TableId, LakefeedError]:
        """The same every now and then, for tables that events have nothing for ever less often."""
        return self._record([one for one in self._progress.values() if one.is_due()])

    def record_refused(self) -> dict[TableId, LakefeedError]:
        """The same at once, for tables whose events have become dead letters."""
        return self._record(one for one in self._progress.values() if one.refused)

    def record_empty(self) -> dict[TableId, LakefeedError]:
        """The same at once, for tables that have begun with a partition and found it empty."""
        return self._record(one for one in self._progress.values() if one.found_empty)

    def _record(self, due: Iterable[TableProgress]) -> dict[TableId, LakefeedError]:
        # A table that another source has made since the plan holds none of what was read without it.
        waits = self.awaiting_schema.waits
        idle = [
            TableManifest(one.handle.id)
            for one in due
            if one.open and one.shape and not waits(one.handle.name)
        ]
        return self._as_failures(self._commit_tables(idle))

    def close(self) -> None:
        """Let go of the threads."""
        self._pool.shutdown()

    def _unfit_to_replace(
        self, spans: list[OffsetRange], read: dict[str, int], result: TableManifest
    ) -> dict[TableId, LakefeedError]:
        """Why rows of a snapshot must not replace those that tables have."""
        source = source_of(self._tables.pipeline, self._source)
        progress, unfit = self._progress.get(result.table), dict[TableId, LakefeedError]()
        for span in spans if progress and (result.refusals or result.filtered) else ():
            assert progress is not None
            if source.replaces_rows(span) and is_missing(progress.rows_from, span):
                refused = result.dead_letters.get(span.partition, 0)
                # The first event is the truncation.
                rows = read.get(span.partition, 1) - 1
                share = RefusedShare(rows, refused, result.refusals, tuple(result.samples))
                handle = self._handle_of(progress.handle, source.stream_of(span.partition))
                found = self._refusals.limit_replacing(str(handle.id), handle.path, share)
                if not found and source.has_all_rows(span):
                    left_out = result.filtered.get(span.partition, 0)
                    there = self._rows_of(handle, progress) if left_out else 0
                    given = (rows - refused, left_out, there)
                    found = self._refusals.limit_left_out(str(handle.id), handle.path, *given)
                if found:
                    unfit[handle.id] = found
        return unfit

    def _has_rows(self, table: TableId) -> bool:
        """Whether a table has rows, or one of the tables of a route may have some."""
        handle = self._progress[table].handle
        if handle.id.key or not handle.spec or not handle.spec.route:
            return handle.exists and extent(data_files(handle.table)).rows != 0
        return any(one.key and one.table == table.table for one in self._progress)

    def _rows_of(self, handle: TableHandle, progress: TableProgress) -> int:
        """How many rows the table has, all of one stream as it is; 0 of any other table."""
        source = source_of(self._tables.pipeline, self._source)
        is_own = bool(handle.id.key) or len({source.stream_of(one) for one in progress.rows_from}) == 1
        if not is_own or not handle.exists or handle.spec is None or handle.spec.mode != "upsert":
            return 0
        return extent(data_files(handle.table)).rows or 0

    def _handle_of(self, handle: TableHandle, stream: str | None) -> TableHandle:
        """The table that has the rows of a stream; a route by stream has one for each."""
        key = safe_value(stream) if stream else None
        if key and not handle.id.key and self._is_by_stream(handle.id):
            return self._tables.routed_handle(handle.id.table, (key,))
        return handle

    def _refused_share(
        self, spans: list[OffsetRange], read: dict[str, int], result: TableManifest
    ) -> RefusedShare:
        """How many events of a batch a table has read and refused; the front of a route counts for it."""
        own = self._progress[result.table].rows_from if result.table in self._progress else {}
        taken = [one.partition for one in spans if is_missing(own, one)]
        return RefusedShare.of(sum(read.get(partition, 0) for partition in taken), result)

    def _confirm_gone(self, spans: list[OffsetRange], results: Iterable[TableManifest]) -> None:
        """Raise Fenced where another instance has read what is gone: it may have taken it away afterwards."""
        for result in results:
            handle, progress = self._progress[result.table].handle, self._progress[result.table]
            if not handle.exists or not any(text.endswith("/file_gone") for text in result.refusals):
                continue
            with handle.lock:
                handle.table.refresh()
                expected = {
                    application_id(self._pipeline, self._source, span.partition): progress.logged.get(
                        span.partition
                    )
                    for span in spans
                    if is_missing(progress.rows_from, span)
                }
                try:
                    check_fence(handle.table, expected)
                except Fenced as error:
                    error.untried = True
                    raise

    def _commit_dead_letters(self, spans: list[OffsetRange], results: dict[TableId, TableManifest]) -> None:
        files = [file for result in results.values() for file in result.dead_letter_files]
        if not files:
            return
        self._confirm_gone(spans, results.values())
        transactions: dict[str, int] = {}
        expected: dict[str, int | None] = {}
        counts = {}
        for table, result in results.items():
            name, progress = table.table, self._progress[table]
            for span in spans if result.dead_letter_files else ():
                if is_missing(progress.rows_from, span) and result.dead_letters.get(span.partition):
                    key = application_id(self._pipeline, self._source, span.partition, dead_letters_of=name)
                    expected[key] = logged = progress.dead_letters_logged.get(span.partition)
                    # Behind letters from before a crash it stays: by it, the next run looks for them.
                    ahead = logged if logged is not None and span.partition in progress.pending else -1
                    transactions[key] = max(span.end - 1, ahead)
                    counts[key] = [span.start, span.end, result.dead_letters[span.partition]]
                    transactions |= self._table_number(table, span.partition)
        commit_info = {
            "pipeline": self._pipeline,
            "source": self._source,
            "kind": "dead_letters",
            "dead_letters": counts,
            "rows": sum(file.rows for file in files),
        }
        handle = self._tables.dead_letters
        with handle.lock:
            change = Change(files, transactions, expected, commit_info)
            self._append(
                handle, self._tables.open_dead_letters(), change, rows=sum(file.rows for file in files)
            )
        for table, result in results.items():
            for partition in result.dead_letters:
                key = application_id(self._pipeline, self._source, partition, dead_letters_of=table.table)
                if key in transactions:
                    self._progress[table].dead_letters_logged[partition] = transactions[key]
            if result.refusals:
                parted = {text.partition("/"): count for text, count in result.refusals.items()}
                counts_by_reason = {(stage, code): count for (stage, _, code), count in parted.items()}
                samples = tuple(various(result.samples)[:MOST_SAMPLES])
                self._watch(DeadLettersWritten(table.table, self._source, counts_by_reason, samples))
        passing("letters_committed")

    def _table_number(self, table: TableId, partition: str) -> dict[str, int]:
        """Which Delta table dead letters of a partition are of, as the dead-letter table records it."""
        owner, source = self._progress[table], source_of(self._tables.pipeline, self._source)
        stream = source.stream_of(partition)
        spec, name, number = owner.handle.spec, owner.handle.name, table_number(owner.shape)
        if spec and spec.route:
            routed = [one for key, one in self._progress.items() if key.key and key.table == table.table]
            number = ANY_TABLE if routed else NO_TABLE
            if is_by_stream(spec, self._tables.sources_of(spec)):
                name = of_stream(name, stream)
                number = table_number(next((one.shape for one in routed if one.handle.name == name), None))
        recorded = {table_number_id(self._pipeline, self._source, name): number}
        recorded |= offset_rules(source, self._pipeline, self._source, name)
        identity = source.identity_of(partition)
        if identity in self.marks:
            key = table_number_id(self._pipeline, self._source, stream_name(name, identity))
            recorded[key] = self.marks[identity]
        return recorded

    def _commit_tables(
        self, results: Iterable[TableManifest], reloads: Sequence[Reload] = ()
    ) -> dict[TableId, LakefeedError]:
        """Commit tables side by side; returns the tables that could not be written."""
        futures = {
            one.table: self._pool.submit(self._commit_table, self._progress[one.table], one, reloads)
            for one in results
        }
        failures: dict[TableId, LakefeedError] = {}
        for table, future in futures.items():
            try:
                future.result()
            except UnknownValues as error:
                self._lacking[table] = error.changes
                self._progress[table].open.clear()
            except TableError as error:
                failures[table] = error
                # Its rows are not in the table, so nothing more may move its position in this run.
                self._progress[table].open.clear()
        return failures

    def _commit_table(
        self, progress: TableProgress, result: TableManifest, reloads: Sequence[Reload] = ()
    ) -> None:
        transactions, expected, ingest = self._moved_positions(progress)
        starts = {partition: span.start for partition, span in progress.open.items()}
        marks = self._marks_for(progress) | self._begun(starts, progress.marks)
        for name, number in marks.items():
            if progress.marks.get(name) != number:
                transactions[mark_id(self._pipeline, self._source, name)] = number
        anew = self._reloads_of(progress, reloads)
        commit_info: dict[str, Any] = {
            "pipeline": self._pipeline,
            "source": self._source,
            "kind": "rows" if result.files or anew else "position",
            "rows": result.rows,
            **progress.told(),
        }
        if ingest:
            # A rewind to before the first of them has to know where it began.
            commit_info["ingest"] = self._ingest_transactions(progress, starts)
        try:
            self._trust_rows(progress, result)
            with progress.handle.lock:
                table = progress.handle.table
                becomes = progress.becomes if result.files else None
                if result.rows and (spec := progress.handle.spec) and not rebuild_problem(spec):
                    written = shaping_id(self._pipeline, self._tables.shaping_of(progress.handle.id.table))
                    transactions[written] = table.transactions.get(written, 0) + result.rows
                change = Change(
                    result.files,
                    transactions,
                    expected,
                    commit_info,
                    progress.shape,
                    becomes=becomes,
                    former_keys=result.former_keys,
                    reloads=anew,
                    counted=order_to_settle(self._tables, progress.handle, anew) if anew else {},
                )
                self._append(progress.handle, table, change, result.rows, progress.refused, result.newest)
                if becomes is not None:
                    progress.handle.expect_replacement(is_replaced=False)
                    progress.shape, progress.becomes = table.shape, None
        except LakefeedError as error:
            # The dead letters of the batch are committed already.
            self._drop_after(error, [replace(result, dead_letter_files=[])])
            raise
        if not progress.is_routed:
            self._tell_shaped(progress.handle.name, progress.filtered, progress.expectations)
        progress.logged |= {partition: span.end - 1 for partition, span in progress.open.items()}
        progress.marks |= marks
        progress.ingest |= ingest
        progress.rest(idle=not result.files)
        passing("table_committed")
        if anew:
            reconcile(self._tables, progress.handle)

    def _moved_positions(
        self, progress: TableProgress
    ) -> tuple[dict[str, int], dict[str, int | None], dict[str, int]]:
        """The positions that a commit sets, what they must be before it, and those of kafka-delta-ingest."""
        transactions: dict[str, int] = {}
        expected: dict[str, int | None] = {}
        for partition, span in progress.open.items():
            key = application_id(self._pipeline, self._source, partition)
            transactions[key], expected[key] = span.end - 1, progress.logged.get(partition)
        lasts = {partition: span.end - 1 for partition, span in progress.open.items()}
        ingest = self._ingest_transactions(progress, lasts)
        return transactions | ingest, expected | {name: progress.ingest.get(name) for name in ingest}, ingest

    def _ingest_transactions(self, progress: TableProgress, offsets: Offsets) -> dict[str, int]:
        assert progress.handle.spec is not None
        return ingest_transactions(self._tables.pipeline, self._source, progress.handle.spec, offsets)

    def _trust_rows(self, progress: TableProgress, result: TableManifest) -> None:
        """Raise UnknownValues where a value that changes leave out may have come with a dead letter."""
        front = self._progress.get(TableId(progress.handle.id.table), progress)
        if result.partial and front.dead_letters_logged and self._answers and not progress.handle.asks:
            error = UnknownValues(
                f"table {progress.handle.name}: the source is asked for what changes leave out"
            )
            error.untried = True
            raise error

    def _marks_for(self, progress: TableProgress) -> dict[str, int]:
        """The marks of what a table reads; others would stand beside positions that they are not of.

        So does the mark of a stream whose position has jumped, until the commit that brings what follows.
        """
        spec, source = progress.handle.spec, source_of(self._tables.pipeline, self._source)
        assert spec is not None
        marks = taken_marks(source, spec, self.marks)
        read = {source.stream_of(partition) for partition in progress.rows_from}
        if None not in read:
            read -= {source.stream_of(name) for name in progress.jumps if name not in progress.open}
            ends = progress.deleted_ends(marks)
            marks = ends | {name: at for name, at in marks.items() if stream_of_mark(source, name) in read}
        starts = {partition: span.start for partition, span in progress.open.items()}
        return marks | source.outdated_marks(progress.marks, marks, starts, is_copy=spec.mode in COPIES)

    def _append(
        self,
        handle: TableHandle,
        table: LakeTable,
        change: Change,
        rows: int,
        dead_letters: int = 0,
        newest: float | None = None,
    ) -> None:
        began, retries = time.monotonic(), 0

        def count() -> None:
            nonlocal retries
            retries += 1

        limit = handle.spec.commit_retries if handle.spec else 5
        try:
            mode = reload_mode(self._tables, handle, change.reloads) if change.reloads else handle.mode
            landed = commit(table, change, mode, retries=limit, on_retry=count)
        except UnknownValues:
            # Nothing was tried: the batch is read again with these values.
            raise
        except LakefeedError as error:
            self._watch(CommitFailed(handle.name, self._source, str(error)))
            raise
        small = small_below(handle.spec.target_file_size) if handle.spec else 0
        self._watch(
            Committed(
                table=handle.name,
                source=self._source,
                version=landed.version,
                rows=rows,
                files=len(landed.entry.added),
                size=sum(file.size for file in landed.entry.added),
                dead_letters=dead_letters,
                filtered=sum((change.commit_info.get("filtered") or {}).values()),
                seconds=time.monotonic() - began,
                retries=retries,
                small_files=sum(file.size < small for file in landed.entry.added),
                newest=newest,
                replaces="removed" in landed.entry.commit_info,
                stale=_left_out(landed.entry.commit_info),
            )
        )
        if told := landed.entry.commit_info.get("sequences"):
            # Only modes with keys tell of them.
            from lakefeed.tables.write.keyed.backwards import backwards_text

            self._watch(SequencesFell(handle.name, self._source, backwards_text(told)))
        if told := landed.entry.commit_info.get("reloaded"):
            gone, came = counted(told["rows"], "row"), counted(rows, "row")
            self._watch(TableChanged(handle.name, f"reloaded {listed(told['files'])}: {gone} out, {came} in"))
        if "removed" in landed.entry.commit_info:
            gone = landed.entry.commit_info["removed"]
            told = "" if gone["rows"] is None else f"{counted(gone['rows'], 'row')} in "
            self._watch(TableChanged(handle.name, f"replaced {told}{counted(gone['files'], 'file')}"))

    def _drop_after(self, error: LakefeedError, results: Iterable[TableManifest]) -> None:
        """Delete the files of a commit only when it was never tried, or certainly refused.

        A commit whose answer was lost may still take effect later, and its files with it.
        """
        if error.untried:
            self._drop(results)

    def _drop(self, results: Iterable[TableManifest]) -> None:
        """Delete files that no table will refer to.

        Best effort: what stays is an orphan that vacuum removes.
        """
        for result in results:
            if result.files:  # a table of a route that only proposes columns is not opened yet
                self._progress[result.table].handle.drop(result.files)
            self._tables.dead_letters.drop(result.dead_letter_files)

    def delete_files(self, files: Mapping[TableId, Sequence[WrittenFile]]) -> None:
        """Delete files of tables that no table will refer to."""
        for table, some in files.items():
            self._progress[table].handle.drop(some)


def _left_out(commit_info: Mapping[str, Any]) -> int:
    """Changes that were too old, or rows whose key was there already."""
    return int(commit_info.get("stale", 0)) + int(commit_info.get("duplicates", 0))
