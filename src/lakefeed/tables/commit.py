"""Appending files to a table exactly once: one commit, its positions, its fence and its retries."""

from __future__ import annotations

import json
import random
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from deltalake import PostCommitHookProperties
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from lakefeed.errors import BatchFailed, Fenced, LakefeedError, StoreUnavailable
from lakefeed.stores import store_errors
from lakefeed.tables.checkpoint import checkpoint_when_due
from lakefeed.tables.entry_file import add_action, commit_info, write_entry
from lakefeed.tables.table import LakeTable, account_of, commit_metadata, commit_properties

_FIRST_WAIT = 0.1
_MOST_OVERTAKEN = 15
"""How often others may be faster before that counts as a failure."""


@dataclass(frozen=True)
class NewFile:
    """A file to add, already in place. `path` is relative to the table and not URL-encoded."""

    path: str
    size: int
    partition_values: Mapping[str, str | None]
    stats: str


@dataclass(frozen=True)
class Append:
    """What one commit adds: files, the positions that it moves, and the account of what it holds.

    `expected` are the transactions that the table must hold when the commit lands (None: none yet). That
    the table still holds them is what keeps a second instance, or a repeated batch, from adding the same
    events again.
    """

    files: Sequence[NewFile]
    transactions: Mapping[str, int]
    expected: Mapping[str, int | None]
    account: Mapping[str, Any]
    token: str = field(default_factory=lambda: uuid.uuid4().hex)


def append(
    table: LakeTable,
    change: Append,
    *,
    retries: int,
    on_retry: Callable[[], None] = lambda: None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Commit the change and answer its version. Raises Fenced when another instance was faster.

    A commit whose answer is lost is looked up by its token before it is tried again, so it never lands twice.
    """
    if table.is_adrift:
        table.refresh()
    _check_fence(table, change)
    schema, failure = table.schema, None
    attempt = overtaken = 0
    while attempt <= retries:
        failure = _try(table, change)
        version = _find(table, change.token)
        if version is not None:
            checkpoint_when_due(table, version)
            return version
        _check_fence(table, change)
        if table.schema != schema:
            raise BatchFailed(
                f"{table.path} was altered while a batch was being committed; the batch runs again."
            )
        if isinstance(failure, FileExistsError) and overtaken < _MOST_OVERTAKEN:
            # Others are writing, which is no trouble: the next version may be ours.
            overtaken += 1
            continue
        attempt += 1
        if attempt <= retries:
            on_retry()
            sleep(_FIRST_WAIT * 2 ** (attempt - 1) * random.uniform(0.8, 1.2))
    assert failure is not None
    raise StoreUnavailable(
        f"{table.path}: the commit failed {retries + 1} times, last with: {_reason(table, failure)}"
    ) from failure


def _try(table: LakeTable, change: Append) -> Exception | None:
    try:
        with store_errors(table.path):
            folder = table.folder
            if folder is not None:
                return _write(table, change, folder)
            _commit_by_delta(table, change)
    except (CommitFailedError, LakefeedError) as error:
        if isinstance(error, LakefeedError) and not error.retryable:
            raise
        return error
    return None


def _write(table: LakeTable, change: Append, folder: Path) -> FileExistsError | None:
    """Write the entry behind the newest that has been read; only one writer can have it."""
    now = int(time.time() * 1000)
    metadata = commit_metadata({**change.account, "commit": change.token})
    actions = [
        commit_info(table.partition_columns, metadata, now),
        *(add_action(file.path, file.size, file.partition_values, file.stats, now) for file in change.files),
        *({"txn": {"appId": name, "version": to}} for name, to in change.transactions.items()),
    ]
    try:
        write_entry(folder, table.next_version, actions)
    except FileExistsError as error:
        return error
    return None


def _commit_by_delta(table: LakeTable, change: Append) -> None:
    now = int(time.time() * 1000)
    adds: list[AddAction | RemoveAction] = [
        AddAction(file.path, file.size, dict(file.partition_values), now, True, file.stats)
        for file in change.files
    ]
    table.delta.create_write_transaction(
        adds,
        "append",
        table.delta.schema(),
        table.partition_columns,
        commit_properties=commit_properties(change.transactions, {**change.account, "commit": change.token}),
        # It would look through the whole log after each commit for entries that are too old.
        post_commithook_properties=PostCommitHookProperties(
            create_checkpoint=False, cleanup_expired_logs=False
        ),
    )


def _reason(table: LakeTable, failure: Exception) -> str:
    return str(failure).removeprefix(f"{table.path}: ")


def _find(table: LakeTable, token: str) -> int | None:
    """Refresh, and look for the commit with this token among the versions that have come since."""
    for version, info in table.refresh().items():
        if account_of(info).get("commit") == token:
            return version
    return None


def _check_fence(table: LakeTable, change: Append) -> None:
    for name, expected in change.expected.items():
        found = table.transactions.get(name)
        if found != expected:
            raise Fenced(
                f"{table.path}: another instance of this pipeline has written {json.dumps(name)} "
                f"up to {found}, this one expected {expected}. This one stops; nothing was written twice.\n"
                "Find the other one, perhaps on another machine or with another `state`, and stop one of the "
                "two; giving one\nanother `name` would not help: it would write every event a second time."
            )
