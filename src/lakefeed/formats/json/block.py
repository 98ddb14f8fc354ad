"""The fast path: many payloads in one call of Arrow's JSON reader."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.json

from lakefeed.columns.evidence import is_quiet
from lakefeed.columns.widening import merge_fields
from lakefeed.formats import DEFAULT_RULES, Rules
from lakefeed.formats.fit import decimals
from lakefeed.formats.fit.columns import ColumnFitter
from lakefeed.formats.fit.doubt import Doubt, either
from lakefeed.formats.fit.paths import Level
from lakefeed.formats.fit.spellings import Spellings
from lakefeed.formats.json import suspects as json_suspects
from lakefeed.formats.json.any_value import texts
from lakefeed.formats.json.columns import CONVERSIONS, holds_decimal, is_unreadable, read_type
from lakefeed.formats.json.exact import has_floats, inexact
from lakefeed.formats.json.extras import extras_of
from lakefeed.formats.json.parser import DEEPEST
from lakefeed.formats.json.patterns import Patterns

# Each payload becomes one object `{"r": payload}` on a line. The text between two payloads, `}\n{`, is legal
# nowhere inside a JSON value, strings included: so every payload makes one row or more, or an error, and as
# many rows as payloads means that each is its own row.
_SEAM = b'}\n{"r":'
_FROM, _TO = len(b"}\n"), -len(b'{"r":')
_LARGEST = 1 << 30
_ROW = re.compile(r" in row (\d+)\Z")
_MOST_QUIET_FIELDS = 200
_PART_BYTES, _PART_ROWS = 32 * 1024, 1024


@dataclass(frozen=True)
class Block:
    """Rows of the table's type, one for each payload; those in doubt mean nothing."""

    rows: pa.StructArray
    doubt: Doubt


@dataclass(frozen=True)
class Failed:
    """A block that was not read, and payloads that are likely to be why."""

    suspects: set[int]


