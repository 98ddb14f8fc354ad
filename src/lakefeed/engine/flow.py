"""A flow: one source into its tables, batch by batch.

A flow runs from the positions that the tables hold to a stop or an error. Whatever goes wrong ends that run,
and the next one starts from the tables again: recovering from an error and starting after a crash are the
same thing.
"""

from __future__ import annotations

import logging
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.dead_letters.form import form_of
from lakefeed.engine.assignment import Assignment, Assignments
from lakefeed.engine.batch.committer import Committer
from lakefeed.engine.batch.limits import BatchLimits
from lakefeed.engine.batch.outcome import Outcome
from lakefeed.engine.batch.plan import FlowPlan, format_of
from lakefeed.engine.cores import Cores, session_cores
from lakefeed.engine.evolution import Evolution
from lakefeed.engine.faultpoints import passing
from lakefeed.engine.flow_run import FlowRun, spark_errors
from lakefeed.engine.followed_types import replaces_all
from lakefeed.engine.run_events import (
    TableDelayed,
    TableMoved,
    TableStopped,
    Watcher,
)
from lakefeed.engine.spark.session import has_ended
from lakefeed.engine.start_positions import StartPositions
from lakefeed.errors import BatchFailed, ColumnsLost, Fenced, LakefeedError, Reassigned, TableError
from lakefeed.events import OffsetRange, Offsets, lowest
from lakefeed.handles.progress import TableProgress
from lakefeed.handles.table_plan import StagedPosition, TableId, TablePlan
from lakefeed.handles.tables import Tables
from lakefeed.sources import SourceClient, has_taken_over, source_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("lakefeed")
_AFTER_OTHERS = 0.2
"""Seconds to wait when another process that shares the source has written first."""


