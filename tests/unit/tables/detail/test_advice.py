"""Advice: said when the statistics call for it, and not before."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from lakefeed.tables.data_files import add_actions
from lakefeed.tables.detail.advice import advice, read_share
from support.delta_tables import write_table


def test_share_of_files_that_a_filter_reads_is_one_when_all_overlap_and_small_when_none_do(
    tmp_path: Path,
) -> None:
    batches = [
        {"near": [at * 10, at * 10 + 9], "far": [0, 1000], "none": pa.nulls(2, pa.int64())}
        for at in range(10)
    ]
    actions = add_actions(write_table(tmp_path, batches).delta)

    assert read_share(actions, "near") == pytest.approx(0.1)
    assert read_share(actions, "far") == 1.0
    assert read_share(actions, "none") is None


def test_only_the_columns_worth_it_are_named_for_clustering(tmp_path: Path) -> None:
    batches = [{"near": [at * 10, at * 10 + 9], "far": [0, 1000]} for at in range(6)]
    table = write_table(tmp_path, batches)

    (said,) = advice(table, ["near", "far"])

    assert said.startswith("Of 6 files, a filter on one value of far reads 100%.")
    assert said.endswith("--z-order far --yes")
    assert advice(table, ["near"]) == []


def test_column_without_statistics_is_told(tmp_path: Path) -> None:
    batches = [{"a": [at], "b": [at]} for at in range(5)]
    table = write_table(tmp_path, batches, properties={"delta.dataSkippingNumIndexedCols": "1"})

    (said,) = advice(table, ["b"])

    assert said.startswith("The files have no statistics of b")


@pytest.mark.parametrize(
    ("properties", "told"),
    [
        (
            {"delta.deletedFileRetentionDuration": "interval 2 hours"},
            "is 2h: a query or a stream that",
        ),
        ({"delta.logRetentionDuration": "interval 2 days"}, "is 2d, but old files are kept for 7d"),
        ({"delta.setTransactionRetentionDuration": "interval 7 days"}, "lets positions expire"),
    ],
)
def test_retention_that_endangers_a_reader_is_told(
    properties: dict[str, str], told: str, tmp_path: Path
) -> None:
    table = write_table(tmp_path, [{"id": [1]}], properties=properties, positions="shop/clicks/0")

    (said,) = advice(table)

    assert told in said


def test_partitions_are_only_blamed_when_they_are_many_and_small(tmp_path: Path) -> None:
    few = write_table(tmp_path / "few", [{"id": [1, 2], "p": ["a", "b"]}], partition_by=["p"])
    many = write_table(
        tmp_path / "many",
        [{"id": list(range(40)), "p": [str(n) for n in range(40)], "q": ["x"] * 40}],
        partition_by=["q", "p"],
    )

    (said,) = advice(many)

    assert advice(few) == []
    assert said.startswith("Partitioned by q and p into 40 partitions of about")
    assert "p alone has 40 values: cluster by it instead." in said
    assert '--partition-by "q" --yes' in said


def test_long_log_without_a_checkpoint_is_told(tmp_path: Path) -> None:
    table = write_table(tmp_path, [{"id": [1]}], properties={"delta.checkpointInterval": "1000"})
    source = tmp_path / "_delta_log" / f"{0:020d}.json"
    for version in range(1, 201):
        (source.parent / f"{version:020d}.json").write_text('{"commitInfo":{"timestamp":1}}\n')

    (said,) = advice(table)

    assert said.startswith("The log has 201 entries since its last checkpoint")
