"""Change streams whose sequences go backwards: their changes count for nothing, which has to be noticed.

The newest sequence of each partition is in the commit info of each batch, so that a restart does not forget
it: a database is restored while nothing runs.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs

from lakefeed.columns.staged import PARTITION
from lakefeed.stores import parallel_map, store_errors, store_path
from lakefeed.tables.log.entry import read_entry
from lakefeed.tables.table import LakeTable, commit_info_of
from lakefeed.tables.write.keyed.keys import one_array, ranks, taken
from lakefeed.text import few

SEQUENCES = "sequences"
"""The key of the commit info."""
_MOST_PARTITIONS = 100
"""Of so many partitions the newest sequence is known, those that have brought changes last."""
_LOOKED_AT = 50
"""So many entries are looked at for it: upkeep and other pipelines commit as well."""
_OTHER_ROWS = frozenset(("rewind", "restore", "replace"))
"""The kinds of commits after which older changes are right."""

_log = logging.getLogger("lakefeed")


@dataclass(frozen=True)
class Newest:
    """What is known of the sequences of a source, by the columns that they are of."""

    columns: tuple[str, ...]
    by_partition: Mapping[str, tuple[str | None, ...]] = field(default_factory=dict)
    """As texts, times as numbers and bytes as hexadecimal digits, those of the newest batch last."""
    backwards: tuple[str, ...] = ()
    """Partitions that are older than they were."""

    @classmethod
    def of(cls, told: Mapping[str, Any]) -> Newest:
        """As the commit info has it."""
        by_partition = {name: tuple(texts) for name, texts in told["newest"].items()}
        return cls(tuple(told["by"]), by_partition, tuple(told["backwards"]))

    def told(self) -> dict[str, Any]:
        """For the commit info."""
        newest = {name: list(texts) for name, texts in self.by_partition.items()}
        return {"by": list(self.columns), "newest": newest, "backwards": list(self.backwards)}


class Backwards:
    """Judges the sequences of each partition of a table, from batch to batch."""

    def __init__(self, pipeline: str, sequence_by: tuple[str, ...]) -> None:
        self._pipeline, self._columns = pipeline, sequence_by
        self._known: dict[str, Newest] = {}

    def judge(self, table: LakeTable, source: str, changes: pa.Table, counts: Mapping[str, int]) -> Newest:
        """What is known with a batch; `counts` say what became of its changes."""
        known = self._known.get(source) or self._logged(table, source)
        names, newest, fell = _newest(changes.select([PARTITION, *self._columns]), known)
        nothing_new = counts["stale"] > 0 and not counts["applied"]
        backwards = [name for name in known.backwards if name not in names]
        for name, is_older in zip(names, fell, strict=True):
            # New keys are applied whatever their sequence: they do not end it.
            is_backwards = is_older and (counts["stale"] > 0 or name in known.backwards)
            if is_backwards or (nothing_new and name not in known.by_partition):
                backwards.append(name)
        kept = {name: texts for name, texts in known.by_partition.items() if name not in newest}
        by_partition = dict(list((kept | newest).items())[-_MOST_PARTITIONS:])
        return Newest(self._columns, by_partition, tuple(sorted(backwards)))

    def landed(self, table: str, source: str, newest: Newest) -> None:
        """Take note of what a commit holds, and log partitions that are older by now."""
        before = self._known.get(source)
        self._known[source] = newest
        if said := [name for name in newest.backwards if before is None or name not in before.backwards]:
            _log.warning("%s: %s", table, " ".join(backwards_words(said, newest.columns).split()))

    def _logged(self, table: LakeTable, source: str) -> Newest:
        found = logged(table.store, table.version, self._pipeline).get(source)
        return found if found and found.columns == self._columns else Newest(self._columns)


def logged(store: pafs.FileSystem, newest: int, pipeline: str) -> dict[str, Newest]:
    """By source what the newest entries of a table tell of the sequences of a pipeline."""
    found: dict[str, Newest] = {}

    def read(version: int) -> dict[str, Any] | None:
        with store_errors(store_path(store)), suppress(FileNotFoundError):
            return commit_info_of(read_entry(store, version, positions_only=True).info)
        return None

    for info in parallel_map(store, read, range(newest, max(-1, newest - _LOOKED_AT), -1)):
        if info is None:
            # The log has been cleaned past it.
            break
        if info.get("kind") in _OTHER_ROWS:
            break
        if info.get("pipeline") == pipeline and SEQUENCES in info:
            found.setdefault(str(info.get("source")), Newest.of(info[SEQUENCES]))
    return found


def newest_changes(rows: pa.Table) -> pa.Table:
    """Of changes with their partition and sequence, the newest of each partition."""
    (partition,), (sequence,) = ranks(rows.select([PARTITION])), ranks(rows.drop_columns([PARTITION]))
    order = np.lexsort((sequence, partition))
    is_last = np.diff(partition[order], append=-1) != 0
    return taken(rows, order[is_last])


def backwards_text(told: Mapping[str, Any]) -> str:
    """What the commit info of a batch tells; empty where all partitions go on."""
    newest = Newest.of(told)
    return backwards_words(newest.backwards, newest.columns) if newest.backwards else ""


def backwards_words(partitions: Sequence[str], columns: Sequence[str]) -> str:
    """What it means, and what to do about it in the second line."""
    return (
        f"{few(partitions)}: all changes of a batch are older than those before, by "
        f"`{', '.join(columns)}`, and rows stay as they are.\n"
        "That is right while the connector sends again what it has sent. If the log of the database has "
        "begun again, after a restore for instance, order the table by time: `sequence_by: __ts_ms`."
    )


def _newest(rows: pa.Table, known: Newest) -> tuple[list[str], dict[str, tuple[str | None, ...]], list[bool]]:
    """The partitions of some changes, the newest sequence so far of each, and which are older than before."""
    partitions = one_array(rows.column(PARTITION)).dictionary_encode()
    names: list[str] = partitions.dictionary.to_pylist()
    own = rows.drop_columns([PARTITION])
    before = [name for name in names if name in known.by_partition]
    stored = _sequences([known.by_partition[name] for name in before], own.schema)
    if stored is None:
        # They were of another type: this batch says anew what is newest.
        before, stored = [], own.schema.empty_table()
    rank, others = ranks(own, stored)
    at = partitions.indices.to_numpy(zero_copy_only=False)
    newest = np.full(len(names), -1, np.int64)
    order = np.argsort(rank, kind="stable")
    # Of the changes of one partition, the newest is assigned last.
    newest[at[order]] = order
    places, fell = newest.copy(), np.zeros(len(names), np.bool_)
    for place, name in enumerate(before):
        number = names.index(name)
        fell[number] = rank[newest[number]] < others[place]
        if rank[newest[number]] <= others[place]:
            places[number] = len(rank) + place
    found = taken(pa.concat_tables([own, stored]), places)
    columns = [_texts(found.column(name)) for name in found.schema.names]
    return names, dict(zip(names, zip(*columns, strict=True), strict=True)), fell.tolist()


def _texts(column: pa.ChunkedArray) -> list[str | None]:
    """Sequences as texts. Those of times are numbers: Arrow reads no text of a year beyond 9999."""
    if _is_bytes(column.type):
        return [None if one is None else one.hex() for one in column.to_pylist()]
    texts: list[str | None] = column.cast(_plain(column.type)).cast(pa.string()).to_pylist()
    return texts


def _sequences(texts: Sequence[tuple[str | None, ...]], schema: pa.Schema) -> pa.Table | None:
    """The sequences that have these texts; None where one is not of the type that its column has now."""
    columns = []
    try:
        for field, own in zip(schema, zip(*texts, strict=True) if texts else [()] * len(schema), strict=True):
            if _is_bytes(field.type):
                column = pa.array([None if one is None else bytes.fromhex(one) for one in own], field.type)
            else:
                column = pa.array(own, pa.string()).cast(_plain(field.type)).cast(field.type)
            columns.append(column)
    except (ValueError, pa.ArrowNotImplementedError):
        return None
    return pa.Table.from_arrays(columns, schema=schema)


def _is_bytes(kind: pa.DataType) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _plain(kind: pa.DataType) -> pa.DataType:
    """The type whose text says all of a sequence of this type."""
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date32(kind) else kind
