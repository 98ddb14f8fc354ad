"""Staged changes: what tasks write for a table whose rows change, until the driver has applied them.

A staged file has the columns of the table, all of them nullable, and those named here. Its name begins with
`_`, so that no reader takes it for a file of the table.
"""

from __future__ import annotations

import pyarrow as pa

from lakefeed.columns.mapping import unmapped

OP = "_lakefeed_op"
"""What a change does: one of those below."""
PARTITION = "_lakefeed_partition"
"""The partition of the source that it came from, whose offsets and times are in one order."""
OFFSET = "_lakefeed_offset"
ORDINAL = "_lakefeed_ordinal"
"""The offset in the partition, and the place among the changes of one offset, such as those of a
transaction: the order of changes that no sequence orders."""
UNCHANGED = "_lakefeed_unchanged"
"""The columns that the change says nothing about; null where it says something about each."""

TIME = "_lakefeed_time"
"""When the event happened, by its source; null where the source tells no time."""
KEYS = "_lakefeed_keys"
"""The names of the key columns, where events bring them; null where the pipeline file names them."""

FORMER_KEYS = "_lakefeed_former_keys"
"""The names of the key columns of a change from before the source had another key; else null."""

UPSERT, DELETE, TRUNCATE = 0, 1, 2
TOMBSTONE = 3
"""A deletion that has no sequence: it deletes what came before it, and has the sequence of that."""
MOVED = 4
"""An upsert of a row that had another key before: the deletion right before its position was of that key.

What it says nothing about, it has from the row of the other key.
"""
UPDATE = 5
"""An upsert of a row that was there before: where it does not meet `where` any more, it becomes a deletion.

No staged change has it: it is an upsert by then.
"""
DELETIONS = (DELETE, TRUNCATE, TOMBSTONE)
"""What brings no row, and may bring no more than a key."""

STAGED = pa.schema(
    [
        (OP, pa.int8()),
        (PARTITION, pa.string()),
        (OFFSET, pa.int64()),
        (ORDINAL, pa.int64()),
        (UNCHANGED, pa.list_(pa.string())),
        (KEYS, pa.list_(pa.string())),
        (TIME, pa.timestamp("us", "UTC")),
        (FORMER_KEYS, pa.list_(pa.string())),
    ]
)

FOLDER = "_lakefeed"
"""The folder of a table that holds what Lakefeed keeps beside its files. Readers and vacuum pass it by."""
STAGED_FOLDER = f"{FOLDER}/staged/"


def staged_schema(columns: pa.Schema) -> pa.Schema:
    """The columns of staged changes of a table with these columns."""
    # A deletion may know no more than its key.
    return pa.schema([*(field.with_nullable(True) for field in unmapped(columns)), *STAGED])
