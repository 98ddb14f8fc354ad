"""Changes that come from several binlogs, one after the other: a failover, a restore, or `RESET MASTER`.

Positions are compared within one binlog. The binlogs of a stream are numbered in the order of the stream, and
the number is part of the stored sequence: the first has none, so that its sequences are plain positions, and
`e00001/` sorts above all of these. A stream is what one connector has written into one partition.

Another binlog has begun where positions fall, and the change is of a transaction that has not been seen, or
of a server that the binlog has not shown, or the time of the database has gone on. A replica's binlog shows
all servers that its transactions were made on. Where only positions fall, the connector sends again what it
has sent before: these changes are stale. What is known of a stream is in the log of the table, in `txn`
actions, and so comes and goes with its positions.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.binlog import DIGITS, ORIGIN_BITS, PART_BITS, PARTS, STAGED
from lakefeed.columns.staged import OFFSET, PARTITION
from lakefeed.tables.positions import binlog_id, binlog_sources, binlog_streams
from lakefeed.tables.write.keyed.keys import Mask, Numbers, one_array

_log = logging.getLogger("lakefeed")
_SERVER_BITS = PART_BITS * PARTS
_ORIGIN = 2**ORIGIN_BITS - 1
_LAST = 2**15 - 1
"""The number that the last binlog of a stream has, however many follow."""
_LARGEST_FILE, _LARGEST_POS = 2**31 - 1, 2**32 - 1
_BEHIND_ALL_ROWS = "9" * DIGITS
_MOST_SHOWN = 8
"""So many servers of a binlog are known at a time, those of the newest changes."""
_MOST_STREAMS = 1000
"""So many connectors in one partition are told apart. What is known of a stream stays in the log for ever."""
_OTHERS = "others"


@dataclass(frozen=True)
class Binlog:
    """Where a stream is: the number of its binlog, the server, and the newest position and time."""

    number: int = 0
    server: int = 0
    """Its parts are those of `lakefeed.columns.binlog`."""
    position: int = 0
    """The number of the file and the position in it; 0 before the first change."""
    time: int = 0
    shown: Mapping[int, int] = field(default_factory=dict)
    """By origin, the newest last: the number of its newest transaction, 0 where there are no GTIDs."""

    @classmethod
    def of(cls, transactions: Mapping[str, int], pipeline: str, source: str, stream: str) -> Binlog:
        """As the log of a table has it."""
        packed, position, time = (
            transactions.get(binlog_id(pipeline, source, stream, what), 0)
            for what in ("server", "position", "time")
        )
        shown = {}
        for at in range(_MOST_SHOWN):
            origin, number = (
                transactions.get(binlog_id(pipeline, source, stream, f"{what}{at}"), 0)
                for what in ("origin", "transaction")
            )
            if origin:
                shown[origin] = number
        server = packed & (2**_SERVER_BITS - 1)
        if not shown and server & _ORIGIN:
            shown[server & _ORIGIN] = 0
        return cls(packed >> _SERVER_BITS, server, position, time, shown)

    @property
    def servers(self) -> list[int]:
        """All servers that it has shown."""
        base = self.server & ~_ORIGIN
        return [self.server, *(base | origin for origin in self.shown)]

    def transactions(self, pipeline: str, source: str, stream: str) -> dict[str, int]:
        """What the log of a table is to hold."""
        values = {
            "server": self.number << _SERVER_BITS | self.server,
            "position": self.position,
            "time": self.time,
        }
        empty = [(0, 0)] * (_MOST_SHOWN - len(self.shown))
        for at, (origin, number) in enumerate([*self.shown.items(), *empty]):
            values |= {f"origin{at}": origin, f"transaction{at}": number}
        return {binlog_id(pipeline, source, stream, what): value for what, value in values.items()}


@dataclass(frozen=True)
class Numbered:
    """Changes whose sequences have the numbers of their binlogs."""

    changes: pa.Table
    transactions: Mapping[str, int] = field(default_factory=dict)
    begun: Mapping[str, int] = field(default_factory=dict)
    """By partition: the number of the binlog that has begun in it."""
    replayed: bool = False
    table: str = ""


def with_binlog_numbers(
    changes: pa.Table,
    columns: Sequence[str],
    known: Mapping[str, int],
    pipeline: str,
    source: str | None,
    *,
    replayed: bool,
) -> Numbered:
    """Give every staged position of a binlog its number; `known` are the transactions of the table.

    `columns` are those with the positions of events: in any other, such a text is a value of a user.

    What is sent again (`replayed`) moves nothing: it is of the binlog that the stream is at if it can be.
    """
    made: dict[str, int] = {}
    begun: dict[str, int] = {}
    for name in _columns(changes, columns):
        parts = pc.extract_regex(one_array(changes.column(name)), pattern=STAGED)
        plain, streams = pc.struct_field(parts, "text"), _streams(changes, parts)
        streams = _bounded(streams, known, pipeline, source or "")
        for stream, at in _in_order(changes, streams):
            rows = _Rows.of(parts, at)
            if replayed:
                newest = _newest_of(known, pipeline, stream)
                numbers, texts = _numbers_of_replayed(rows, newest), plain.take(pa.array(at))
            else:
                before = Binlog.of(known, pipeline, source or "", stream)
                partition = stream.rpartition("@")[0]
                own = {one: to for one, to in made.items() if f"/{partition}@" in one}
                start = _begin(rows, before, {**known, **own}, pipeline, source or "", stream)
                numbers, positions, after = _numbered(rows, start)
                texts = _with_positions(plain.take(pa.array(at)), rows, positions)
                made |= _changed(after.transactions(pipeline, source or "", stream), known)
                if after.number > start.number:
                    begun[partition] = after.number
            numbered = _by_index(_prefixed(texts, numbers), at)
            plain = pc.replace_with_mask(plain, _mask(len(plain), at), numbered)
        column = pc.coalesce(plain, one_array(changes.column(name)))
        changes = changes.set_column(changes.schema.get_field_index(name), changes.schema.field(name), column)
    return Numbered(changes, made, begun, replayed)


def has_binlog_positions(changes: pa.Table, columns: Sequence[str]) -> bool:
    """Whether some changes have positions that are numbered in the order of their stream."""
    return bool(_columns(changes, columns))


def without_misread(times: pa.Table) -> pa.Table:
    """Stored sequences, where those of an empty file name are older than all others.

    Earlier releases stored them for rows of incremental snapshots, and they sort above all numbers.
    """
    for at, column in enumerate(times.schema):
        if pa.types.is_string(column.type):
            misread = pc.starts_with(times.column(at), ":")
            times = times.set_column(at, column, pc.if_else(misread, "", times.column(at)))
    return times


def say_what_has_begun(table: str, begun: Mapping[str, int]) -> None:
    """Log where another binlog has begun."""
    for partition, number in sorted(begun.items()):
        _log.warning(
            "%s: %s: binlog positions begin again at smaller numbers: another server, or RESET MASTER. "
            "The changes since are newer than all before; their sequences begin with e%05d/.",
            table, partition, number,
        )  # fmt: skip


@dataclass(frozen=True)
class _Rows:
    """The positions of some changes, in the order of their stream."""

    position: Numbers
    server: Numbers
    transaction: Numbers
    time: Numbers

    @classmethod
    def of(cls, parts: pa.StructArray, at: Numbers) -> _Rows:
        file, pos, *others = (
            pc.struct_field(parts, name).take(pa.array(at)).cast(pa.int64()).to_numpy(zero_copy_only=False)
            for name in ("file", "pos", "server", "transaction", "time")
        )
        return cls(np.minimum(file, _LARGEST_FILE) << 32 | np.minimum(pos, _LARGEST_POS), *others)

    def between(self, start: int, end: int | None = None) -> _Rows:
        return _Rows(*(getattr(self, one.name)[start:end] for one in fields(self)))

    @property
    def origin(self) -> Numbers:
        packed: Numbers = self.server & _ORIGIN
        return packed


def _columns(changes: pa.Table, columns: Sequence[str]) -> list[str]:
    """Those of the columns that hold staged positions: other databases have other sequences."""
    there = [
        column for column in changes.schema if column.name in columns and pa.types.is_string(column.type)
    ]
    arrays = ((column.name, one_array(changes.column(column.name))) for column in there)
    return [name for name, values in arrays if pc.any(pc.match_substring_regex(values, STAGED)).as_py()]


def _changed(transactions: Mapping[str, int], known: Mapping[str, int]) -> dict[str, int]:
    """What the log does not have yet; that a stream is known shows by its server."""
    return {
        name: at
        for name, at in transactions.items()
        if known.get(name, 0) != at or (name not in known and name.endswith("/server"))
    }


def _streams(changes: pa.Table, parts: pa.StructArray) -> pa.Array:
    """The partition and the connector of each change; null where it has no position of a binlog."""
    connector = pc.struct_field(parts, "connector")
    return pc.binary_join_element_wise(one_array(changes.column(PARTITION)), connector, "@")


def _bounded(streams: pa.Array, known: Mapping[str, int], pipeline: str, source: str) -> pa.Array:
    """The streams, where connectors beyond so many in one partition share a stream."""
    count = Counter(
        stream.rpartition("@")[0] for *feeder, stream in binlog_streams(known) if feeder == [pipeline, source]
    )
    encoded = streams.dictionary_encode()
    names = []
    for stream in encoded.dictionary.to_pylist():
        partition = stream.rpartition("@")[0]
        is_new = binlog_id(pipeline, source, stream, "server") not in known
        count[partition] += is_new
        names.append(f"{partition}@{_OTHERS}" if is_new and count[partition] > _MOST_STREAMS else stream)
    return pa.array(names, pa.string()).take(encoded.indices)


def _in_order(changes: pa.Table, streams: pa.Array) -> list[tuple[str, Numbers]]:
    """The streams by their first positions, each with the indexes of its changes by their positions."""
    offsets = one_array(changes.column(OFFSET)).to_numpy(zero_copy_only=False)
    found: list[tuple[str, Numbers]] = []
    for stream in streams.unique().drop_null().to_pylist():
        at = np.flatnonzero(pc.equal(streams, stream).fill_null(False).to_numpy(zero_copy_only=False))
        found.append((stream, at[np.argsort(offsets[at], kind="stable")]))
    return sorted(found, key=lambda one: (int(offsets[one[1][0]]), one[0]))


def _begin(
    rows: _Rows, before: Binlog, known: Mapping[str, int], pipeline: str, source: str, stream: str
) -> Binlog:
    """Where a stream begins in a table that knows other streams but not this one."""
    streams = [one for one in binlog_streams(known) if one != (pipeline, source, stream)]
    if before.position or not streams:
        return before
    others = [Binlog.of(known, *one) for one in streams]
    server = next((int(one) for one in rows.server if one), 0)
    alike = [one.number for one in others if any(_are_alike(shown, server) for shown in one.servers)]
    # A connector that takes the place of another, or a partition that keys have moved to.
    number = max(alike) if alike else max(one.number for one in others) + 1
    return replace(before, number=min(number, _LAST))


def _numbered(rows: _Rows, binlog: Binlog) -> tuple[Numbers, Numbers, Binlog]:
    """The number of the binlog of each change, its newest position so far, and where the stream is then."""
    numbers, newest = np.empty((2, len(rows.position)), np.int64)
    start = 0
    while True:
        left = rows.between(start)
        has = left.position > 0
        positions = np.maximum.accumulate(np.concatenate([[binlog.position], left.position]))
        times = np.maximum.accumulate(np.concatenate([[binlog.time], np.where(has, left.time, 0)]))
        servers = _last_known(np.concatenate([[binlog.server], left.server]))
        fell = has & (left.position < positions[:-1])
        other = fell & ((left.time > times[:-1]) | _not_seen(left, servers[:-1], binlog.shown))
        newest[start:] = positions[1:]
        if not other.any() or binlog.number >= _LAST:
            numbers[start:] = binlog.number
            shown = _shown_by(left, binlog.shown)
            after = Binlog(binlog.number, int(servers[-1]), int(positions[-1]), int(times[-1]), shown)
            return numbers, newest, after
        first = int(np.argmax(other))
        # What fell right before, in the same moment as the newest change, is of the new binlog too.
        while first and fell[first - 1] and left.time[first - 1] == times[first - 1]:
            first -= 1
        numbers[start : start + first] = binlog.number
        start += first
        binlog = Binlog(binlog.number + 1, int(left.server[first]))


def _not_seen(rows: _Rows, before: Numbers, shown: Mapping[int, int]) -> Mask:
    """Which changes are not sent again, where positions have fallen: by transaction, or by server.

    `before` are the servers so far. A server that the binlog has shown is not another one.
    """
    origins = rows.origin
    found = _differ(rows.server & ~_ORIGIN, before & ~_ORIGIN)
    every = np.unique(np.concatenate([origins, np.array([*shown], np.int64)]))
    for origin in np.unique(origins).tolist():
        at = np.flatnonzero(origins == origin)
        alike = every[~_differ(every, np.full(len(every), origin))]
        is_known = not origin or any(one in shown for one in alike.tolist())
        first = -1 if is_known else int(np.flatnonzero(np.isin(origins, alike))[0])
        numbers = rows.transaction[at]
        newest = np.maximum.accumulate(np.concatenate([[shown.get(origin, 0)], numbers]))[:-1]
        is_counted = (numbers > 0) & (newest > 0)
        found[at] = np.where(is_counted, numbers > newest, found[at] | (at <= first))
    return found


def _shown_by(rows: _Rows, shown: Mapping[int, int]) -> dict[int, int]:
    """What a binlog has shown with these changes."""
    found, origins = dict(shown), rows.origin
    _, last = np.unique(origins[::-1], return_index=True)
    for origin in origins[::-1][np.sort(last)[::-1]].tolist():
        newest = int(rows.transaction[origins == origin].max())
        found[origin] = max(found.pop(origin, 0), newest)
    found.pop(0, None)
    return dict(list(found.items())[-_MOST_SHOWN:])


def _newest_of(known: Mapping[str, int], pipeline: str, stream: str) -> Binlog:
    """The binlog that a stream is at, by whichever source: a replay may be of several."""
    sources = binlog_sources(known, pipeline, stream)
    binlogs = [Binlog.of(known, pipeline, source, stream) for source in sources]
    return max(binlogs, key=lambda one: one.number, default=Binlog())


def _numbers_of_replayed(rows: _Rows, binlog: Binlog) -> Numbers:
    """The binlog that the stream is at, or the one before.

    A position that the stream has not reached is of the binlog before, unless it is newer by its time as
    well: a dead letter may have been the last change so far.
    """
    nothing = np.zeros(len(rows.server), np.int64)
    differ = _differ(rows.server & ~_ORIGIN, nothing | (binlog.server & ~_ORIGIN))
    known = [_differ(rows.origin, nothing | origin) for origin in binlog.shown]
    differ |= np.logical_and.reduce([nothing == 0, *known]) if known else differ
    of_another = differ | ((rows.position > binlog.position) & (rows.time < binlog.time))
    return np.where(of_another, max(binlog.number - 1, 0), binlog.number)


def _with_positions(texts: pa.Array, rows: _Rows, newest: Numbers) -> pa.Array:
    """The positions, where a row of an incremental snapshot has that of the change before it."""
    without = np.flatnonzero(rows.position == 0)
    if not len(without):
        return texts
    pairs = ((at >> 32, at & _LARGEST_POS) for at in newest[without].tolist())
    filled = [f"{file:0{DIGITS}d}:{pos:0{DIGITS}d}:{_BEHIND_ALL_ROWS}" for file, pos in pairs]
    return pc.replace_with_mask(texts, _mask(len(texts), without), pa.array(filled, pa.string()))


def _prefixed(texts: pa.Array, numbers: Numbers) -> pa.Array:
    distinct, codes = np.unique(numbers, return_inverse=True)
    prefixes = pa.array([f"e{number:05d}/" if number else "" for number in distinct.tolist()], pa.string())
    return pc.binary_join_element_wise(prefixes.take(pa.array(codes)), texts, "")


def _mask(count: int, at: Numbers) -> pa.Array:
    mask = np.zeros(count, np.bool_)
    mask[at] = True
    return pa.array(mask)


def _by_index(values: pa.Array, at: Numbers) -> pa.Array:
    """Values of these indexes in the order of the indexes, as a replacement by mask needs them."""
    return values.take(pa.array(np.argsort(at, kind="stable")))


def _parts(servers: Numbers) -> list[Numbers]:
    return [servers >> (PART_BITS * at) & (2**PART_BITS - 1) for at in range(PARTS)]


def _differ(servers: Numbers, others: Numbers) -> Mask:
    """Whether two servers are not the same, by the parts that are known of both."""
    found = np.zeros(len(servers), np.bool_)
    for one, other in zip(_parts(servers), _parts(others), strict=True):
        found |= (one != other) & (one > 0) & (other > 0)
    return found


def _are_alike(one: int, other: int) -> bool:
    """Whether two servers may be the same, by at least one part that is known of both."""
    parts = zip(_parts(np.array([one])), _parts(np.array([other])), strict=True)
    shared = any(int(mine[0]) and int(mine[0]) == int(theirs[0]) for mine, theirs in parts)
    return shared and not _differ(np.array([one]), np.array([other])).any()


def _last_known(servers: Numbers) -> Numbers:
    """For each change the newest known value of every part of the server, its own included."""
    merged = np.zeros(len(servers), np.int64)
    for at, part in enumerate(_parts(servers)):
        index = np.maximum.accumulate(np.where(part > 0, np.arange(len(part)), 0))
        merged |= part[index] << (PART_BITS * at)
    return merged