class Flow:
    """One source and some of its tables, which are all of them most of the time.

    `run` is called again and again by the supervisor, each time from the tables.
    """

    run_kind: type[FlowRun] = FlowRun
    """How batches are run."""

    def __init__(
        self,
        tables: Tables,
        source: str,
        spark: SparkSession,
        state: Path,
        watch: Watcher,
        *,
        once: bool,
        assignment: Assignment | None = None,
    ) -> None:
        self.source = source
        self.assignment = assignment or Assignments(tables, source, watch).main()
        self.stop = threading.Event()
        self.launch: Callable[[Flow], None] | None = None
        """Starts one more flow; without it, tables stay together whatever happens."""
        self._assignments = self.assignment.assignments
        self._tables = tables
        self._pipeline = tables.pipeline
        self._spark = spark
        self._state = state
        self._watch = watch
        self.once = once
        """Whether it ends by itself, with what was there when it began."""
        self._ends = once or source_of(tables.pipeline, source).ends
        self._after_failure = self.assignment.failing_since is not None
        self._limits = BatchLimits(self._pipeline.flush_for(source), hurry=self._ends)
        self._start_positions = StartPositions(tables, self._assignments)
        self._routes = self._assignments.routes
        self._refusals = self._assignments.refusals
        self._fed: list[str] = []
        self._evolution = Evolution(tables, self._assignments, self._start_positions)

    def end_run(self, table: str) -> None:
        """Tell a table that its run is over, whichever flows have fed it."""
        self._tables.end_runs([table])

    @property
    def failures(self) -> dict[str, LakefeedError]:
        """Tables that cannot be written; the flow goes on without them."""
        return self._assignments.failures

    @property
    def batches(self) -> int:
        """Batches that were committed, in all runs."""
        return self.assignment.batches

    def cores(self) -> Cores:
        """The cores for the next batch: one less while another flow has the other tables."""
        cores = session_cores(self._spark)
        return cores.without_one() if self.assignment.is_extra and not self.assignment.keeps else cores

    @property
    def has_lost_spark(self) -> bool:
        """Whether there is no Spark any more to run on."""
        return has_ended(self._spark)

    def run(self) -> bool:
        """Run until there is nothing more to do; False when a new run must take over at once."""
        spec, assignment = source_of(self._pipeline, self.source), self.assignment
        try:
            with (
                spark_errors(),
                closing(spec.client(self._pipeline.name, self.source)) as client,
                self._assignments.feeding(assignment.number) as self._fed,
            ):
                client.ends_seen = self._assignments.ends_seen
                generation = self._assignments.join(client, self.stop)
                outcome = self._run_once(client, generation)
                done = self._apply(outcome, client)
        except (Reassigned, Fenced) as error:
            if self._assignments.membership is None and not has_taken_over(self._pipeline):
                raise
            # Another process of the group was faster, or the run before this one had a batch under way: the
            # tables say where to go on.
            _log.debug("%s", error)
            self.stop.wait(_AFTER_OTHERS)
            return False
        except BatchFailed:
            self._limits.shrink()
            raise
        if outcome and outcome.over and not assignment.is_main:
            return self._give_back()
        # Tables may have come while it ended.
        return done and (self.stop.is_set() or self._assignments.end(assignment.number, self._fed))

    def _run_once(self, client: SourceClient, generation: int) -> Outcome | None:
        """One run, with the tables that can be opened and are not far behind the others."""
        if not self._fed:
            return None
        client.takes = self._assignments.takes  # type: ignore[method-assign]
        client.goes_on, client.ends = self._assignments.has_begun, self._ends
        copies = self._start_positions.copies(self._fed)
        self._bear(copies, client)
        fed = [name for name in self._fed if TableId(name) not in copies]
        if not fed:
            return None
        client.begin()
        opened, failures = self._start_positions.find(client, fed)
        # Before the client looks at its source again: the marks that the positions are of.
        marks = client.marks()
        if self._ends and opened and self._assignments.until is None:
            self._assignments.until = client.until()
        self._bear(failures, client)
        self.assignment.committed({progress.handle.id: progress.recorded for progress in opened})
        opened = self._without_far(client, opened)
        if not opened:
            return None
        plan = self._plan(opened)
        opened, plan = self._without_shaped(opened, plan)
        run = self.run_kind(
            client=client,
            committer=Committer(
                self._tables,
                self.source,
                marks,
                opened,
                self._watch,
                self._refusals,
                client.lost_columns,
                client.begun,
            ),
            plan=plan,
            cores=self.cores,
            start=lowest(progress.rows_from for progress in opened),
            until=self._until(opened),
            limits=self._limits,
            stop=self.stop,
            watch=self._watch,
            assignment=self.assignment,
            generation=generation,
            counter=self._assignments.counter,
            after_failure=self._after_failure,
        )
        run.committer.tell_positions()
        try:
            outcome = self._record_starts(opened, run.committer)
            if outcome is None:
                self._spread(opened)
                run.begin(self._spark, self._folder())
                outcome = run.run()
            return outcome
        finally:
            self._after_failure = run.busy
            run.close()

    def _spread(self, opened: list[TableProgress]) -> None:
        """Let tables whose rows change work on many files where Spark has cores for it."""
        # Imports Spark.
        from lakefeed.engine.spark.spread import spread_over

        for progress in opened:
            spread_over(self._spark, progress.handle)

    def _until(self, opened: list[TableProgress]) -> Offsets | None:
        """Where a run that ends by itself ends: asked once, but for partitions that are gone since."""
        ends = self._assignments.until
        known = {partition for progress in opened for partition in progress.rows_from}
        return None if ends is None else {name: at for name, at in ends.items() if name in known}

    def _bear(self, failures: Mapping[TableId, LakefeedError], client: SourceClient) -> None:
        """Go on without tables that failed for good, and let another flow try those whose store is away."""
        away: dict[str, LakefeedError] = {}
        for table, error in failures.items():
            if not isinstance(error, TableError):
                raise error
            if error.retryable:
                away[table.table] = error
            elif isinstance(error, ColumnsLost) and not error.is_only:
                self._assignments.lose(table, error.stream, error)
            elif not table.key:
                self.fail(table.table, error)
            elif stream := self._assignments.stream_of(table, client):
                self._assignments.lose(table, stream, error)
        if not away:
            return
        if self.launch is None or not set(self._fed) - set(away) - set(self.failures):
            raise next(iter(away.values()))
        flow = self._part(away, failing_since=time.monotonic())
        for name, error in away.items():
            self._watch(TableDelayed(name, self.source, str(error)))
        self.launch(flow)

    def _without_far(self, client: SourceClient, opened: list[TableProgress]) -> list[TableProgress]:
        """Leave out tables that are far behind: they catch up in a flow of their own."""
        positions = {
            name: lowest(progress.rows_from for progress in opened if progress.handle.id.table == name)
            for name in {progress.handle.id.table for progress in opened}
        }
        if self.launch is None:
            return opened
        for names in self._assignments.strands(client, positions):
            text = f"reads another snapshot of {self.source} than others: catches up in a query of its own"
            self._send_apart(dict.fromkeys(names, text))
            positions = {name: at for name, at in positions.items() if name not in names}
        far = self._assignments.far(client, positions)
        if far:
            text = f"events behind the other tables of {self.source}: catches up in a query of its own"
            self._send_apart({name: f"{events:,} {text}" for name, events in far.items()})
        stay = positions.keys() - far.keys()
        return [progress for progress in opened if progress.handle.id.table in stay]

    def _send_apart(self, tables: Mapping[str, str]) -> None:
        """Let a flow of their own have some tables; for each, what is told of it."""
        assert self.launch is not None
        for name, text in tables.items():
            self._watch(TableMoved(name, self.source, text, apart=True))
        self.launch(self._part(tables))

    def _without_shaped(
        self, opened: list[TableProgress], plan: FlowPlan
    ) -> tuple[list[TableProgress], FlowPlan]:
        """Give each table that Spark's operators shape a flow of its own, unless there is no other table."""
        shaped = [table.name for table in plan.tables if table.needs_spark]
        alone = len(shaped) == len(plan.tables)
        apart = set(shaped[1:] if alone else shaped)
        for name in sorted(apart):
            if self.launch is None:
                raise RuntimeError(f"table {name} needs a flow of its own, and nobody starts one")
            flow = self._part([name])
            flow.assignment.keep(True)
            self.launch(flow)
        self.assignment.keep(alone and bool(shaped))
        left = [progress for progress in opened if progress.handle.id.table not in apart]
        return left, replace(plan, tables=tuple(one for one in plan.tables if one.name not in apart))

    def _part(self, tables: Collection[str], failing_since: float | None = None) -> Flow:
        """A flow that has these tables from now on."""
        assignment = self.assignment.part(tables, failing_since)
        self._fed = [name for name in self._fed if name not in tables]
        passing("tables_parted")
        given = (self._tables, self.source, self._spark, self._state, self._watch)
        return type(self)(*given, once=self.once, assignment=assignment)

    def _give_back(self) -> bool:
        """Let the main flow have the tables; False when it has ended, and this one must go on."""
        tables = self.assignment.tables
        passing("tables_ready")
        if not self._assignments.give_back(self.assignment.number):
            return False
        passing("tables_joined")
        for name in tables:
            text = f"has caught up with the other tables of {self.source}"
            self._watch(TableMoved(name, self.source, text, apart=False))
        return True

    def _record_starts(self, opened: list[TableProgress], committer: Committer) -> Outcome | None:
        """Give a table that knows nothing of the source its positions before anything is read.

        The same for the ends of deleted topics, of which no event will come. An Outcome names the tables that
        cannot be written.
        """
        for progress in opened:
            for partition, at in progress.deleted(committer.marks).items():
                progress.extend(OffsetRange(partition, at, at))
            if progress.handle.exists and not progress.logged:
                for partition, at in progress.rows_from.items():
                    progress.extend(OffsetRange(partition, at, at), 0, 0)
        failures = committer.record_positions()
        return Outcome(failures=failures) if failures else None

    def _plan(self, opened: list[TableProgress]) -> FlowPlan:
        pipeline = self._pipeline
        spec = source_of(pipeline, self.source)
        for one in opened:
            one.handle.expect_replacement(is_replaced=replaces_all(one.handle, spec, one.rows_from))
            one.becomes = one.handle.becomes(one.shape)
        tables = [
            self._routed_plan(progress, opened)
            if progress.handle.name in self._routes
            else progress.handle.plan(
                progress.becomes or progress.shape, progress.rows_from, progress.pending
            )
            for progress in opened
            if not progress.is_routed
        ]
        return FlowPlan(
            pipeline=pipeline.name,
            source_name=self.source,
            source=spec.for_workers(),
            format=format_of(spec),
            tables=tuple(tables),
            dead_letters_path=self._tables.dead_letters.path,
            dead_letters_storage=self._tables.dead_letters.storage,
            dead_letter_form=form_of(self._tables),
            sync=pipeline.sync,
            # A version of a change feed cannot be cut: to stop in the middle is to read it forever.
            most_bytes=None
            if spec.unbounded or spec.is_change_feed
            else 2 * pipeline.flush_for(self.source).bytes,
        )

    def _routed_plan(self, progress: TableProgress, opened: list[TableProgress]) -> TablePlan:
        route = self._routes[progress.handle.name]
        tables = {
            one.handle.id.key: route.member(one.handle, one.becomes or one.shape, one.rows_from)
            for one in opened
            if one.shape and one.is_routed and one.handle.id.table == progress.handle.name
        }
        return route.plan(progress.rows_from, progress.pending, tables)

    def _apply(self, outcome: Outcome | None, client: SourceClient) -> bool:
        """Change the tables that a batch asked to change; False when a new run must go on from there."""
        if outcome is None:
            return True
        self._bear(outcome.failures, client)
        self._find_values(outcome.lacking)
        failures: dict[TableId, LakefeedError] = {}
        # Another task of the batch may have failed for a table of the same route, which is not here any more.
        failed = {table.table for table in outcome.failures}
        for table, proposal in sorted(outcome.proposals.items()):
            if table.table in failed:
                continue
            try:
                more = outcome.returned.get(table), outcome.wider.get(table)
                self._evolution.apply(table, proposal, client, outcome.start, self.batches, *more)
            except TableError as error:
                route = self._routes.get(table.table)
                failures[table if route and route.by_stream else TableId(table.table)] = error
        self._bear(failures, client)
        return False

    def _find_values(self, lacking: Mapping[TableId, frozenset[StagedPosition]]) -> None:
        """Let the next run ask the source for what changes leave out; what it does not have is refused.

        Tables of one route share its front, and each of them is asked for before anything of it is refused.
        """
        answers = source_of(self._pipeline, self.source).answers
        known = {**self._tables.routes, **self._tables.handles}
        handles = {
            table: [known[name] for name in dict.fromkeys((str(table), table.table)) if name in known]
            for table in lacking
        }
        asked = {table for table, own in handles.items() if all(one.asks for one in own)}
        for table, changes in lacking.items():
            for handle in handles[table]:
                if answers and table not in asked:
                    handle.asks = True
                else:
                    handle.unknown_changes |= changes

    def _folder(self) -> Path:
        """A checkpoint directory for one run.

        Positions come from the tables, so an old one has nothing to say.
        """
        folder = self._state / self.source / str(self.assignment.number)
        shutil.rmtree(folder, ignore_errors=True)
        return folder / uuid.uuid4().hex

    def give_up(self, error: LakefeedError) -> bool:
        """Stop all tables; False when others have been given to the flow meanwhile."""
        for name in self.assignment.tables:
            self.fail(name, error)
        return self._assignments.end(self.assignment.number, [])

    def fail(self, table: str, error: LakefeedError) -> None:
        """Go on without a table that cannot be written."""
        self._pipeline.name_file(error)
        self.failures[table] = error
        error.reported = True
        self._watch(TableStopped(table, str(error)))
