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

from lakefeed.engine.batch.awaiting_schema import AwaitingSchema
from lakefeed.engine.batch.manifest import (
    MOST_SAMPLES,
    Manifest,
    TableManifest,
    added,
    check_covered,
    largest,
    merged,
    parts_read,
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
    TableChanged,
    TableReached,
    Watcher,
)
from lakefeed.errors import LakefeedError, TableError
from lakefeed.events import OffsetRange, Offsets
from lakefeed.files import WrittenFile
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.progress import Expectations, TableProgress
from lakefeed.handles.table_plan import TableId, is_missing
from lakefeed.handles.tables import Tables
from lakefeed.sources import source_of
from lakefeed.sources.held_positions import ingest_transactions
from lakefeed.sources.subscription import taken_marks
from lakefeed.tables.log.data_file import small_below
from lakefeed.tables.positions import application_id, mark_id
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.mode import Change
from lakefeed.text import counted


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
    ) -> None:
        self._tables = tables
        self._source = source
        self._marks = marks
        self._progress = {progress.handle.id: progress for progress in opened}
        self._watch = watch
        self._refusals = refusals or Refusals(source, tables.pipeline.dead_letters.stop_above)
        self.awaiting_schema = AwaitingSchema(watch)
        self._pipeline = tables.pipeline.name
        self._pool = ThreadPoolExecutor(max_workers=8, thread_name_prefix="commit")

    def commit(
        self, spans: list[OffsetRange], manifests: list[Manifest], confirm: Callable[[], None] = lambda: None
    ) -> Outcome:
        """Commit what the tasks of a batch wrote; raises what the source failed with.

        `confirm` raises when the offsets that were read stand for something else by now.
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
        outcome = Outcome(size=sum(manifest.bytes_read for manifest in manifests))
        read = outcome.read = added(manifest.read for manifest in manifests)
        self._judge(spans, results, outcome)
        waiting = {*outcome.failures, *(table.table for table in outcome.proposals)}
        self._drop(result for table, result in results.items() if table.table in waiting)
        accepted = {table: result for table, result in results.items() if table.table not in waiting}
        try:
            self._commit_dead_letters(spans, accepted)
        except LakefeedError as error:
            self._drop_after(error, accepted.values())
            raise
        self._note_read(spans, read, accepted)
        failed = self._commit_tables(result for result in accepted.values() if result.files)
        outcome.failures |= _by_name(failed)
        outcome.parts = parts_read(manifests, accepted, self._progress)
        for table in accepted.keys() - failed.keys():
            share = self._refused_share(spans, read, accepted[table])
            if told := self._refusals.add(str(table), share):
                self._watch(told)
        self.tell_positions()
        return outcome

    def _judge(
        self, spans: list[OffsetRange], results: Mapping[TableId, TableManifest], outcome: Outcome
    ) -> None:
        """Find the tables that the batch must not be committed to."""
        read = outcome.read
        for table, result in results.items():
            if result.error:
                outcome.failures[table.table] = result.error
            elif result.proposal is not None:
                outcome.proposals[table] = result.proposal
                outcome.returned[table] = result.returned
            elif result.failed:
                outcome.failures[table.table] = not_met(table, result)
            elif too_many := self._refusals.limit(str(table), self._refused_share(spans, read, result)):
                outcome.failures[table.table] = too_many

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

    def record_positions(self, at_least: int = 0) -> dict[str, LakefeedError]:
        """Commit the positions of tables that have read so many events without getting rows."""
        return self._record(one for one in self._progress.values() if one.read >= at_least)

    def record_when_due(self) -> dict[str, LakefeedError]:
        """The same every now and then, for tables that events have nothing for ever less often."""
        return self._record([one for one in self._progress.values() if one.is_due()])

    def record_empty(self) -> dict[str, LakefeedError]:
        """The same at once, for tables that have begun with a partition and found it empty."""
        return self._record(one for one in self._progress.values() if one.found_empty)

    def _record(self, due: Iterable[TableProgress]) -> dict[str, LakefeedError]:
        # A table that another source has made since the plan holds none of what was read without it.
        waits = self.awaiting_schema.waits
        idle = [
            TableManifest(one.handle.id)
            for one in due
            if one.open and one.shape and not waits(one.handle.name)
        ]
        return _by_name(self._commit_tables(idle))

    def close(self) -> None:
        """Let go of the threads."""
        self._pool.shutdown()

    def _refused_share(
        self, spans: list[OffsetRange], read: dict[str, int], result: TableManifest
    ) -> RefusedShare:
        """How many events of a batch a table has read and refused; the front of a route counts for it."""
        own = self._progress[result.table].rows_from if result.table in self._progress else {}
        taken = [one.partition for one in spans if is_missing(own, one)]
        return RefusedShare.of(sum(read.get(partition, 0) for partition in taken), result)

    def _commit_dead_letters(self, spans: list[OffsetRange], results: dict[TableId, TableManifest]) -> None:
        files = [file for result in results.values() for file in result.dead_letter_files]
        if not files:
            return
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
        commit_info = {
            "pipeline": self._pipeline,
            "source": self._source,
            "kind": "letters",
            "letters": counts,
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

    def _commit_tables(self, results: Iterable[TableManifest]) -> dict[TableId, LakefeedError]:
        """Commit tables side by side; returns the tables that could not be written."""
        futures = {
            one.table: self._pool.submit(self._commit_table, self._progress[one.table], one)
            for one in results
        }
        failures: dict[TableId, LakefeedError] = {}
        for table, future in futures.items():
            try:
                future.result()
            except TableError as error:
                failures[table] = error
                # Its rows are not in the table, so nothing more may move its position in this run.
                self._progress[table].open.clear()
        return failures

    def _commit_table(self, progress: TableProgress, result: TableManifest) -> None:
        transactions: dict[str, int] = {}
        expected: dict[str, int | None] = {}
        for partition, span in progress.open.items():
            key = application_id(self._pipeline, self._source, partition)
            transactions[key], expected[key] = span.end - 1, progress.logged.get(partition)
        assert progress.handle.spec is not None
        named = partial(ingest_transactions, self._tables.pipeline, self._source, progress.handle.spec)
        ingest = named({partition: span.end - 1 for partition, span in progress.open.items()})
        transactions |= ingest
        expected |= {name: progress.ingest.get(name) for name in ingest}
        marks = self._marks_for(progress.handle)
        for name, number in marks.items():
            if progress.marks.get(name) != number:
                transactions[mark_id(self._pipeline, self._source, name)] = number
        commit_info: dict[str, Any] = {
            "pipeline": self._pipeline,
            "source": self._source,
            "kind": "rows" if result.files else "position",
            "rows": result.rows,
            **progress.told(),
        }
        if ingest:
            # A rewind to before the first of them has to know where it began.
            commit_info["ingest"] = named({p: span.start for p, span in progress.open.items()})
        try:
            with progress.handle.lock:
                table = progress.handle.table
                change = Change(result.files, transactions, expected, commit_info, progress.shape)
                self._append(progress.handle, table, change, result.rows, progress.refused, result.newest)
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

    def _marks_for(self, handle: TableHandle) -> dict[str, int]:
        """The marks of what a table takes; others would stand beside positions that they are not of."""
        assert handle.spec is not None
        return taken_marks(source_of(self._tables.pipeline, self._source), handle.spec, self._marks)

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
            landed = commit(table, change, handle.mode, retries=limit, on_retry=count)
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
                letters=dead_letters,
                filtered=sum((change.commit_info.get("filtered") or {}).values()),
                seconds=time.monotonic() - began,
                retries=retries,
                small_files=sum(file.size < small for file in landed.entry.added),
                newest=newest,
                replaces="removed" in landed.entry.commit_info,
                stale=_left_out(landed.entry.commit_info),
            )
        )
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
            for file in result.files:
                self._progress[result.table].handle.delete(file.path)
            for file in result.dead_letter_files:
                self._tables.dead_letters.delete(file.path)

    def delete_files(self, files: Mapping[TableId, Sequence[WrittenFile]]) -> None:
        """Delete files of tables that no table will refer to."""
        for table, some in files.items():
            for file in some:
                self._progress[table].handle.delete(file.path)


def _left_out(commit_info: Mapping[str, Any]) -> int:
    """Changes that were too old, or rows whose key was there already."""
    return int(commit_info.get("stale", 0)) + int(commit_info.get("duplicates", 0))


def _by_name(failures: Mapping[TableId, LakefeedError]) -> dict[str, LakefeedError]:
    """Failures by the table of the pipeline file."""
    return {table.table: error for table, error in failures.items()}
