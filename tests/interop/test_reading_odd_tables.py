"""Shallow clones, variants and widened types as sources, and what is left to Spark's own reader of Delta."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, SourceError
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from support.jars import delta_jars
from support.lakefeed import run
from support.odd_tables import answer, unpack


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return unpack(tmp_path_factory.mktemp("odd"))


def write(folder: Path, source: str) -> Path:
    file = folder / "copy.yaml"
    jars = ",".join(map(str, delta_jars()))
    file.write_text(
        f"""\
name: copy
sources: {{theirs: {{{source}}}}}
tables: {{ours: {{path: ours, from: theirs}}}}
spark: {{conf: {{spark.jars: "{jars}"}}}}
"""
    )
    return file


def copied(folder: Path, source: str, key: str = "id") -> list[dict[str, Any]]:
    """What a table gets from a source, in the order of a column."""
    pipeline = Pipeline.from_file(write(folder, source))
    run_inline(pipeline)
    assert verify(pipeline).sound
    return in_order(DeltaTable(folder / "ours").to_pyarrow_table(), key)


def in_order(table: pa.Table, key: str = "id") -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = table.sort_by(key).to_pylist()
    return rows


@pytest.mark.parametrize("start", ["earliest", "{version: 0}"])
def test_a_shallow_clone_is_read_with_the_files_and_vectors_of_its_origin(
    odd: Path, tmp_path: Path, start: str
) -> None:
    rows = copied(tmp_path, f"type: delta, path: {odd}/clone, start: {start}")

    own = [(number, "own") for number in range(10, 15)]
    theirs = [(number, f"ü %2{number % 2}") for number in range(10) if number != 5]
    assert [(row["id"], row["day"]) for row in rows] == theirs + own


def test_a_variant_is_the_json_that_spark_makes_of_it(odd: Path, tmp_path: Path) -> None:
    rows = copied(tmp_path, f"type: delta, path: {odd}/variants")

    texts = in_order(DeltaTable(odd / "texts").to_pyarrow_table())
    assert [(row["id"], value(row["v"]), row["s"]["inner"][0]) for row in rows] == [
        (text["id"], value(text["v"]), text["inner"]) for text in texts
    ]
    assert rows[0]["v"] == texts[0]["v"] and "ü" in rows[0]["v"]


def value(text: str | None) -> Any:
    """What JSON says, to the last digit."""
    return text and json.loads(text, parse_float=Decimal)


def test_older_files_of_widened_columns_have_the_wider_type(odd: Path, tmp_path: Path) -> None:
    rows = copied(tmp_path, f"type: delta, path: {odd}/widened", "a")

    theirs = in_order(answer(odd), "a")
    assert [row.pop("c").replace(tzinfo=None) for row in rows] == [row.pop("c") for row in theirs]
    assert rows == theirs


@pytest.mark.timeout(600)
def test_a_feature_that_only_spark_knows_is_refused_by_name_and_spark_reads_the_table_as_the_message_says(
    odd: Path, tmp_path: Path
) -> None:
    with pytest.raises(SourceError) as told:
        run_inline(Pipeline.from_file(write(tmp_path, f"type: delta, path: {odd}/shredded")))
    source = f"type: spark, format: delta, options: {{path: {odd}/shredded}}"
    assert "version 0 of the table asks its readers for variantShredding" in str(told.value)
    assert f"{{{source}}}" in str(told.value)

    file = write(tmp_path, source)
    code, _, said = run("run", str(file), "--once", timeout=500)

    assert code == 0, said
    rows = in_order(DeltaTable(tmp_path / "ours").to_pyarrow_table())
    assert [(row["id"], value(row["v"])) for row in rows] == [(one, {"a": one}) for one in range(10)]
    assert verify(Pipeline.from_file(file)).sound
