"""Payloads that are decoded in groups: how many together, and all groups in the order of the payloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
import pyarrow as pa

from lakefeed.columns.widening import merge_proposals
from lakefeed.formats import Decoded
from lakefeed.formats.refusal import Misfits

Part = tuple[Sequence[int], Decoded]
"""The indexes of some payloads, and what became of these."""


def groups(payloads: Sequence[bytes], most_bytes: int, most: int | None = None) -> Iterator[tuple[int, int]]:
    """Where to begin and to end what is read together; at least once, as even no row has columns."""
    most = len(payloads) if most is None else most
    start = size = 0
    if len(payloads) > most or sum(map(len, payloads)) > most_bytes:
        for index, payload in enumerate(payloads):
            if index - start >= most or (size and size + len(payload) > most_bytes):
                yield start, index
                start, size = index, 0
            size += len(payload)
    yield start, len(payloads)


def joined(count: int, parts: Sequence[Part], refused: Misfits, skipped: Sequence[int] = ()) -> Decoded:
    """What became of `count` payloads, those of at least one part and those that were refused or skipped.

    There is a part even for no payload, as no row has columns too.
    """
    if len(parts) == 1 and len(parts[0][0]) == count:
        return parts[0][1]
    gone = [misfit.refused(index) for index, misfit in refused.items()]
    skipped = [*skipped, *(own[at] for own, part in parts for at in part.skipped)]
    indexes: list[int] = []
    for own, part in parts:
        gone += [replace(one, index=own[one.index]) for one in part.refused]
        no_rows = {one.index for one in part.refused} | set(part.skipped)
        indexes += [index for at, index in enumerate(own) if at not in no_rows]
    # As structs: batches without columns would lose their number of rows.
    rows = [part.rows.to_struct_array() for _, part in parts]
    together = rows[0] if len(rows) == 1 else pa.concat_arrays(rows)
    order = pa.array(np.argsort(indexes, kind="stable")) if len(rows) > 1 else None
    proposals = [part.unknown for _, part in parts if part.unknown is not None]
    assert len(together) + len(gone) + len(skipped) == count, "every payload is a row, a refusal or skipped"
    rescued = _rescued([part for _, part in parts])
    return Decoded(
        pa.RecordBatch.from_struct_array(together if order is None else together.take(order)),
        sorted(gone, key=lambda one: one.index),
        reduce(merge_proposals, proposals) if proposals else None,
        rescued if order is None or rescued is None else rescued.take(order),
        sorted(skipped),
    )


def _rescued(parts: list[Decoded]) -> pa.Array | None:
    if all(part.rescued is None for part in parts):
        return None
    none = [pa.nulls(part.rows.num_rows, pa.string()) for part in parts]
    texts = [empty if part.rescued is None else part.rescued for part, empty in zip(parts, none, strict=True)]
    return pa.concat_arrays(texts)
