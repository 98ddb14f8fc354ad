"""The fast path: many payloads of one message type, read together field by field.

All payloads are walked side by side. In each step those whose next field has the lowest number have it read,
so that a field costs a few operations on arrays, whatever the number of payloads is. What is broken, rare or
needs a closer look is left in doubt: the caller has such a payload decided by the strict path.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from lakefeed.formats.protobuf.fields import Column, FieldOccurrences, assembled, beyond_32_bits, json_texts
from lakefeed.formats.protobuf.message import (
    FIXED32,
    FIXED64,
    LENGTH,
    START_GROUP,
    VARINT,
    Field,
    Form,
    Message,
)
from lakefeed.formats.protobuf.wire import Buffer, Flags, Indexes, Spans, Words, packed_fixed, packed_varints

_FEW = 16
_MOST_STEPS_FOR_FEW = 256
_LARGEST_TAG = (1 << 32) - 1
_LONGEST_TAG = 5
_WIDTHS = {FIXED64: 8, FIXED32: 4}


def read_block(message: Message, payloads: list[bytes], strict_numbers: bool) -> Column:
    """The payloads as a struct, and which of them are in doubt.

    With `strict_numbers`, a payload with a field that the message does not have is in doubt too.
    """
    buffer = Buffer(payloads)
    return _Reader(buffer, message, buffer.payloads, strict_numbers).column()


class _Reader:
    """The work on the spans of one message type."""

    def __init__(self, buffer: Buffer, message: Message, spans: Spans, strict_numbers: bool) -> None:
        self._buffer = buffer
        self._message = message
        self._strict_numbers = strict_numbers
        self._spans = spans
        self._at = spans.starts.copy()
        self._ends = spans.ends
        self._tags = np.zeros(len(spans), np.int64)
        self._doubt = np.zeros(len(spans), np.bool_)
        self._found = {field.number: FieldOccurrences() for field in message.fields}
        self._taken: dict[str, Flags] = {}

    def column(self) -> Column:
        """One value of the message for each span."""
        if self._message.form is Form.JSON:
            return json_texts(self._message, self._spans, self._buffer, self._strict_numbers)
        self._walk()
        columns = []
        for field in self._message.fields:
            column, doubt = self._column(field)
            columns.append(column)
            self._doubt |= doubt
            if field.required:
                self._doubt |= self._without(self._found[field.number].ordered()[0])
        return assembled(self._message, columns, self._doubt)

    def _walk(self) -> None:
        active = self._next_tags(np.flatnonzero(self._at < self._ends))
        steps_for_few = 0
        while len(active):
            tags = self._tags[active]
            least = int(tags.min())
            chosen = tags == least
            rows = active[chosen]
            steps_for_few += len(rows) < _FEW
            if len(rows) < _FEW and steps_for_few > _MOST_STEPS_FOR_FEW:
                # A step costs the same for one payload as for hundreds: one by one is faster for these.
                self._doubt[rows] = True
                active = active[~chosen]
                continue
            self._step(least, rows)
            rows = self._next_tags(rows[(self._at[rows] < self._ends[rows]) & ~self._doubt[rows]])
            active = rows if chosen.all() else np.concatenate([active[~chosen], rows])

    def _next_tags(self, rows: Indexes) -> Indexes:
        """Read the tags at the positions of these rows; returns those that have one."""
        tags, lengths = self._buffer.varints(self._at[rows])
        good = (lengths > 0) & (lengths <= _LONGEST_TAG) & (tags <= _LARGEST_TAG) & (tags > 7)
        if not good.all():
            self._doubt[rows[~good]] = True
            rows, tags, lengths = rows[good], tags[good], lengths[good]
        self._tags[rows] = tags.astype(np.int64)
        self._at[rows] += lengths
        return rows

    def _step(self, tag: int, rows: Indexes) -> None:
        """Read the value behind this tag in all rows that have it."""
        wire, field = tag & 7, self._message.by_number.get(tag >> 3)
        at = self._at[rows]
        values, after = self._values(wire, at)
        bad = after > self._ends[rows]
        if wire == LENGTH:
            # A length beyond what fits would turn the position behind it around.
            bad |= (values > len(self._buffer.data)) | (after < at)
        bad |= after <= at
        if bad.any():
            self._doubt[rows[bad]] = True
            rows, values, after = rows[~bad], values[~bad], after[~bad]
        self._at[rows] = after
        if field is None:
            self._doubt[rows] |= self._strict_numbers or self._message.is_entry
        elif wire == field.wire:
            self._keep(field, rows, values, after)
        elif field.packable and wire == LENGTH:
            self._unpack(field, rows, Spans(after - values.astype(np.int64), values.astype(np.int64)))
        else:
            self._doubt[rows] = True

    def _values(self, wire: int, at: Indexes) -> tuple[Words, Indexes]:
        """The values at these positions, of texts and messages the length, and the positions behind them."""
        if wire in _WIDTHS:
            # The last bytes of the buffer are padding, so that looking a little too far is no harm.
            values = self._buffer.fixed64(at) if wire == FIXED64 else self._buffer.fixed32(at)
            return values, at + _WIDTHS[wire]
        values, lengths = self._buffer.varints(at)
        if wire not in (VARINT, LENGTH):
            return values, at
        after = at + lengths
        return values, np.where(lengths > 0, after + values.astype(np.int64), at) if wire == LENGTH else after

    def _keep(self, field: Field, rows: Indexes, values: Words, after: Indexes) -> None:
        if field.once:
            taken = self._taken.setdefault(field.once, np.zeros(len(self._at), np.bool_))
            self._doubt[rows[taken[rows]]] = True
            taken[rows] = True
        if field.wire == LENGTH:
            lengths = values.astype(np.int64)
            self._found[field.number].add_spans(rows, Spans(after - lengths, lengths))
        else:
            self._add(field, rows, values)

    def _unpack(self, field: Field, rows: Indexes, spans: Spans) -> None:
        width = _WIDTHS.get(field.wire)
        packed = packed_fixed(self._buffer, spans, width) if width else packed_varints(self._buffer, spans)
        counts, values, broken = packed
        self._doubt[rows[broken]] = True
        self._add(field, np.repeat(rows, counts), values)

    def _add(self, field: Field, rows: Indexes, values: Words) -> None:
        beyond = beyond_32_bits(field.type, values)
        if beyond is not None:
            self._doubt[rows[beyond]] = True
        self._found[field.number].add_values(rows, values)

    def _column(self, field: Field) -> tuple[pa.Array, Flags]:
        """The column of a field, and the rows that it leaves in doubt."""
        found, count = self._found[field.number], len(self._at)
        if field.wire == START_GROUP:
            # A payload that has one is in doubt.
            if not field.repeated:
                return pa.nulls(count, field.column.type), np.zeros(count, np.bool_)
            empty = Column(pa.array([], field.value), np.zeros(0, np.bool_))
            return empty.lists(field, found.ordered()[0], count)
        if field.repeated:
            rows, order = found.ordered()
            elements = self._elements(field, found, order)
            return elements.lists(field, rows, count)
        if field.message:
            rows, order = found.ordered()
            values, doubt = self._elements(field, found, order).spread(rows, count)
            # The entry of a map without a value holds an empty message.
            return values, doubt | self._without(rows) if field.implicit else doubt
        return found.scalars(self._buffer, field, count)

    def _elements(self, field: Field, found: FieldOccurrences, order: Indexes) -> Column:
        """One value for each occurrence of the field."""
        if field.message is None:
            return found.elements(self._buffer, field, order)
        spans = found.spans().at(order)
        return _Reader(self._buffer, field.message, spans, self._strict_numbers).column()

    def _without(self, rows: Indexes) -> Flags:
        missing = np.ones(len(self._at), np.bool_)
        missing[rows] = False
        return missing
