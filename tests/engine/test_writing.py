"""Every option of a table has an effect that can be measured on its files and in its log.

On Spark where tasks of several cores meet; the others by the same flows, one task after the other.
"""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, SourceError, TableError
from support.ledger import assert_each_once, assert_versions_contiguous, dead_letters, table_ids
from support.shop import Shop

on_spark = pytest.mark.usefixtures("spark")

SCHEMA = (
    "{event_id: long not null, event_time: timestamp, event_type: string, product_id: long, "
    "category_id: long, category_code: string, brand: string, "
    'price: "decimal(10,2)", user_id: long, user_session: string}'
)


class WrittenShop(Shop):
    """Generated rows into one table, in a folder of its own."""

    def __init__(self, folder: Path, source: str = "rows: 1000", table: str = "", more: str = "") -> None:
        super().__init__(folder)
        self.write(source, table, more)

    def write(self, source: str = "rows: 1000", table: str = "", more: str = "") -> None:
        given = table if "schema" in table else f"schema: {SCHEMA}\n{table}"
        self.save(f"type: generate, {source}", given, more)

    def adds(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = pa.table(self.delta().get_add_actions(flatten=True)).to_pylist()
        return found

    def files(self) -> list[str]:
        return relative_files(self.table)

    def log(self, version: int) -> list[dict[str, Any]]:
        text = (self.table / "_delta_log" / f"{version:020}.json").read_text()
        return [json.loads(line) for line in text.splitlines()]

    def positions(self) -> dict[str, int]:
        """The last `txn` version of each application."""
        found: dict[str, int] = {}
        for version in assert_versions_contiguous(self.table):
            for action in self.log(version):
                if "txn" in action:
                    found[action["txn"]["appId"]] = action["txn"]["version"]
        return found


def relative_files(table: Path) -> list[str]:
    """The files of the newest version, by the log."""
    adds = pa.table(DeltaTable(table).get_add_actions(flatten=True))
    return [str(path) for path in adds.column("path").to_pylist()]


def files_on_disk(table: Path) -> set[str]:
    return {str(file.relative_to(table)) for file in table.rglob("*.parquet")}


EVENTS = """\
{"event_id": 1, "event_type": "view", "event_time": "2026-01-01T00:30:00Z"}
{"event_id": 2, "event_type": "cart", "event_time": "2026-01-01T01:30:00Z"}
{"event_id": 3, "event_type": "view", "event_time": "2026-01-02T00:00:00Z"}
"""


@pytest.mark.parametrize(
    ("partition_by", "column", "values"),
    [
        ("event_type", "event_type", {"view", "cart"}),
        ("year(event_time)", "event_time_year", {"2026"}),
        ("month(event_time) as m", "m", {"2026-01"}),
        ("day(event_time)", "event_time_day", {"2026-01-01", "2026-01-02"}),
        ("hour(event_time)", "event_time_hour", {"2026-01-01-00", "2026-01-01-01", "2026-01-02-00"}),
        (
            "strftime(event_time, '%d at %H') as part",
            "part",
            {"01 at 00", "01 at 01", "02 at 00"},
        ),
    ],
)
def test_partition_by_lays_the_table_out_by_value(
    partition_by: str, column: str, values: set[str], tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "events.json").write_text(EVENTS)
    shop = WrittenShop(tmp_path)
    source = "type: files, path: in, format: json, settle: 1ms"
    shop.save(source, f'schema: {SCHEMA}\npartition_by: ["{partition_by}"]')

    shop.read()

    assert {str(add[f"partition.{column}"]) for add in shop.adds()} == values
    assert shop.delta().metadata().partition_columns == [column]
    assert all(file.startswith(f"{column}=") for file in shop.files())
    assert shop.ids() == [1, 2, 3]


def test_target_file_size_makes_several_files_of_about_that_size(tmp_path: Path) -> None:
    shop = WrittenShop(tmp_path, "rows: 40000", "target_file_size: 64KB")

    shop.read()

    sizes = [add["size_bytes"] for add in shop.adds()]
    assert len(sizes) > 3
    # All but the last of a batch are full.
    assert sorted(sizes)[-1] < 1.5 * 64 * 1024
    assert sorted(sizes)[1] > 0.5 * 64 * 1024
    assert_each_once(range(40000), table_ids(shop.table))


def test_max_rows_per_file_is_exact(tmp_path: Path) -> None:
    shop = WrittenShop(tmp_path, "rows: 1050", "max_rows_per_file: 100")

    shop.read()

    assert sorted(add["num_records"] for add in shop.adds()) == [50] + [100] * 10


@pytest.mark.parametrize("codec", ["zstd", "snappy", "gzip", "lz4", "none"])
def test_compression_is_in_the_footer_of_every_file(codec: str, tmp_path: Path) -> None:
    shop = WrittenShop(tmp_path, "rows: 100", f"compression: {codec}")

    shop.read()

    footers = [pq.read_metadata(shop.table / file) for file in shop.files()]
    used = {footer.row_group(0).column(place).compression for footer in footers for place in range(4)}
    assert used == {"UNCOMPRESSED" if codec == "none" else codec.upper()}


def test_properties_are_set_at_creation_and_kept_true_later(tmp_path: Path) -> None:
    shop = WrittenShop(
        tmp_path, table="properties: {delta.logRetentionDuration: interval 30 days, owner: shop team}"
    )
    shop.read()
    first = dict(shop.delta().metadata().configuration)

    shop.write("rows: 1100", "properties: {delta.logRetentionDuration: interval 9 days}")
    shop.read()

    assert first == {"delta.logRetentionDuration": "interval 30 days", "owner": "shop team"}
    assert shop.delta().metadata().configuration == {
        "delta.logRetentionDuration": "interval 9 days",
        "owner": "shop team",
    }
    assert len(table_ids(shop.table)) == 1100


@on_spark
def test_small_batch_makes_one_file_and_a_large_one_keeps_both_cores_busy(tmp_path: Path) -> None:
    shop = WrittenShop(tmp_path, "rows: 2000, partitions: 4")
    shop.run()
    small = len(shop.files())

    shop.write("rows: 202000, partitions: 4")
    shop.run()

    assert small == 1
    # The first batch of a run is one task, as nothing is known about the size of events.
    assert len(shop.files()) == 1 + 1 + 2
    assert_each_once(range(202_000), table_ids(shop.table))


def test_statistics_are_in_the_log_and_hold_for_the_rows(tmp_path: Path) -> None:
    shop = WrittenShop(tmp_path)

    shop.read()

    (stats,) = [json.loads(action["add"]["stats"]) for action in shop.log(1) if "add" in action]
    rows = shop.delta().to_pyarrow_table().sort_by("event_id").to_pylist()
    prices = [row["price"] for row in rows]
    assert stats["numRecords"] == 1000
    assert stats["minValues"]["event_id"] == 0
    assert stats["maxValues"]["event_id"] == 999
    assert stats["minValues"]["event_time"] == "2026-01-01T00:00:00.000000Z"
    assert stats["maxValues"]["event_type"] == "view"
    assert stats["minValues"]["price"] == pytest.approx(float(min(prices)))
    assert stats["maxValues"]["price"] == pytest.approx(float(max(prices)))
    assert stats["nullCount"]["event_id"] == stats["nullCount"]["price"] == 0
    assert stats["nullCount"]["brand"] == sum(row["brand"] is None for row in rows)


@on_spark
def test_commit_tells_what_it_holds_and_where_it_ends(tmp_path: Path) -> None:
    shop = WrittenShop(tmp_path, "rows: 1000, partitions: 2, bad_ratio: 0.01")

    shop.run()

    created, committed = shop.accounts()
    assert created["kind"] == "create"
    assert {key: committed[key] for key in ("pipeline", "source", "kind", "rows")} == {
        "pipeline": "shop",
        "source": "clicks",
        "kind": "rows",
        "rows": 990,
    }
    read = committed["ranges"]
    assert {name: values[:3] for name, values in read.items()} == {"0": [0, 500, 500], "1": [0, 500, 500]}
    assert sum(values[3] for values in read.values()) == 10
    positions = shop.positions()
    assert (positions["shop/clicks/0"], positions["shop/clicks/1"]) == (499, 499)


@on_spark
def test_rows_and_dead_letters_add_up_over_batches_and_runs(tmp_path: Path) -> None:
    shop = WrittenShop(tmp_path, "rows: 5000, partitions: 3, bad_ratio: 0.05", more="flush: {rows: 700}")
    shop.run()
    shop.write("rows: 6000, partitions: 3, bad_ratio: 0.05", more="flush: {rows: 700}")

    shop.run()

    letters = dead_letters(shop.letters)
    dead = [letter["offset"] * 3 + letter["partition"] for letter in letters]
    assert len(dead) == 300
    assert_each_once(range(6000), table_ids(shop.table), dead)
    accounts = [commit_info for commit_info in shop.accounts() if commit_info["kind"] == "rows"]
    ranges = [values for commit_info in accounts for values in commit_info["ranges"].values()]
    assert sum(commit_info["rows"] for commit_info in accounts) == 5700
    assert sum(values[2] for values in ranges) == 6000
    assert sum(values[3] for values in ranges) == 300
    told = [count for one in shop.accounts(shop.letters) for count in one.get("dead_letters", {}).values()]
    assert sum(count[2] for count in told) == 300
    for before, after in pairwise(accounts):
        for name in before["ranges"].keys() & after["ranges"].keys():
            assert before["ranges"][name][1] == after["ranges"][name][0]


def test_table_with_another_partitioning_is_refused(tmp_path: Path) -> None:
    shop = WrittenShop(tmp_path)
    shop.read()

    shop.write("rows: 2000", "partition_by: [event_type]")
    with pytest.raises(TableError) as refused:
        shop.read()

    assert str(refused.value) == (
        f"table events: {shop.table} is partitioned by nothing, the pipeline file says ['event_type'].\n"
        "Change `partition_by` or choose another path."
    )
    assert len(table_ids(shop.table)) == 1000


def test_table_with_a_column_of_another_type_is_refused(tmp_path: Path) -> None:
    shop = WrittenShop(tmp_path)
    shop.read()

    shop.write("rows: 2000", "schema: {event_id: string}")
    with pytest.raises(TableError) as refused:
        shop.read()

    said = str(refused.value)
    assert said.startswith(
        f"table events: {shop.table}: column event_id is long in the table and string in the pipeline file.\n"
    )
    assert f"`lakefeed table replace {shop.table} --column 'event_id string' --yes`" in said
    assert said.endswith("Or declare `event_id: long`.")
    assert len(table_ids(shop.table)) == 1000


def test_missing_table_is_refused_where_create_is_false(tmp_path: Path) -> None:
    shop = WrittenShop(tmp_path, table="create: false")

    with pytest.raises(TableError) as refused:
        shop.read()

    assert str(refused.value) == (
        f"table events: there is no Delta table at {shop.table} and `create` is false.\n"
        "Create the table, correct `path`, or set `create: true`."
    )
    assert not shop.table.exists()


@on_spark
def test_table_that_cannot_be_written_stops_alone(tmp_path: Path) -> None:
    (tmp_path / "in_the_way").write_text("a file")
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate, rows: 1000}}}}
tables:
  broken: {{path: in_the_way/broken, from: clicks, schema: {SCHEMA}}}
  inferred: {{path: in_the_way/inferred, from: clicks}}
  events: {{path: events, from: clicks, schema: {SCHEMA}}}
