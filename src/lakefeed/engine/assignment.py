"""Which flow feeds which tables of a source.

Most of the time one flow feeds them all. A table that is far behind, or whose store is away, goes to a flow
of its own and comes back, so that it holds up nobody. The table is the checkpoint, so a change of hands is
nothing but that: the next flow goes on from the positions in the table's log.
"""

from __future__ import annotations

import logging
import threading
from collections import ChainMap
from collections.abc import Hashable, Iterable, Iterator, Mapping
from contextlib import contextmanager

from lakefeed.engine.batch.event_counter import EventCounter
from lakefeed.engine.batch.refusals import Refusals
from lakefeed.engine.run_events import SourceTrouble, TableDelayed, TableStopped, Watcher
from lakefeed.errors import LakefeedError
from lakefeed.events import Offsets, lowest
from lakefeed.handles.routed_tables import RoutedTables
from lakefeed.handles.table_plan import TableId
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.route import Key, safe_value
from lakefeed.sources import Membership, SourceClient, source_of

_log = logging.getLogger("lakefeed")
MAIN = 0
_MOST_FLOWS = 4
"""Flows of a source among which tables are spread by how far behind they are."""
_BYTES = 512
"""What an event is taken to weigh where batches are limited by bytes."""
_FAR = 3
"""Batches behind the others from which on a table gets a flow of its own: to read fewer together with the
others takes about as long as one more query needs to start."""


