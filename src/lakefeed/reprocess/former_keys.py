"""Dead letters whose change names its row by a key that the table does not have any more.

A replay of one could bring a row back: it may have been deleted or changed since by its other key, and
nothing says which key of now a row of then has. A new snapshot has its row.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from shlex import quote

import pyarrow as pa

from lakefeed.columns.change_columns import WHOLE_ROW
from lakefeed.dead_letters.find import DeadLetterFilter, read_dead_letters
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.changes import CHANGING
from lakefeed.pipeline.table import Table
from lakefeed.rows.envelope import json_names
from lakefeed.sources import source_of
from lakefeed.tables.positions import positions_of
from lakefeed.tables.write.keyed.staged import key_commit

FORMER_KEY = "former_key"
"""The code of the reason."""


class FormerKeys:
    """Compares the keys of dead letters with those that their tables have, as of one version of both."""

    def __init__(self, tables: Tables, table: str, spec: Table | None) -> None:
        self._tables, self._table, self._spec = tables, table, spec
        self._newest_letters = cache(self._find_newest_letters)

    def among(
        self, source: str, handle: TableHandle | None, rows: pa.RecordBatch
    ) -> Iterator[tuple[int, str]]:
        """Those among dead letters of one stream that are of a former key, and why they stay.

        `handle` is the table of the stream; None where it has none yet.
        """
        spec, brought = self._spec, source_of(self._tables.pipeline, source).change_columns
        if spec is None or spec.mode not in CHANGING or brought is None or not brought.follows_keys:
            return
        stream = rows.column("topic")[0].as_py()
        text = ""
        if spec.keys == WHOLE_ROW:
            text = (
                "changes count the rows of a table with `keys: all`, and later ones may have counted this row"
            )
        elif spec.stream_key:
            text = "a table of several streams does not remember the truncations of one, which may be later"
        if text:
            yield from ((at, f"{text}. {self._snapshot(source, stream)}") for at in range(rows.num_rows))
            return
        known = {*spec.keys} - {*brought.names} or self._key_of_now(source, handle, stream)
        columns = (rows.column(name).to_pylist() for name in ("key", "payload"))
        for at, (key, payload) in enumerate(zip(*columns, strict=True) if known else ()):
            names = self._names(key)
            # By another name, as SQL gives it, declared keys are compared with nothing.
            if {*names} == known or (spec.keys and not known <= self._names(payload)):
                continue
            yield at, self._text(source, stream, ", ".join(sorted(names)), ", ".join(sorted(known)))

    def _text(self, source: str, stream: str, then: str, now: str) -> str:
        return (
            f"the change names its row by {then or 'nothing'}, and the key of the table is {now} by now. "
            f"{self._snapshot(source, stream)}"
        )

    def _snapshot(self, source: str, stream: str) -> str:
        command = f"lakefeed snapshot {self._tables.pipeline.file_argument} --source {source} --stream"
        return f"{command} {quote(stream)} --yes brings the row as it is; then discard the dead letter"

    def _names(self, event: bytes | None) -> set[str]:
        """The columns of a key or a payload, as the table calls them."""
        assert self._spec is not None
        return {self._spec.rename.get(name, name) for name in json_names(event or b"{}")}

    def _key_of_now(self, source: str, handle: TableHandle | None, stream: str) -> set[str]:
        """The key of the newest change of a stream: of a commit, or of a dead letter behind that."""
        if handle is None or not handle.exists:
            return set()
        keys, ranges = key_commit(handle.table)
        offset, key = self._newest_letters(source).get(stream, (-1, None))
        partition = source_of(self._tables.pipeline, source).partition_of(stream, 0)
        positions = positions_of(handle.table.transactions, self._tables.pipeline.name, source)
        end = ranges[partition][1] if partition in ranges else positions.get(partition, 0)
        return self._names(key) if keys and key is not None and offset >= end else {*keys}

    def _find_newest_letters(self, source: str) -> dict[str, tuple[int, bytes | None]]:
        """By stream: the offset and the key of the newest dead letter of a change."""
        found: dict[str, tuple[int, bytes | None]] = {}
        names = ["topic", "partition", "offset", "key"]
        for batch in read_dead_letters(
            self._tables, DeadLetterFilter(table=self._table, source=source), names
        ):
            columns = (batch.column(name).to_pylist() for name in names)
            for stream, number, offset, key in zip(*columns, strict=True):
                # The rows of a snapshot have numbers below 0, and offsets of their own.
                if number >= 0 and offset > found.get(stream, (-1, None))[0]:
                    found[stream] = offset, key
        return found
