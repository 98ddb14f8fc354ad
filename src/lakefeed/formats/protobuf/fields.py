"""What was found of one field in many payloads, and the Arrow column that it becomes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.formats.fit.doubt import utf8_texts
from lakefeed.formats.fit.times import FIRST_US, LAST_US
from lakefeed.formats.protobuf import message as pb
from lakefeed.formats.protobuf.json import json_text
from lakefeed.formats.protobuf.message import Field, Form, Message
from lakefeed.formats.protobuf.walk import Walk
from lakefeed.formats.protobuf.wire import Buffer, Flags, Indexes, Spans, Words
from lakefeed.formats.refusal import Misfit

SECONDS_OF_DURATION = 315_576_000_000
NANOS = 10**9
_LARGEST_32 = np.uint64(2**32 - 1)
_NO_ROWS = np.zeros(0, np.int64)


@dataclass(frozen=True)
class Column:
    """Values, and the indexes that mean nothing and are decided otherwise."""

    values: pa.Array
    doubt: Flags

    def lists(self, of: Field, rows: Indexes, count: int) -> tuple[pa.Array, Flags]:
        """The values as lists or maps, by the rows that they belong to, which are in order."""
        offsets = pa.array(np.searchsorted(rows, np.arange(count + 1)).astype(np.int32))
        doubt = _lifted(rows, self.doubt, count)
        kind = of.column.type
        if not of.is_map:
            ends = offsets.buffers()[1]
            return pa.Array.from_buffers(kind, count, [None, ends], children=[self.values]), doubt
        keys, items = pc.struct_field(self.values, 0).cast(pa.string()), pc.struct_field(self.values, 1)
        table = pa.table({"row": rows, "key": keys})
        order = pc.sort_indices(table, sort_keys=[("row", "ascending"), ("key", "ascending")])
        keys, items = keys.take(order), items.take(order)
        if len(keys) > 1:
            twice = (rows[1:] == rows[:-1]) & pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
            doubt[rows[1:][twice]] = True
        entries = pa.Array.from_buffers(kind.field(0).type, len(keys), [None], children=[keys, items])
        return pa.Array.from_buffers(kind, count, [None, offsets.buffers()[1]], children=[entries]), doubt

    def spread(self, rows: Indexes, count: int) -> tuple[pa.Array, Flags]:
        """The values in a column of so many rows, null in those that have none."""
        doubt = _lifted(rows, self.doubt, count)
        # As many values as rows: yet one row may have two of them, and another none.
        if len(rows) == count and bool((rows[1:] != rows[:-1]).all()):
            return self.values, doubt
        indexes = np.full(count, -1, np.int64)
        indexes[rows] = np.arange(len(rows))
        return self.values.take(pa.array(indexes, mask=indexes < 0)), doubt


def _lifted(rows: Indexes, doubt: Flags, count: int) -> Flags:
    """Doubt about values as doubt about the rows that hold them."""
    lifted = np.zeros(count, np.bool_)
    lifted[rows[doubt]] = True
    return lifted


@dataclass
class FieldOccurrences:
    """The occurrences of a field, in the order in which they were met; of each row they are in its order."""

    _rows: list[Indexes] = field(default_factory=list)
    _values: list[Words] = field(default_factory=list)
    _spans: list[Spans] = field(default_factory=list)

    def add_values(self, rows: Indexes, values: Words) -> None:
        """Numbers as they lie in the payload."""
        self._rows.append(rows)
        self._values.append(values)

    def add_spans(self, rows: Indexes, spans: Spans) -> None:
        """Texts, bytes or messages."""
        self._rows.append(rows)
        self._spans.append(spans)

    def ordered(self) -> tuple[Indexes, Indexes]:
        """The row of each occurrence, in order, and where the occurrence was met."""
        rows = np.concatenate([_NO_ROWS, *self._rows])
        order = np.argsort(rows, kind="stable")
        return rows[order], order

    def spans(self) -> Spans:
        """All spans, as they were met."""
        starts = np.concatenate([_NO_ROWS, *(each.starts for each in self._spans)])
        return Spans(starts, np.concatenate([_NO_ROWS, *(each.lengths for each in self._spans)]))

    def elements(self, buffer: Buffer, of: Field, order: Indexes) -> Column:
        """One value for each occurrence."""
        if of.wire == pb.LENGTH:
            return _texts(buffer, of, self.spans().at(order), None)
        values = np.concatenate([np.zeros(0, np.uint64), *self._values])[order]
        return _numbers(of, values, None)

    def scalars(self, buffer: Buffer, of: Field, count: int) -> tuple[pa.Array, Flags]:
        """One value for each row, the last that was met; the default or null where there is none."""
        missing = None
        if not of.implicit:
            missing = np.ones(count, np.bool_)
            for rows in self._rows:
                missing[rows] = False
        if of.wire == pb.LENGTH:
            spans = Spans(np.zeros(count, np.int64), np.zeros(count, np.int64))
            for rows, some in zip(self._rows, self._spans, strict=True):
                spans.starts[rows], spans.lengths[rows] = some.starts, some.lengths
            column = _texts(buffer, of, spans, missing)
        else:
            values = np.zeros(count, np.uint64)
            for rows, found in zip(self._rows, self._values, strict=True):
                values[rows] = found
            column = _numbers(of, values, missing)
        return column.values, column.doubt


def _texts(buffer: Buffer, of: Field, spans: Spans, missing: Flags | None) -> Column:
    column, doubt = buffer.texts(spans, pa.binary(), missing), None
    if of.type != pb.BYTES:
        column, doubt = utf8_texts(column)
    return Column(column, np.zeros(len(spans), np.bool_) if doubt is None else doubt)


def _numbers(of: Field, values: Words, missing: Flags | None) -> Column:
    if of.type == pb.ENUM:
        return _names(of, _typed(pb.INT32, values), missing)
    return Column(pa.array(_typed(of.type, values), mask=missing), np.zeros(len(values), np.bool_))


def beyond_32_bits(kind: int, values: Words) -> Flags | None:
    """Which numbers do not fit the 32 bits of their field, as it lies in the payload; None if that is 64."""
    if kind in (pb.INT32, pb.ENUM):
        signed = values.view(np.int64)
        return np.asarray(signed.astype(np.int32) != signed)
    return np.asarray(values > _LARGEST_32) if kind in (pb.UINT32, pb.SINT32) else None


def _typed(kind: int, values: Words) -> npt.NDArray[Any]:
    """The numbers that lie in the payload as these bits; what is beyond 32 is in doubt already."""
    if kind in (pb.UINT64, pb.FIXED_UINT64):
        return values
    if kind in (pb.INT64, pb.FIXED_INT64):
        return values.view(np.int64)
    if kind == pb.DOUBLE:
        return values.view(np.float64)
    if kind == pb.BOOL:
        flags: Flags = values != 0
        return flags
    if kind == pb.SINT64:
        return (values >> np.uint64(1)).view(np.int64) ^ -(values & np.uint64(1)).view(np.int64)
    halves: npt.NDArray[np.uint32] = values.astype(np.uint32)
    if kind == pb.SINT32:
        return (halves >> np.uint32(1)).view(np.int32) ^ -(halves & np.uint32(1)).view(np.int32)
    if kind in (pb.UINT32, pb.FIXED_UINT32):
        return halves
    return halves.view(np.float32) if kind == pb.FLOAT else halves.view(np.int32)


def _names(of: Field, numbers: npt.NDArray[np.int32], missing: Flags | None) -> Column:
    """The names of enum values. A number without a name is its text, unless the enum is closed."""
    known = np.array(sorted(of.names), np.int32)
    indexes = np.minimum(np.searchsorted(known, numbers), len(known) - 1)
    named = known[indexes] == numbers
    names = pa.array([of.names[number] for number in known.tolist()], pa.string())
    column = names.take(pa.array(indexes, mask=missing))
    present = named if missing is None else named | missing
    if present.all():
        return Column(column, np.zeros(len(numbers), np.bool_))
    column = pc.if_else(pa.array(present), column, pa.array(numbers).cast(pa.string()))
    return Column(column, ~present if of.closed else np.zeros(len(numbers), np.bool_))


def assembled(message: Message, columns: list[pa.Array], doubt: Flags) -> Column:
    """What values of a message become, from the columns of its fields."""
    count = len(doubt)
    if message.form is Form.STRUCT:
        struct = pa.Array.from_buffers(message.type, count, [None], children=columns)
        return Column(struct, doubt)
    if message.form is Form.WRAPPED:
        return Column(columns[0], doubt)
    if message.form is Form.EMPTY:
        return Column(pa.array(np.ones(count, np.bool_)), doubt)
    seconds, nanos = (column.to_numpy() for column in columns)
    if message.form is Form.TIMESTAMP:
        low, high = FIRST_US // 10**6, LAST_US // 10**6
        inside = (low <= seconds) & (seconds <= high) & (nanos >= 0) & (nanos < NANOS)
    else:
        inside = (seconds >= -SECONDS_OF_DURATION) & (seconds <= SECONDS_OF_DURATION)
        inside &= (nanos > -NANOS) & (nanos < NANOS)
        inside &= (seconds == 0) | (nanos == 0) | ((seconds < 0) == (nanos < 0))
    cut = np.floor_divide(nanos, 1000) if message.form is Form.TIMESTAMP else (nanos / 1000).astype(np.int64)
    values = np.where(inside, seconds, 0) * 10**6 + cut
    return Column(pa.array(values).view(message.type), doubt | ~inside)


def json_texts(message: Message, spans: Spans, buffer: Buffer, strict_numbers: bool) -> Column:
    """The JSON of messages whose fields are no columns, one by one."""
    texts: list[str | None] = []
    doubt = np.zeros(len(spans), np.bool_)
    for index, (start, end) in enumerate(zip(spans.starts.tolist(), spans.ends.tolist(), strict=True)):
        walk = Walk(buffer.data)
        try:
            walk.message(message, start, end, ())
            texts.append(json_text(message, buffer.data[start:end]))
            doubt[index] = strict_numbers and bool(walk.unknown)
        except Misfit:
            texts.append(None)
            doubt[index] = True
    return Column(pa.array(texts, pa.string()), doubt)
