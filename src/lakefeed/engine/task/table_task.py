"""One table's way through a task: its rows, and its dead letters."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa

from lakefeed.columns.change_columns import WHOLE_ROW
from lakefeed.columns.naming import as_new
from lakefeed.columns.staged import DELETIONS
from lakefeed.columns.widening import holds_all, merged_proposals, under_names
from lakefeed.engine.batch.manifest import TableManifest
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.task.dead_letter_writer import DeadLetterWriter, count, count_parts
from lakefeed.engine.task.decoding import EventDecoder, key_column, origin_of
from lakefeed.engine.task.deletions import DeletionDecoder
from lakefeed.engine.task.routed_writers import RoutedWriters
from lakefeed.engine.task.steps import event_steps, steps_for
from lakefeed.engine.task.stream_columns import decoder_of
from lakefeed.engine.task.wider_columns import MakeDecoder, WiderColumns
from lakefeed.errors import TableError
from lakefeed.events import Completed, Events, OffsetRange, Refused
from lakefeed.files.names import Serial
from lakefeed.files.parquet import TableWriter
from lakefeed.formats import Decoded
from lakefeed.formats.fit.spellings import dropped_names, spellings_of, with_column_names
from lakefeed.handles.table_plan import StagedPosition, TableId, TablePlan
from lakefeed.rows import Rows, Step, StepResult
from lakefeed.rows.attribution import rows_of, told
from lakefeed.rows.rename import as_in_events, as_in_table
from lakefeed.rows.unchanged import REMEDY
from lakefeed.stores import open_store

_NO_COLUMNS = pa.schema([])
_LACKING = (
    "the change does not carry all columns, and the table has no row of its key that has the others." + REMEDY
)
_HELD_BACK = (
    "the change does not carry all columns, and an older dead letter of its key may have the others: replay "
    "both together, or discard that one first."
)
_NOT_ASKED = (
    "the change does not carry all columns, and the source cannot be asked for the others: columns of its "
    "key, or these columns, have another name or type since." + REMEDY
)


class TableTask:
    """Takes events for one table: rows pass its steps and are written, refusals become dead letters."""

    def __init__(
        self, plan: FlowPlan, table: TablePlan, ranges: Sequence[OffsetRange], serial: Serial | None
    ) -> None:
        self.table = table
        self._serial = serial
        columns = table.decoded or _NO_COLUMNS
        if table.changes:
            columns = table.changes.decoded(columns)
        columns = as_in_events(columns, table.rename)
        left_out = dropped_names(columns, table.rules)
        dropped = [field for field in columns if field.name in left_out]
        columns = pa.schema([field for field in columns if field.name not in left_out])
        key = key_column(plan.source, table.changes, table.rename)
        old = {new: name for name, new in table.rename.items()}
        keys = tuple(old.get(name, name) for name in table.changes.keys) if table.changes else ()
        self.wants = columns, table.rules, key, keys if table.is_keyed else None
        self._spellings = spellings_of(columns, table.rules)
        self.asks = table.asked_columns()
        """The columns that the source is asked for where changes leave them out; None for all."""
        self.decoder: EventDecoder | DeletionDecoder
        self.decoder = decoder_of(plan.source, plan.format, columns, table.rules, key)
        # Of a row that is its own key, a deletion needs all values.
        if table.is_keyed and table.log and table.changes and table.changes.keys != WHOLE_ROW:
            self.decoder = DeletionDecoder(self.decoder, table.log, keys)
        self._wider: WiderColumns | None = None
        if table.widens or table.fixed:
            self._wider = wider_columns(
                table, columns, lambda own, rules: decoder_of(plan.source, plan.format, own, rules, key)
            )
        self._dropped = dropped
        self._steps = self._made_steps(dropped)
        self._plan = plan
        self._pending = {
            (span.partition, *stamp) for span in ranges for stamp in table.pending.get(span.partition, ())
        }
        self._pending_places = {stamp[:-1] for stamp in self._pending}
        self._seen_types, self._other_types = _NO_COLUMNS, _NO_COLUMNS
        self._rows: TableWriter | None = None
        self._routes = RoutedWriters(table, ranges, serial) if table.route else None
        self._dead_letters: DeadLetterWriter | None = None
        self._result = TableManifest(TableId(table.name))

    def _made_steps(self, dropped: Sequence[pa.Field]) -> list[Step]:
        """What rows pass on their way."""
        return steps_for(self.table, dropped, self._serial)

    def taker(self, events: Events) -> TableTask:
        """Who takes these events."""
        return self

    def take(self, completed: Completed, decoded: Decoded) -> None:
        """Take events that were decoded for this table."""
        events = completed.events
        if self._result.error:
            return
        lost = self._lost(events)
        if lost and events.stream and len(events):
            self._result.lost[events.stream] = self._result.lost.get(events.stream, {}) | lost
        if self._asks_for_types(events):
            return
        try:
            if events.problem:
                raise TableError(f"table {self.table.name}: {events.problem}")
            before = self._dead_before(events) if self._pending else set()
            if before:
                self._judge_again(events, decoded, before)
            before |= self._left_out(completed, decoded, before)
            if before:
                decoded = _without(before, events, decoded)
            self._refuse(events, self._widened(events, decoded.refused))
            if decoded.skipped:
                count(self._result.skipped, events, decoded.skipped)
            # Columns are shown before changes, which may be from before one of them got its new name.
            is_early = bool(lost) and not len(events) and self.table.target is not None
            if decoded.unknown is not None and not is_early:
                self._propose(as_new(decoded.unknown))
            if self.table.is_inferring:
                self._result.without_columns += decoded.rows.num_rows
                if self.table.decoded is not None and decoded.rows.num_rows:
                    self._look(Rows(decoded.rows, events, _kept(len(events), _gone(decoded) | before)))
                return
            if self._result.proposal is None and self._routes and self.table.by_stream:
                self._expect_table(self._routes, events, decoded.rows.schema)
            if self._result.proposal is None and decoded.rows.num_rows:
                indexes = _kept(len(events), _gone(decoded) | before)
                self._shape(Rows(decoded.rows, events, indexes, decoded.rescued))
        except TableError as error:
            self._fail(error)

    def _widened(self, events: Events, refused: list[Refused]) -> list[Refused]:
        """Propose the columns that must be wider; the refusals, some with the reason why a column is not."""
        if self._wider is None or not refused:
            return refused
        found = self._wider.look(events, refused)
        if found.columns is not None:
            self._result.wider = merged_proposals(
                self._result.wider, wider_in_table(self.table, found.columns)
            )
            self._propose(_NO_COLUMNS)
        return found.refused

    def _lost(self, events: Events) -> dict[str, str]:
        """Columns that options name and that events of a stream do not have."""
        if events.columns is None or events.stream is None:
            return {}
        names = with_column_names(events.columns.schema.names, self._spellings)
        return {name: option for name, option in self.table.reads.items() if name not in names}

    def refuse(self, error: TableError) -> None:
        """Take nothing, as events have columns that no table can hold."""
        if not self._result.error:
            self._fail(TableError(f"table {self.table.name}: {error}"))

    def _asks_for_types(self, events: Events) -> bool:
        """Propose types of the stream that columns of the table do not hold; then nothing is written."""
        columns, table = events.columns, self.table
        if columns is None or events.stream is None or table.columns is None or not table.follows:
            return False
        if columns.schema is not self._seen_types:
            self._seen_types = columns.schema
            named = as_in_table(columns.schema, table.rename)
            known = [one for one in named if one.name in table.follows]
            other = [one for one in known if not holds_all(table.columns.field(one.name).type, one.type)]
            self._other_types = pa.schema(one.with_nullable(True) for one in other)
        if len(self._other_types):
            self._propose(self._other_types)
        return bool(len(self._other_types))

    def _expect_table(self, routes: RoutedWriters, events: Events, columns: pa.Schema) -> None:
        """Let the stream of these events have its table, with those columns that it has itself."""
        if events.stream is None or events.columns is None:
            # A replay: only a run makes tables.
            return
        own = {*events.columns.schema.names}
        columns = pa.schema([field for field in columns if field.name in own])
        routes.expect(events.stream, as_in_table(columns, self.table.rename))

    @property
    def proposes(self) -> bool:
        """Whether the table must change before it takes rows."""
        return self._result.proposal is not None and not self._result.error

    @property
    def waiting_bytes(self) -> int:
        """What the table holds in memory: its rows, or those of all tables of its route, and dead letters."""
        return sum(writer.waiting_bytes for writer in self._writers())

    def flush(self) -> None:
        """Write what is held. All tables do so together, as one's rows are slices of what others hold."""
        try:
            for writer in self._writers():
                writer.flush()
        except TableError as error:
            self._fail(error)

    def note(self, newest: float | None) -> None:
        """Keep the time of the newest event, for those who ask how fresh the table is."""
        if newest is not None:
            self._result.newest = max(newest, self._result.newest or newest)

    def close(self) -> dict[TableId, TableManifest]:
        """Finish the files; what was done for the table, and for each table of its route."""
        routed: Mapping[TableId, TableManifest] = {}
        try:
            self._result.files = self._rows.close() if self._rows else []
            if self._routes and not self._result.error:
                routed = self._routes.close()
            self._result.dead_letter_files = self._dead_letters.close() if self._dead_letters else []
        except TableError as error:
            self._fail(error)
            routed = {}
        return {self._result.table: self._result, **routed}

    def drop_files(self) -> None:
        """A table that must change first, or cannot be written, gets nothing of this task."""
        for writer in self._writers():
            writer.abort()
        self._rows = self._dead_letters = None

    def _writers(self) -> list[TableWriter | RoutedWriters]:
        return [writer for writer in (self._rows, self._dead_letters, self._routes) if writer]

    def _fail(self, error: TableError) -> None:
        self.drop_files()
        self._result = TableManifest(TableId(self.table.name), error=error)

    def _propose(self, unknown: pa.Schema) -> None:
        self._result.proposal = merged_proposals(self._result.proposal, unknown)
        for writer in (self._rows, self._routes):
            if writer:
                writer.abort()
        self._rows = None

    def _dead_before(self, events: Events) -> set[int]:
        """The indexes of events that are dead letters already."""
        name, origin = self._plan.source.partition_of, events.origin()
        streams, numbers, offsets = (
            origin.column(at).to_pylist() for at in ("stream", "partition", "offset")
        )
        moments = origin.column("timestamp").cast(pa.int64()).to_pylist()
        places = list(zip(map(name, streams, numbers), offsets, moments, numbers, strict=True))
        alike = [at for at, place in enumerate(places) if place in self._pending_places]
        # A key is made of columns, so only of the few events that need it.
        keys = origin_of(events, alike).column("key").to_pylist()
        found = {at for at, key in zip(alike, keys, strict=True) if (*places[at], key) in self._pending}
        count(self._result.dead_letters, events, sorted(found))
        count_parts(self._result.refused_parts, self._plan, events.origin(sorted(found)))
        return found

    def _left_out(self, completed: Completed, decoded: Decoded, before: set[int]) -> set[int]:
        """The indexes of changes that leave out what is needed, filtered or refused.

        Of a row that the source does not have any more, the present needs no change: what ended it follows.
        """
        table, events, done = self.table, completed.events, before | _gone(decoded)
        found = set[int]()
        if completed.gone and table.changes and not table.changes.keeps_past:
            found = set(completed.gone) - done
            count(self._result.filtered, events, sorted(found))
        lacking = {
            at: f"`{table.reads[name]}` names {name}, which the row does not have: the column had another "
            "name, or was added later. A new snapshot brings the row."
            for at, name in events.lacking(table.reads).items()
        }
        lacking |= dict.fromkeys(completed.unknown, _NOT_ASKED)
        for positions, reason in ((table.unknown_changes, _LACKING), (table.held_back, _HELD_BACK)):
            if positions:
                lacking |= dict.fromkeys(_at_positions(events, positions), reason)
        refused = sorted(lacking.keys() - done - found)
        self._refuse(events, [Refused(at, "write", "unknown_value", lacking[at]) for at in refused])
        return found | {*refused}

    def _judge_again(self, events: Events, decoded: Decoded, before: set[int]) -> None:
        """Count what the rules of `expect` say of letters whose run was killed before it counted them."""
        table = self.table
        if table.is_inferring or not table.projection or not table.projection.rules:
            return
        indexes = np.asarray(_kept(len(events), _gone(decoded)))
        rows = Rows(decoded.rows, events, indexes.tolist(), decoded.rescued)
        rows = rows.where(np.isin(indexes, list(before)))
        for step in self._steps:
            done = step(rows)
            self._result.expected(done.counts, {})
            rows = done.rows

    def _refuse(self, events: Events, refused: list[Refused]) -> None:
        if refused:
            self._dead_letters = self._dead_letters or DeadLetterWriter(self._plan, self.table)
            self._dead_letters.refuse(events, refused, self._result)

    def _look(self, rows: Rows) -> None:
        """Ask for what the table lacks: columns that the function returns, or that `select` reads."""
        if not self.table.python:
            # Whatever columns there are: the driver says what `select` lacks among them.
            return self._propose(_NO_COLUMNS)
        self._result.taken += rows.batch.num_rows
        for step in event_steps(self.table, self._dropped):
            done = step(rows)
            self._return(done.unknown)
            rows = self._refused(done)
        if rows.batch.num_rows or self.table.returned is not None:
            self._propose(_NO_COLUMNS)
        return None

    def _return(self, unknown: pa.Schema | None) -> None:
        """Propose columns that the function returns and nobody knows."""
        if unknown is not None:
            self._result.returned = merged_proposals(self._result.returned, unknown)
            self._propose(_NO_COLUMNS)

    def _shape(self, rows: Rows) -> None:
        """Let rows pass the steps, and hand on what is left of them."""
        if self.table.python:
            self._result.taken += rows.batch.num_rows
        for step in self._steps:
            done = step(rows)
            rows = self._refused(done)
            self._return(done.unknown)
            self._result.expected(done.counts, done.failed)
            if len(done.filtered):
                count(self._result.filtered, rows.events, told(done.filtered))
        if self._result.proposal is None:
            self._note_former_keys(rows)
            self._note_partial(rows)
            self._put(rows)

    def _note_partial(self, rows: Rows) -> None:
        """Count changes that leave out values; a deletion needs none."""
        if rows.unchanged is None or rows.unchanged.null_count == len(rows.unchanged):
            return
        partial = rows.unchanged.is_valid().to_numpy(zero_copy_only=False)
        if rows.ops is not None:
            partial &= ~np.isin(rows.ops, DELETIONS)
        self._result.partial += int(partial.sum())
        if self.table.tells_partial:
            positions = list(_positions(rows.events))
            some = np.asarray(rows.indexes)[partial].tolist()
            self._result.partial_changes += [positions[at] for at in some]

    def _note_former_keys(self, rows: Rows) -> None:
        former = tuple(self.table.rename.get(name, name) for name in rows.events.former_keys)
        changes = self.table.changes
        if changes is None or changes.keys == WHOLE_ROW:
            return
        former = changes.with_stream(former)
        if former and former not in self._result.former_keys and set(former) <= set(rows.batch.schema.names):
            self._result.former_keys.append(former)

    def _refused(self, done: StepResult) -> Rows:
        """Refuse what a step has refused; returns the rows that are left.

        A function may have made several rows of an event. It is taken whole or is a dead letter, and that
        once: a replay makes all of its rows again.
        """
        rows, refused = done.rows, done.refused
        if refused and self.table.python:
            refused = list({one.index: one for one in reversed(refused)}.values())
            self._result.taken -= len(refused)
            rows = rows.without(rows_of(rows.indexes, [one.index for one in refused]))
        self._refuse(rows.events, refused)
        return rows

    def _put(self, rows: Rows) -> None:
        """Write rows that have passed every step."""
        if self._routes:
            self._refuse(rows.events, self._routes.write(rows.batch, rows.indexes))
            return
        table = self.table
        assert table.target is not None
        if self._rows is None:
            self._rows = TableWriter(open_store(table.path, dict(table.storage)), table.target, self._serial)
        self._rows.write(rows.batch)


