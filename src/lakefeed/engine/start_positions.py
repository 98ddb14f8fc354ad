"""Where the tables of a flow begin: what their logs say, and what a table without a position reads first."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, suppress
from shlex import quote

import pyarrow as pa

from lakefeed.dead_letters.pending import pending_dead_letters, reread, start_of, told_of_new
from lakefeed.dead_letters.predecessor import (
    ANY_TABLE,
    NO_TABLE,
    Owner,
    of_stream,
    outdated_text,
    remove_outdated,
    table_number,
)
from lakefeed.dead_letters.reconcile import reconcile
from lakefeed.engine.assignment import Assignments
from lakefeed.engine.new_columns import NewColumns
from lakefeed.engine.run_events import CopyOutdated, TableChanged, TableStopped
from lakefeed.errors import Conflict, DataLoss, LakefeedError, StreamsLost, TableError, TopicDeleted
from lakefeed.events import DELETED_END, Offsets, lowest
from lakefeed.handles.change_advice import mapping_warning, route_warning, vectors_warning
from lakefeed.handles.handle import COPIES, TableHandle
from lakefeed.handles.modes import open_until
from lakefeed.handles.progress import TableProgress
from lakefeed.handles.routed_tables import RoutedTables
from lakefeed.handles.sharing import (
    other_feeders,
    refuse_ingested,
    refuse_second_copy,
    refuse_seek_ahead,
)
from lakefeed.handles.table_plan import TableId
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.table import Table
from lakefeed.sources import Finding, Reread, SourceClient, folded, source_of
from lakefeed.sources.held_positions import held_positions, ingest_transactions, own_positions
from lakefeed.sources.subscription import StreamsClient, taken, taken_marks, unfit_streams, untaken_streams
from lakefeed.tables.positions import application_id, mark_id, marks_of, positions_of
from lakefeed.tables.rewrite.stored_defaults import fill
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.mode import Change
from lakefeed.text import sentence, without_name

_log = logging.getLogger("lakefeed")


class StartPositions:
    """Opens the tables of a source, creates those whose schema is declared, and tells how far each is."""

    def __init__(self, tables: Tables, assignments: Assignments) -> None:
        self._tables = tables
        self._assignments = assignments
        self._source = assignments.source
        self._watch = assignments.watch
        self._new_columns = NewColumns(tables, assignments)

    def copies(self, names: Iterable[str]) -> dict[TableId, LakefeedError]:
        """The tables that hold the events of this source under another name, each with its refusal.

        Asked before anything is committed, to the source's own tables as well: a name with a position, even
        after a commit without rows, is a feeder of its own.
        """
        suspects = {name: handles for name in names if (handles := self._fed_by_others(name))}
        found: dict[TableId, LakefeedError] = {}
        if not suspects:
            return found
        pipeline, spec = self._tables.pipeline, source_of(self._tables.pipeline, self._source)
        with closing(spec.client(pipeline.name, self._source)) as client:
            client.takes = self._assignments.takes  # type: ignore[method-assign]
            for name, handles in suspects.items():
                seen = self._seen_by(handles[0], client)
                try:
                    start, marks = seen.start(), seen.marks()
                    for handle in handles:
                        refuse_second_copy(pipeline, self._source, handle, start, marks)
                except TableError as error:
                    found[TableId(name)] = error
        return found

    def _fed_by_others(self, name: str) -> list[TableHandle]:
        """The tables of a name that have a position of others, where none has one of this source."""
        pipeline = self._tables.pipeline
        routed = name in self._assignments.routes
        handles = self._assignments.routes[name].find() if routed else [self._tables.handles[name]]
        try:
            opened = [handle for handle in handles if handle.look()]
        except TableError:
            # Opened again by its flow, which reports the error.
            return []
        if any(
            self._held(handle, handle.table.transactions) or (handle.spec and handle.spec.share)
            for handle in opened
        ):
            return []
        return [handle for handle in opened if other_feeders(pipeline, handle)]

    def find(
        self, client: SourceClient, names: Iterable[str]
    ) -> tuple[list[TableProgress], dict[TableId, LakefeedError]]:
        """How far each table has come, and the tables that cannot be opened."""
        pipeline = self._tables.pipeline.name
        dead_letters = self._tables.dead_letters.open(pipeline)
        found: list[TableProgress] = []
        failures: dict[TableId, LakefeedError] = {}
        self._tell_untaken(client)
        for name in names:
            try:
                # A copy, as other flows may add to it meanwhile.
                transactions = dict(dead_letters.transactions) if dead_letters else {}
                held = positions_of(transactions, pipeline, self._source, dead_letters_of=name)
                if name in self._assignments.routes:
                    found += self._routed_progress(client, self._assignments.routes[name], held)
                else:
                    found.append(self._progress_of(client, self._tables.handles[name], held))
            except TableError as error:
                failures[TableId(name)] = error
            except TopicDeleted as error:
                self._record_ends(names, error.ends)
                raise
        for text in client.warnings():
            self._warn(f"source {self._source}: {text}")
        for progress in found:
            handle = progress.handle
            texts = vectors_warning(handle), mapping_warning(handle), route_warning(handle)
            for text in filter(None, texts):
                self._warn(f"table {progress.handle.name}: {text}")
        self._assignments.has_begun = True
        return found, failures

    def _warn(self, text: str) -> None:
        """Log a warning once in a run."""
        if text not in self._assignments.told:
            self._assignments.told.add(text)
            _log.warning("%s", ". ".join(text.splitlines()))

    def _record_ends(self, names: Iterable[str], ends: Offsets) -> None:
        """Let the tables' logs hold the ends of deleted partitions, for starts that cannot see them."""
        pipeline, source = self._tables.pipeline.name, self._source
        for name in names:
            routed = name in self._assignments.routes
            handles = self._assignments.routes[name].find() if routed else [self._tables.handles[name]]
            for handle in handles:
                with suppress(TableError), handle.lock:
                    if (table := handle.look()) is None:
                        continue
                    held = positions_of(table.transactions, pipeline, source)
                    marks = {
                        mark_id(pipeline, source, partition + DELETED_END): end
                        for partition, end in ends.items()
                        if partition in held
                    }
                    new = {name: end for name, end in marks.items() if table.transactions.get(name) != end}
                    if new:
                        about = {"pipeline": pipeline, "source": source, "kind": "position"}
                        info = {**about, "rows": 0, "ranges": {}}
                        commit(table, Change([], new, {}, info), handle.mode, retries=5)

    def begin(
        self,
        client: SourceClient,
        handle: TableHandle,
        held: Offsets | None = None,
        dead_letters: Offsets | None = None,
    ) -> Offsets:
        """Where a table without a position begins, or the partitions that are not held begin.

        Asked once, as `latest` moves on while nothing is recorded yet; partitions that have come since are
        read from their beginning.
        """
        client = self._seen_by(handle, client)
        known = self._assignments.starts.get(handle.name)
        if known is not None:
            start = client.check(self._taken(handle, known), {})
        elif held:
            start = client.start_beside(held)
        else:
            start = start_of(self._tables, client, self._source, handle.name, dead_letters or {})
        self._assignments.starts[handle.name] = start
        return start

    def create(
        self,
        handle: TableHandle,
        columns: pa.Schema,
        start: Offsets,
        client: SourceClient,
        kept: Mapping[str, str] | None = None,
    ) -> LakeTable:
        """Create a table with its first positions; another instance may be faster.

        `kept` are properties for columns that only the events have.
        """
        name, source = self._tables.pipeline.name, self._source
        assert handle.spec is not None
        start = self._taken(handle, start)
        left_out = self._assignments.left_out_by(handle.id.table)
        spec = source_of(self._tables.pipeline, source)
        marks = taken_marks(spec, handle.spec, client.marks(), left_out) | client.begun(start, {})
        transactions = {application_id(name, source, partition): at - 1 for partition, at in start.items()}
        last = {partition: at - 1 for partition, at in start.items()}
        transactions |= ingest_transactions(self._tables.pipeline, source, handle.spec, last)
        transactions |= {mark_id(name, source, mark): number for mark, number in marks.items()}
        commit_info = {"pipeline": name, "source": source, "kind": "create"}
        table = handle.create(columns, transactions, commit_info, kept)
        self._watch(TableChanged(handle.name, f"created at {handle.path}"))
        return table

    def _progress_of(self, client: SourceClient, handle: TableHandle, dead_letters: Offsets) -> TableProgress:
        name, source = self._tables.pipeline.name, self._source
        assert handle.spec is not None
        self._skip_unfit(client, handle)
        table, client = self._new_columns.open(handle, client), self._seen_by(handle, client)
        if table is not None:
            self._reconcile_dead_letters(handle)
            commit_info = {"pipeline": name, "source": source, "kind": "evolve"}
            fill(table, commit_info, open_until(handle.spec))
        transactions = dict(table.transactions) if table else {}
        held = self._held(handle, transactions)
        is_new = not held
        rows_from = self._go_on_from(client, handle, held, transactions, dead_letters)
        beginning = self._new_columns.beginning(handle, client) if table is None else None
        if beginning is not None:
            columns, kept = beginning
            table = self.create(handle, columns, rows_from, client, kept)
            transactions = dict(table.transactions)
            held = self._held(handle, transactions)
            # Another instance may have been faster, and have begun elsewhere or come further.
            if held and held != rows_from:
                rows_from = client.check(held, marks_of(transactions, name, source))
        if not held:
            refuse_second_copy(self._tables.pipeline, source, handle, rows_from, client.marks())
        ahead = {partition: at for partition, at in rows_from.items() if at >= held.get(partition, at)}
        replaced, number = client.replaced_from(ahead), table_number(handle.shape)
        again = self._reread(client, handle.name, rows_from, dead_letters) if is_new else "never"
        owner = Owner(handle.name, number, replaced, is_new, client.marks(), client.unreadable, again)
        self._remove_outdated(handle.name, dead_letters, [owner])
        pending = pending_dead_letters(
            self._tables, source, handle.name, held, rows_from, dead_letters, [owner]
        )
        told = self._assignments.told
        if is_new and handle.name not in told and (text := told_of_new(handle.file, handle.name, pending)):
            told.add(handle.name)
            self._watch(TableChanged(handle.name, text))
        self._tell_outdated(handle, client, marks_of(transactions, name, source), rows_from)
        own = own_positions(self._tables.pipeline, source, handle.spec, transactions)
        refuse_ingested(self._tables.pipeline, source, handle, rows_from, own)
        names = ingest_transactions(self._tables.pipeline, source, handle.spec, dict.fromkeys(rows_from, 0))
        moved = {p: (own.get(p, at), rows_from[p]) for p, at in held.items() if rows_from.get(p, at) != at}
        return TableProgress(
            handle,
            rows_from,
            logged={p: at - 1 for p, at in own.items()},
            dead_letters_logged={p: at - 1 for p, at in dead_letters.items()},
            pending=pending,
            marks=marks_of(transactions, name, source),
            ingest={one: transactions[one] for one in names if one in transactions},
            adopted={p: (at, held[p]) for p, at in own.items() if held[p] > at and p not in moved},
            jumps=moved,
            shape=handle.shape,
        )

    def _tell_outdated(
        self, handle: TableHandle, client: SourceClient, marks: Mapping[str, int], start: Offsets
    ) -> None:
        """Say what a table has not got, and no event will bring, with the command that does."""
        texts = outdated_texts(self._tables.pipeline, self._source, client, marks, start)
        for text in texts:
            if (text_of := f"table {handle.name}: {text}") not in self._assignments.told:
                self._assignments.told.add(text_of)
                _log.warning("%s", text_of)
        if texts and handle.spec and handle.spec.mode in COPIES:
            self._watch(CopyOutdated(handle.name, self._source, texts[0]))

    def _held(self, handle: TableHandle, transactions: Mapping[str, int]) -> Offsets:
        assert handle.spec is not None
        return held_positions(self._tables.pipeline, self._source, handle.spec, transactions)

    def _go_on_from(
        self,
        client: SourceClient,
        handle: TableHandle,
        held: Offsets,
        transactions: Mapping[str, int],
        dead_letters: Offsets,
    ) -> Offsets:
        """Where a table goes on, or begins.

        With `app_id`, partitions that no log knows begin at `start`, as kafka-delta-ingest has it: it writes
        nothing of partitions that it has read nothing of.
        """
        assert handle.spec is not None
        marks = marks_of(transactions, self._tables.pipeline.name, self._source)
        if not held:
            return self.begin(client, handle, dead_letters=dead_letters)
        if handle.spec.app_id is None:
            return self._check(handle, client, held, marks)
        own = own_positions(self._tables.pipeline, self._source, handle.spec, transactions)
        refuse_seek_ahead(self._tables.pipeline, self._source, handle, held)
        return client.check(held if own else {**self.begin(client, handle, held), **held}, marks)

    def _routed_progress(
        self, client: SourceClient, route: RoutedTables, dead_letters: Offsets
    ) -> list[TableProgress]:
        """How far each table of a route has come, and all of them together.

        A table without a position holds no event of the source that its neighbours have passed: it was made
        before any of them went on.
        """
        name, source = self._tables.pipeline.name, self._source
        assert route.front.spec is not None
        self._skip_unfit(client, route.front)
        whole, client = client, self._seen_by(route.front, client)
        held = {handle.name: (handle, txns) for handle, txns in self._open_all(route, whole)}
        logged = {
            each: self._taken(handle, positions_of(txns, name, source))
            for each, (handle, txns) in held.items()
        }
        passed = {
            each: self._check(handle, whole, logged[each], marks_of(txns, name, source))
            for each, (handle, txns) in held.items()
            if logged[each]
        }
        for each, start in passed.items():
            handle, txns = held[each]
            self._tell_outdated(handle, self._seen_by(handle, whole), marks_of(txns, name, source), start)
        # What is wrong with its SQL is told before anything is read.
        self._new_columns.project(route, client)
        start = self._route_start(client, route, passed, dead_letters)
        if not passed:
            for handle, _ in held.values():
                refuse_second_copy(self._tables.pipeline, source, handle, start, client.marks())
        opened = [
            TableProgress(
                handle,
                passed.get(each) or self._taken(handle, start),
                logged={p: at - 1 for p, at in logged[each].items()},
                dead_letters_logged={},
                pending={},
                marks=marks_of(txns, name, source),
                jumps=_moved(logged[each], passed.get(each, {})),
                by_stream=route.by_stream,
                shape=handle.shape,
            )
            for each, (handle, txns) in held.items()
        ]
        known = {partition: at - 1 for partition, at in dead_letters.items()}
        again = "never" if passed else self._reread(client, route.front.name, start, dead_letters)
        owners = self._route_owners(route, client, start, passed, again)
        self._remove_outdated(route.front.name, dead_letters, owners)
        front = route.front.name
        pending = pending_dead_letters(self._tables, source, front, {}, start, dead_letters, owners)
        return [TableProgress(route.front, start, {}, known, pending, {}), *opened]

    def _route_owners(
        self,
        route: RoutedTables,
        client: SourceClient,
        start: Offsets,
        passed: Mapping[str, Offsets],
        again: Reread,
    ) -> list[Owner]:
        """The tables of a route that dead letters are of: one for each stream, or all of them together."""
        replaced = client.replaced_from(start)
        if not route.by_stream:
            number = ANY_TABLE if passed else NO_TABLE
            return [
                Owner(
                    route.front.name, number, replaced, not passed, client.marks(), client.unreadable, again
                )
            ]
        source = source_of(self._tables.pipeline, self._source)
        shapes = {handle.name: handle.shape for handle in route.handles}
        found = []
        for stream in {source.stream_of(partition) for partition in start}:
            own = {name: at for name, at in replaced.items() if source.stream_of(name) == stream}
            name = of_stream(route.front.name, stream)
            number = table_number(shapes.get(name))
            found.append(Owner(name, number, own, name not in passed, client.marks(), client.unreadable))
        return found

    def _remove_outdated(self, table: str, dead_letters: Offsets, owners: list[Owner]) -> None:
        if not dead_letters:
            return
        found = remove_outdated(self._tables, self._source, table, dead_letters, owners)
        if text := outdated_text(found, self._tables.pipeline.file_argument, table):
            self._watch(TableChanged(table, text))

    def _reread(self, client: SourceClient, table: str, start: Offsets, dead_letters: Offsets) -> Reread:
        return reread(self._tables, client, self._source, table, start, dead_letters)

    def _route_start(
        self, client: SourceClient, route: RoutedTables, passed: Mapping[str, Offsets], dead_letters: Offsets
    ) -> Offsets:
        """Where a route goes on, given how far its tables have come."""
        if passed:
            start = lowest(passed.values())
        else:
            start = self.begin(client, route.front, dead_letters=dead_letters)
        # Streams whose table is still to be made are read from their beginning.
        return client.check(start, {}) if route.by_stream else start

    def _open_all(
        self, route: RoutedTables, client: SourceClient
    ) -> Iterator[tuple[TableHandle, dict[str, int]]]:
        """Open the tables of a route; of one by stream, a table that cannot be opened stops alone."""
        for handle in route.find():
            try:
                yield handle, self._opened(handle, client)
            except TableError as error:
                if error.retryable or not route.by_stream:
                    raise
                if stream := self._assignments.stream_of(handle.id, client):
                    self._assignments.lose(handle.id, stream, error, is_open=False)

    def _opened(self, handle: TableHandle, client: SourceClient) -> dict[str, int]:
        """Open a table of a route, finish what was cut short there, and return what its log holds."""
        table = self._new_columns.open(handle, client)
        if table is None:
            return {}
        self._reconcile_dead_letters(handle)
        assert handle.spec is not None
        commit_info = {"pipeline": self._tables.pipeline.name, "source": self._source, "kind": "evolve"}
        fill(table, commit_info, open_until(handle.spec))
        return dict(table.transactions)

    def _seen_by(self, handle: TableHandle, client: SourceClient) -> StreamsClient:
        """The source as a table sees it: with the streams that it takes."""
        assert handle.spec is not None
        left_out = self._assignments.left_out_by(handle.id.table)
        return StreamsClient(client, source_of(self._tables.pipeline, self._source), handle.spec, left_out)

    def _check(
        self, handle: TableHandle, client: SourceClient, held: Offsets, marks: Mapping[str, int]
    ) -> Offsets:
        """Where a table goes on; without streams that it cannot read on, which stop alone."""
        client = self._seen_by(handle, client)
        try:
            return client.check(held, marks)
        except DataLoss as error:
            self._look_again(handle, held)
            if not isinstance(error, StreamsLost):
                raise
            self._assignments.lost[handle.id.table] |= error.streams
            start = client.check(held, marks)
            for stream, text in error.streams.items():
                text = self._tables.pipeline.with_file(text)
                lost = DataLoss(f"source {self._source}: {text}")
                lost.reported = True
                self._assignments.failures[f"{handle.name}: {stream}"] = lost
                if start:
                    _log.error("table %s: %s", handle.name, text)
                else:
                    self._watch(TableStopped(handle.name, text))
            return start

    def _look_again(self, handle: TableHandle, held: Offsets) -> None:
        """Raise Conflict where the table has other positions by now.

        Another instance may have committed since the table was opened, and the source may have forgotten what
        that instance has read: then nothing is lost.
        """
        handle.table.refresh()
        if self._held(handle, handle.table.transactions) != held:
            raise Conflict(f"table {handle.name}: another process has written to it while it was opened")

    def _skip_unfit(self, client: SourceClient, handle: TableHandle) -> None:
        """Skip the streams that a pattern brings and that do not fit a table, each with one warning."""
        assert handle.spec is not None
        known = self._assignments.unfit.get(handle.name, {})
        sources = self._tables.sources_of(handle.spec)
        unfit = unfit_streams(client, sources, handle.name, handle.spec)
        self._assignments.unfit[handle.name] = unfit
        parted = {stream: text.partition("\n") for stream, text in unfit.items() if known.get(stream) != text}
        new = (Finding("skip", text, remedy, stream) for stream, (text, _, remedy) in parted.items())
        for one, same in folded(new):
            stream = one.stream or ""
            words = (sentence(without_name(stream, one.text)), same, one.remedy)
            told = " ".join(word for word in words if word)
            _log.warning("table %s skips %s: %s", handle.name, stream, told)

    def _tell_untaken(self, client: SourceClient) -> None:
        """Say, once, which streams could be read and are not."""
        fed = self._tables.pipeline.tables_of(self._source)
        self._assignments.untaken, known = untaken_streams(client, fed.values()), self._assignments.untaken
        for text in (text for stream, text in self._assignments.untaken.items() if stream not in known):
            _log.warning("source %s: %s", self._source, ". ".join(text.splitlines()))

    def _taken(self, handle: TableHandle, positions: Offsets) -> Offsets:
        """The positions in streams that a table takes; its log keeps those of any that it once took."""
        assert handle.spec is not None
        spec = source_of(self._tables.pipeline, self._source)
        left_out = self._assignments.left_out_by(handle.id.table)
        own = taken(spec, handle.spec, positions)
        return {name: at for name, at in own.items() if spec.stream_of(name) not in left_out}

    def _reconcile_dead_letters(self, handle: TableHandle) -> None:
        """Finish a replay or rewind that was killed; nothing that the flow reads depends on it."""
        try:
            if reconcile(self._tables, handle):
                self._watch(
                    TableChanged(handle.name, "dead letters settled after a replay or rewind was cut short")
                )
        except TableError as error:
            if error.retryable:
                raise
            _log.warning("%s", error)


