"""Which tables may be fed: asked when a table is opened, and again whenever it changes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lakefeed.errors import TableError
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change
from support.fed_table import entry_file, open_table

ID = {"name": "id", "type": "long", "nullable": True, "metadata": {}}


def protocol(reader: int, writer: int, *features: str, readers: tuple[str, ...] = ()) -> dict[str, Any]:
    told: dict[str, Any] = {"minReaderVersion": reader, "minWriterVersion": writer}
    if reader == 3:
        told["readerFeatures"] = list(readers)
    if writer == 7:
        told["writerFeatures"] = [*features, *readers]
    return {"protocol": told}


def metadata(*columns: dict[str, Any], **configuration: str) -> dict[str, Any]:
    return {
        "metaData": {
            "id": "0c9b8d6e-0000-4000-8000-000000000001",
            "format": {"provider": "parquet", "options": {}},
            "schemaString": json.dumps({"type": "struct", "fields": [ID, *columns]}),
            "partitionColumns": [],
            "configuration": {f"delta.{name}": value for name, value in configuration.items()},
            "createdTime": 1,
        }
    }


def column(kind: Any, **about: Any) -> dict[str, Any]:
    return {"name": "c", "type": kind, "nullable": True, "metadata": about}


def write(folder: Path, version: int, *actions: dict[str, Any]) -> None:
    entry = entry_file(folder, version)
    entry.parent.mkdir(parents=True, exist_ok=True)
    entry.write_text("\n".join(json.dumps(action) for action in actions))


OLD = protocol(1, 2)
MAP = {"type": "map", "keyType": "integer", "valueType": "string", "valueContainsNull": True}
NESTED = {"type": "struct", "fields": [column("void")]}

FEATURES = (
    "identityColumns", "domainMetadata", "clustering", "rowTracking", "inCommitTimestamp",
    "allowColumnDefaults", "icebergCompatV1", "icebergCompatV2", "checkpointProtection",
    "materializePartitionColumns", "whatComesNext",
)  # fmt: skip
READER_FEATURES = (
    "v2Checkpoint", "typeWidening", "typeWidening-preview", "variantType", "vacuumProtocolCheck",
)  # fmt: skip

REFUSED: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    **{name: (protocol(1, 7, name), metadata(), f"uses {name}, which") for name in FEATURES},
    **{
        name: (protocol(3, 7, readers=(name,)), metadata(), f"uses {name}, which") for name in READER_FEATURES
    },
    "a mode of mapping of tomorrow": (
        protocol(2, 5),
        metadata(**{"columnMapping.mode": "both"}),
        "both",
    ),
    "mapping without a protocol for it": (
        OLD,
        metadata(**{"columnMapping.mode": "name", "columnMapping.maxColumnId": "0"}),
        "delta.columnMapping.mode is 'name', and its protocol has no column mapping",
    ),
    "mapping without names": (
        protocol(2, 5),
        metadata(**{"columnMapping.mode": "name", "columnMapping.maxColumnId": "0"}),
        "id",
    ),
    "writer 6": (protocol(2, 6), metadata(), "protocol 2/6"),
    "writer 8": (protocol(1, 8), metadata(), "protocol 1/8"),
    "constraint": (
        protocol(1, 3),
        metadata(**{"constraints.positive": "id > 0"}),
        "the CHECK constraint positive (id > 0)",
    ),
    "invariant": (OLD, metadata(column("long", **{"delta.invariants": "{}"})), "column c has an invariant"),
    "generated": (
        protocol(1, 4),
        metadata(column("long", **{"delta.generationExpression": "id * 10"})),
        "column c has a generation expression (delta.generationExpression: id * 10)",
    ),
    "default": (OLD, metadata(column("string", CURRENT_DEFAULT="'x'")), "column c has a default"),
    "positions that expire": (
        OLD,
        metadata(setTransactionRetentionDuration="interval 7 days"),
        "positions would expire",
    ),
    "void": (OLD, metadata(column("void")), "column c is void"),
    "nested void": (OLD, metadata(column(NESTED)), "column c.c is void"),
    "variant": (OLD, metadata(column("variant")), "'variantType' feature"),
    "keys that are numbers": (OLD, metadata(column(MAP)), "column c is a map whose keys are not text"),
    "a reader of tomorrow": (protocol(4, 7), metadata(), "reader version 4"),
    "a feature of tomorrow": (
        protocol(3, 7, readers=("whatComesNext",)),
        metadata(),
        "'whatComesNext' is not supported",
    ),
    "a type of tomorrow": (OLD, metadata(column("interval")), "Unsupported Delta table type: 'interval'"),
}

FED = {
    "writer 1": (protocol(1, 1), metadata()),
    "writer 2": (OLD, metadata(appendOnly="true")),
    "writer 3": (protocol(1, 3), metadata()),
    "writer 4": (protocol(1, 4), metadata(enableChangeDataFeed="true")),
    "writer 5": (protocol(2, 5), metadata(**{"columnMapping.mode": "none"})),
    "not null": (OLD, metadata({**column("string"), "nullable": False})),
    "named but not used": (
        protocol(
            3,
            7,
            *("appendOnly", "changeDataFeed", "checkConstraints", "generatedColumns", "invariants"),
            readers=("timestampNtz", "columnMapping"),
        ),
        metadata(enableChangeDataFeed="true"),
    ),
    "zoneless": (
        protocol(3, 7, readers=("timestampNtz",)),
        metadata(column("timestamp_ntz"), checkpointPolicy="classic"),
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_that_asks_more_than_an_append_is_refused_by_name_when_it_is_opened(
    name: str, tmp_path: Path
) -> None:
    *actions, words = REFUSED[name]
    write(tmp_path, 0, *actions)

    with pytest.raises(TableError) as refused:
        open_table(tmp_path)

    told = str(refused.value)
    assert words in told
    assert not refused.value.retryable
    assert len(told.splitlines()) <= 3


@pytest.mark.parametrize("name", FED)
@pytest.mark.parametrize("way", ["an entry written here", "delta-rs"])
def test_a_table_whose_features_ask_nothing_of_an_append_is_fed(
    name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "delta-rs":
        monkeypatch.setattr("lakefeed.tables.table.writes_entries", lambda delta, store: False)
    write(tmp_path, 0, *FED[name])

    version = append(open_table(tmp_path), Change([], {"a/b/0": 1}, {"a/b/0": None}, {}), retries=0)

    assert version == 1
    assert open_table(tmp_path).transactions == {"a/b/0": 1}


@pytest.mark.parametrize("way", ["an entry written here", "delta-rs"])
@pytest.mark.parametrize("name", REFUSED)
def test_a_table_that_asks_more_while_it_is_fed_is_refused_at_the_next_commit(
    name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if way == "delta-rs":
        monkeypatch.setattr("lakefeed.tables.table.writes_entries", lambda delta, store: False)
    write(tmp_path, 0, OLD, metadata())
    table = open_table(tmp_path)
    *actions, words = REFUSED[name]
    write(tmp_path, 1, *actions)

    with pytest.raises(TableError) as refused:
        append(table, Change([], {"a/b/0": 1}, {"a/b/0": None}, {}), retries=2, sleep=lambda _: None)

    assert words in str(refused.value)
    assert not refused.value.retryable
    assert not entry_file(tmp_path, 2).exists()
