"""What every operation on a table shares: its extent, its report, its account, and how it commits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError

from lakefeed.errors import Conflict, UsageError
from lakefeed.pipeline.units import readable_size
from lakefeed.pipeline.wording import counted
from lakefeed.stores import store_path
from lakefeed.tables.table import LakeTable

Account = Mapping[str, Any]
"""What a commit says about itself, under `lakefeed` in its information."""


@dataclass(frozen=True)
class Extent:
    """How much there is of something. `rows` is None where a file does not tell how many it has."""

    files: int = 0
    bytes: int = 0
    rows: int | None = 0

    def __add__(self, other: Extent) -> Extent:
        rows = None if self.rows is None or other.rows is None else self.rows + other.rows
        return Extent(self.files + other.files, self.bytes + other.bytes, rows)

    def __str__(self) -> str:
        rows = "" if self.rows is None else f", {counted(self.rows, 'row')}"
        return f"{counted(self.files, 'file')}, {readable_size(self.bytes)}{rows}"


@dataclass(frozen=True)
class Report:
    """What an operation has done to a table: the whole table before and after, and the versions it made."""

    kind: str
    before: Extent
    after: Extent
    versions: tuple[int, ...] = ()


def place(table: LakeTable) -> str:
    """Where the table lies, as a user would write it in the next command."""
    return store_path(table.store)


def operation_account(kind: str, *, by: str, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """The account of an operation: its kind, who asked for it (`command`, `upkeep`), why, and what else.

    No key of it is one of a batch's account, so that nobody takes it for rows that a source has sent.
    """
    return {"kind": kind, "by": by, **({"reason": reason} if reason else {}), **more}


def change(table: LakeTable, kind: str, alter: Callable[[DeltaTable], None]) -> tuple[int, ...]:
    """Run one of delta-rs's operations on the newest version; the versions that it made.

    Raises Conflict when somebody else's commit came between: then nothing of it is in the table.
    """
    table.refresh()
    before = table.version
    try:
        table.change(alter)
    except CommitFailedError as error:
        raise Conflict(
            f"{place(table)}: another writer changed the table while {kind} ran; nothing of it was committed.\n"
            f"Run it again. ({_first_line(error)})"
        ) from error
    return tuple(range(before + 1, table.version + 1))


@contextmanager
def reading(where: str, option: str = "--where") -> Iterator[None]:
    """Turn what delta-rs says about a condition that it cannot read into UsageError."""
    try:
        yield
    except (DeltaError, ValueError) as error:
        raise UsageError(
            f"{option} {where!r} cannot be read: {_first_line(error)}\n"
            "Write a SQL condition on the table's columns, such as \"day >= '2026-11-01' AND price > 10\"."
        ) from error


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if line.strip()), "no reason given")[:200]
