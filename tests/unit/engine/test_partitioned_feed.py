"""Values of partition columns that a table cannot hold are dead letters; every engine reads the others."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from lakefeed.testing import Sample, run_samples
from support.delta_tables import rows

PIPELINE = """\
name: shop
sources: {clicks: {type: generate, format: json}}
tables:
  clicks: {path: clicks, from: clicks, schema: {id: long, country: string not null}, partition_by: [country]}
  plain: {path: plain, from: clicks, schema: {id: long, country: string}, partition_by: [country]}
"""
TOO_LONG = (
    "country: expected a text that fits the name of a directory, 255 bytes with that of the column and with "
    "special characters as %XX, got"
)


def test_empty_and_overlong_partition_values_do_not_make_a_table_unreadable(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(PIPELINE)
    values = ["DE", "", "世" * 29, "世" * 82, "世" * 83, "x" * 300]
    samples = [Sample(json={"id": number, "country": value}) for number, value in enumerate(values)]

    landed = run_samples(tmp_path / "shop.yaml", {"clicks": samples}, tmp_path / "run")

    letters = [
        (one["table"], one["offset"], one["stage"], one["code"], one["error"])
        for table in ("clicks", "plain")
        for one in landed.dead_letters(table)
    ]
    empty = "country: expected string not null, got the empty text, which is null in a partition column"
    assert sorted(letters) == [
        ("clicks", 1, "schema", "missing_value", empty),
        ("clicks", 4, "write", "bad_partition", f"{TOO_LONG} 257 bytes"),
        ("clicks", 5, "write", "bad_partition", f"{TOO_LONG} 308 bytes"),
        ("plain", 4, "write", "bad_partition", f"{TOO_LONG} 257 bytes"),
        ("plain", 5, "write", "bad_partition", f"{TOO_LONG} 308 bytes"),
    ]
    for table, there in (("clicks", [0, 2, 3]), ("plain", [0, 1, 2, 3])):
        expected = [{"id": number, "country": values[number] or None} for number in there]
        assert pl.read_delta(str(landed.path(table))).sort("id").to_dicts() == expected
        texts = [repr([("country", one["country"]), ("id", one["id"])]) for one in expected]
        assert rows(landed.path(table)) == sorted(texts)
