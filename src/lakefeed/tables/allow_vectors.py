"""Properties and columns of a table changed in an entry of our own, with the features that they need.

delta-rs adds features to a table of reader version 3 that nobody asked for, by which other readers would be
shut out, has no operation that takes a property away, and adds no columns to a table with column mapping.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson

from lakefeed.columns.mapping import HIGHEST_ID
from lakefeed.errors import Conflict, TableError
from lakefeed.stores import store_errors
from lakefeed.tables.column_mapping import highest_id, mapped, with_added
from lakefeed.tables.log.vector import FEATURE, PROPERTY
from lakefeed.tables.log.write import commit_info as info_action
from lakefeed.tables.operations.operation import CommitInfo
from lakefeed.tables.protocol import features
from lakefeed.tables.shape import is_on
from lakefeed.tables.table import LakeTable, commit_info_of, commit_metadata

_READERS = frozenset(
    {"columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"}
)
"""Features that readers must know too."""
_NEEDS = {
    PROPERTY: FEATURE,
    "delta.enableChangeDataFeed": "changeDataFeed",
    "delta.appendOnly": "appendOnly",
}
"""Properties that only a table with the feature may have."""
_TRIES = 15


def allow_vectors(table: LakeTable, commit_info: CommitInfo) -> None:
    """Turn deletion vectors on, where they are not on yet. Raises Conflict when others never stop writing."""
    for _ in range(_TRIES):
        table.refresh()
        if table.has_vectors and is_on(table.properties, PROPERTY):
            return
        if set_properties(table, {PROPERTY: "true"}, commit_info) is not None:
            return
    raise Conflict(f"{table.path}: other writers were faster {_TRIES} times; nothing was changed.")


def lacking_features(table: LakeTable, changed: Mapping[str, str]) -> set[str]:
    """The features that a table must get before it may have these properties."""
    needed = {feature for name, feature in _NEEDS.items() if is_on(changed, name)}
    return needed.difference(features(table.delta))


def set_properties(
    table: LakeTable, changed: Mapping[str, str], commit_info: CommitInfo, unset: Collection[str] = ()
) -> int | None:
    """Set properties and take others away, in one entry; its version, None when another writer was faster.

    A table that lacks a feature for one of them gets protocol version 3/7.
    """
    metadata = _metadata(table)
    have = metadata.get("configuration") or {}
    kept = {name: value for name, value in have.items() if name not in unset}
    actions = [{"metaData": {**metadata, "configuration": {**kept, **changed}}}]
    lacking = lacking_features(table, changed)
    if lacking:
        actions.append(_protocol({*features(table.delta), *lacking}))
    told = {"properties": orjson.dumps(dict(changed)).decode()}
    return _put(table, actions, commit_info, "SET TBLPROPERTIES", told)


def add_mapped_columns(table: LakeTable, added: str, commit_info: CommitInfo) -> bool:
    """Add columns to a table with column mapping, which give them ids and physical names, in one entry.

    `added` is a schema as the log has it. False when another writer was faster.
    """
    metadata, shape = _metadata(table), table.shape
    columns, highest = mapped(
        with_added(metadata["schemaString"], added),
        shape.columns,
        shape.table_id,
        highest_id(shape.properties),
    )
    properties = {**(metadata.get("configuration") or {}), HIGHEST_ID: str(highest)}
    action = {"metaData": {**metadata, "schemaString": columns, "configuration": properties}}
    return _put(table, [action], commit_info, "ADD COLUMNS", {"columns": added}) is not None


def _metadata(table: LakeTable) -> dict[str, Any]:
    metadata = table.log().metadata()
    if metadata is None:
        raise TableError(f"{table.path}: its log has no metadata that could be read.")
    return metadata


def _put(
    table: LakeTable,
    actions: Sequence[Mapping[str, Any]],
    commit_info: CommitInfo,
    operation: str,
    parameters: Mapping[str, str],
) -> int | None:
    """Put an entry without files behind the newest that was read; None when another writer was faster."""
    token = uuid.uuid4().hex
    metadata = commit_metadata({**commit_info, "commit": token})
    info = info_action([], metadata, int(time.time() * 1000), blind=False)
    info["commitInfo"] |= {"operation": operation, "operationParameters": dict(parameters)}
    with store_errors(table.path):
        table.put([info, *actions])
    infos = table.refresh()
    return next((at for at, info in infos.items() if commit_info_of(info).get("commit") == token), None)


def _protocol(names: Collection[str]) -> dict[str, Any]:
    named = sorted(names)
    return {
        "protocol": {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": [name for name in named if name in _READERS],
            "writerFeatures": named,
        }
    }
