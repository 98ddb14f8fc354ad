"""Dead letters of a table that was dropped or left: the new table of that name reads their events again.

The dead-letter table records, for each table and source, the number of the Delta table that the dead letters
are of. Where that is another one by now, dead letters of events that are read again are removed, in the
commit that records the new number: their events become rows, or dead letters again.

The same holds where options of the source give events other offsets than their dead letters have, such as the
format of files: dead letters of events that the table has yet to read are removed.

A table that is fed from a table may read the same events under other offsets. Dead letters whose events may
be among these stay, are reported, and are never replayed: the commit records the newest `dead_at` of them.
"""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.dead_letters.find import DeadLetterFilter, Mask, read_dead_letters
from lakefeed.dead_letters.reconcile import MICROSECOND
from lakefeed.dead_letters.remove import remove
from lakefeed.errors import StoreUnavailable
from lakefeed.events import Offsets
from lakefeed.handles.table_plan import TableId
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.route import safe_value
from lakefeed.sources import Reread, Source, source_of
from lakefeed.tables.positions import (
    offset_rules_id,
    offset_rules_since_id,
    past_letters_id,
    table_number_id,
)
from lakefeed.tables.shape import Shape
from lakefeed.text import counted

NO_TABLE = 0
"""The number of dead letters from before the table was created."""
ANY_TABLE = 1
"""The number where several tables of a route share the partitions."""
_ATTEMPTS = 5
_COLUMNS = ["topic", "partition", "offset"]


def table_number(shape: Shape | None) -> int:
    """The number of a table, which no other table has; `NO_TABLE` where it does not exist."""
    return _number(shape.table_id) if shape else NO_TABLE


def _number(text: str) -> int:
    return uuid.uuid5(uuid.NAMESPACE_URL, text).int >> 65


def offset_rules(spec: Source, pipeline: str, source: str, table: str) -> dict[str, int]:
    """The number of the rules that offsets of a source have, as the dead-letter table records it."""
    rules = spec.offset_rules()
    key = offset_rules_id(pipeline, source, table)
    return {} if rules is None else {key: _number(rules)}


def of_stream(route: str, stream: str | None) -> str:
    """The name of the table that a route makes for a stream."""
    return str(TableId(route, (safe_value(stream or "") or "",)))


def stream_name(table: str, stream: str) -> str:
    """The name under which the number of a stream is recorded: offsets of a recreated one are of others."""
    return f"{table}#{stream}"


@dataclass(frozen=True)
class Owner:
    """The table that dead letters of some partitions are of."""

    name: str
    number: int
    start: Offsets
    """From where on it reads the partitions, or replaces what was read of them."""
    is_new: bool
    """Whether it holds no position of its own."""
    marks: Mapping[str, int] = field(default_factory=dict)
    """By stream the number of the topic or table that has the name now."""
    unreadable: Callable[[Collection[int]], Collection[int]] = lambda _: ()
    """Which offsets behind `start` are of events that cannot be read again: their dead letters stay."""
    reread: Reread = "never"
    """Whether a new table reads events of its dead letters under other offsets."""


@dataclass(frozen=True)
class Outdated:
    """Dead letters that are outdated, by what becomes of them."""

    removed: int = 0
    has_other_offsets: bool = False
    """Whether the table is the same, and its events have other offsets."""
    past: int = 0
    """Dead letters that stay and are never replayed, as the new table may read their events again."""
    until: dt.datetime | None = None
    """Where there are such: the newest `dead_at` of them."""


@dataclass
class _Decision:
    """What is to be done about the dead letters of some owners."""

    numbers: dict[str, int] = field(default_factory=dict)
    """The numbers to record."""
    start: Offsets = field(default_factory=dict)
    """From where on dead letters are outdated."""
    unreadable: Callable[[Collection[int]], Collection[int]] = lambda _: ()
    """Which offsets behind it are of events that cannot be read again."""
    has_other_offsets: bool = False
    """Whether dead letters are outdated for the offsets of their events alone."""
    is_past: bool = False
    """Whether all dead letters of the table in this source become past ones."""


