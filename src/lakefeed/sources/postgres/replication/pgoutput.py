"""pgoutput, the stream of changes that Postgres sends, decoded in columns: many messages at once.

A message is a kind (one byte) and its fields, all numbers big-endian. `Begin` has the LSN of the commit, its
time and the transaction's id, and every change up to the next `Begin` belongs to it. `Relation` describes the
columns of a table, before the first change of it and again when they have changed.
"""

from __future__ import annotations

import struct
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Numbers = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

_NULL, _UNCHANGED, _TEXT = ord("n"), ord("u"), ord("t")
_OLD_KEY, _OLD_ROW = ord("K"), ord("O")
_SINCE_2000 = 946_684_800_000_000
INSERT, UPDATE, DELETE, TRUNCATE = 0, 1, 2, 3
OPS = pa.array(["insert", "update", "delete", "truncate"])
FIRST_ORDINAL = 2
"""The ordinal of the first change of a transaction: what a snapshot brings comes before it."""


@dataclass(frozen=True)
class Field:
    """A column as a `Relation` message describes it."""

    name: str
    type_oid: int
    typmod: int
    in_key: bool = False
    """Whether it is one of the columns by which changes name their row."""


@dataclass(frozen=True)
class Relation:
    """A table as a `Relation` message describes it."""

    oid: int
    stream: str
    fields: tuple[Field, ...]
    identity: str = "d"
    """How changes name their row: `d` by the primary key, `i` by an index, `f` by all columns, `n` not."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The columns by which changes name their row; none where they name it by all columns, or not."""
        # A key may have all columns, which are flagged where the identity is all columns as well.
        return () if self.identity == "f" else tuple(field.name for field in self.fields if field.in_key)


@dataclass(frozen=True)
class Changes:
    """Changes of one table, in order, whose columns are the same."""

    relation: Relation
    texts: list[pa.Array]
    """For each column the values as text; null where it is null, not known, or unchanged and not sent."""
    unchanged: list[Mask]
    """For each column which values are as they were and were not sent."""
    ops: Numbers
    lsns: Numbers
    ordinals: Numbers
    times: Numbers
    """Microseconds since 1970."""
    xids: Numbers
    whole: Mask
    """Which rows know all columns; a deletion may know only its key."""
    before: tuple[list[pa.Array], Mask] | None = None
    """The texts of the rows as they were, and which changes were sent with them; None where none was."""


@dataclass(frozen=True)
class _Part:
    """Tuples of some messages, column by column: where values begin and end, and of which kind they are."""

    starts: list[Numbers]
    ends: list[Numbers]
    kinds: list[Any]


