"""The layout options of a table, from the pipeline file to the files that a run writes; without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakefeed import LakefeedError, Pipeline, TableError
from lakefeed.engine.cores import Cores
from lakefeed.engine.inline import InlineFlow, run_inline
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


@pytest.fixture
def four_tasks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are cut into four tasks, as on four cores."""
    monkeypatch.setattr(InlineFlow, "cores", lambda flow: Cores(running=4, executors=0, tasks=4))
    monkeypatch.setattr("lakefeed.sources.dense_offsets.ROWS_A_TASK", 100)


def test_rows_of_one_partition_value_meet_in_one_file(tmp_path: Path, four_tasks: None) -> None:
    columns = "schema: {event_id: long, event_type: string, user_id: long}, partition_by: [event_type]"
    found = {}
    for shuffle in ("false", "true"):
        (folder := tmp_path / shuffle).mkdir()
        more = f"sort_by: [user_id], file_name: serial, shuffle_by_partition: {shuffle}"
        table = found[shuffle] = run(folder, f"{columns}, {more}")
        assert sorted(table.to_pyarrow_table()["event_id"].to_pylist()) == list(range(1_000))
        on_disk = {str(path) for path in (folder / "events").rglob("*.parquet")}
        assert on_disk == set(table.file_uris())

    # Two batches of four tasks, and three values, one of which is rare.
    assert len(found["false"].file_uris()) > 20
    assert len(found["true"].file_uris()) == 6
    for uri in found["true"].file_uris():
        users = pq.ParquetFile(uri).read()["user_id"].to_pylist()
        assert users == sorted(users)


def test_shuffled_rows_of_every_type_and_of_null_partitions_are_kept(
    tmp_path: Path, four_tasks: None
) -> None:
    (tmp_path / "shop.yaml").write_text(
        """\
name: shop
sources: {clicks: {type: generate, format: json}}
tables:
  events:
    path: events
    from: clicks
    schema:
      id: long not null
      price: decimal(10,2)
      at: timestamp
      tags: array<string>
      meta: "struct<a: int, b: map<string, double>>"
      raw: binary
    partition_by: [day(at), price]
    shuffle_by_partition: true
"""
    )
    events: list[dict[str, object]] = [
        {"id": 0},
        {"id": 1, "price": 1.5, "at": "2026-11-15T10:00:00Z", "tags": ["a", None]},
        {"id": 2, "meta": {"a": 1, "b": {"k": 0.5}}, "raw": "AP8="},
    ]
    given = [{**event, "id": number} for number, event in enumerate(events * 150)]

    landed = run_samples(
        tmp_path / "shop.yaml", {"clicks": [Sample(json=event) for event in given]}, tmp_path / "run"
    )

    table = DeltaTable(landed.path("events"))
    assert len(table.file_uris()) == 2
    rows = table.to_pyarrow_table().sort_by("id").to_pylist()
    assert [row["id"] for row in rows] == list(range(450))
    assert rows[4]["tags"] == ["a", None] and str(rows[4]["price"]) == "1.50"
    assert rows[5]["meta"] == {"a": 1, "b": [("k", 0.5)]} and rows[5]["raw"] == b"\x00\xff"


def test_serial_names_sort_in_the_order_of_batches_and_are_never_used_twice(
    tmp_path: Path, four_tasks: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "schema: {event_id: long}, evolve: ignore, file_name: {prefix: shop, strategy: serial}"
    with monkeypatch.context() as broken, pytest.raises(LakefeedError):
        broken.setattr("lakefeed.engine.flow_run.Committer.commit", lambda *_: 1 / 0)
        broken.setattr("lakefeed.engine.retries._FIRST_WAIT", 0.01)
        run(tmp_path, text)
    orphans = {path.name for path in (tmp_path / "events").glob("*.parquet")}

    table = run(tmp_path, text)

    names = [Path(uri).name for uri in table.file_uris()]
    firsts = {name: pq.read_table(tmp_path / "events" / name)["event_id"][0].as_py() for name in names}
    assert orphans and not orphans & set(names)
    # Of the same batches, tasks and files: only the last part differs.
    assert {name.rsplit("-", 1)[0] for name in orphans} <= {name.rsplit("-", 1)[0] for name in names}
    assert [firsts[name] // 500 for name in sorted(names)] == sorted(
        first // 500 for first in firsts.values()
    )


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
