"""Statistics of a data file, as the Delta log has them, from the footer that its Parquet writer has made."""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakefeed.columns.mapping import physical_name

_LONGEST_TEXT = 32
_LARGEST_CHARACTER = "\U0010ffff"
_DEFAULT_COLUMNS = 32
_COUNT_PROPERTY = "delta.dataSkippingNumIndexedCols"
_NAMES_PROPERTY = "delta.dataSkippingStatsColumns"
_NAME_PART = re.compile(r"`((?:[^`]|``)*)`|([^`.,]+)|([.,])")
_EPOCH = dt.datetime(1970, 1, 1)

Path = tuple[str, ...]


@dataclass(frozen=True)
class Leaf:
    """A column that has statistics: the way to it through structs, its type, its index in the Parquet file.

    The way is one of physical names, as in the log. `index` is None for an array or a map, whose own nulls
    the footer does not tell from those inside.
    """

    path: Path
    steps: tuple[int, ...]
    type: pa.DataType
    index: int | None


def indexed_leaves(schema: pa.Schema, properties: Mapping[str, str]) -> list[Leaf]:
    """The columns that get statistics: the first 32, unless the table's properties say otherwise."""
    leaves = list(_leaves(schema))
    names = properties.get(_NAMES_PROPERTY)
    if names is not None:
        chosen = [path for name in _parse_names(names) if (path := _physical_path(schema, name))]
        return [leaf for leaf in leaves if any(leaf.path[: len(name)] == name for name in chosen)]
    count = int(properties.get(_COUNT_PROPERTY, _DEFAULT_COLUMNS))
    return leaves if count < 0 else leaves[:count]


@dataclass
class FileStatistics:
    """Statistics of one file: shown every row on its way in, asked for the result when the file is closed."""

    leaves: list[Leaf]
    _nulls: dict[Path, int] = field(default_factory=dict)
    _with_nan: set[Path] = field(default_factory=set)

    def see(self, rows: pa.Table) -> None:
        """Take note of what the footer will not tell: NaN, and nulls of arrays and maps."""
        for leaf in self.leaves:
            if leaf.index is None:
                self._nulls[leaf.path] = self._nulls.get(leaf.path, 0) + _column(rows, leaf).null_count
            elif pa.types.is_floating(leaf.type) and pc.any(pc.is_nan(_column(rows, leaf))).as_py():
                self._with_nan.add(leaf.path)

    def to_json(self, footer: pq.FileMetaData) -> str:
        """The statistics in the log's form. Every bound holds for all rows; one that cannot is left out."""
        lows: dict[str, Any] = {}
        highs: dict[str, Any] = {}
        nulls: dict[str, Any] = {}
        for leaf in self.leaves:
            count, low, high = self._of(leaf, footer)
            for bounds, value in ((nulls, count), (lows, low), (highs, high)):
                if value is not None:
                    _put(bounds, leaf.path, value)
        found = {"numRecords": footer.num_rows, "minValues": lows, "maxValues": highs, "nullCount": nulls}
        return orjson.dumps(found).decode()

    def _of(self, leaf: Leaf, footer: pq.FileMetaData) -> tuple[int | None, Any, Any]:
        if leaf.index is None:
            return self._nulls.get(leaf.path, 0), None, None
        chunks = [footer.row_group(group).column(leaf.index) for group in range(footer.num_row_groups)]
        found = [chunk.statistics for chunk in chunks]
        if any(statistics is None or not statistics.has_null_count for statistics in found):
            return None, None, None
        count = sum(statistics.null_count for statistics in found)
        bounded = [s for s, chunk in zip(found, chunks, strict=True) if s.null_count < chunk.num_values]
        if leaf.path in self._with_nan or not bounded or not all(s.has_min_max for s in bounded):
            return count, None, None
        low, high = _bounds_of(leaf.type)
        smallest, largest = min(_bound(s, "min") for s in bounded), max(_bound(s, "max") for s in bounded)
        return count, low(smallest), high(largest)


def footer_statistics(footer: pq.FileMetaData) -> str:
    """Statistics of a file that others wrote, as far as its footer can be relied on.

    Not of floats, where a NaN is not told; nor of timestamps but in microseconds; nor of arrays and maps.
    """
    leaves = [leaf for leaf in _leaves(footer.schema.to_arrow_schema()) if _is_told(leaf, footer)]
    return FileStatistics(leaves[:_DEFAULT_COLUMNS]).to_json(footer)