dead_letters: {{path: letters}}
flush: {{rows: 300}}
give_up_after: 5s
"""
    )

    with pytest.raises(TableError) as refused:
        Pipeline.from_file(file).run(once=True)

    assert str(refused.value).startswith(
        f"{tmp_path / 'in_the_way' / 'broken'}: a part of this path is a file"
    )
    assert len(str(refused.value).splitlines()) <= 3
    assert_each_once(range(1000), table_ids(tmp_path / "events"))


def test_table_that_gets_no_rows_still_keeps_its_position(tmp_path: Path) -> None:
    shop = WrittenShop(tmp_path, "rows: 500, partitions: 2, bad_ratio: 1")
    shop.read()
    versions = assert_versions_contiguous(shop.table)
    letters = DeltaTable(shop.letters).version()

    shop.read()

    positions = shop.positions()
    assert (positions["shop/clicks/0"], positions["shop/clicks/1"]) == (249, 249)
    assert assert_versions_contiguous(shop.table) == versions
    assert DeltaTable(shop.letters).version() == letters
    assert len(dead_letters(shop.letters)) == 500
    assert [commit_info["kind"] for commit_info in shop.accounts()] == ["create", "position"]


@on_spark
def test_every_file_on_disk_is_in_the_log_when_the_schema_had_to_be_inferred(tmp_path: Path) -> None:
    shop = WrittenShop(tmp_path, "rows: 120000, bad_ratio: 0.001", "schema: {event_id: long not null}")

    shop.run()

    names = shop.delta().schema().to_arrow().names
    assert {"event_id", "event_time", "brand", "user_session"} <= set(names)
    assert files_on_disk(shop.table) == set(shop.files())
    assert files_on_disk(shop.letters) == set(relative_files(shop.letters))
    dead = [letter["offset"] for letter in dead_letters(shop.letters)]
    assert_each_once(range(120_000), table_ids(shop.table), dead)


def test_changed_generator_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    shop = WrittenShop(tmp_path, "rows: 100, seed: 1")
    shop.read()

    shop.write("rows: 200, seed: 2")
    with pytest.raises(SourceError, match="seed changed from 1 to 2"):
        shop.read()

    assert len(table_ids(shop.table)) == 100


@on_spark
@pytest.mark.parametrize("shuffle", ["false", "true"])
def test_rows_of_one_partition_value_meet_in_one_file_of_a_large_batch(tmp_path: Path, shuffle: str) -> None:
    table = f"partition_by: [event_type]\nshuffle_by_partition: {shuffle}\nfile_name: serial"
    shop = WrittenShop(tmp_path, "rows: 200000, partitions: 4", table, "flush: {rows: 200000, bytes: 1GB}")

    shop.run()

    # The first batch is one task, as nothing is known of the events yet; the second has one for each core.
    versions = range(shop.delta().version() + 1)
    most = max(sum("add" in action for action in shop.log(version)) for version in versions)
    assert most == 3 if shuffle == "true" else most > 3
    assert files_on_disk(shop.table) == set(shop.files())
    assert_each_once(range(200_000), table_ids(shop.table))
