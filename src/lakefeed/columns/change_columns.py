"""The columns by which change events say what they do, and in which order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from lakefeed.text import sql_name


@dataclass(frozen=True)
class ChangeColumns:
    """Columns that events of changes have besides those of the row that they are about. Picklable."""

    op: str
    """The column that says what was done to the row."""
    deletions: tuple[str, ...]
    """What it says where a row is gone, or was other before."""
    truncation: str
    """What it says where a whole table was emptied."""
    sequence: tuple[str, ...]
    """What makes a change newer than another."""
    types: Mapping[str, str]
    """The columns that a table of changes needs, with their types."""
    others: Mapping[str, str] = field(default_factory=dict)
    """Further columns that are no values of the row, with their types."""
    unchanged: str | None = None
    """The column that lists what a change says nothing about; None where placeholders stand for that."""
    updates: tuple[str, ...] = ()
    """What `op` says of a row that was there before, and brings no more than the row as it is now."""
    logged: tuple[str, ...] = ()
    """Columns for logs of changes: tables that apply changes leave them out."""
    insertion: str = ""
    """What `op` says of a new row, which may have had another key before."""
    follows_keys: bool = False
    """Whether changes come in the order of the database, also where a table of it gets another key."""

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return (*self.types, *self.others)


DEBEZIUM = ChangeColumns(
    "__op",
    ("d",),
    "t",
    ("__sequence",),
    {"__op": "string", "__sequence": "string"},
    others={"__deleted": "boolean", "__ts_ms": "long"},
    updates=("u",),
)
CHANGE_FEED = ChangeColumns(
    "__op",
    ("delete", "update_preimage"),
    "t",
    ("__sequence",),
    {"__op": "string", "__sequence": "long", "__timestamp": "timestamp"},
)
"""The change data feed of a Delta table."""
POSTGRES = ChangeColumns(
    "_op",
    ("delete",),
    "truncate",
    ("_lsn", "_ordinal"),
    {"_op": "string", "_lsn": "long", "_ordinal": "long", "_unchanged": "array<string>"},
    others={"_stream": "string", "_commit_time": "timestamp", "_xid": "long"},
    unchanged="_unchanged",
    updates=("update",),
    insertion="insert",
    follows_keys=True,
)


WHOLE_ROW = ("_row",)
"""The key with `keys: all`: a column with a hash of all values of the row, as the source writes them."""
ROW_COUNT = "_count"
"""Beside it: by how many a change makes such rows more or fewer; in a copy, how many there are."""
WHOLE_ROW_TYPES = {"_row": "string", ROW_COUNT: "long"}


def no_key(stream: str) -> str:
    """What to say of a table of a database whose rows nothing tells apart."""
    return (
        f"{stream} has neither a primary key nor an index as its replica identity, so nothing tells its rows "
        f"apart.\nALTER TABLE {sql_name(stream)} ADD PRIMARY KEY (...); or use `mode: append`, "
        "or `mode: upsert` with `keys: all`."
    )


def other_keys(keys: Sequence[str], stream: str, own: Sequence[str]) -> str:
    """What to say of `keys` by which changes do not name their row: its old state would be left over."""
    return (
        f"`keys` is {', '.join(keys)}, but changes of {stream} name their row by {', '.join(own)}: rows "
        "would be there twice, or take the place of others.\nRemove `keys`."
    )
