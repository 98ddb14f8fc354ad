"""Deletion vectors turned on: the table's protocol and its property, in one entry of the log.

delta-rs could do it, and adds features to the table that nobody asked for, by which other readers would be
shut out.
"""

from __future__ import annotations

import time
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
        with store_errors(table.path):
            if table.put(_actions(table, commit_info)) is None:
                table.refresh()
                return
    raise Conflict(f"{table.path}: other writers were faster {_TRIES} times; nothing was changed.")


def _actions(table: LakeTable, commit_info: CommitInfo) -> list[dict[str, Any]]:
    metadata = table.log().metadata()
    if metadata is None:
        raise TableError(f"{table.path}: its log has no metadata that could be read.")
    named = sorted({*features(table.delta), FEATURE})
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": [name for name in named if name in _READERS],
        "writerFeatures": named,
    }
    now = int(time.time() * 1000)
    info = info_action(table.partition_columns, commit_metadata(commit_info), now)
    info["commitInfo"]["operation"] = "SET TBLPROPERTIES"
    configuration = {**(metadata.get("configuration") or {}), PROPERTY: "true"}
    return [info, {"protocol": protocol}, {"metaData": {**metadata, "configuration": configuration}}]