class Assignments:
    """The tables of one source. A table belongs to one flow at a time.

    Only the flow that has a table may give it away, and only while no run of it feeds the table.
    """

    def __init__(self, tables: Tables, source: str, watch: Watcher) -> None:
        fed = tables.pipeline.tables_of(source)
        flush = tables.pipeline.flush_for(source)
        self.source = source
        self.watch = watch
        self.failures: dict[str, LakefeedError] = {}
        """Tables that cannot be written; the flows go on without them."""
        self.starts: dict[str, Offsets] = {}
        """Where tables without a position begin: `latest` is asked once."""
        self.unfit: dict[str, dict[str, str]] = {}
        """By table the streams that do not fit it and are skipped, with why; found again at each start."""
        self.lost: dict[str, dict[str, str]] = {}
        """By table the streams that it cannot read on in this run, with why; it goes on with its others."""
        self.untaken: dict[str, str] = {}
        """Streams that could be read and that no table takes, with what to do about it."""
        self.has_begun = False
        """Whether a run of a flow has found where its tables begin."""
        self.told: set[str] = set()
        """What a run says once: the names of new tables with pending dead letters, and warnings."""
        self.ends_seen: Offsets = {}
        """The last end of each partition, for every client of the run: see `SourceClient.ends_seen`."""
        self.membership: Membership | None = None
        """This process among those that share the partitions of the source, once it has joined them."""
        self.until: Offsets | None = None
        """Where a run that ends by itself ends, for every flow of the source."""
        self.routes = {name: RoutedTables(tables, name) for name in tables.routes if name in fed}
        self.counter = EventCounter()
        self._spec = source_of(tables.pipeline, source)
        # `lakefeed files list` shows a file by its number.
        in_words = self._spec.describe_offset if self._spec.reads_files else lambda _: None
        self.refusals = Refusals(source, tables.pipeline.dead_letters.stop_above, in_words)
        self.near = min(flush.rows, max(1, flush.bytes // _BYTES))
        """Events behind the main flow from which on a table may join it: about a batch."""
        self._rows = flush.rows
        self._fed = fed
        self._pipeline, self._name_file = tables.pipeline.name, tables.pipeline.name_file
        self._lock, self._joining = threading.RLock(), threading.Lock()
        self._holder = dict.fromkeys(fed, MAIN)
        self._feeding: dict[str, int] = {}
        self._returned: set[str] = set()
        self._news = False
        self._ended: set[int] = set()
        self._keeping: set[int] = set()
        self._flows = 1
        self._position: Offsets = {}
        self._recorded: dict[str, dict[Key, Offsets]] = {}
        self._stopped: dict[TableId, Offsets | None] = {}
        """Tables of a route that cannot be written, with the positions in their logs; None: not known."""

    def join(self, client: SourceClient, stop: threading.Event) -> int:
        """Take part in sharing the partitions, where the source says so; returns the generation.

        Once for all flows and all their runs: whoever leaves makes the group assign everything anew.
        """
        with self._joining:
            if self.membership is not None and self.membership.has_ended:
                self.membership.close()
                self.membership = None
            if self.membership is None:
                if self._spec.shares_partitions:
                    # Says what is wrong with a topic, where the group would only wait for it.
                    client.latest()
                self.membership = self._spec.join(self._pipeline, self.source, stop)
        return self.membership.generation if self.membership else 0

    def leave(self) -> None:
        """Leave the partitions to other processes."""
        if self.membership is not None:
            self.membership.close()

    def main(self) -> Assignment:
        """The assignment of the flow that begins with every table."""
        return Assignment(self, MAIN)

    def held_by(self, flow: int) -> list[str]:
        """The tables that a flow is to feed, those that have failed left out."""
        with self._lock:
            return [name for name, one in self._holder.items() if one == flow and name not in self.failures]

    @contextmanager
    def feeding(self, flow: int) -> Iterator[list[str]]:
        """Feed the tables of a flow; no other flow may have one of them at hand."""
        with self._lock:
            tables = self.held_by(flow)
            twice = [name for name in tables if name in self._feeding]
            if twice:
                raise RuntimeError(f"table {twice[0]} would be fed by two flows of source {self.source}")
            self._feeding |= dict.fromkeys(tables, flow)
            self._news = self._news and flow != MAIN
        try:
            yield tables
        finally:
            with self._lock:
                self._feeding = {name: one for name, one in self._feeding.items() if one != flow}

    def part(self, flow: int, tables: Iterable[str]) -> int:
        """Give tables to a new flow; returns its number."""
        with self._lock:
            number, self._flows = self._flows, self._flows + 1
            for name in tables:
                if self._holder[name] != flow or self._feeding.get(name, flow) != flow:
                    raise RuntimeError(f"table {name} is not at flow {flow} of source {self.source}")
                self._feeding.pop(name, None)
                self._holder[name] = number
            return number

    def give_back(self, flow: int) -> bool:
        """Give all tables of a flow to the main one; False when that has ended."""
        with self._lock:
            if MAIN in self._ended:
                return False
            if flow in self._feeding.values():
                raise RuntimeError(f"flow {flow} of source {self.source} still feeds its tables")
            for name in self.held_by(flow):
                self._holder[name] = MAIN
                self._returned.add(name)
                self._news = True
            self._ended.add(flow)
            return True

    def end(self, flow: int, tables: list[str] | None = None) -> bool:
        """End a flow; False when it has got tables other than those that it knows of."""
        with self._lock:
            if tables is not None and set(self.held_by(flow)) - set(tables):
                return False
            self._ended.add(flow)
            return True

    def has_ended(self, flow: int) -> bool:
        """Whether a flow takes no tables any more."""
        with self._lock:
            return flow in self._ended

    def keep(self, flow: int, keeps: bool) -> None:
        """Note whether a flow keeps its tables, however far they have come."""
        with self._lock:
            self._keeping = self._keeping | {flow} if keeps and flow != MAIN else self._keeping - {flow}

    def keeps(self, flow: int) -> bool:
        """Whether a flow keeps its tables."""
        with self._lock:
            return flow in self._keeping

    def has_news(self) -> bool:
        """Whether the main flow has been given tables that it does not live with yet."""
        with self._lock:
            return self._news

    def arrive(self, position: Offsets) -> None:
        """Note how far the main flow has come."""
        with self._lock:
            self._position = dict(position)

    def position(self) -> Offsets:
        """How far the main flow has come; empty before it has begun."""
        with self._lock:
            return dict(self._position)

    def far(self, client: SourceClient, positions: Mapping[str, Offsets]) -> dict[str, int]:
        """Those among tables that are far behind the one that is furthest, and by how many events."""
        with self._lock:
            if self._flows - len(self._ended | self._keeping) >= _MOST_FLOWS:
                return {}
            top: Offsets = {}
            for one in positions.values():
                top |= {name: max(at, top.get(name, at)) for name, at in one.items()}
            gaps = {name: waiting(client, one, top) for name, one in positions.items()}
            least = min(gaps.values(), default=0)
            behind = {name: gap - least for name, gap in gaps.items()}
            return {name: gap for name, gap in behind.items() if gap > self._limit(name)}

    def strands(self, client: SourceClient, positions: Mapping[str, Offsets]) -> list[list[str]]:
        """Tables whose positions cannot be compared with those of the others, in groups that go together.

        The main flow keeps the strand that all come to in the end, else that of its first table.
        """
        groups: dict[Hashable, list[str]] = {}
        for name, position in positions.items():
            groups.setdefault(client.strand(position), []).append(name)
        kept = None if None in groups else next(iter(groups), None)
        return [names for strand, names in groups.items() if strand != kept]

    def _limit(self, name: str) -> int:
        """Events from which on a table is far; more for one that has just come back from a flow of its own.

        The main flow may have gone on by a batch since.
        """
        return _FAR * self.near + (2 * self._rows if name in self._returned else 0)

    def record(self, positions: Mapping[TableId, Offsets]) -> None:
        """Keep what the logs of some tables hold; those of a route are told together."""
        with self._lock:
            for table in {one.table for one in positions}:
                own = {one.key: dict(at) for one, at in positions.items() if one.table == table}
                if len(own) > 1:
                    # What stands for the route has no log.
                    own.pop((), None)
                self._recorded[table] = own

    def recorded(self) -> Offsets:
        """The positions that the log of every table holds, those that have failed among them.

        Empty while one of them is not known; without a partition that one of its tables does not know.
        """
        with self._lock:
            stopped = list(self._stopped.values())
            if set(self._holder) - set(self._recorded) or None in stopped:
                return {}
            groups = {name: list(own.values()) for name, own in self._recorded.items()}
            together = lowest(at for group in groups.values() for at in group)
            found = {
                partition: position
                for partition, position in together.items()
                if all(self._knows(name, partition) for name in self.takers(partition, groups))
            }
            # The source keeps what they have not got.
            return lowest([found, *filter(None, stopped)]) if found else {}

    def _knows(self, table: str, partition: str) -> bool:
        """Whether the log of a table, or those of all tables of a route that take a partition, have it."""
        found = [partition in at for at in self._recorded[table].values()]
        route = self.routes.get(table)
        return any(found) if route and route.by_stream else all(found)

    def takes(self, stream: str | None) -> bool:
        """Whether some table takes a stream, whichever flow feeds it."""
        return any(self._reads(name, stream) for name in self._fed)

    def takers(self, partition: str, tables: Iterable[str]) -> list[str]:
        """Those among tables that take the stream of a partition."""
        stream = self._spec.stream_of(partition)
        return [name for name in tables if self._reads(name, stream)]

    def left_out_by(self, table: str) -> ChainMap[str, str]:
        """The streams that a table takes and does not read; the answer follows what is found later."""
        return ChainMap(self.unfit.setdefault(table, {}), self.lost.setdefault(table, {}))

    def _reads(self, table: str, stream: str | None) -> bool:
        return self._fed[table].takes(stream) and stream not in self.left_out_by(table)

    def lose(self, table: TableId, stream: str, error: LakefeedError, *, is_open: bool = True) -> None:
        """Go on without a stream that a table cannot take, or whose table of a route cannot even be opened.

        As with any table that has failed, the source keeps what it has not got.
        """
        with self._lock:
            if stream in self.lost.setdefault(table.table, {}):
                return
            self._name_file(error)
            self.lost[table.table][stream] = str(error)
            self.failures[f"{table}: {stream}"] = error
            held = self._recorded.get(table.table, {}).get(table.key)
            if held or not is_open:
                self._stopped[table] = held
        error.reported = True
        if table.key:
            self.watch(TableStopped(str(table), str(error)))
        else:
            _log.error("%s", error)

    def stream_of(self, table: TableId, client: SourceClient) -> str | None:
        """The stream that a table of a route takes; None where the source has none of that name any more."""
        return next((one for one in client.streams() if (safe_value(one),) == table.key), None)

    def left_out(self, client: SourceClient) -> tuple[dict[str, str], dict[str, str]]:
        """Streams that are skipped, and streams that have stopped while others are read, each with why."""
        skipped = self.untaken | {stream: text for one in self.unfit.values() for stream, text in one.items()}
        stopped = {stream: text for one in self.lost.values() for stream, text in one.items()}
        for stream, finding in client.left_out().items():
            text = f"{finding.text}\n{finding.remedy}" if finding.remedy else finding.text
            (stopped if finding.state == "fail" else skipped)[stream] = text
        return skipped, stopped


class Assignment:
    """The tables of one flow, among those of its source."""

    def __init__(self, assignments: Assignments, number: int, failing_since: float | None = None) -> None:
        self.assignments = assignments
        self.number = number
        self.failing_since = failing_since
        """Since when the store of its tables is away, by the clock of `time.monotonic`."""
        self.batches = 0
        """Batches that the flow has committed."""

    @property
    def is_main(self) -> bool:
        """Whether tables come together here."""
        return self.number == MAIN

    @property
    def is_extra(self) -> bool:
        """Whether there is a main flow to leave room for, and to join."""
        return not self.is_main and not self.assignments.has_ended(MAIN)

    @property
    def keeps(self) -> bool:
        """Whether the flow keeps its tables for good, as they cannot run together with others."""
        return self.assignments.keeps(self.number)

    def keep(self, keeps: bool) -> None:
        """Say whether the flow keeps its tables; the main one has no other to give them to."""
        self.assignments.keep(self.number, keeps)

    @property
    def tables(self) -> list[str]:
        """The tables that the flow is to feed."""
        return self.assignments.held_by(self.number)

    def part(self, tables: Iterable[str], failing_since: float | None = None) -> Assignment:
        """The assignment of a new flow that takes these tables from this one."""
        return Assignment(self.assignments, self.assignments.part(self.number, tables), failing_since)

    def leave(self) -> None:
        """Take no more tables: the flow has ended."""
        self.assignments.end(self.number)

    @property
    def generation(self) -> int:
        """What is assigned to this process, as a number that grows with each change."""
        membership = self.assignments.membership
        return membership.generation if membership else 0

    @property
    def is_settled(self) -> bool:
        """Whether it is known what this process reads."""
        membership = self.assignments.membership
        return membership is None or membership.is_settled

    def own(self, offsets: Offsets) -> Offsets:
        """What of it is about partitions that this process reads: all, unless it shares them."""
        membership = self.assignments.membership
        return membership.own(offsets) if membership else offsets

    def acknowledge(self, client: SourceClient, positions: Offsets) -> None:
        """Tell the source what every table has, as a member of a group or as the only reader."""
        membership = self.assignments.membership
        (membership.acknowledge if membership else client.acknowledge)(positions)

    def ends(self, ends: Offsets) -> Offsets:
        """Where a flow reads to in the streams of its tables.

        What the main flow has passed is there, whoever asks.
        """
        passed = self.assignments.position() if self.is_extra else {}
        fed = self.tables
        return {
            name: max(at, passed.get(name, at))
            for name, at in ends.items()
            if self.assignments.takers(name, fed)
        }

    def is_over(self, client: SourceClient, position: Offsets, ends: Offsets, kept: bool = True) -> bool:
        """Whether a run should end, at these positions, so that tables come together.

        A table whose store was away has to commit something first, and one that has not been made yet would
        begin anew: its positions are not `kept` anywhere.
        """
        if self.is_main:
            self.assignments.arrive(position)
            return self.assignments.has_news()
        passed = self.assignments.position()
        if self.keeps or not kept or not self.is_extra or not passed:
            return False
        if client.strand(position) != client.strand(passed):
            return False
        if not self.batches and waiting(client, position, ends):
            return False
        return waiting(client, position, passed) <= self.assignments.near

    def trouble(self, text: str, *, waits: bool = False) -> None:
        """Tell what is being retried: of the source, or of tables that have a flow of their own."""
        told = self.assignments
        if self.is_main:
            told.watch(SourceTrouble(told.source, text, waits))
        else:
            for name in self.tables:
                told.watch(TableDelayed(name, told.source, text))

    def committed(self, positions: Mapping[TableId, Offsets]) -> Offsets:
        """Take note of what logs hold; returns what the logs of all tables of the source hold."""
        self.assignments.record(positions)
        return self.assignments.recorded()


def waiting(client: SourceClient, position: Offsets, ends: Offsets) -> int:
    """Events between positions and ends, over all partitions."""
    return sum(client.rows_between(position, ends).values())
