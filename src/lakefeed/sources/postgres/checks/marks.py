"""Marks: numbers that say which server, table and timeline positions are of, and how a table is made."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Mapping, Sequence

from lakefeed.errors import DataLoss
from lakefeed.events import EPOCH, Offsets
from lakefeed.sources.postgres.connection import Connection, connect, one_row, where
from lakefeed.sources.postgres.positions import (
    AGAIN,
    ALL_ROWS,
    is_rows,
    lsn_number,
    lsn_text,
    partition_name,
    stream_of,
)
from lakefeed.sources.postgres.relations import TableInfo
from lakefeed.sources.postgres.source import PostgresSource
from lakefeed.text import listed

TABLE_BITS = PostgresSource.event_mark_shift
"""Bits of the mark of a stream that stand for a table; those above stand for the server and the database."""
_TYPE_BITS = 30
_KEY = "key"
_NAMES = "names"
_NAME_BITS = 15
_NAME_MASK = (1 << _NAME_BITS) - 1
_NAMES_IN_MARK = 4
"""So many hashes of names are in one number, as a table may hold many and each number is an action."""
OUTDATED = 1 << 62
"""Set in a mark that a table holds while it has not got what the mark stands for: until a snapshot."""
_FORMER = 1 << 61
"""Set in the mark of a column that a log holds under the name that it had: see `LostColumns`."""
_SYSTEM = """
SELECT system_identifier::text || '/' || (SELECT oid FROM pg_catalog.pg_database
                                          WHERE datname = current_database())
FROM pg_catalog.pg_control_system()
"""
_TIMELINE = """
SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN NULL
            ELSE left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8) END
