"""What only the data of a history table shows: each key has one open row at most, and intervals are whole."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa

from lakefeed.tables.data_files import read_rows
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed import HistoryRules
from lakefeed.tables.write.keyed.keys import KeyIndex, Mask, Numbers, one_array, ranks
from lakefeed.text import counted


def interval_problems(table: LakeTable, files: Iterable[DataFile], rules: HistoryRules) -> Iterator[str]:
    """What is wrong with the intervals of a table, with an example of each kind."""
    names = [*rules.keys, rules.valid_from, rules.valid_to]
    schema = pa.schema([table.schema.field(name) for name in names])
    rows = pa.Table.from_batches(read_rows(table, files, schema), schema).combine_chunks()
    if not rows.num_rows:
        return
    begins, ends = ranks(rules.times(rows.column(rules.valid_from)), rules.times(rows.column(rules.valid_to)))
    is_open = one_array(rows.column(rules.valid_to)).is_null().to_numpy(zero_copy_only=False)
    numbers = KeyIndex(rows, rules.keys).numbers
    order = np.lexsort((begins, numbers))
    beside = numbers[order[1:]] == numbers[order[:-1]]
    several = beside & is_open[order[1:]] & is_open[order[:-1]]
    overlaps = beside & ~several & (is_open[order[:-1]] | (ends[order[:-1]] > begins[order[1:]]))
    yield from _told(rows, rules, np.flatnonzero(~is_open & (ends <= begins)), "end before they begin")
    yield from _told(rows, rules, _behind(order, several), "are open though another row of their key is")
    yield from _told(rows, rules, _behind(order, overlaps), "overlap another row of their key")


def _behind(order: Numbers, found: Mask) -> Numbers:
    behind: Numbers = order[1:][found]
    return behind


def _told(rows: pa.Table, rules: HistoryRules, indexes: Numbers, what: str) -> Iterator[str]:
    if len(indexes):
        (first,) = rows.slice(int(indexes[0]), 1).select([*rules.keys, rules.valid_from]).to_pylist()
        example = ", ".join(f"{name}={value}" for name, value in first.items())
        yield f"{counted(len(indexes), 'row')} that {what}, such as {example}"