def wider_columns(table: TablePlan, columns: pa.Schema, decoder: MakeDecoder) -> WiderColumns | None:
    """Looks for wider columns of a table whose events are decoded into these; None where it widens none."""
    names = as_in_table(columns, table.rename).names
    own = dict(zip(names, columns.names, strict=True))
    known = {one.name: one.type for one in table.decoded or ()}
    alike = {
        name for name, old in own.items() if name in known and _is_alike(known[name], columns.field(old))
    }
    widens = [own[name] for name in table.widens & alike]
    fixed = {own[name]: reason for name, reason in table.fixed.items() if name in alike}
    return WiderColumns(columns, table.rules, decoder, widens, fixed) if widens or fixed else None


def _is_alike(have: pa.DataType, field: pa.Field) -> bool:
    """Whether the field of the events has the structure of its column."""
    try:
        return bool(under_names(have, field.type).equals(have))
    except ValueError:
        return False


def wider_in_table(table: TablePlan, columns: pa.Schema) -> pa.Schema:
    """Wider columns of the events under the names of the table, those of fields inside too."""
    have = {one.name: one.type for one in table.decoded or ()}
    named = as_in_table(columns, table.rename)
    return pa.schema([one.with_type(under_names(have[one.name], one.type)) for one in named])


def _at_positions(events: Events, positions: Collection[StagedPosition]) -> set[int]:
    """The indexes of the events at these positions."""
    return {at for at, position in enumerate(_positions(events)) if position in positions}


def _positions(events: Events) -> Iterator[StagedPosition]:
    origin = events.origin()
    columns = events.partitions(), origin.column("offset"), origin.column("partition")
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _without(before: set[int], events: Events, decoded: Decoded) -> Decoded:
    """Leave out dead letters, whether they would be rows by now or be refused again."""
    kept = _kept(len(events), _gone(decoded))
    new = pa.array([index not in before for index in kept], pa.bool_())
    return Decoded(
        decoded.rows.filter(new),
        [one for one in decoded.refused if one.index not in before],
        decoded.unknown,
        None if decoded.rescued is None else decoded.rescued.filter(new),
        [index for index in decoded.skipped if index not in before],
    )


def _gone(decoded: Decoded) -> set[int]:
    """The indexes of the events that are no rows."""
    return {one.index for one in decoded.refused} | set(decoded.skipped)


def _kept(number: int, gone: set[int]) -> Sequence[int]:
    """The indexes of the events that became rows."""
    if not gone:
        return range(number)
    mask = np.ones(number, np.bool_)
    mask[list(gone)] = False
    kept: list[int] = np.flatnonzero(mask).tolist()
    return kept
