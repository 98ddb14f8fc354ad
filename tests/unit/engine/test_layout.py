"""The layout options of a table, from the pipeline file to the files that a run writes; without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, TableError
from lakefeed.engine.inline import run_inline
from lakefeed.testing import Sample, run_samples


def run(folder: Path, table: str, rows: int = 1_000) -> DeltaTable:
    (folder / "shop.yaml").write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate, rows: {rows}, partitions: 2}}}}
tables: {{events: {{path: events, from: clicks, {table}}}}}
flush: {{rows: 500}}
"""
    )
    run_inline(Pipeline.from_file(folder / "shop.yaml"))
    return DeltaTable(folder / "events")


def test_a_run_writes_sorted_files_with_the_names_that_were_asked_for(tmp_path: Path) -> None:
    columns = "schema: {event_id: long, event_type: string, user_id: long, price: double}"
    options = "partition_by: [event_type], sort_by: [user_id, price], file_name: {prefix: shop}"

    table = run(tmp_path, f"{columns}, {options}")

    files = [Path(uri) for uri in table.file_uris()]
    assert len(files) == 2 * 3
    assert all(file.name.startswith("shop-0000") for file in files)
    for file in files:
        rows = pq.ParquetFile(file).read().select(["user_id", "price"]).to_pylist()
        keys = [(row["user_id"], row["price"]) for row in rows]
        assert keys == sorted(keys)
    assert table.to_pyarrow_table().num_rows == 1_000


def test_rows_cannot_be_sorted_by_a_column_that_no_event_has(tmp_path: Path) -> None:
    with pytest.raises(TableError, match="sort_by: the table has no column 'user', did you mean 'user_id'"):
        run(tmp_path, "sort_by: [user]")


def test_tables_of_a_route_are_sorted_by_the_columns_that_they_have(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        """\
name: shop
sources: {clicks: {type: generate, format: json}}
tables: {events: {route: "of_{kind}", from: clicks, sort_by: [price, id]}}
"""
    )
    events = [{"kind": "a", "id": 2}, {"kind": "a", "id": 1}, {"kind": "b", "id": 3, "price": 9}]
    events += [{"kind": "b", "id": 4, "price": 5}]

    samples = {"clicks": [Sample(json=event) for event in events]}
    landed = run_samples(tmp_path / "shop.yaml", samples, tmp_path / "run")

    found = {name: DeltaTable(landed.path(f"events/{name}")).to_pyarrow_table() for name in "ab"}
    assert {name: rows["id"].to_pylist() for name, rows in found.items()} == {"a": [1, 2], "b": [4, 3]}
