"""Meddling: what another writer may do to a table while a stream feeds it."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow as pa
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

GOES_ON = frozenset({"column added"})
"""What a stream takes in its stride; anything else may stop the table, and is repaired by a table anew."""


def add_column(path: Path) -> None:
    DeltaTable(path).alter.add_columns([Field(f"outside_{uuid4().hex[:6]}", PrimitiveType("string"))])


def replace(path: Path) -> None:
    """Overwrite it with a table of another shape, as `CREATE OR REPLACE` does."""
    other = pa.table({"event_id": ["not", "a", "number"], "colour": ["red", "green", "blue"]})
    write_deltalake(path, other, mode="overwrite", schema_mode="overwrite")


def recreate(path: Path) -> None:
    """Drop it and make another in its place: the same columns, no position, as many versions."""
    schema, version = DeltaTable(path).schema(), DeltaTable(path).version()
    shutil.rmtree(path)
    made = DeltaTable.create(path, schema)
    for _ in range(version):
        made.alter.set_table_properties({"made_by": uuid4().hex}, raise_if_not_exists=False)


def drop(path: Path) -> None:
    shutil.rmtree(path)


def repartition(path: Path) -> None:
    """The same columns, in other folders."""
    files = [{"remove": _removed(file)} for file in DeltaTable(path).file_uris()]
    metadata = _last(path, "metaData")
    _commit(path, [{"metaData": metadata | {"partitionColumns": ["event_id"]}}, *files])


def retype(path: Path) -> None:
    """A number becomes text; the rows go, as in a migration."""
    files = [{"remove": _removed(file)} for file in DeltaTable(path).file_uris()]
    metadata = _last(path, "metaData")
    schema = json.loads(metadata["schemaString"])
    for field in schema["fields"]:
        if field["name"] == "event_id":
            field["type"] = "string"
    _commit(path, [{"metaData": metadata | {"schemaString": json.dumps(schema)}}, *files])


def widen(path: Path) -> None:
    """A number gets a wider type, and the files that are there keep theirs."""
    metadata = _last(path, "metaData")
    schema = json.loads(metadata["schemaString"])
    change = {"fromType": "long", "toType": "decimal(20,0)"}
    for field in schema["fields"]:
        if field["name"] == "event_id":
            field |= {"type": change["toType"], "metadata": {"delta.typeChanges": [change]}}
    properties = metadata["configuration"] | {"delta.enableTypeWidening": "true"}
    changed = {"schemaString": json.dumps(schema), "configuration": properties}
    _commit(path, [{"protocol": _for_readers("typeWidening")}, {"metaData": metadata | changed}])


def allow_deletion_vectors(path: Path) -> None:
    """A property under which others may delete rows without a new file."""
    _upgrade(path, {"delta.enableDeletionVectors": "true"}, _for_readers("deletionVectors"))


def map_columns(path: Path) -> None:
    """Column mapping in its older form: files written without it read as null."""
    _upgrade(path, {"delta.columnMapping.mode": "name"}, {"minReaderVersion": 2, "minWriterVersion": 5})


def stamp_commits(path: Path) -> None:
    _feature(path, "inCommitTimestamp", {"delta.enableInCommitTimestamps": "true"})


def track_rows(path: Path) -> None:
    _feature(path, "rowTracking", {}, "domainMetadata")


def constrain(path: Path) -> None:
    """A CHECK that every event breaks."""
    _upgrade(path, {"delta.constraints.low": "event_id < 0"}, {"minReaderVersion": 1, "minWriterVersion": 3})


def expire_positions(path: Path) -> None:
    """A property under which the log forgets positions."""
    _upgrade(path, {"delta.setTransactionRetentionDuration": "interval 1 hours"}, None)


MEDDLING: dict[str, Callable[[Path], None]] = {
    "column added": add_column,
    "replaced by another writer": replace,
    "dropped and recreated": recreate,
    "dropped": drop,
    "repartitioned": repartition,
    "column retyped": retype,
    "column widened": widen,
    "deletion vectors turned on": allow_deletion_vectors,
    "column mapping turned on": map_columns,
    "in-commit timestamps turned on": stamp_commits,
    "row tracking turned on": track_rows,
    "constraint added": constrain,
    "positions set to expire": expire_positions,
}


def _feature(path: Path, name: str, properties: dict[str, str], *others: str) -> None:
    features = ["appendOnly", "invariants", name, *others]
    protocol = {"minReaderVersion": 1, "minWriterVersion": 7, "writerFeatures": features}
    _upgrade(path, properties, protocol)


def _for_readers(feature: str) -> dict[str, Any]:
    """A protocol with a feature that readers must know, too."""
    versions = {"minReaderVersion": 3, "minWriterVersion": 7}
    return {**versions, "readerFeatures": [feature], "writerFeatures": ["appendOnly", "invariants", feature]}


def _upgrade(path: Path, properties: dict[str, str], protocol: dict[str, Any] | None) -> None:
    metadata = _last(path, "metaData")
    changed = metadata | {"configuration": metadata["configuration"] | properties}
    _commit(path, [*([{"protocol": protocol}] if protocol else []), {"metaData": changed}])


def _last(path: Path, action: str) -> dict[str, Any]:
    """The newest action of a kind among the entries of the log."""
    for file in sorted((path / "_delta_log").glob("*.json"), reverse=True):
        for line in file.read_text().splitlines():
            if action in (found := json.loads(line)):
                return dict(found[action])
    raise AssertionError(f"the log of {path} has no {action}")


def _removed(uri: str) -> dict[str, Any]:
    now = int(time.time() * 1000)
    return {"path": Path(uri).name, "deletionTimestamp": now, "dataChange": True}


def _commit(path: Path, actions: list[dict[str, Any]]) -> None:
    """Write the next entry of the log; whoever is faster, the entry after it."""
    now = int(time.time() * 1000)
    info = {"commitInfo": {"timestamp": now, "operation": "MEDDLE", "engineInfo": "somebody else"}}
    text = "".join(f"{json.dumps(action)}\n" for action in [info, *actions])
    draft = path / "_delta_log" / f".{uuid4().hex}.tmp"
    draft.write_text(text)
    version = DeltaTable(path).version() + 1
    while True:
        try:
            os.link(draft, path / "_delta_log" / f"{version:020}.json")
            break
        except FileExistsError:
            version += 1
    draft.unlink()