def outdated_texts(
    pipeline: Pipeline, source: str, client: SourceClient, marks: Mapping[str, int], start: Offsets
) -> list[str]:
    """What a table with these marks has not got, each with the command that brings it."""
    command = f"lakefeed snapshot {pipeline.file_argument} --source {source} --stream"
    return [
        f"{text}.\nStop the run and type: {command} {quote(stream)} --yes"
        for stream, text in client.outdated(marks, start).items()
    ]


def _moved(held: Offsets, going_on: Offsets) -> dict[str, tuple[int, int]]:
    """Where a source has lost events: the offset that was wanted, and the one from which it goes on."""
    return {p: (at, going_on[p]) for p, at in held.items() if going_on.get(p, at) != at}


def confirm_positions(tables: Tables, source: str) -> None:
    """Raise DataLoss where a source has lost what a table needs next; it changes nothing."""
    for _, error in lost_positions(tables, source):
        raise error


def lost_positions(tables: Tables, source: str) -> Iterator[tuple[str, DataLoss]]:
    """The tables that need next what a source has lost.

    A table that cannot be looked at is left to its flow, which tells why.
    """
    pipeline, spec = tables.pipeline, source_of(tables.pipeline, source)
    with closing(spec.client(pipeline.name, source)) as client:
        for name, table in pipeline.tables_of(source).items():
            seen = StreamsClient(client, spec, table)
            for own, transactions in _transactions(tables, name):
                if held := held_positions(pipeline, source, own, transactions):
                    try:
                        seen.check(held, marks_of(transactions, pipeline.name, source))
                    except DataLoss as error:
                        yield name, error


def _transactions(tables: Tables, name: str) -> list[tuple[Table, dict[str, int]]]:
    """What the log of a table holds, or those of the tables of a route; nothing where it is not readable."""
    try:
        routed = name in tables.routes
        handles = list(tables.routed_handles(name).values()) if routed else [tables.handles[name]]
        found = [(handle.spec, handle.look()) for handle in handles]
    except TableError as error:
        _log.debug("%s", error)
        return []
    return [(spec, dict(table.transactions)) for spec, table in found if spec and table]