class Decoder:
    """Decodes the messages of one session, in order: it knows tables and the transaction that is open."""

    def __init__(self, keys: dict[str, tuple[str, ...]], whole_rows: Collection[str] = ()) -> None:
        """`keys` are the columns that tell the rows of a table apart, by stream.

        Of the streams in `whole_rows` all columns do: each update is of another row.
        """
        self._keys, self._whole_rows = keys, whole_rows
        self._relations: dict[int, Relation] = {}
        self._raw: dict[int, bytes] = {}
        self._begin = (0, 0, 0)
        self._counted = 0

    def decode(self, messages: Sequence[bytes]) -> Iterator[Changes]:
        """The changes among some messages, by table."""
        first = 0
        for at, message in enumerate(messages):
            if message[0] != 82:  # R
                continue
            relation = _relation(message)
            known = self._raw.get(relation.oid)
            if known is not None and known != message:
                yield from self._some(messages[first:at])
                first = at
            self._raw[relation.oid], self._relations[relation.oid] = message, relation
        yield from self._some(messages[first:])

    def _some(self, messages: Sequence[bytes]) -> Iterator[Changes]:
        """Changes in messages between which no table has changed its columns."""
        if not messages:
            return
        view = _View(messages)
        begins = np.flatnonzero(view.kinds == ord("B"))
        is_change = np.isin(view.kinds, (ord("I"), ord("U"), ord("D"), ord("T")))
        counted = np.cumsum(is_change)
        at = view.starts[begins]
        lsns = np.concatenate([[self._begin[0]], view.int64(at + 1)])
        times = np.concatenate([[self._begin[1]], view.int64(at + 9) + _SINCE_2000])
        xids = np.concatenate([[self._begin[2]], view.int32(at + 17) & 0xFFFFFFFF])
        before = np.concatenate([[-self._counted], counted[begins]])
        begin = np.searchsorted(begins, np.arange(len(messages)), side="right")
        transaction = _Transactions(
            lsns[begin], times[begin], xids[begin], 2 * (counted - before[begin] - 1) + FIRST_ORDINAL
        )
        self._begin = int(lsns[-1]), int(times[-1]), int(xids[-1])
        self._counted = int(counted[-1] - before[-1])
        rows = np.flatnonzero(is_change & (view.kinds != ord("T")))
        oids = view.int32(view.starts[rows] + 1) & 0xFFFFFFFF
        for oid in np.unique(oids).tolist():
            yield self._of_table(view, self._relations[oid], rows[oids == oid], transaction)
        for message in np.flatnonzero(view.kinds == ord("T")).tolist():
            yield from self._truncated(messages[message], message, transaction)

    def _truncated(self, message: bytes, at: int, of: _Transactions) -> Iterator[Changes]:
        (count,) = struct.unpack_from(">i", message, 1)
        for oid in struct.unpack_from(f">{count}I", message, 6):
            relation = self._relations[oid]
            nothing = [pa.nulls(1, pa.string())] * len(relation.fields)
            silent = [np.zeros(1, np.bool_)] * len(relation.fields)
            one = np.array([at])
            yield Changes(
                relation, nothing, silent, np.array([TRUNCATE]), *of.take(one), np.zeros(1, np.bool_)
            )

    def _of_table(self, view: _View, relation: Relation, rows: Numbers, of: _Transactions) -> Changes:
        starts, kinds = view.starts[rows], view.kinds[rows]
        letter = view.bytes[starts + 5]
        has_old = (letter == _OLD_KEY) | (letter == _OLD_ROW)
        has_new = kinds != ord("D")
        width = len(relation.fields)
        old, behind = view.walk(starts[has_old] + 6, width)
        begin = starts + 6
        begin[has_old] = behind + 1
        new, _ = view.walk(begin[has_new], width)
        ops = np.where(kinds == ord("I"), INSERT, np.where(kinds == ord("U"), UPDATE, DELETE))
        moved = np.zeros(len(rows), np.bool_)
        updated = has_old & has_new
        if updated.any():
            which_old, which_new = updated[has_old], updated[has_new]
            by_whole_rows = relation.stream in self._whole_rows
            moved[updated] = by_whole_rows or self._moved(view, relation, old, new, which_old, which_new)
            _fill(old, new, which_old, which_new)
            ops[moved] = INSERT
        told = (~has_new | moved)[has_old]
        part, messages, is_old = _in_order(old, new, has_old, has_new, told)
        lsns, ordinals, times, xids = of.take(rows[messages])
        ordinals = ordinals + (~is_old & moved[messages])
        texts, unchanged = [], []
        for column in range(width):
            kind = part.kinds[column]
            texts.append(view.texts(part.starts[column], part.ends[column], kind))
            unchanged.append(kind == _UNCHANGED)
        whole = ~is_old | (letter[messages] == _OLD_ROW)
        found = np.where(is_old, DELETE, ops[messages])
        has_before = (letter[messages] == _OLD_ROW) & (is_old | ~moved[messages])
        before = _before(view, old, np.cumsum(has_old)[messages] - 1, has_before)
        return Changes(relation, texts, unchanged, found, lsns, ordinals, times, xids, whole, before)

    def _moved(
        self, view: _View, relation: Relation, old: _Part, new: _Part, which_old: Mask, which_new: Mask
    ) -> Mask:
        """Which updates have changed the key of their row."""
        keys = relation.keys or self._keys.get(relation.stream, ())
        found = np.zeros(int(which_old.sum()), np.bool_)
        for column, field in enumerate(relation.fields):
            if field.name not in keys:
                continue
            before, after = (
                view.texts(part.starts[column][which], part.ends[column][which], part.kinds[column][which])
                for part, which in ((old, which_old), (new, which_new))
            )
            differs = pc.fill_null(pc.not_equal(before, after), False)
            found |= differs.to_numpy(zero_copy_only=False)
        return found


@dataclass(frozen=True)
class _Transactions:
    """For each message what its transaction says, and its ordinal there."""

    lsns: Numbers
    times: Numbers
    xids: Numbers
    ordinals: Numbers

    def take(self, at: Numbers) -> tuple[Numbers, Numbers, Numbers, Numbers]:
        return self.lsns[at], self.ordinals[at], self.times[at], self.xids[at]


