"""Tables that Spark has changed in many ways bring what Spark's own readers bring, version by version."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from lakefeed import SourceError
from lakefeed.events import OffsetRange
from lakefeed.sources import Allowance
from lakefeed.sources.delta.client import DeltaClient
from lakefeed.sources.delta.source import DeltaSource
from lakefeed.tables.operations.changes import changes
from support.changed_tables import FEED, STREAMED, TABLES, answer, unpack
from support.delta_tables import open_any

FED = sorted(name for name, made in TABLES.items() if FEED in made.properties)
ALLOWED = Allowance(5, 10**9)


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("changed"))


def brought(path: Path, left_out: str = "", **options: Any) -> Counter[str]:
    """All that the source brings, in small batches, as it does in a run."""
    source = DeltaSource(path=str(path), max_files=1, **options)
    client = DeltaClient(source, "theirs")
    at, ends, found = client.start(), client.latest(), []
    while at != ends:
        end = client.next_end(at, ends, ALLOWED)
        for task in client.splits([OffsetRange("0", at["0"], end["0"])], 2):
            found += [events.columns for events in source.read(task)]
        at = end
    return counted(found, left_out)


def counted(batches: list[Any], left_out: str = "") -> Counter[str]:
    """Rows by how often they are there; a column that a table has got later is null where it is missing."""
    rows = [row for batch in batches for row in batch.to_pylist()]
    told = [{key: value for key, value in row.items() if value is not None} for row in rows]
    return Counter(repr(sorted((key, row[key]) for key in row if key != left_out)) for row in told)


@pytest.mark.parametrize("name", FED)
def test_the_change_feed_is_what_spark_reads(name: str, tables: Path) -> None:
    # Without times in the commits, that of a file counts, which a copy of the table need not keep.
    left_out = "" if name == "in_commit_timestamps" else "_commit_timestamp"
    mine = brought(tables / name, left_out, change_feed=True, start={"version": 0})

    assert mine == counted([_utc(answer(tables, name, "changes"))], left_out)
    if "mapped" not in name:
        assert counted(list(changes(open_any(tables / name), 0).batches), left_out) == mine


@pytest.mark.parametrize("name", STREAMED)
def test_appends_and_rewritten_files_are_what_spark_streams_from_each_version_on(
    name: str, tables: Path
) -> None:
    last = len(list((tables / f"{name}.answers").glob("stream_*.arrow")))
    for version in range(last):
        mine = brought(tables / name, start={"version": version}, ignore_changes=True)

        assert mine == counted([answer(tables, name, f"stream_{version}")]), f"from version {version} on"


@pytest.mark.parametrize("name", ["no_feed", "no_feed_vectors"])
def test_a_table_without_a_feed_says_so(name: str, tables: Path) -> None:
    with pytest.raises(SourceError, match="the change data feed was off"):
        brought(tables / name, change_feed=True, start={"version": 0})


def _utc(table: pa.Table) -> pa.Table:
    """Spark's times as UTC."""
    at = table.schema.get_field_index("_commit_timestamp")
    if at < 0:
        return table
    return table.set_column(at, "_commit_timestamp", table.column(at).cast(pa.timestamp("us", "UTC")))