class BlockReader:
    """Reads blocks of payloads of one schema."""

    def __init__(
        self, schema: pa.Schema, rules: Rules = DEFAULT_RULES, spellings: Spellings | None = None
    ) -> None:
        self.spellings = spellings
        self._variants = 0
        """How many other spellings are expected."""
        self.fields = list(schema)
        self.extras = extras_of(self.fields, rules.dropped)
        self._ignoring = rules.new_column == "ignore"
        self._dropped = rules.dropped
        self.mapped = [field for field in self.fields if is_unreadable(field.type)]
        """Columns that are made from parsed objects."""
        self._fitter = ColumnFitter(CONVERSIONS)
        self._plain = [field for field in self.fields if field not in self.mapped]
        self._decimal = any(holds_decimal(field.type) for field in self._plain)
        self.patterns = Patterns(self.fields)
        self._quiet: list[pa.Field] = []
        self._has_more = False
        """Whether payloads have fields that are to be ignored."""
        self._exact = [
            at for at, one in enumerate(self.fields) if one.name in rules.exact and has_floats(one.type)
        ]
        self._expected = read_type(pa.struct(self._plain))

    def learn(self, quiet: list[pa.Field]) -> None:
        """Expect these fields from now on: without evidence of a type, always null, `[]` or `{}`.

        Without this, a producer that always sends such a field would keep every block off the fast path.
        """
        merged = merge_fields(self._quiet, [field.remove_metadata() for field in quiet])
        if len(merged) <= _MOST_QUIET_FIELDS and all(is_quiet(field.type) for field in merged):
            self._quiet = merged
            self._expect()

    def _expect(self) -> None:
        self._expected = _with_quiet(read_type(pa.struct(self._plain)), self._quiet)
        if self.spellings is not None and self.spellings.count:
            self._expected = self.spellings.expected(self._expected)
            self._variants = self.spellings.count

    def expect_variants(self) -> bool:
        """Expect all other spellings that events have had by now; whether there are more than before."""
        if self.spellings is None or self.spellings.count == self._variants:
            return False
        self._expect()
        return True

    def read(self, payloads: Sequence[bytes]) -> Block | Failed:
        """Read payloads of which nothing is known. A field that is not in the schema fails the block.

        A field that is to be ignored does not: it is read as whatever Arrow takes it for, and forgotten.
        Not for schemas with a map or with `json`.
        """
        # As long as there is nothing to ignore, it need not be looked at.
        found = Failed(set()) if self._has_more else self._read(payloads, self._expected, "error")
        if not isinstance(found, Failed):
            return self._block(found, {})
        return self._read_with_more(payloads) if self._ignoring or self._dropped else found

    def _read_with_more(self, payloads: Sequence[bytes]) -> Block | Failed:
        """Read payloads with fields that are to be ignored.

        In parts: Arrow makes a column of each of their names, as long as the part, and names may be data.
        """
        blocks = []
        for part in _parts(payloads):
            found = self._read(payloads[part], self._expected, "infer")
            if isinstance(found, Failed):
                return Failed({part.start + index for index in found.suspects})
            self._has_more = True
            if self.spellings is not None:
                self.spellings.learn(found.type)
                if self.spellings.missed():
                    return Failed(set())
                if self.expect_variants():
                    return self._read_with_more(payloads)
            if not self._is_allowed(found.type):
                return Failed(set())
            blocks.append(self._block(found, {}))
        return blocks[0] if len(blocks) == 1 else _joined(blocks)

    def _is_allowed(self, found: pa.DataType) -> bool:
        """Whether nothing was read beyond the schema but what is to be ignored."""
        if self._ignoring:
            return True
        known = self._expected.num_fields
        more = [found.field(index).name for index in range(known, found.num_fields)]
        return self._dropped.issuperset(more) and pa.struct(list(found)[:known]) == self._expected

    def read_known(self, payloads: Sequence[bytes], objects: Sequence[dict[str, Any]]) -> Block | Failed:
        """Read payloads that are known to be objects without doubled keys; other columns are skipped.

        Arrow's JSON reader has no maps and no values of mixed kinds: columns with such are made from the
        parsed objects. All in all that takes five times as long as a block without them, and a third of the
        time of the strict path.
        """
        expected = read_type(pa.struct(self._plain))
        if self.spellings is not None and self._variants:
            expected = self.spellings.expected(expected)
        found = self._read(payloads, expected, "ignore")
        if isinstance(found, Failed):
            return found
        try:
            made = {
                field.name: pa.array(texts(field, payloads, objects, self.spellings), read_type(field.type))
                for field in self.mapped
            }
        except (pa.ArrowException, OverflowError):
            return Failed(set())
        return self._block(found, made)

    def _read(self, payloads: Sequence[bytes], expected: pa.DataType, unexpected: str) -> pa.Array | Failed:
        text = _SEAM.join([b"", *payloads, b""])
        suspects = self._dangers(payloads, text) or (
            _loose(payloads, text) if unexpected == "infer" else set()
        )
        if suspects or len(text) > _LARGEST:
            return Failed(suspects)
        try:
            table = _read_json(text, expected, unexpected)
        except pa.ArrowException as error:
            row = _ROW.search(str(error))
            # A payload that holds more than one row moves the count: then the number is no hint.
            return Failed({int(row[1])} & set(range(len(payloads))) if row else set())
        rows = table.column("r")
        if len(rows) != len(payloads) or table.num_columns != 1 or rows.num_chunks != 1:
            return Failed(set())
        return rows.chunk(0)

    def _dangers(self, payloads: Sequence[bytes], text: bytes) -> set[int]:
        """Payloads that Arrow would take although it should not, or that it would not survive."""
        if not text.isascii() and not _is_utf8(text):
            return json_suspects.not_utf8(payloads)
        indexes = decimals.extreme(np.frombuffer(text, np.uint8)) if self._decimal else ()
        if not len(indexes):
            return set()
        ends = np.cumsum([len(payload) + len(_SEAM) for payload in payloads])
        return set(np.minimum(np.searchsorted(ends, indexes), len(payloads) - 1).tolist())

    def _block(self, found: pa.StructArray, made: dict[str, pa.Array]) -> Block:
        doubt = found.is_null().to_numpy(zero_copy_only=False) if found.null_count else None
        if self.spellings is not None and self._variants:
            twice = np.zeros(len(found), np.bool_)
            found = self.spellings.array(found, Level(), partial(_mark, twice))
            doubt = either(doubt, twice if twice.any() else None)
        columns = [made[one.name] if one.name in made else found.field(one.name) for one in self.fields]
        read = pa.struct([(one.name, column.type) for one, column in zip(self.fields, columns, strict=True)])
        whole = pa.Array.from_buffers(read, len(found), [None], children=columns)
        rows, unfit = self._fitter.rows(whole, pa.struct(self.fields))
        for at in self._exact:
            unfit = either(unfit, inexact(rows.field(at)))
        return Block(rows, either(doubt, unfit))


