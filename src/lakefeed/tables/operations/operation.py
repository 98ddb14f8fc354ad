"""What every operation on a table shares: its report, its commit info, and how it commits."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError

from lakefeed.errors import Conflict
from lakefeed.stores import store_errors
from lakefeed.tables.log.data_file import Extent
from lakefeed.tables.log.mirror import Files
from lakefeed.tables.table import LakeTable, commit_info_of, commit_properties
from lakefeed.text import first_line

CommitInfo = Mapping[str, Any]
"""What a commit says about itself, under `lakefeed` in its information."""


@dataclass(frozen=True)
class Report:
    """What an operation has done to a table: the whole table before and after, and the versions it made."""

    kind: str
    before: Extent
    after: Extent
    versions: tuple[int, ...] = ()


def operation_info(kind: str, *, by: str, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """The commit info of an operation: its kind, who asked for it (`command`, `upkeep`), why, and what else.

    No key of it is one of a batch's commit info, so that nobody takes it for rows that a source has sent.
    """
    return {"kind": kind, "by": by, **({"reason": reason} if reason else {}), **more}


def change(
    table: LakeTable,
    commit_info: CommitInfo,
    alter: Callable[[DeltaTable, CommitProperties], object],
    *,
    tries: int = 5,
    only_next: bool = False,
    reads: Files = tuple,
    since: int | None = None,
    transactions: Mapping[str, int] = MappingProxyType({}),
) -> tuple[int, ...]:
    """Run one of delta-rs's operations on the newest version; the versions that it made.

    It is run again on a conflict, since a stream that appends is one to whoever reads the whole table. Raises
    Conflict when each of the tries met one: then nothing of it is in the table. With `only_next`, whatever
    lands between is a conflict; for operations that do not look for conflicts themselves. `reads` and `since`
    tell what it looks at, as in `LakeTable.alter`; `transactions` are part of the commit.
    """
    token = uuid.uuid4().hex
    properties = commit_properties(transactions, {**commit_info, "commit": token})
    if only_next:
        properties.max_commit_retries = 0
    table.refresh()
    for left in reversed(range(tries)):
        try:
            with store_errors(table.path):
                table.alter(lambda delta: alter(delta, properties), reads, since)
            break
        except CommitFailedError as error:
            table.refresh()
            if not left:
                raise Conflict(
                    f"{table.path}: another writer changed the table meanwhile; nothing was committed.\n"
                    f"Run it again. ({first_line(error, 200)})"
                ) from error
    infos = table.refresh()
    return tuple(version for version, info in infos.items() if commit_info_of(info).get("commit") == token)


def record(table: LakeTable, commit_info: CommitInfo) -> tuple[int, ...]:
    """Commit its commit info and nothing else, for what an operation does to the store; its version."""

    def commit(delta: DeltaTable, properties: CommitProperties) -> None:
        delta.create_write_transaction(
            [], "append", delta.schema(), table.partition_columns, commit_properties=properties
        )

    return change(table, commit_info, commit)