def remove_outdated(
    tables: Tables, source: str, table: str, held: Offsets, owners: Iterable[Owner]
) -> Outdated:
    """Remove dead letters of tables that are gone where their events are read again.

    `table` is the name in the pipeline file, `held` the positions of its dead letters.
    """
    dead_letters = tables.dead_letters
    known = [one for one in owners if not held.keys().isdisjoint(one.start)]
    if not known:
        return Outdated()
    with dead_letters.lock:
        for _ in range(_ATTEMPTS):
            decision = _decide(tables, source, known, dead_letters.table.transactions)
            if not decision.numbers:
                return Outdated()
            if decision.is_past:
                found, removed = _past(tables, source, table), _Removed()
                if found.until:
                    key = past_letters_id(tables.pipeline.name, source, table)
                    decision.numbers[key] = pa.scalar(found.until, TIMESTAMP).cast(pa.int64()).as_py()
            else:
                removed = _removed(tables, source, table, decision)
                found = Outdated(removed.count, decision.has_other_offsets)
            commit_info = {
                "pipeline": tables.pipeline.name,
                "source": source,
                "table": table,
                "kind": "outdated",
            }
            own = DeadLetterFilter(table=table, source=source, since=removed.since)
            wanted = own if removed.count else None
            count = remove(tables, wanted, commit_info, decision.numbers, removed.chosen, _COLUMNS)
            if count is not None:
                return found
            dead_letters.table.refresh()
    raise StoreUnavailable(f"{dead_letters.path}: other writers keep changing the dead letters.")


def count_outdated(tables: Tables, source: str, table: str, owner: Owner) -> Outdated:
    """What a run would do with dead letters of a table that is gone."""
    found = tables.dead_letters.look()
    if found is None:
        return Outdated()
    decision = _decide(tables, source, [owner], found.transactions)
    if decision.is_past:
        return _past(tables, source, table)
    return Outdated(_removed(tables, source, table, decision).count, decision.has_other_offsets)


def outdated_text(found: Outdated, file: str, table: str, *, foreseen: bool = False) -> str:
    """What a run says of dead letters of a table that is gone; empty where there were none."""
    if found.removed:
        would = "would be removed" if foreseen else "removed"
        if found.has_other_offsets:
            return (
                f"{counted(found.removed, 'dead letter')} {would}: the source cuts its files into other "
                "records than before, so their events are read again, and those that still do not fit become "
                "dead letters again"
            )
        return (
            f"{counted(found.removed, 'dead letter')} of the table that had this name before {would}: the "
            "new table reads their events again, and those that still do not fit become dead letters again"
        )
    if not found.until:
        return ""
    stay = "would stay" if foreseen else "stay" if found.past > 1 else "stays"
    return (
        f"{counted(found.past, 'dead letter')} of the table that had this name before {stay} and will not be "
        f"replayed: the new table may read their events again. {past_remedy(file, table, found.until)}"
    )


def past_remedy(file: str, table: str, until: dt.datetime) -> str:
    """What to type about dead letters that are never replayed."""
    moment = (until + MICROSECOND).astimezone(dt.UTC).isoformat().replace("+00:00", "Z")
    return (
        "Compare them with the table, then discard them: "
        f'`lakefeed dead-letters discard {file} --table {table} --until {moment} --yes --reason "..."`'
    )


def _decide(
    tables: Tables, source: str, owners: Iterable[Owner], transactions: Mapping[str, int]
) -> _Decision:
    """What to do about the dead letters of these owners, given what the dead-letter table records."""
    decision, spec = _Decision(), source_of(tables.pipeline, source)
    for one in owners:
        decision.unreadable = one.unreadable
        key = table_number_id(tables.pipeline.name, source, one.name)
        recorded = transactions.get(key)
        other = of_other_streams(tables, source, one, one.start, transactions)
        if one.is_new and (one.reread == "some" or (other and spec.reads_table())):
            decision.is_past = True
            decision.numbers |= {key: one.number, **_stream_numbers(tables, source, one, other)}
        elif one.is_new and one.reread == "all":
            decision.numbers[key] = one.number
            decision.start |= dict.fromkeys(one.start, 0)
        elif recorded != one.number:
            decision.numbers[key] = one.number
            # Without a number: an older release wrote them, of this table if that holds positions.
            if recorded != NO_TABLE and (recorded is not None or one.is_new):
                decision.start |= {name: at for name, at in one.start.items() if name not in other}
        _decide_on_offsets(decision, tables.pipeline.name, source, one, spec, transactions)
    return decision


