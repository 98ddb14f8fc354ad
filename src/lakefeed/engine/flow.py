"""A flow: one source into its tables, batch by batch.

A flow lives from the positions that the tables hold to a stop or an error. Whatever goes wrong ends that
life, and the next one starts from the tables again: recovering from an error and starting after a crash are
the same thing.
"""

from __future__ import annotations

import logging
import shutil
import threading
import uuid
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from lakefeed.engine.growth import refuse_new_columns, refuse_too_wide
from lakefeed.engine.lake import Lake, Place
from lakefeed.engine.landing import Landing, Outcome, Reach
from lakefeed.engine.life import Life, spark_errors
from lakefeed.engine.pace import Pace
from lakefeed.engine.plan import FlowPlan, RoutedTable, TablePlan, format_of, group_of
from lakefeed.engine.refusals import Refusals
from lakefeed.engine.report import Watcher
from lakefeed.engine.routes import RoutedTables
from lakefeed.engine.session import has_ended
from lakefeed.engine.settling import settle
from lakefeed.engine.sharing import refuse_second_copy
from lakefeed.engine.standing import standing, told_of_new
from lakefeed.engine.tally import Tally
from lakefeed.errors import BatchFailed, TableError
from lakefeed.pipeline.sightings import sighting_lines
from lakefeed.sources import OffsetRange, Offsets, SourceClient, source_of
from lakefeed.tables.evolution import additions
from lakefeed.tables.positions import application_id, lowest, mark_id, marks_of, positions_of
from lakefeed.tables.table import LakeTable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_log = logging.getLogger("lakefeed")


