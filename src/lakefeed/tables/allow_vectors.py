"""Deletion vectors turned on: the table's protocol and its property, in one entry of the log.

delta-rs could do it, and adds features to the table that nobody asked for, by which other readers would be
shut out.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Any

from lakefeed.errors import Conflict, TableError
from lakefeed.stores import store_errors
from lakefeed.tables.log.vector import FEATURE, PROPERTY
from lakefeed.tables.log.write import commit_info as info_action
from lakefeed.tables.operations.operation import CommitInfo
from lakefeed.tables.protocol import features
from lakefeed.tables.table import LakeTable, commit_metadata

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


def has_vectors_on(table: LakeTable) -> bool:
    """Whether rows of the table may be deleted in deletion vectors."""
    return table.has_vectors and table.properties.get(PROPERTY, "").lower() == "true"


def allow_vectors(table: LakeTable, commit_info: CommitInfo) -> None:
    """Turn deletion vectors on, where they are not on yet. Raises Conflict when others never stop writing."""
    for _ in range(_TRIES):
        table.refresh()
        if has_vectors_on(table):
            return
        if set_properties(table, {PROPERTY: "true"}, commit_info):
            return
    raise Conflict(f"{table.path}: other writers were faster {_TRIES} times; nothing was changed.")


def set_properties(table: LakeTable, changed: Mapping[str, str], commit_info: CommitInfo) -> bool:
    """Set properties of a table that has deletion vectors or gets them; False when another was faster."""
    with store_errors(table.path):
        landed = table.put(_actions(table, changed, commit_info)) is None
    table.refresh()
    return landed


def _actions(table: LakeTable, changed: Mapping[str, str], commit_info: CommitInfo) -> list[dict[str, Any]]:
    metadata = table.log().metadata()
    if metadata is None:
        raise TableError(f"{table.path}: its log has no metadata that could be read.")
    now = int(time.time() * 1000)
    info = info_action(table.partition_columns, commit_metadata(commit_info), now)
    info["commitInfo"]["operation"] = "SET TBLPROPERTIES"
    configuration = {**(metadata.get("configuration") or {}), **changed}
    actions = [info, {"metaData": {**metadata, "configuration": configuration}}]
    have = features(table.delta)
    needed = {name for key, name in _NEEDS.items() if configuration.get(key, "").lower() == "true"}
    return actions if needed <= set(have) else [*actions, {"protocol": _protocol({*have, *needed})}]


def _protocol(names: Collection[str]) -> dict[str, Any]:
    named = sorted(names)
    return {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [name for name in named if name in _READERS],
        "writerFeatures": named,
    }
