"""Dead letters of files: the offset that each record had in its file."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.sources.files.ledger import Ledger, LedgerLocation
from lakefeed.sources.files.offset import MOST_RECORDS


def in_their_files(origin: pa.RecordBatch, ledger: LedgerLocation) -> pa.RecordBatch:
    """`ORIGIN` with the offset in the file, as a run shows it.

    A file that takes several numbers is looked up in the ledger, which knows the first of them.
    """
    offsets = origin.column("offset").to_numpy()
    numbers = offsets // MOST_RECORDS
    if any(map(_takes_several, origin.column("headers").to_pylist())):
        numbers = Ledger(ledger).known.first_of(numbers)
    at = origin.schema.get_field_index("offset")
    shown = pa.array(offsets - numbers * MOST_RECORDS, pa.int64())
    return origin.set_column(at, origin.schema.field(at), shown)


def _takes_several(headers: list[dict[str, object]] | None) -> bool:
    sizes = [one["value"] for one in headers or () if one["key"] == "size"]
    return any(isinstance(size, bytes) and int(size) >= MOST_RECORDS for size in sizes)
