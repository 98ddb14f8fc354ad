"""Changes that are held back from a replay: an older dead letter may have the values that they leave out.

The row of the table has the values from before that letter, and such a change would carry them on.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from lakefeed.dead_letters.find import DeadLetterFilter, read_dead_letters
from lakefeed.handles.table_plan import StagedPosition
from lakefeed.handles.tables import Tables
from lakefeed.rows.envelope import json_names
from lakefeed.sources import Source

_COLUMNS = ["topic", "partition", "offset", "key"]
_Letter = tuple[str | None, int, int, bytes | None, StagedPosition]
"""The stream, the offset and the number there, by which changes are in order, the key, and the position."""


def held_back(
    tables: Tables,
    source: Source,
    every: DeadLetterFilter,
    sent: pa.RecordBatch,
    taken: Sequence[bool],
    partial: Collection[StagedPosition],
) -> frozenset[StagedPosition]:
    """Which of the `partial` changes have an older dead letter of their key that is not taken with them.

    `every` are all dead letters of the table, `sent` those that are replayed together, and `taken` says which
    of these become rows. A letter without a key, or with a key of other columns, may be about any row of its
    stream.
    """
    own = list(_letters(sent, source))
    positions = {letter[-1] for letter, is_taken in zip(own, taken, strict=True) if is_taken}
    keys = {(letter[0], letter[3]) for letter in own if letter[-1] in partial}
    streams = {stream for stream, _ in keys}
    columns = {(stream, json_names(key)) for stream, key in keys if key is not None}
    found: list[_Letter] = []
    for batch in read_dead_letters(tables, every, _COLUMNS):
        for letter in _letters(batch, source):
            stream, offset, number, key, position = letter
            if key is not None and (stream, json_names(key)) not in columns:
                key, letter = None, (stream, offset, number, None, position)
            if (stream, key) in keys or (stream in streams and key is None) or (stream, None) in keys:
                found.append(letter)
    held, left = set[StagedPosition](), set[tuple[str | None, bytes | None]]()
    some_left = set[str | None]()
    for stream, _, _, key, position in sorted(found, key=lambda letter: (letter[0] or "", *letter[1:3])):
        is_behind = (stream, key) in left or (stream, None) in left or (key is None and stream in some_left)
        if is_behind and position in partial:
            held.add(position)
        if position not in positions or position in held:
            left.add((stream, key))
            some_left.add(stream)
    return frozenset(held)


def _letters(rows: pa.RecordBatch, source: Source) -> Iterator[_Letter]:
    columns = (rows.column(name).to_pylist() for name in _COLUMNS)
    for stream, number, offset, key in zip(*columns, strict=True):
        yield stream, offset, number, key, (source.partition_of(stream, number), offset, number)