"""


class Marks:
    """The marks of the tables of a source, by what its server says; looked at now and then."""

    def __init__(self) -> None:
        self._system: int | None = None
        self._timeline: int | None = None
        self._tables: dict[str, TableInfo] = {}
        self._made: dict[str, int] = {}
        """For each table its storage when that was last written anew, and the types of its columns."""

    def look(self, connection: Connection, tables: Mapping[str, TableInfo]) -> None:
        """Ask the server."""
        if self._system is None:
            text = one_row(connection, _SYSTEM)[0].encode()
            self._system = (zlib.crc32(text) << 31) | (zlib.crc32(text[::-1]) >> 1)
        (timeline,) = one_row(connection, _TIMELINE)
        self._timeline = int(timeline, 16) if timeline else None
        for stream, table in tables.items():
            known, last = self._made.get(stream), self._tables.get(stream)
            if known is None or last is None:
                self._made[stream] = _made(table.storage, table.types)
            elif table.types != last.types:
                # TRUNCATE and VACUUM FULL change where a table is stored as well: that alone says nothing.
                same = table.storage == last.storage
                self._made[stream] = _made(known >> _TYPE_BITS if same else table.storage, table.types)
        self._tables = dict(tables)

    def all(self) -> dict[str, int]:
        """By stream which table it is; by partition the timeline, how it is made, key, names and columns."""
        assert self._system is not None or not self._tables
        above = (self._system or 0) >> TABLE_BITS << TABLE_BITS
        found: dict[str, int] = {}
        for stream, one in self._tables.items():
            found[stream] = above | self._table_number(one.oid, one.membership)
            if self._timeline is not None:
                found[partition_name(stream) + EPOCH] = self._timeline
            found[partition_name(stream, rows=True) + EPOCH] = self._made[stream]
            found[_key_mark(stream)] = _key_number(one)
            found |= _names_marks(one)
            for number, column in one.columns:
                found[column_mark(stream, number)] = zlib.crc32(column.encode())
        return found

    def recreated(self, held: Mapping[str, int]) -> set[str]:
        """The streams whose table is another one than that of the marks that a Delta table holds.

        An earlier version wrote the mark of a publication of all tables without the oid of that.
        """
        now, found = self.all(), set()
        bits = (1 << TABLE_BITS) - 1
        for stream, one in self._tables.items():
            number = held.get(stream, now[stream])
            is_earlier = one.is_by_all and number & bits == self._table_number(one.oid, 0)
            if number != now[stream] and not is_earlier:
                found.add(stream)
        return found

    def rekeyed(self, held: Mapping[str, int]) -> set[str]:
        """The streams whose key is another one than when a Delta table with these marks has read from them.

        How far the rows of a snapshot are is a number of the key.
        """
        names = {stream: _key_mark(stream) for stream in self._tables}
        now = self.all()
        return {
            stream
            for stream, name in names.items()
            if name in held and _key_of_mark(held[name]) != _key_of_mark(now[name])
        }

    def keys_out_of_reach(
        self, held: Mapping[str, int], start: Offsets, rename: Mapping[str, str]
    ) -> dict[str, tuple[str, ...]]:
        """By stream: columns of the key whose values the rows of a copy with these marks do not have.

        They have another name than before, which `rename` does not take back, or a statement filled them in
        all rows: no change would find its row.
        """
        now, found = self.all(), {}
        for stream, one in self._tables.items():
            rows = partition_name(stream, rows=True)
            if partition_name(stream) not in start or start.get(rows, ALL_ROWS) <= AGAIN:
                continue
            is_filled = rows + EPOCH in held and is_rewritten(held[rows + EPOCH], now[rows + EPOCH])
            marks = {name: column_mark(stream, number) for number, name in one.columns if name in one.keys}
            lost = tuple(
                name
                for name, mark in marks.items()
                if (is_filled and mark not in held)
                or (
                    _is_renamed(held, now, mark)
                    and name_number(held.get(mark, 0)) != zlib.crc32(rename.get(name, name).encode())
                )
            )
            if lost and _key_mark(stream) in held:
                found[stream] = lost
        return found

    def _table_number(self, oid: int, membership: int) -> int:
        return zlib.crc32(f"{self._system}/{oid}/{membership}".encode())

    def outdated(self, held: Mapping[str, int], start: Offsets) -> dict[str, str]:
        """By stream: what a table with these marks has not got, and no change will bring.

        `start` is where it goes on: a snapshot brings everything.
        """
        now, found = self.all(), {}
        for stream, one in self._tables.items():
            rows = partition_name(stream, rows=True)
            if partition_name(stream) not in start or start.get(rows, ALL_ROWS) <= AGAIN:
                continue
            renamed = [
                name for number, name in one.columns if _is_renamed(held, now, column_mark(stream, number))
            ]
            if renamed:
                found[stream] = (
                    f"{counted_columns(renamed)} of {stream} had another name before, was generated, or has "
                    "the name of one that was dropped. Postgres sends no change for that: rows that have not "
                    "changed since have no value there, or an old one"
                )
            elif rows + EPOCH in held and is_rewritten(held[rows + EPOCH], now[rows + EPOCH]):
                found[stream] = (
                    f"columns of {stream} have changed, and its rows were written again by one statement, "
                    "such as ALTER TABLE ... TYPE. Postgres sends no change for values that it rewrites: the "
                    "Delta table has the old ones"
                )
            elif _key_mark(stream) in held and _is_ambiguous(held[_key_mark(stream)], now[_key_mark(stream)]):
                found[stream] = (
                    f"{stream} has got another key, and its changes name their row by all columns (REPLICA "
                    "IDENTITY FULL), so that nothing says by which key each was made: rows may be missing"
                )
            elif _has_other_names(held, now, stream):
                found[stream] = (
                    f"labels of an enum, or fields of a composite type, of {stream} had other names before. "
                    "Postgres sends no change for that: the Delta table has the old ones"
                )
        return found


def _made(storage: int, types: int) -> int:
    return (storage & 0xFFFFFFFF) << _TYPE_BITS | (types & ((1 << _TYPE_BITS) - 1))


def column_mark(stream: str, number: str) -> str:
    """The name of the mark of a column; its number stays when it gets another name."""
    return f"{partition_name(stream)}:{number}{EPOCH}"


def _is_renamed(held: Mapping[str, int], now: Mapping[str, int], name: str) -> bool:
    """Whether a column has got another name, or is new and has the name of one that is gone."""
    if name in held:
        return held[name] != now[name] and not held[name] & _FORMER
    first = name.rpartition(":")[0] + ":"
    return any(
        name_number(number) == now[name]
        for one, number in held.items()
        if one.startswith(first) and one.endswith(EPOCH) and one not in now
    )


def _key_mark(stream: str) -> str:
    return f"{partition_name(stream)}:{_KEY}{EPOCH}"


def _key_number(table: TableInfo) -> int:
    """Another one where the key has other columns, or one of another type; odd with REPLICA IDENTITY FULL."""
    key = table.chunks
    text = f"{key.is_hashed if key else None} {table.key_types} {table.keys}"
    return zlib.crc32(text.encode()) << 1 | (table.identity == "f")


def _names_mark(stream: str) -> str:
    return f"{partition_name(stream)}:{_NAMES}{EPOCH}"


def _names_marks(table: TableInfo) -> dict[str, int]:
    """How many labels and fields there are, and by type a hash of each, which stays where more are added."""
    if not table.names:
        return {}
    first = _names_mark(table.stream)
    found, ages = {first: len(table.names)}, Counter[str]()
    for text in table.names:
        kind, _, name = text.partition(":")
        group, at = divmod(ages[kind], _NAMES_IN_MARK)
        mark = f"{first.removesuffix(EPOCH)}.{kind}.{group}{EPOCH}"
        number = zlib.crc32(name.encode()) % _NAME_MASK + 1 if name else 0
        found[mark] = found.get(mark, 0) | number << at * _NAME_BITS
        ages[kind] += 1
    return found


def _has_other_names(held: Mapping[str, int], now: Mapping[str, int], stream: str) -> bool:
    """Whether labels or fields were renamed since a table got its marks, however many came with that."""
    first = _names_mark(stream)
    names = [name for name in now if name.startswith(first.removesuffix(EPOCH) + ".")]
    return bool(held.get(first, 0) & OUTDATED) or any(
        old and new and old != new
        for name in names
        for old, new in zip(_name_numbers(held.get(name, 0)), _name_numbers(now[name]), strict=True)
    )


def _name_numbers(mark: int) -> list[int]:
    return [mark >> at * _NAME_BITS & _NAME_MASK for at in range(_NAMES_IN_MARK)]


def _key_of_mark(number: int) -> int:
    return (number & ~OUTDATED) >> 1


def _is_ambiguous(held: int, now: int) -> bool:
    """Whether the key has changed while changes named their row by all columns."""
    return bool(held & OUTDATED or (_key_of_mark(held) != _key_of_mark(now) and (held | now) & 1))


def counted_columns(names: Sequence[str]) -> str:
    """`column client`, or `columns client and total`."""
    return f"{'column' if len(names) == 1 else 'columns'} {listed(names)}"


def is_rewritten(held: int, now: int) -> bool:
    """Whether types have changed together with the storage: values were rewritten without events."""
    types = (1 << _TYPE_BITS) - 1
    is_other = held >> _TYPE_BITS != now >> _TYPE_BITS and held & types != now & types
    return is_other or bool(held & OUTDATED)


def name_number(mark: int) -> int:
    """What a mark of a column says of its name."""
    return mark & ~(OUTDATED | _FORMER)


_CHANGED = {"rows": is_rewritten, _KEY: _is_ambiguous}
"""By kind of mark: whether a table with one number has not got what another one stands for."""


def outdated_marks(
    held: Mapping[str, int], now: Mapping[str, int], starts: Offsets, *, is_copy: bool
) -> dict[str, int]:
    """The marks that a commit leaves outdated, as the table has not got yet what they stand for.

    Of a log, those of columns that have another name since: nothing of it is outdated.

    They differ from all that the server may have, also when a statement is taken back: rows that have changed
    meanwhile have their values elsewhere. `starts` is where the partitions begin that the commit brings: a
    snapshot brings everything.
    """
    found = {}
    for name, number in now.items():
        partition = name.removesuffix(EPOCH)
        what = partition.partition(":")[2]
        if not name.endswith(EPOCH) or not what:
            continue
        if starts.get(partition_name(stream_of(partition), rows=True), ALL_ROWS) <= AGAIN:
            continue
        if what in _CHANGED:
            if is_copy and _CHANGED[what](held.get(name, number), number):
                found[name] = number | OUTDATED
        elif what == _NAMES:
            if is_copy and _has_other_names(held, now, stream_of(partition)):
                found[name] = number | OUTDATED
        elif what.startswith(_NAMES):
            continue
        elif _is_renamed(held, now, name) or held.get(name, 0) & _FORMER:
            # The name that the table knows the column by: see `LostColumns`.
            found[name] = held.get(name, number) | (OUTDATED if is_copy else _FORMER)
    return found


def refuse_lost_timeline(
    name: str, source: PostgresSource, positions: Offsets, held: Mapping[str, int], own: Mapping[str, int]
) -> None:
    """Raise DataLoss where a table has read WAL that the server's timeline does not have.

    After a failover the new primary goes on from where it had received WAL; positions up to there are good.
    """
    for partition, at in positions.items():
        old, new = held.get(partition + EPOCH), own.get(partition + EPOCH)
        if is_rows(partition) or old is None or new is None or old == new:
            continue
        end = _end_of(source, old, new)
        if end is None or at > end:
            until = f"up to {lsn_text(end)} of it" if end is not None else "nothing of it"
            raise DataLoss(
                f"source {name}: a table has read timeline {old} up to {lsn_text(at)}, but {where(source)} "
                f"is on timeline {new}, which has {until}: a standby took over that had not received "
                "everything, or the server was restored.\nThe tables have rows that the database has lost: "
                "drop the tables that it feeds; the next run reads all rows."
            )


def _end_of(source: PostgresSource, old: int, new: int) -> int | None:
    """Where a timeline ends in the history of another; None where that does not come from it."""
    with connect(source, replication="database") as connection:
        row = connection.execute(f"TIMELINE_HISTORY {new}".encode()).fetchone()
    text = row[1] if row else ""
    lines = (text.decode() if isinstance(text, bytes) else str(text)).splitlines()
    for line in lines:
        words = line.split()
        if len(words) > 1 and words[0] == str(old):
            return lsn_number(words[1])
    return None