def _decide_on_offsets(
    decision: _Decision,
    pipeline: str,
    source: str,
    owner: Owner,
    spec: Source,
    transactions: Mapping[str, int],
) -> None:
    """Decide on dead letters whose events are read again under other offsets, by options of the source."""
    since = offset_rules_since_id(pipeline, source, owner.name)
    at = min(owner.start.values(), default=0)
    for key, rules in offset_rules(spec, pipeline, source, owner.name).items():
        recorded = transactions.get(key)
        if recorded == rules and at >= transactions.get(since, 0):
            continue
        decision.numbers |= {key: rules, since: at}
        # Without a number: an older release wrote them, by the same rules as far as it can be determined.
        if recorded is not None and not decision.is_past:
            decision.has_other_offsets = not decision.start
            decision.start |= owner.start


def _stream_numbers(tables: Tables, source: str, owner: Owner, partitions: Iterable[str]) -> dict[str, int]:
    """What the dead-letter table is to record of the streams that partitions are of."""
    identities = map(source_of(tables.pipeline, source).identity_of, partitions)
    return {
        table_number_id(tables.pipeline.name, source, stream_name(owner.name, one)): owner.marks[one]
        for one in identities
    }


def _past(tables: Tables, source: str, table: str) -> Outdated:
    """All dead letters of a table in a source as ones that are never replayed."""
    count, until = 0, None
    for batch in read_dead_letters(tables, DeadLetterFilter(table=table, source=source), ["dead_at"]):
        count += batch.num_rows
        newest = pc.max(batch.column("dead_at")).as_py()
        until = newest if until is None else max(until, newest)
    return Outdated(past=count, until=until)


def of_other_streams(
    tables: Tables, source: str, owner: Owner, partitions: Iterable[str], transactions: Mapping[str, int]
) -> set[str]:
    """The partitions whose offsets are of other events than when their dead letters were written.

    `transactions` are those of the dead-letter table, which record the number of each stream.
    """
    found, identity_of = set(), source_of(tables.pipeline, source).identity_of
    for partition in partitions:
        stream = identity_of(partition)
        key = table_number_id(tables.pipeline.name, source, stream_name(owner.name, stream))
        number = owner.marks.get(stream)
        if number is not None and transactions.get(key, number) != number:
            found.add(partition)
    return found


@dataclass
class _Removed:
    """Dead letters that go: their offsets by partition."""

    partition_of: Callable[[str | None, int], str] = lambda *_: ""
    since: dt.datetime | None = None
    """Those from then on are not of a former table."""
    offsets: dict[str, set[int]] = field(default_factory=dict)
    count: int = 0

    def chosen(self, rows: pa.RecordBatch) -> Mask:
        """Which dead letters are among them."""
        columns = (rows.column(name).to_pylist() for name in _COLUMNS)
        found = [
            offset in self.offsets.get(self.partition_of(topic, number), ())
            for topic, number, offset in zip(*columns, strict=True)
        ]
        return np.array(found, np.bool_)


def _removed(tables: Tables, source: str, table: str, decision: _Decision) -> _Removed:
    """The dead letters of a table that a decision removes."""
    past, start = tables.newest_past_letter(source, table), decision.start
    found = _Removed(source_of(tables.pipeline, source).partition_of, past and past + MICROSECOND)
    wanted = DeadLetterFilter(table=table, source=source, since=found.since)
    offsets: dict[str, list[int]] = {}
    for batch in read_dead_letters(tables, wanted, _COLUMNS) if start else ():
        columns = (batch.column(name).to_pylist() for name in _COLUMNS)
        for topic, number, offset in zip(*columns, strict=True):
            partition = found.partition_of(topic, number)
            if offset >= start.get(partition, offset + 1):
                offsets.setdefault(partition, []).append(offset)
    for partition, own in offsets.items():
        kept = frozenset(decision.unreadable(own))
        found.offsets[partition] = set(own) - kept
        found.count += sum(offset not in kept for offset in own)
    return found