class _View:
    """Messages in one buffer, which numbers are read from at many offsets at once."""

    def __init__(self, messages: Sequence[bytes]) -> None:
        lengths = np.fromiter(map(len, messages), np.int64, len(messages))
        self.starts: Numbers = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
        # Numbers of eight bytes are read at the offsets of shorter ones, so there is room behind the last.
        joined = b"".join(messages) + bytes(8)
        self._buffer = pa.py_buffer(joined)
        self.bytes: Any = np.frombuffer(joined, np.uint8)
        self.kinds = self.bytes[self.starts]
        size = len(joined)
        self._int16: Any = np.ndarray((size - 1,), ">i2", joined, strides=(1,))
        self._int32: Any = np.ndarray((size - 3,), ">i4", joined, strides=(1,))
        self._int64: Any = np.ndarray((size - 7,), ">i8", joined, strides=(1,))

    def int32(self, at: Numbers) -> Numbers:
        """The numbers of four bytes at some offsets."""
        return self._int32[at].astype(np.int64)  # type: ignore[no-any-return]

    def int64(self, at: Numbers) -> Numbers:
        """The numbers of eight bytes at some offsets."""
        return self._int64[at].astype(np.int64)  # type: ignore[no-any-return]

    def walk(self, at: Numbers, width: int) -> tuple[_Part, Numbers]:
        """The tuples at some offsets, column by column, and what lies behind each."""
        if len(at) and (self._int16[at] != width).any():
            raise ValueError(f"a change has other columns than the {width} of its table")
        value = at + 2
        part = _Part([], [], [])
        for _ in range(width):
            kind = self.bytes[value]
            texts = kind == _TEXT
            start = np.where(texts, value + 5, value + 1)
            end = np.where(texts, start + self._int32[np.minimum(value + 1, len(self._int32) - 1)], start)
            part.starts.append(start)
            part.ends.append(end)
            part.kinds.append(kind)
            value = end
        return part, value

    def texts(self, starts: Numbers, ends: Numbers, kinds: Any) -> pa.Array:
        """Values without a copy of each: every other one of the pieces that the buffer is cut into."""
        count = len(starts)
        if not count:
            return pa.array([], pa.string())
        offsets = np.empty(2 * count + 1, np.int32)
        offsets[0:-1:2], offsets[1::2], offsets[-1] = starts, ends, ends[-1]
        pieces = pa.Array.from_buffers(pa.binary(), 2 * count, [None, pa.py_buffer(offsets), self._buffer])
        absent = kinds != _TEXT
        indexes = pa.array(np.arange(0, 2 * count, 2), mask=absent if absent.any() else None)
        return pieces.take(indexes).cast(pa.string())


def _before(view: _View, old: _Part, at: Numbers, which: Mask) -> tuple[list[pa.Array], Mask] | None:
    """The old rows of some changes, `at` each of which one is; null for the others."""
    if not which.any():
        return None
    at = np.where(which, at, 0)
    texts = []
    for starts, ends, kinds in zip(old.starts, old.ends, old.kinds, strict=True):
        own = np.where(which, kinds[at], _NULL)
        sent = own == _TEXT
        texts.append(view.texts(starts[at][sent], ends[at][sent], own[sent]).take(_places(sent)))
    return texts, which


def _places(which: Mask) -> pa.Array:
    """For each of those, its number among them; null for the others."""
    return pa.array(np.cumsum(which) - 1, mask=~which)


def _fill(old: _Part, new: _Part, which_old: Mask, which_new: Mask) -> None:
    """Values that are as they were are taken from the old row, where that was sent whole."""
    behind, before = np.flatnonzero(which_new), np.flatnonzero(which_old)
    for column, kinds in enumerate(new.kinds):
        known = (kinds[behind] == _UNCHANGED) & (old.kinds[column][before] == _TEXT)
        if known.any():
            to, of = behind[known], before[known]
            new.kinds[column] = kinds.copy()
            new.kinds[column][to] = _TEXT
            new.starts[column][to] = old.starts[column][of]
            new.ends[column][to] = old.ends[column][of]


def _in_order(
    old: _Part, new: _Part, has_old: Mask, has_new: Mask, told: Mask
) -> tuple[_Part, Numbers, Mask]:
    """Rows that are changes, of which message each is, and which are old: those come before the new row."""
    messages = np.flatnonzero(has_new)
    if not told.any():
        return new, messages, np.zeros(len(messages), np.bool_)
    is_old = np.repeat([False, True], [len(messages), int(told.sum())])
    messages = np.concatenate([messages, np.flatnonzero(has_old)[told]])
    order = np.lexsort((~is_old, messages))
    return _where(_joined(new, _where(old, told)), order), messages[order], is_old[order]


def _where(part: _Part, which: Mask | Numbers) -> _Part:
    return _Part(*([column[which] for column in one] for one in (part.starts, part.ends, part.kinds)))


def _joined(first: _Part, second: _Part) -> _Part:
    sides = zip(
        (first.starts, first.ends, first.kinds), (second.starts, second.ends, second.kinds), strict=True
    )
    return _Part(*([np.concatenate([one, two]) for one, two in zip(a, b, strict=True)] for a, b in sides))


def _relation(message: bytes) -> Relation:
    (oid,) = struct.unpack_from(">I", message, 1)
    schema, at = _text(message, 5)
    name, at = _text(message, at)
    identity, count = chr(message[at]), struct.unpack_from(">h", message, at + 1)[0]
    at += 3
    fields = []
    for _ in range(count):
        in_key = message[at] == 1
        column, at = _text(message, at + 1)
        kind, typmod = struct.unpack_from(">Ii", message, at)
        at += 8
        fields.append(Field(column, kind, typmod, in_key))
    return Relation(oid, f"{schema or 'pg_catalog'}.{name}", tuple(fields), identity)


def _text(message: bytes, at: int) -> tuple[str, int]:
    end = message.index(b"\0", at)
    return message[at:end].decode(), end + 1
