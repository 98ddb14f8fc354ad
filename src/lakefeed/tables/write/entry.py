"""The next entry of a table's log put in place: written here, or by delta-rs where only that may commit."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from typing import Any

from deltalake import PostCommitHookProperties
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction, RemoveAction

from lakefeed.errors import LakefeedError, TableError
from lakefeed.stores import store_errors
from lakefeed.tables.data_files import refuse_respelled
from lakefeed.tables.log.write import add_action, commit_info, feed_action, marked_actions, remove_action
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable, commit_metadata, commit_properties
from lakefeed.tables.write.mode import NewEntry


def try_entry(table: LakeTable, entry: NewEntry, token: str) -> Exception | None:
    """Put an entry behind the newest that has been read; returns what may pass, and raises what will not.

    Whether it is there tells only the log, in which the `token` identifies it: an answer may be lost, and a
    store may refuse an entry that is this very one.
    """
    try:
        with store_errors(table.path):
            if table.writes_entries or entry.is_own or table.shape.is_mapped:
                return _write(table, entry, token)
            _commit_by_delta(table, entry, token)
    except (CommitFailedError, LakefeedError) as error:
        if isinstance(error, LakefeedError) and not error.retryable:
            raise
        return error
    return None


def _write(table: LakeTable, entry: NewEntry, token: str) -> FileExistsError | None:
    """Write the entry behind the newest that has been read; only one writer can have it."""
    now, changes = int(time.time() * 1000), entry.data_change
    metadata = commit_metadata({**entry.commit_info, "commit": token})
    known = [
        *(remove_action(file, now, data_change=changes) for file in entry.removed),
        *(action for file, vector in entry.marked for action in marked_actions(file, vector, now)),
    ]
    new = [
        *(
            add_action(file.path, file.size, file.partition_values, file.stats, now, data_change=changes)
            for file in entry.added
        ),
        *(feed_action(file.path, file.size, file.partition_values) for file in entry.feed),
    ]
    return table.put(
        [
            commit_info(table.partition_columns, metadata, now, blind=entry.blind),
            *_reshaping(table, entry),
            # A rebuild gives columns other physical names than the files have that leave.
            *(_under_physical_names(action, table.shape) for action in known),
            *(_under_physical_names(action, entry.becomes or table.shape) for action in new),
            *({"txn": {"appId": name, "version": to}} for name, to in entry.transactions.items()),
        ]
    )


def _under_physical_names(action: dict[str, Any], shape: Shape) -> dict[str, Any]:
    """An action about a file with its partition values as the log of a table with column mapping has them."""
    if not shape.is_mapped:
        return action
    ((kind, body),) = action.items()
    names: Mapping[str, str] = shape.physical_names
    return {
        kind: {
            **body,
            "partitionValues": {names[name]: value for name, value in body["partitionValues"].items()},
        }
    }


def _reshaping(table: LakeTable, entry: NewEntry) -> Iterator[dict[str, Any]]:
    """The `metaData` of an entry with which columns get other types, or the table another layout."""
    if entry.becomes is not None:
        metadata = table.log().metadata()
        if metadata is None:
            raise TableError(f"{table.path}: its log has no metadata that could be read.")
        becomes = entry.becomes
        yield {
            "metaData": {
                **metadata,
                "schemaString": becomes.columns,
                "partitionColumns": list(becomes.partition_columns),
                "configuration": {**(metadata.get("configuration") or {}), **becomes.properties},
            }
        }


def _commit_by_delta(table: LakeTable, entry: NewEntry, token: str) -> None:
    now, changes = int(time.time() * 1000), entry.data_change
    actions: list[AddAction | RemoveAction] = [
        RemoveAction(file.path, changes, now, file.size, dict(file.partition)) for file in entry.removed
    ]
    actions += [
        AddAction(file.path, file.size, dict(file.partition_values), now, changes, file.stats)
        for file in entry.added
    ]
    properties = commit_properties(
        entry.transactions, {**entry.commit_info, "commit": token}, blind=entry.blind
    )
    if not entry.blind:
        refuse_respelled(table, entry.removed)
        # Only right behind the version examined: delta-rs would pass commits that add or remove files.
        properties.max_commit_retries = 0
        properties.custom_metadata = {**(properties.custom_metadata or {}), "isBlindAppend": False}
    table.delta.create_write_transaction(
        actions,
        "append",
        table.delta.schema(),
        table.partition_columns,
        commit_properties=properties,
        # It would look through the whole log after each commit for entries that are too old.
        post_commithook_properties=PostCommitHookProperties(
            create_checkpoint=False, cleanup_expired_logs=False
        ),
    )