class Flow:
    """One source of a pipeline.

    `live` is called again and again by the supervisor, each time from the tables.
    """

    life_kind: type[Life] = Life
    """How batches are run."""

    def __init__(
        self, lake: Lake, source: str, spark: SparkSession, state: Path, watcher: Watcher, *, once: bool
    ) -> None:
        self.source = source
        self.stop = threading.Event()
        self.landed = 0
        """Batches that have landed, in all lives."""
        self.failures: dict[str, TableError] = {}
        """Tables that cannot be written; the flow goes on without them."""
        self._lake = lake
        self._pipeline = lake.pipeline
        self._spark = spark
        self._state = state / source
        self._watcher = watcher
        self._once = once
        self._until: Offsets | None = None
        self._shaken = False
        self._tally = Tally()
        self._pace = Pace(self._pipeline.flush_for(source), hurry=once)
        self._refusals = Refusals(source, self._pipeline.dead_letters.stop_above)
        self._begins: dict[str, Offsets] = {}
        self._told: set[str] = set()
        self._routes = {
            name: RoutedTables(lake, name) for name in lake.routes if name in self._pipeline.tables_of(source)
        }

    @property
    def tables(self) -> list[str]:
        """The tables that still take events."""
        return [name for name in self._pipeline.tables_of(self.source) if name not in self.failures]

    @property
    def cores(self) -> int:
        """How many tasks run at a time."""
        return int(self._spark.sparkContext.defaultParallelism)

    @property
    def is_stranded(self) -> bool:
        """Whether there is no Spark any more to live on."""
        return has_ended(self._spark)

    def live(self) -> bool:
        """Run until there is nothing more to do; False when a new life must take over at once."""
        try:
            with spark_errors():
                return self._live()
        except BatchFailed:
            self._pace.shrink()
            raise

    def _live(self) -> bool:
        spec = source_of(self._pipeline, self.source)
        client = spec.client(self._pipeline.name, self.source)
        try:
            reaches = self._reaches(client)
            if not reaches:
                return True
            if self._once:
                self._until = self._end(client, reaches)
            life = self.life_kind(
                client=client,
                landing=Landing(
                    self._lake, self.source, client.marks(), reaches, self._watcher, self._refusals
                ),
                plan=self._plan(reaches),
                start=lowest(reach.rows_from for reach in reaches),
                until=self._until,
                pace=self._pace,
                stop=self.stop,
                watcher=self._watcher,
                tally=self._tally,
                shaken=self._shaken,
            )
            life.landing.tell_positions()
            try:
                outcome = self._record_beginnings(reaches, life.landing)
                if outcome is None:
                    life.begin(self._spark, self._folder())
                    outcome = life.run()
            finally:
                self.landed += life.landed
                self._shaken = life.busy
                life.close()
            return self._settle(outcome, client)
        finally:
            client.close()

    def _end(self, client: SourceClient, reaches: list[Reach]) -> Offsets:
        """Where a run that ends by itself ends: asked once, but for partitions that are gone since."""
        ends = client.latest() if self._until is None else self._until
        return {partition: at for partition, at in ends.items() if partition in reaches[0].rows_from}

    def _reaches(self, client: SourceClient) -> list[Reach]:
        """How far each table has come; creates the tables whose schema is declared."""
        letters = self._lake.letters.open(self._pipeline.name)
        found = []
        for name in self.tables:
            try:
                # A copy, as other flows may add to it meanwhile.
                transactions = dict(letters.transactions) if letters else {}
                held = positions_of(transactions, self._pipeline.name, self.source, letters_of=name)
                if name in self._routes:
                    found += self._routed_reaches(client, self._routes[name], held)
                else:
                    found.append(self._reach(client, self._lake.places[name], held))
            except TableError as error:
                if error.retryable:
                    raise
                self.fail(name, error)
        return found

    def _reach(self, client: SourceClient, place: Place, letters: Offsets) -> Reach:
        name, source = self._pipeline.name, self.source
        table = place.open(name)
        if table is not None:
            self._settle_letters(place)
        transactions = dict(table.transactions) if table else {}
        held = positions_of(transactions, name, source)
        is_new = not held
        rows_from = (
            client.check(held, marks_of(transactions, name, source)) if held else self._begin(client, place)
        )
        columns = place.columns()
        if table is None and columns is not None:
            table = self._create(place, columns, rows_from, client.marks())
            transactions = dict(table.transactions)
            held = positions_of(transactions, name, source)
            # Another instance may have been faster, and have begun elsewhere or come further.
            if held and held != rows_from:
                rows_from = client.check(held, marks_of(transactions, name, source))
        if not held:
            refuse_second_copy(self._pipeline, source, place, rows_from, client.marks())
        lettered = standing(self._lake, source, place.name, held, rows_from, letters)
        if is_new and place.name not in self._told and (text := told_of_new(place.name, lettered)):
            self._told.add(place.name)
            self._watcher.changed(place.name, text)
        return Reach(
            place,
            rows_from,
            logged={p: at - 1 for p, at in positions_of(transactions, name, source).items()},
            letters_logged={p: at - 1 for p, at in letters.items()},
            lettered=lettered,
            marks=marks_of(transactions, name, source),
            jumps={p: (at, rows_from[p]) for p, at in held.items() if rows_from.get(p, at) != at},
            shape=place.shape,
        )

    def _routed_reaches(self, client: SourceClient, route: RoutedTables, letters: Offsets) -> list[Reach]:
        """How far each table of a route has come, and all of them together.

        A table without a position holds no event of the source that its neighbours have passed: it was made
        before any of them went on.
        """
        name, source = self._pipeline.name, self.source
        held = {}
        for place in route.find():
            table = place.open(name)
            held[place.name] = (place, dict(table.transactions) if table else {})
        passed = {
            each: client.check(positions_of(txns, name, source), marks_of(txns, name, source))
            for each, (_, txns) in held.items()
            if positions_of(txns, name, source)
        }
        start = lowest(passed.values()) if passed else self._begin(client, route.front)
        if not passed:
            for place, _ in held.values():
                refuse_second_copy(self._pipeline, source, place, start, client.marks())
        reaches = [
            Reach(
                place,
                passed.get(each, start),
                logged={p: at - 1 for p, at in positions_of(txns, name, source).items()},
                letters_logged={},
                lettered={},
                marks=marks_of(txns, name, source),
                shape=place.shape,
            )
            for each, (place, txns) in held.items()
        ]
        known = {partition: at - 1 for partition, at in letters.items()}
        lettered = standing(self._lake, source, route.front.name, {}, start, letters)
        return [Reach(route.front, start, {}, known, lettered, {}), *reaches]

    def _settle_letters(self, place: Place) -> None:
        """Finish a replay or rewind that was killed; nothing that the flow reads depends on it."""
        try:
            if settle(self._lake, place):
                self._watcher.changed(
                    place.name, "dead letters settled after a replay or rewind was cut short"
                )
        except TableError as error:
            if error.retryable:
                raise
            _log.warning("%s", error)

    def _record_beginnings(self, reaches: list[Reach], landing: Landing) -> Outcome | None:
        """Give a table that knows nothing of the source its positions before anything is read.

        An Outcome names the tables that cannot be written.
        """
        for reach in reaches:
            if reach.place.exists and not reach.logged:
                for partition, at in reach.rows_from.items():
                    reach.extend(OffsetRange(partition, at, at), 0, 0)
        failures = landing.record_positions()
        return Outcome(failures=failures) if failures else None

    def _begin(self, client: SourceClient, place: Place) -> Offsets:
        """Where a table without a position begins.

        Asked once, as `latest` moves on while nothing is recorded yet; partitions that have come since are
        read from their beginning.
        """
        known = self._begins.get(place.name)
        self._begins[place.name] = client.start() if known is None else client.check(known, {})
        return self._begins[place.name]

    def _create(self, place: Place, columns: pa.Schema, start: Offsets, marks: dict[str, int]) -> LakeTable:
        name, source = self._pipeline.name, self.source
        transactions = {application_id(name, source, partition): at - 1 for partition, at in start.items()}
        transactions |= {mark_id(name, source, mark): number for mark, number in marks.items()}
        table = place.create(columns, transactions, {"pipeline": name, "source": source, "kind": "create"})
        self._watcher.changed(place.name, f"created at {place.path}")
        return table

    def _plan(self, reaches: list[Reach]) -> FlowPlan:
        pipeline = self._pipeline
        spec = source_of(pipeline, self.source)
        tables = [
            self._routed_plan(reach, reaches)
            if reach.place.name in self._routes
            else reach.place.plan(reach.shape, reach.rows_from, reach.lettered)
            for reach in reaches
            if not reach.is_routed
        ]
        return FlowPlan(
            pipeline=pipeline.name,
            source_name=self.source,
            source=spec,
            format=format_of(spec),
            tables=tuple(tables),
            letters_path=self._lake.letters.path,
            letters_storage=self._lake.letters.storage,
            cores=self.cores,
            sync=pipeline.sync,
            most_bytes=2 * pipeline.flush_for(self.source).bytes,
        )

    def _routed_plan(self, reach: Reach, reaches: list[Reach]) -> TablePlan:
        route = self._routes[reach.place.name]
        columns = route.columns()
        tables = {
            tuple(one.place.name.split("/")[1:]): RoutedTable(
                one.place.name, one.place.path, one.place.target(one.shape), one.rows_from
            )
            for one in reaches
            if one.shape and one.is_routed and group_of(one.place.name) == reach.place.name
        }
        return replace(
            reach.place.plan(None, reach.rows_from, reach.lettered),
            columns=columns,
            rules=reach.place.rules(columns),
            route=route.route,
            routed=tables,
            reserved=self._lake.reserved(route.route),
            full=len(tables) >= route.most,
        )

    def _settle(self, outcome: Outcome | None, client: SourceClient) -> bool:
        """Change the tables that a batch asked to change; False when a new life must go on from there."""
        if outcome is None:
            return True
        for name, error in outcome.failures.items():
            if error.retryable or not isinstance(error, TableError):
                raise error
            self.fail(group_of(name), error)
        for name, proposal in sorted(outcome.proposals.items()):
            try:
                if group_of(name) in self._routes:
                    self._evolve_route(name, proposal, client, outcome.start)
                else:
                    self._evolve(self._lake.places[name], proposal, client)
            except TableError as error:
                if error.retryable:
                    raise
                self.fail(group_of(name), error)
        return False

    def _evolve_route(self, name: str, proposal: pa.Schema, client: SourceClient, start: Offsets) -> None:
        """Make a table of a route or give it columns; or remember columns until it shows whose they are."""
        route = self._routes[group_of(name)]
        if name == route.front.name:
            refuse_too_wide(name, route.columns(), proposal)
            route.learn(proposal)
            self._refusals.inferred(name, proposal)
            return self._tell_inferred(route.front, proposal)
        place = route.place(name)
        if place is None:
            return None
        if not place.exists and place.open(self._pipeline.name) is None:
            self._create(place, route.columns_for(proposal), start, client.marks())
        else:
            self._add(place, route.without_made(proposal))
        return None

    def _evolve(self, place: Place, proposal: pa.Schema, client: SourceClient) -> None:
        refuse_too_wide(place.name, place.columns(), proposal)
        if not place.exists:
            self._create(place, proposal, self._begin(client, place), client.marks())
            self._refusals.inferred(place.name, proposal)
            self._tell_inferred(place, proposal)
            return
        refuse_new_columns(place, proposal)
        self._add(place, proposal)

    def _add(self, place: Place, proposal: pa.Schema) -> None:
        account = {"pipeline": self._pipeline.name, "source": self.source, "kind": "evolve"}
        before = place.table.schema
        for text in additions(before, place.add(proposal, account)):
            self._watcher.changed(place.name, text)
        self._tell_inferred(place, proposal)

    def _tell_inferred(self, place: Place, proposal: pa.Schema) -> None:
        assert place.spec is not None
        if lines := sighting_lines(proposal, place.spec.evolve.type_change):
            self._watcher.inferred(place.name, lines)

    def _folder(self) -> Path:
        """A checkpoint directory for one life.

        Positions come from the tables, so an old one has nothing to say.
        """
        shutil.rmtree(self._state, ignore_errors=True)
        return self._state / uuid.uuid4().hex

    def fail(self, table: str, error: TableError) -> None:
        """Go on without a table that cannot be written."""
        self.failures[table] = error
        error.told = True
        self._watcher.stopped(f"table {table}", str(error))