def _is_told(leaf: Leaf, footer: pq.FileMetaData) -> bool:
    if leaf.index is None or pa.types.is_floating(leaf.type):
        return False
    if pa.types.is_timestamp(leaf.type):
        return bool(leaf.type.unit == "us" and footer.schema.column(leaf.index).physical_type != "INT96")
    return True


def _column(rows: pa.Table, leaf: Leaf) -> pa.ChunkedArray:
    column = rows.column(leaf.steps[0])
    return pc.struct_field(column, list(leaf.steps[1:])) if len(leaf.steps) > 1 else column


def _put(tree: dict[str, Any], path: Path, value: Any) -> None:
    for name in path[:-1]:
        tree = tree.setdefault(name, {})
    tree[path[-1]] = value


def _leaves(schema: pa.Schema) -> Iterator[Leaf]:
    index = 0
    for step, column in enumerate(schema):
        for path, steps, kind in _under(column, (step,)):
            yield Leaf(path, steps, kind, index if not pa.types.is_nested(kind) else None)
            index += _width(kind)


def _physical_path(fields: Iterable[pa.Field], path: Path) -> Path:
    """The way to a column in physical names; empty where there is no such column."""
    found: list[str] = []
    for name in path:
        column = next((one for one in fields if one.name == name), None)
        if column is None:
            return ()
        found.append(physical_name(column))
        fields = column.type if pa.types.is_struct(column.type) else ()
    return tuple(found)


def _under(column: pa.Field, steps: tuple[int, ...]) -> Iterator[tuple[Path, tuple[int, ...], pa.DataType]]:
    if not pa.types.is_struct(column.type):
        yield (physical_name(column),), steps, column.type
        return
    for number, child in enumerate(column.type.fields):
        for path, below, kind in _under(child, (*steps, number)):
            yield (physical_name(column), *path), below, kind


def _width(kind: pa.DataType) -> int:
    """How many columns a type takes in a Parquet file."""
    if not pa.types.is_nested(kind):
        return 1
    return sum(_width(kind.field(number).type) for number in range(kind.num_fields))


def _parse_names(text: str) -> list[Path]:
    """Column names separated by commas, their parts by dots, quoted with backticks where they hold either."""
    names: list[list[str]] = [[]]
    for quoted, plain, separator in _NAME_PART.findall(text):
        if separator == ",":
            names.append([])
        elif not separator and (quoted or plain.strip()):
            names[-1].append(quoted.replace("``", "`") if quoted else plain.strip())
    return [tuple(name) for name in names if name]


def _bound(statistics: pq.Statistics, end: str) -> Any:
    """A bound as a text, a decimal or a number. Dates stay numbers: Python's own end at the year 9999."""
    converted = statistics.logical_type.type in ("STRING", "DECIMAL")
    return getattr(statistics, end if converted else f"{end}_raw")


def _bounds_of(kind: pa.DataType) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    """How the smallest and the largest value of a type are written; None where they are not."""
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _text_low, _text_high
    both: Callable[[Any], Any] = _none
    if pa.types.is_timestamp(kind):
        both = _moment if kind.tz else _local_moment
    elif pa.types.is_date(kind):
        both = _date
    elif pa.types.is_decimal(kind):
        both = _decimal
    elif pa.types.is_integer(kind):
        both = int
    elif pa.types.is_floating(kind):
        both = _finite
    return both, both


def _none(value: Any) -> None:
    return None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _decimal(value: Any) -> Any:
    return orjson.Fragment(f"{value:f}")


def _text_low(value: str) -> str:
    return value[:_LONGEST_TEXT]


def _text_high(value: str) -> str | None:
    """A cut text is smaller than the whole, so the largest character replaces what was cut off."""
    if len(value) <= _LONGEST_TEXT:
        return value
    return None if value[_LONGEST_TEXT] == _LARGEST_CHARACTER else value[:_LONGEST_TEXT] + _LARGEST_CHARACTER


def _date(days: int) -> str | None:
    found = _since_epoch(days=days)
    return None if found is None else found.date().isoformat()


def _moment(microseconds: int) -> str | None:
    """All six digits: cut to milliseconds, the largest would be too small for readers that rely on it."""
    found = _local_moment(microseconds)
    return None if found is None else found + "Z"


def _local_moment(microseconds: int) -> str | None:
    found = _since_epoch(microseconds=microseconds)
    return None if found is None else found.isoformat(timespec="microseconds")


def _since_epoch(**span: int) -> dt.datetime | None:
    """None outside of the years 1 to 9999, which is what readers parse."""
    try:
        return _EPOCH + dt.timedelta(**span)
    except OverflowError:
        return None
