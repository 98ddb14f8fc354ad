"""Names that somebody else chooses: topics, columns and partition values reach no other place than theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.columns.names import clean_column_name
from support.kafka import Broker
from support.ledger import dead_letters, duckdb_count

TOPICS = ["_delta_log", "x" * 249, "...a_b-0", "checkpoint.parquet"]
VALUES = [
    "../../../outside",
    "..",
    "%2e%2e%2f",
    "/etc/passwd",
    "_delta_log",
    "line\nbreak",
    "quote'\"`;--",
    "nul\0",
    "=,{}",
    "é" * 200,
    "__HIVE_DEFAULT_PARTITION__",
    " ",
]
COLUMNS = ["../up", "%2e%2e", "quote'\"`", "_delta_log", "a.b", "c" * 300, "<script>", "part=1/x"]


@pytest.fixture
def topics(broker: Broker) -> list[str]:
    for topic in TOPICS:
        broker.create_topic(topic)
    return TOPICS


@pytest.mark.usefixtures("spark")
def test_hostile_names_stay_names(broker: Broker, topics: list[str], tmp_path: Path) -> None:
    lake = tmp_path / "lake"
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: kafka, brokers: "{broker.address}", topics: {json.dumps(topics)}, format: json}}
tables:
  events:
    path: lake/events
    from: clicks
    partition_by: [p]
    schema: {{event_id: long, p: string}}
    metadata: true
"""
    )
    cases = [{"p": value} for value in VALUES] + [{"p": "plain", name: "x"} for name in COLUMNS]
    events = [{"event_id": number, **case} for number, case in enumerate(cases)]
    for number, event in enumerate(events):
        broker.produce(topics[number % len(topics)], [json.dumps(event)])

    Pipeline.from_file(file).run(once=True)
    Pipeline.from_file(file).run(once=True)

    rows = DeltaTable(lake / "events").to_pyarrow_table().to_pylist()
    letters = dead_letters(lake / "shop_dead_letters")
    landed = {row["event_id"]: row for row in rows}
    refused = {json.loads(letter["payload"])["event_id"]: letter for letter in letters}
    assert len(rows) + len(letters) == len(events) == duckdb_count(lake / "events") + len(letters)
    for number, event in enumerate(events):
        if number in landed:
            assert {key: landed[number][clean_column_name(key)] for key in event} == event
            assert landed[number]["_topic"] == topics[number % len(topics)]
    assert {letter["code"] for letter in refused.values()} <= {"bad_name", "bad_partition"}
    assert {path.name for path in tmp_path.iterdir()} == {"lake", "shop.yaml", ".lakefeed"}
    assert {path.name for path in lake.iterdir()} <= {"events", "shop_dead_letters"}
    assert not [path for path in lake.rglob("*") if not path.resolve().is_relative_to(lake)]
    inside = {path.name for path in (lake / "events" / "_delta_log").iterdir()}
    assert all(name.removesuffix(".json").isdigit() for name in inside), inside


@pytest.mark.parametrize("name", ["../up", "a/b", "a\nb", "%2e", "", "_delta_log/x", "a b"])
def test_names_in_the_file_that_become_paths_are_refused(name: str, tmp_path: Path) -> None:
    from lakefeed import PipelineFileError

    document = {
        "name": name,
        "sources": {name or "s": {"type": "generate"}},
        "tables": {name or "t": {"path": "events", "from": name or "s"}},
    }
    file = tmp_path / "shop.yaml"
    file.write_text(json.dumps(document))

    with pytest.raises(PipelineFileError) as refused:
        Pipeline.from_file(file)

    assert "name: expected at most 100 letters, digits, '_', '-' and '.', got" in str(refused.value)
