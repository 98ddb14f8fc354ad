"""Tables that others alter while a pipeline feeds them: fed on in their new shape, or stopped."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake

from lakefeed import Pipeline, TableError
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import Committed, RunEvent, SourceTrouble

ROWS = 100


def shop(folder: Path) -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: generate, rows: {ROWS}}}
tables:
  events: {{path: events, from: clicks, schema: {{event_id: long, brand: string}}}}
  others: {{path: others, from: clicks, schema: {{event_id: long}}}}
flush: {{rows: 10}}
"""
    )
    return Pipeline.from_file(file)


class Meddler:
    """Alters the table `events` as soon as its third version is there, and keeps what is told."""

    def __init__(self, alter: Callable[[], object]) -> None:
        self._alter: Callable[[], object] | None = alter
        self.troubles: list[str] = []

    def __call__(self, event: RunEvent) -> None:
        match event:
            case Committed():
                if event.table == "events" and event.version == 3 and self._alter:
                    alter, self._alter = self._alter, None
                    alter()
            case SourceTrouble(text=text):
                self.troubles += [text] if text else []


def ids(path: Path) -> list[int]:
    return sorted(DeltaTable(path).to_pyarrow_table(columns=["event_id"])["event_id"].to_pylist())


def add_entry(path: Path, action: dict[str, object]) -> None:
    version = DeltaTable(path).version() + 1
    (path / "_delta_log" / f"{version:020d}.json").write_text(json.dumps(action))


def test_a_column_that_another_adds_makes_one_batch_run_again(tmp_path: Path) -> None:
    events = tmp_path / "events"
    meddler = Meddler(lambda: DeltaTable(events).alter.add_columns([Field("more", "long")]))

    run_inline(shop(tmp_path), meddler)

    assert ids(events) == ids(tmp_path / "others") == list(range(ROWS))
    (told,) = meddler.troubles
    assert "events was changed by another writer while a batch was being written: its columns" in told


FEATURES: dict[str, tuple[Callable[[Path], object], str]] = {
    "a constraint": (
        lambda path: DeltaTable(path).alter.add_constraint({"positive": "event_id >= 0"}),
        "the CHECK constraint positive (event_id >= 0)",
    ),
    "positions that expire": (
        lambda path: DeltaTable(path).alter.set_table_properties(
            {"delta.setTransactionRetentionDuration": "interval 7 days"}
        ),
        "so positions would expire",
    ),
    "row tracking": (
        lambda path: add_entry(
            path,
            {
                "protocol": {
                    "minReaderVersion": 1,
                    "minWriterVersion": 7,
                    "writerFeatures": ["domainMetadata", "rowTracking"],
                }
            },
        ),
        "the table uses domainMetadata and rowTracking",
    ),
    "another layout": (
        lambda path: write_deltalake(
            path,
            DeltaTable(path).to_pyarrow_table(),
            mode="overwrite",
            schema_mode="overwrite",
            partition_by=["brand"],
        ),
        "is partitioned by ['brand'], the pipeline file says nothing",
    ),
    "another table": (
        lambda path: (
            shutil.rmtree(path),
            [write_deltalake(path, pa.table({"event_id": [7]}), mode="append") for _ in range(9)],
        ),
        "is not the one that was read",
    ),
}


@pytest.mark.parametrize("name", FEATURES)
def test_a_table_that_may_not_be_fed_any_more_stops_alone_and_at_once(name: str, tmp_path: Path) -> None:
    alter, words = FEATURES[name]
    after: list[int] = []
    events = tmp_path / "events"

    def meddle() -> None:
        alter(events)
        after.append(DeltaTable(events).version())

    with pytest.raises(TableError) as stopped:
        run_inline(shop(tmp_path), Meddler(meddle))

    assert words in str(stopped.value)
    assert DeltaTable(events).version() == after[0]
    assert ids(tmp_path / "others") == list(range(ROWS))
    held = {Path(uri).name for uri in DeltaTable(events).file_uris()}
    written = {path.name for path in events.rglob("part-*.parquet")}
    if name in ("a constraint", "positions that expire", "row tracking"):
        assert written == held
        assert ids(events) == list(range(len(ids(events))))
        assert 0 < len(ids(events)) < ROWS
