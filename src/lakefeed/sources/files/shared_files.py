"""Files that two names of pipeline and source have both read, as their ledgers tell."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.events import OffsetRange, SharedEvents
from lakefeed.sources.files.alike import alike, names_below
from lakefeed.sources.files.known import GONE, SKIPPED
from lakefeed.sources.files.ledger import Ledger, LedgerLocation, ledger_mark
from lakefeed.sources.files.offset import file_number
from lakefeed.text import counted


def shared_files(
    ours: LedgerLocation,
    theirs: LedgerLocation,
    mark: int | None,
    base: str,
    spans: tuple[OffsetRange, OffsetRange],
) -> SharedEvents | None:
    """The files that both have read of their ranges, by name below their folder and by size.

    None where the ledger with the mark of the other is neither at its default path nor this one.
    """
    own = Ledger(ours)
    candidates = (own, Ledger(theirs))
    other = next((one for one in candidates if one.id and ledger_mark(one.id) == mark), None)
    if other is None:
        return None
    rows, other_rows = _read(own.rows, spans[0]), _read(other.rows, spans[1])
    paths = rows["path"].combine_chunks()
    at, _ = alike(
        names_below(base, paths),
        rows["size"].combine_chunks(),
        other_rows["path"].combine_chunks(),
        other_rows["size"].combine_chunks(),
    )
    found = rows.take(pa.array(np.sort(at)))
    if not found.num_rows:
        return SharedEvents("", 0)
    records = pc.sum(found["rows"]).as_py() or 0
    files = counted(found.num_rows, "file")
    words = (
        f"the same files: {files} with {counted(records, 'record')} there twice, such as {found['path'][0]}"
    )
    return SharedEvents(words, records)


def _read(rows: pa.Table, span: OffsetRange) -> pa.Table:
    first, end = file_number(span.start), file_number(span.end)
    inside = pc.and_(pc.greater_equal(rows["number"], first), pc.less(rows["number"], end))
    unread = pc.is_in(rows["state"], value_set=pa.array([*GONE, SKIPPED]))
    return rows.filter(pc.and_(inside, pc.invert(unread)))
