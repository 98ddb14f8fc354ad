"""`lakefeed table detail`: everything about a table, and advice where it is needed."""

from __future__ import annotations

import json
from pathlib import Path

from support.command_line import Lakefeed
from support.delta_tables import write_table


def test_detail_tells_everything_and_advises(run: Lakefeed, tmp_path: Path) -> None:
    path = tmp_path / "t"
    batches = [{"id": [number, 0, 1000], "day": [str(number), "x", "x"]} for number in range(30)]
    write_table(
        path,
        batches,
        partition_by=["day"],
        properties={"delta.deletedFileRetentionDuration": "interval 1 hours"},
        positions="shop/clicks/0",
    )

    code, out, said = run("detail", path, "--filters", "id")
    found = json.loads(run("detail", path, "--filters", "id", "--json")[1])

    assert (code, said) == (0, "")
    for text in (
        "version 29",
        "60 files",
        "90 rows; 60 small (target 128 MB)",
        "protocol: reader 1, writer 2",
        "owner: pipeline shop, source clicks",
        "id: long",
        "delta.deletedFileRetentionDuration = interval 1 hours",
        "partitions by day (31, the largest):",
        "day=x: 30 files",
        "delta.deletedFileRetentionDuration is 1h: a query or a stream that takes longer finds its files",
        "Partitioned by day into 31 partitions",
        "30 of 60 files are small (below 64 MB) and would become 1.",
        "a filter on one value of id reads",
    ):
        assert text in out, text
    assert found["positions"] == {"shop/clicks/0": 29}
    assert len(found["advice"]) == 4


def test_table_in_good_shape_gets_no_advice(run: Lakefeed, tmp_path: Path) -> None:
    write_table(tmp_path, [{"id": [1]}])

    assert "advice:\n  none: the table is in good shape\n" in run("detail", tmp_path)[1]
