"""A stream of a source and its copy in a table: the rows of both, in the same columns and types."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.engine.task.decoding import EventDecoder
from lakefeed.events import Events, Offsets
from lakefeed.formats import Decoded, Rules
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.modes import open_until
from lakefeed.pipeline.table import Table
from lakefeed.reports.row_hashes import UNFIT, Hashes, Numbers, Ranges, row_hashes
from lakefeed.rows.conform import conformed
from lakefeed.sources import SourceRows
from lakefeed.tables.data_files import read_rows
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.table import LakeTable
from lakefeed.text import listed

RANGE_ROWS = 100_000
_PLAIN = re.compile(r"`?(\w+)`?(?:\s+(?:AS\s+)?`?(\w+)`?)?", re.IGNORECASE)
"""An item of `select` that takes a column as it is."""
_STREAM = "_stream"
_NO_FORMAT: Any = None
"""Events that have columns need no format."""


@dataclass(frozen=True)
class Copy:
    """One stream in one version of a table."""

    handle: TableHandle
    table: LakeTable
    version: int
    stream: str
    positions: Offsets
    """Of the stream alone."""
    files: Sequence[DataFile]
    is_shared: bool
    """Whether the table has rows of other streams too."""

    @property
    def spec(self) -> Table:
        """What the file says of the table."""
        assert self.handle.spec is not None
        return self.handle.spec

    @property
    def stream_column(self) -> str | None:
        """The column that says which stream a row is of; None where there is no such column."""
        name = self.spec.rename.get(_STREAM, _STREAM)
        return name if name in self.table.schema.names else None

    def plain_columns(self, rows: SourceRows) -> dict[str, str]:
        """The columns that are columns of the source as they are, each with its name there."""
        spec = self.spec
        there = {spec.rename.get(one, one): one for one in rows.columns(self.stream).names}
        there = {new: old for new, old in there.items() if old not in spec.drop}
        if spec.select is not None:
            there = _selected(spec.select, there)
        if spec.python is not None:
            there = {new: old for new, old in there.items() if old in rows.keys(self.stream)}
        columns = self.handle.columns() or pa.schema([])
        return {one.name: there[one.name] for one in columns if one.name in there}

    def problem(self, rows: SourceRows) -> str | None:
        """Why the table cannot be compared with the stream, in words; None if it can."""
        if (why := rows.problem(self.stream, self.positions)) is not None:
            return why
        known = self.plain_columns(rows).values()
        missing = [key for key in rows.keys(self.stream) if key not in known]
        if missing:
            return f"the table has no plain copy of the key column {missing[0]}"
        if self.is_shared and self.stream_column is None:
            return f"the table has rows of several streams, and no column {_STREAM} that says which"
        return None


def _selected(items: Sequence[str], there: Mapping[str, str]) -> dict[str, str]:
    """What items of `select` take as it is; of an item that computes something, nothing."""
    found: dict[str, str] = {}
    for item in items:
        if item.strip() == "*":
            found |= there
        elif (plain := _PLAIN.fullmatch(item.strip())) and plain[1] in there:
            found[plain[2] or plain[1]] = there[plain[1]]
    return found


@dataclass(frozen=True)
class SomeRows:
    """Some rows of either side."""

    keys: Hashes
    hashes: Hashes
    """Of the whole rows."""
    ranges: Numbers
    values: pa.RecordBatch

    def chosen(self, which: Any) -> SomeRows:
        """Some of them, by a mask."""
        values = self.values.filter(pa.array(which))
        return SomeRows(self.keys[which], self.hashes[which], self.ranges[which], values)


class CopiedStream:
    """Reads the rows of both sides, as often as they are asked for: always the same ones."""

    def __init__(self, copy: Copy, rows: SourceRows) -> None:
        self.copy, self._rows = copy, rows
        self._named = {old: new for new, old in copy.plain_columns(rows).items()}
        keys = rows.keys(copy.stream)
        self.keys = [self._named[key] for key in keys]
        columns = copy.handle.columns()
        assert columns is not None
        own = [one.with_nullable(True) for one in columns if one.name in self._named.values()]
        self.columns = pa.schema([copy.table.schema.field(one.name).with_nullable(True) for one in own])
        there = {new: old for old, new in self._named.items()}
        wanted = pa.schema([one.with_name(there[one.name]) for one in own])
        rules = Rules("ignore", copy.spec.evolve.type_change)
        self._decoder = EventDecoder(_NO_FORMAT, wanted, rules)
        key_columns = pa.schema([wanted.field(one) for one in keys])
        self._key_decoder = EventDecoder(_NO_FORMAT, key_columns, rules)
        self._key_fitter = Fitter(key_columns, rules)
        is_number = pa.types.is_integer(self.columns.field(self.keys[0]).type)
        edges = rows.edges(copy.stream, RANGE_ROWS) if is_number else None
        self.ranges = Ranges.of(self.keys[0], edges, rows.estimate(copy.stream), RANGE_ROWS)

    @property
    def filters(self) -> bool:
        """Whether rows may be missing in the copy on purpose."""
        spec = self.copy.spec
        drops = any(rule.otherwise == "drop" for rule in spec.expect.values())
        return bool(spec.where or spec.python or drops)

    def left_out(self) -> list[str]:
        """What a comparison says nothing about, in words."""
        names = self._rows.columns(self.copy.stream).names
        others = [one for one in names if one not in self._named and one not in self.copy.spec.drop]
        found = [f"{'columns' if len(others) > 1 else 'the column'} {listed(others)}"] if others else []
        if self.filters:
            found.append("whether rows are missing, as `where`, `python` or `expect` may leave some out")
        return found

    def source_rows(self, group: Numbers | None = None) -> Iterator[SomeRows]:
        """The rows of the source; with `group`, of some ranges alone."""
        spans = [(None, None)] if group is None else [self.ranges.span(one) for one in group.tolist()]
        for first, end in dict.fromkeys(spans):
            for events in self._rows.read(self.copy.stream, first, end):
                if len(events):
                    values, unfit = self._fitted(events)
                    yield from self._some(values, unfit, group)

    def copy_rows(self, group: Numbers | None = None) -> Iterator[SomeRows]:
        """The rows of the copy; of a history, those that hold now."""
        copy = self.copy
        of_stream = copy.stream_column if copy.is_shared else None
        until = open_until(copy.spec)
        fields = [copy.table.schema.field(one) for one in (of_stream, until) if one is not None]
        schema = pa.schema([*self.columns, *fields])
        for batch in read_rows(copy.table, copy.files, schema):
            if of_stream is not None:
                batch = batch.filter(pc.equal(batch.column(of_stream), copy.stream))
            if until is not None:
                batch = batch.filter(batch.column(until).is_null())
            yield from self._some(batch.select(self.columns.names), None, group)

    def key_hashes(self, keys: pa.RecordBatch) -> Hashes:
        """The hashes of keys of the source."""
        fitted = self._key_fitter.fit(keys.to_struct_array(), {}).rows
        return row_hashes(self._as_here(fitted, self.keys), self.keys)

    def _some(self, values: pa.RecordBatch, unfit: Any, group: Numbers | None) -> Iterator[SomeRows]:
        keys = row_hashes(values, self.keys)
        hashes = row_hashes(values, self.columns.names)
        if unfit is not None:
            hashes[unfit] = UNFIT
        some = SomeRows(keys, hashes, self.ranges.numbers(values, keys), values)
        yield some if group is None else some.chosen(np.isin(some.ranges, group))

    def _fitted(self, events: Events) -> tuple[pa.RecordBatch, Any]:
        """Rows in the columns of the copy, and which of them it cannot hold: of those, only the key."""
        decoded = self._decoder.decode(events)
        rows = self._as_here(decoded.rows, self.columns.names)
        if not decoded.refused:
            return rows, None
        keys = self._key_decoder.decode(events)
        own_keys = _spread(self._as_here(keys.rows, self.keys), keys, len(events))
        rows = _spread(rows, decoded, len(events))
        for name in self.keys:
            at = rows.schema.get_field_index(name)
            rows = rows.set_column(at, rows.schema.field(at), own_keys.column(name))
        unfit = np.zeros(len(events), np.bool_)
        unfit[[one.index for one in decoded.refused]] = True
        return rows, unfit

    def _as_here(self, rows: pa.RecordBatch, names: Sequence[str]) -> pa.RecordBatch:
        own = rows.rename_columns([self._named[one] for one in rows.schema.names])
        return conformed(own, pa.schema([self.columns.field(one) for one in names]))


def _spread(rows: pa.RecordBatch, decoded: Decoded, count: int) -> pa.RecordBatch:
    """Rows at the places of their events; all null where an event was refused."""
    at = np.full(count, -1, np.int64)
    kept = np.delete(np.arange(count), [one.index for one in decoded.refused])
    at[kept] = np.arange(len(kept))
    indexes = pa.array(np.maximum(at, 0), mask=at < 0)
    return pa.RecordBatch.from_arrays([one.take(indexes) for one in rows.columns], schema=rows.schema)
