"""The contract of a layout: how rows that leave files and rows that come become an entry of the log.

Which rows these are has been decided before. So every mode can be written in every layout: `copy_on_write`
writes the files again without the rows that leave, `merge_on_read` marks those in deletion vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import pyarrow as pa

from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.vector import DeletionVector
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed.keys import Numbers
from lakefeed.tables.write.spread import Spread, in_threads


@dataclass(frozen=True)
class Edit:
    """What happens to one file of the version examined."""

    file: DataFile
    gone: Numbers
    """The indexes of the rows that leave it, in ascending order, counted from 0 through the whole file."""
    own: Numbers
    """Which of the new rows take the place of rows that leave it, and may go back into its key range."""
    span: tuple[pa.Scalar, pa.Scalar] | None = None
    """The smallest and the largest value of the first key column in the file; None where it has none."""
    is_sorted: bool = False
    """Whether its rows lie in the order of their keys."""
    rows: pa.Table | None = None
    """All its rows, deleted ones as well, where the decision had to read them and they are few."""


@dataclass(frozen=True)
class Written:
    """What a layout has written: nothing of it is in the table yet."""

    added: Sequence[WrittenFile] = ()
    removed: Sequence[DataFile] = ()
    copied: int = 0
    """Rows that were written again only because they lay beside others."""
    more: dict[str, Any] = field(default_factory=dict)
    """What else the commit info tells."""
    marked: Sequence[tuple[DataFile, DeletionVector]] = ()
    """Files that stay, each with the deletion vector that it gets."""
    made: Sequence[str] = ()
    """Files that were written besides those of rows, and are of no use when the entry is refused."""


class Layout(Protocol):
    """How changed rows are written."""

    copies: ClassVar[bool]
    """Whether it reads all rows of a file that rows leave."""

    def write(
        self,
        table: LakeTable,
        target: FileTarget,
        keys: Sequence[str],
        edits: Sequence[Edit],
        rows: pa.Table,
        spread: Spread = in_threads,
    ) -> Written:
        """Write the new rows, which have all columns of the table, and make the others leave.

        Raises what writing raises, and leaves nothing behind then.
        """
        ...