def _mark(rows: np.ndarray[Any, Any], level: Level, indexes: np.ndarray[Any, Any], *_: str) -> None:
    rows[[level.row(at) for at in indexes.tolist()]] = True


def _parts(payloads: Sequence[bytes]) -> Iterator[slice]:
    """Payloads that are read together although each may have names of its own."""
    start = size = 0
    for at, payload in enumerate(payloads):
        size += len(payload)
        if size >= _PART_BYTES or at - start == _PART_ROWS:
            yield slice(start, at + 1)
            start, size = at + 1, 0
    if start < len(payloads) or not payloads:
        yield slice(start, len(payloads))


def _joined(blocks: Sequence[Block]) -> Block:
    doubts = [np.zeros(len(one.rows), bool) if one.doubt is None else one.doubt for one in blocks]
    doubt = np.concatenate(doubts)
    return Block(pa.concat_arrays([one.rows for one in blocks]), doubt if doubt.any() else None)


def _loose(payloads: Sequence[bytes], text: bytes) -> set[int]:
    """Payloads that may hold what is no JSON, or is too deep, in a field that no column's type guards."""
    if not payloads:
        return set()
    odd = (
        {n for n, payload in enumerate(payloads) if b"NaN" in payload or b"Inf" in payload}
        if (b"NaN" in text or b"Inf" in text)
        else set()
    )
    # Few payloads have so many brackets that they could be nested too deep: only those are looked at.
    brackets = np.flatnonzero((np.frombuffer(text, np.uint8) | 0x20) == ord("{"))
    ends = np.cumsum([len(payload) + len(_SEAM) for payload in payloads])
    owners = np.minimum(np.searchsorted(ends, brackets, side="right"), len(payloads) - 1)
    many = np.flatnonzero(np.bincount(owners) > DEEPEST).tolist()
    return odd | {many[index] for index in json_suspects.deep([payloads[index] for index in many])}


def _read_json(text: bytes, expected: pa.DataType, unexpected: str) -> pa.Table:
    content = pa.py_buffer(memoryview(text)[_FROM:_TO])
    return pyarrow.json.read_json(
        pa.BufferReader(content),
        # One block, so that no payload is torn apart at a line break.
        read_options=pyarrow.json.ReadOptions(use_threads=False, block_size=len(text) + 1),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([("r", expected)]), unexpected_field_behavior=unexpected
        ),
    )


def _is_utf8(text: bytes) -> bool:
    """Arrow's reader does not look; its cast does, ten times as fast as Python's decoder."""
    ends = pa.py_buffer(np.array([0, len(text)], np.int64))
    try:
        pa.Array.from_buffers(pa.large_binary(), 1, [None, ends, pa.py_buffer(text)]).cast(pa.large_string())
    except pa.ArrowInvalid:
        return False
    return True


def _with_quiet(expected: pa.DataType, quiet: list[pa.Field]) -> pa.DataType:
    """The struct with the quiet fields behind its own, at every level."""
    extra = {field.name: field.type for field in quiet}
    own = [field.with_type(_with_quiet_inside(field.type, extra.pop(field.name, None))) for field in expected]
    return pa.struct([*own, *(pa.field(name, kind) for name, kind in extra.items())])


def _with_quiet_inside(expected: pa.DataType, quiet: pa.DataType | None) -> pa.DataType:
    if quiet is None:
        return expected
    if pa.types.is_struct(expected):
        return _with_quiet(expected, list(quiet))
    element = _with_quiet_inside(expected.value_type, quiet.value_type)
    return pa.list_(expected.value_field.with_type(element))
