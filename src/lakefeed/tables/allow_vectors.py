"""Properties of a table set in an entry of our own, with the features that they need: deletion vectors first.

delta-rs adds features to a table of reader version 3 that nobody asked for, by which other readers would be
shut out, and has no operation that takes a property away.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Collection, Mapping
from typing import Any

import orjson

from lakefeed.errors import Conflict, TableError
from lakefeed.stores import store_errors
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
    token = uuid.uuid4().hex
    with store_errors(table.path):
        table.put(_actions(table, changed, {**commit_info, "commit": token}, unset))
    infos = table.refresh()
    return next((at for at, info in infos.items() if commit_info_of(info).get("commit") == token), None)


def _actions(
    table: LakeTable, changed: Mapping[str, str], commit_info: CommitInfo, unset: Collection[str]
) -> list[dict[str, Any]]:
    metadata = table.log().metadata()
    if metadata is None:
        raise TableError(f"{table.path}: its log has no metadata that could be read.")
    info = info_action([], commit_metadata(commit_info), int(time.time() * 1000), blind=False)
    info["commitInfo"] |= {
        "operation": "SET TBLPROPERTIES",
        "operationParameters": {"properties": orjson.dumps(dict(changed)).decode()},
    }
    have = metadata.get("configuration") or {}
    kept = {name: value for name, value in have.items() if name not in unset}
    actions = [info, {"metaData": {**metadata, "configuration": {**kept, **changed}}}]
    lacking = lacking_features(table, changed)
    return [*actions, _protocol({*features(table.delta), *lacking})] if lacking else actions


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
