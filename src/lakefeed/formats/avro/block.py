"""The fast path: payloads of one writer become columns, a field of all of them at a time.

Each payload has a cursor; a field is read by moving all cursors at once, in numpy. What is odd about a
payload (cut off, beyond a range, a list of many items) puts it in doubt, and the strict path decides it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.formats.avro.logical import Array, decimals, durations, uuids
from lakefeed.formats.avro.schema import Node
from lakefeed.formats.fit.doubt import utf8_texts

_ROOM = 64
"""Bytes after the last payload, so that a cursor at its end may be read from without a check."""
_LONGEST_VARINT = 10
_MOST_ITEMS = 100
"""Items of a list or map that are read in rounds over all payloads; longer ones are left in doubt."""


def read_columns(schema: Node, payloads: Sequence[bytes], start: int) -> tuple[pa.StructArray, Array]:
    """The columns of payloads whose content begins at a byte, and which payloads are in doubt.

    A payload in doubt has some values, which mean nothing.
    """
    block = _Block(payloads, start)
    values = block.read(schema, np.arange(len(payloads)))
    block.doubt |= block.at != block.ends
    if schema.kind != "record":
        values = pa.StructArray.from_arrays([values], ["value"])
    return values, block.doubt


class _Block:
    """Payloads side by side, and a cursor into each. Rows are indexes of payloads, in ascending order."""

    def __init__(self, payloads: Sequence[bytes], start: int) -> None:
        content = b"".join([*payloads, bytes(_ROOM)])
        self._buffer = pa.py_buffer(content)
        self._bytes = np.frombuffer(content, np.uint8)
        lengths = np.fromiter(map(len, payloads), np.int64, len(payloads))
        self.ends = np.cumsum(lengths)
        self.at = np.minimum(self.ends - lengths + start, self.ends)
        self.doubt = lengths < start

    def read(self, node: Node, rows: Array) -> pa.Array:
        """The next value of each of the rows."""
        return getattr(self, node.reader)(node, rows)

    def _suspect(self, rows: Array, odd: Array) -> None:
        """Put the rows that are odd in doubt; their cursors stay at the end."""
        if odd.any():
            self.doubt[rows[odd]] = True
            self.at[rows[odd]] = self.ends[rows[odd]]

    def _moved(self, rows: Array, steps: Any) -> tuple[Array, Array]:
        """Move the cursors by so many bytes; returns where they were, and how far each has gone."""
        at = self.at[rows]
        left = self.ends[rows] - at
        odd = (left < steps) | (steps < 0)
        steps = np.where(odd, 0, steps)
        self.at[rows] = at + steps
        self._suspect(rows, odd)
        return at, steps

    def long(self, rows: Array) -> Array:
        """The next number of each row, zero for those in doubt."""
        at = self.at[rows]
        first = self._bytes[at]
        bits = (first & 127).astype(np.uint64)
        after = at + 1
        odd = np.zeros(len(rows), np.bool_)
        open_ = np.flatnonzero(first > 127)
        for step in range(1, _LONGEST_VARINT):
            if not len(open_):
                break
            byte = self._bytes[at[open_] + step]
            bits[open_] |= (byte & 127).astype(np.uint64) << np.uint64(7 * step)
            after[open_] += 1
            if step == _LONGEST_VARINT - 1:
                # The tenth byte holds one bit; anything above it is not of 64 bits.
                odd[open_[byte > 1]] = True
            open_ = open_[byte > 127]
        odd |= after > self.ends[rows]
        self.at[rows] = after
        numbers: Array = (bits >> np.uint64(1)).view(np.int64) ^ -(bits & np.uint64(1)).view(np.int64)
        if odd.any():
            self._suspect(rows, odd)
            numbers[odd] = 0
        return numbers

    def null(self, _: Node, rows: Array) -> pa.Array:
        return pa.nulls(len(rows))

    def boolean(self, _: Node, rows: Array) -> pa.Array:
        at, _steps = self._moved(rows, np.int64(1))
        values = self._bytes[at]
        self._suspect(rows, values > 1)
        return pa.array(values == 1)

    def integer(self, node: Node, rows: Array) -> pa.Array:
        numbers = self.long(rows)
        self._suspect(rows, (numbers < -(2**31)) | (numbers >= 2**31))
        return pa.array(numbers.astype(np.int32)).view(node.made)

    def number(self, node: Node, rows: Array) -> pa.Array:
        return pa.array(self.long(rows)).view(node.made)

    def _wide(self, at: Array, width: int) -> Array:
        return self._bytes[at[:, None] + np.arange(width)]

    def single(self, _: Node, rows: Array) -> pa.Array:
        at, _steps = self._moved(rows, np.int64(4))
        return pa.array(self._wide(at, 4).view("<f4").ravel())

    def double(self, _: Node, rows: Array) -> pa.Array:
        at, _steps = self._moved(rows, np.int64(8))
        return pa.array(self._wide(at, 8).view("<f8").ravel())

    def _contents(self, at: Array, lengths: Array) -> pa.Array:
        """The bytes from these offsets, which ascend: every other piece of the block when it is cut there."""
        cuts = np.empty(2 * len(at) + 1, np.int32)
        cuts[0:-1:2] = at
        cuts[1::2] = at + lengths
        cuts[-1] = cuts[-2] if len(at) else 0
        pieces = pa.Array.from_buffers(pa.binary(), 2 * len(at), [None, pa.py_buffer(cuts), self._buffer])
        return pieces.take(pa.array(np.arange(0, 2 * len(at), 2)))

    def string(self, _: Node, rows: Array) -> pa.Array:
        texts, odd = utf8_texts(self._contents(*self._moved(rows, self.long(rows))))
        if odd is not None:
            self._suspect(rows, odd)
        return texts

    def binary(self, node: Node, rows: Array) -> pa.Array:
        steps = self.long(rows) if node.kind == "bytes" else np.full(len(rows), node.size)
        at, lengths = self._moved(rows, steps)
        if node.logical == "decimal":
            values, odd = decimals(self._bytes, at, lengths, node.made)
            self._suspect(rows, odd)
            return values
        if node.logical:
            make = {"uuid": uuids, "duration": durations}[node.logical]
            return make(self._wide(at, node.size))
        return self._contents(at, lengths)

    def enum(self, node: Node, rows: Array) -> pa.Array:
        numbers = self.long(rows)
        odd = (numbers < 0) | (numbers >= len(node.symbols))
        self._suspect(rows, odd)
        numbers[odd] = 0
        return pa.array(node.symbols or ("",), pa.string()).take(pa.array(numbers))

    def record(self, node: Node, rows: Array) -> pa.Array:
        children = [self.read(field, rows) for _, field in node.fields]
        return pa.Array.from_buffers(node.made, len(rows), [None], children=children)

    def union(self, node: Node, rows: Array) -> pa.Array:
        branch = self.long(rows)
        self._suspect(rows, (branch < 0) | (branch >= len(node.branches)))
        members = node.members
        columns = [self._branch(member, rows, branch == number) for number, member in members]
        if len(members) < 2:
            return columns[0] if columns else pa.nulls(len(rows))
        if not pa.types.is_struct(node.made):
            return pc.coalesce(*(column.cast(node.made) for column in columns))
        null = np.isin(branch, [number for number, _ in members], invert=True)
        mask = pa.array(null) if null.any() else None
        return pa.StructArray.from_arrays(columns, fields=list(node.made), mask=mask)

    def _branch(self, member: Node, rows: Array, chosen: Array) -> pa.Array:
        """The values of the rows that have chosen a branch, null for the others."""
        if chosen.all():
            return self.read(member, rows)
        values = self.read(member, rows[chosen])
        return values.take(pa.array(np.cumsum(chosen) - 1, mask=~chosen))

    def array(self, node: Node, rows: Array) -> pa.Array:
        item = node.item
        assert item is not None
        values, offsets = self._items(rows, lambda some: self.read(item, some), item.made)
        return pa.ListArray.from_arrays(offsets, values, type=node.made)

    def map(self, node: Node, rows: Array) -> pa.Array:
        item = node.item
        assert item is not None
        entry = pa.struct([("key", pa.string()), ("value", item.made)])

        def pair(some: Array) -> pa.Array:
            return pa.StructArray.from_arrays(
                [self.string(node, some), self.read(item, some)], fields=list(entry)
            )

        values, offsets = self._items(rows, pair, entry)
        return pa.MapArray.from_arrays(offsets, values.field(0), values.field(1), type=node.made)

    def _items(
        self, rows: Array, read: Callable[[Array], pa.Array], kind: pa.DataType
    ) -> tuple[pa.Array, pa.Array]:
        """All items of the lists of some rows, list after list, and where each list begins."""
        left = np.zeros(len(rows), np.int64)
        counts = np.zeros(len(rows), np.int64)
        found: list[pa.Array] = []
        owners: list[Array] = []
        going = np.arange(len(rows))
        while len(going):
            going = self._headers(rows, going, left, counts)
            if not len(going):
                break
            found.append(read(rows[going]))
            owners.append(going)
            counts[going] += 1
            left[going] -= 1
        offsets = np.zeros(len(rows) + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        if not found:
            return pa.array([], kind), pa.array(offsets)
        order = np.argsort(np.concatenate(owners), kind="stable")
        values = found[0] if len(found) == 1 else pa.concat_arrays(found).take(pa.array(order))
        return values, pa.array(offsets)

    def _headers(self, rows: Array, going: Array, left: Array, counts: Array) -> Array:
        """Read how many items come next where that is not known; returns the lists that have some."""
        due = going[left[going] == 0]
        if len(due):
            number = self.long(rows[due])
            sized = number < 0
            if sized.any():
                self.long(rows[due[sized]])
            number = np.abs(number)
            many = (number > _MOST_ITEMS) | (number < 0) | (counts[due] + number > _MOST_ITEMS)
            self._suspect(rows[due], many)
            left[due] = np.where(many, 0, number)
        return going[(left[going] > 0) & ~self.doubt[rows[going]]]
