"""The Python API: a pipeline that a program runs, looks at and repairs."""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from lakefeed.pipeline import pipeline as model

if TYPE_CHECKING:
    from lakefeed.engine.run_events import Watcher
    from lakefeed.pipeline.result import Commit, RunResult
    from lakefeed.pipeline.run import Run
    from lakefeed.reports.plan.plan import PlannedRun
    from lakefeed.reports.status import PipelineStatus
    from lakefeed.reports.verify import VerifiedPipeline
    from lakefeed.reprocess.rebuild import RebuildReport
    from lakefeed.reprocess.resend import TableReplay
    from lakefeed.reprocess.rewind import RewindReport
    from lakefeed.testing.verdict import Verdict
    from lakefeed.watch.view import RunView


class Pipeline(model.Pipeline):
    """A pipeline file as an object, with the commands as methods.

    The methods import what they need, so that `import lakefeed` loads neither Spark nor Arrow.
    """

    def run(
        self,
        *,
        once: bool = False,
        master: str | None = None,
        on_commit: Callable[[Commit], None] | None = None,
    ) -> RunResult:
        """Run until interrupted, or with `once` until everything is read that is there now.

        Starts Spark in this process; `master` replaces the file's. `on_commit` is called for each
        commit, from several threads. Raises the LakefeedError that ended the run; an interrupt (Ctrl-C) lets
        the running batch end first.
        """
        started = self.start(once=once, master=master, on_commit=on_commit)
        try:
            return started.wait()
        except KeyboardInterrupt:
            started.stop()
            started.wait()
            raise

    def start(
        self,
        *,
        once: bool = False,
        master: str | None = None,
        on_commit: Callable[[Commit], None] | None = None,
    ) -> Run:
        """Run in the background, as `run` does; the returned object has `stop`, `wait` and the result so far.

        Raises UsageError where a run of this program is in the way.
        """
        from lakefeed.engine.run_events import all_of
        from lakefeed.engine.spark.session import existing_session
        from lakefeed.pipeline.run import Run
        from lakefeed.pipeline.secrets import Redactor
        from lakefeed.run import run
        from lakefeed.watch.log import log_by_default
        from lakefeed.watch.log_lines import LogLines
        from lakefeed.watch.state import RunState

        log_by_default()
        state = RunState(self)
        ended: list[RunView] = []

        def work(stop: threading.Event) -> None:
            try:
                with Redactor.of(self).guarding(), LogLines(state, stop=stop, waits=not once) as lines:
                    watch = all_of(lines.watch, *([_calling(on_commit)] if on_commit else []))
                    run(self, once=once, master=master, watch=watch, state=state, stop=stop)
            finally:
                ended.append(state.view())

        started = Run(
            self.name,
            self.state,
            work,
            lambda: _result(ended[0] if ended else state.view()),
            has_own_spark=existing_session() is None,
        )
        started.begin()
        return started

    def plan(self) -> PlannedRun:
        """What a run would create, change, resume from and read, as `lakefeed plan` shows it."""
        from lakefeed.pipeline.secrets import Redactor
        from lakefeed.reports.plan.plan import plan_run

        with Redactor.of(self).guarding():
            return plan_run(self)

    def status(self) -> PipelineStatus:
        """Versions, rows, files, offsets and lag, as `lakefeed status` shows them."""
        from lakefeed.pipeline.secrets import Redactor
        from lakefeed.reports.status import status

        with Redactor.of(self).guarding():
            return status(self)

    def verify(self, *, deep: bool = False, against_source: bool = False) -> VerifiedPipeline:
        """The proof that no event is lost and none is there twice, as `lakefeed verify` gives it."""
        from lakefeed.pipeline.secrets import Redactor
        from lakefeed.reports.verify import verify

        with Redactor.of(self).guarding():
            return verify(self, deep=deep, against_source=against_source)

    def test(self, *, spark: bool = False) -> list[Verdict]:
        """Run the tests of the file, and of the test file next to it, as `lakefeed test` does."""
        from lakefeed.pipeline.loading.load import load
        from lakefeed.testing.verdict import check

        tests = self.tests if self._file is None else load(self._file, with_tests=True).pipeline.tests
        return list(check(self.model_copy(update={"tests": tests}), spark=spark))

    def replay(
        self,
        *,
        table: str | None = None,
        source: str | None = None,
        stage: str | None = None,
        code: str | None = None,
        topic: str | None = None,
        partition: int | None = None,
        offset: int | None = None,
        since: dt.datetime | None = None,
        until: dt.datetime | None = None,
        dry_run: bool = False,
    ) -> list[TableReplay]:
        """Send dead letters through the pipeline again, each into its table at most once.

        All of them, or only those with the given values. With `dry_run`, nothing is changed. A table that
        fails stops alone: its error is raised when all others are done.
        """
        from lakefeed.dead_letters.find import DeadLetterFilter, refuse_unknown_table
        from lakefeed.handles.tables import Tables
        from lakefeed.pipeline.secrets import Redactor
        from lakefeed.reprocess.replay import replay

        wanted = DeadLetterFilter(table, source, stage, code, topic, partition, offset, since, until)
        with Redactor.of(self).guarding():
            refuse_unknown_table(Tables(self), table)
            return replay(self, wanted, dry_run=dry_run)

    def rewind(
        self,
        table: str,
        *,
        to_version: int | None = None,
        to_time: dt.datetime | None = None,
        undo_others: bool = False,
        dry_run: bool = False,
    ) -> RewindReport:
        """Take a table and its positions back to an older version; the next run reads again from there.

        Give either `to_version` or `to_time`. With `dry_run`, nothing is changed.
        """
        from lakefeed.errors import UsageError
        from lakefeed.pipeline.secrets import Redactor
        from lakefeed.reprocess.rewind import rewind

        if (to_version is None) == (to_time is None):
            raise UsageError("rewind: give either to_version or to_time")
        with Redactor.of(self).guarding():
            return rewind(
                self,
                table,
                to_version=to_version,
                to_time=to_time,
                undo_others=undo_others,
                dry_run=dry_run,
            )

    def rebuild(self, table: str, *, master: str | None = None, dry_run: bool = False) -> RebuildReport:
        """Make a table anew from its source, with the SQL, schema and layout that the pipeline has now.

        Runs the pipeline once for this table, as `run` does, and replaces all its rows in one commit. With
        `dry_run`, nothing is changed.
        """
        from lakefeed.pipeline.secrets import Redactor
        from lakefeed.reprocess.rebuild import rebuild

        def run(staged: model.Pipeline) -> None:
            cast(Pipeline, staged).run(once=True, master=master)

        with Redactor.of(self).guarding():
            return rebuild(self, table, run, dry_run=dry_run)


def _calling(on_commit: Callable[[Commit], None]) -> Watcher:
    """Call what the user gave for each commit to a table of theirs."""
    from lakefeed.engine.run_events import Committed, RunEvent
    from lakefeed.handles.tables import DEAD_LETTERS
    from lakefeed.pipeline.result import Commit

    def watch(event: RunEvent) -> None:
        if isinstance(event, Committed) and event.table != DEAD_LETTERS:
            on_commit(
                Commit(
                    table=event.table,
                    source=event.source,
                    version=event.version,
                    rows=event.rows,
                    files=event.files,
                    bytes=event.size,
                    dead_letters=event.dead_letters,
                    seconds=event.seconds,
                )
            )

    return watch


def _result(view: RunView) -> RunResult:
    from lakefeed.pipeline.result import RunResult, TableResult

    tables = {
        one.name: TableResult(
            name=one.name,
            path=one.path,
            rows=one.written,
            dead_letters=one.codes,
            commits=one.commits,
            first_version=one.first_version,
            version=one.version if one.commits else None,
            seconds=one.commit_seconds,
        )
        for one in view.tables
    }
    return RunResult(view.pipeline, tables, view.now - view.began)
