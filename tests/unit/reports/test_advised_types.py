"""The `schema` that `plan` advises where events do not fit is taken by the file, and by the table."""

from __future__ import annotations

import io
import re
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from lakefeed import Pipeline
from lakefeed.columns.inferred import to_declare
from lakefeed.engine import inline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.plan import plan as planning
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reprocess.rebuild import rebuild
from lakefeed.text import yaml_mapping
from support.analyzing import analyze_by_hand
from support.landing import Landing


@pytest.fixture(autouse=True)
def _sql_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inline, "analyze_here", analyze_by_hand)
    monkeypatch.setattr(planning, "analyze_here", analyze_by_hand)


def parquet(**columns: pa.Array) -> bytes:
    out = io.BytesIO()
    pq.write_table(pa.table(columns), out)
    return out.getvalue()


def advice(landing: Landing) -> str:
    (told,) = plan_run(Pipeline.from_file(landing.file)).tables
    (warning,) = (text for text in told.warnings if "sampled" in text)
    return warning


def test_schema_for_what_select_reads_is_taken_with_the_command_that_makes_the_table_anew(
    tmp_path: Path,
) -> None:
    options = "select: [id, v AS w], evolve: {type_change: dead_letter}"
    landing = Landing(tmp_path, "format: parquet", options)
    landing.put("1.parquet", parquet(id=pa.array([1]), other=pa.array([1]), v=pa.array([7])))
    landing.run()
    price = pa.array([Decimal("1.25")], pa.decimal128(10, 2))
    landing.put("2.parquet", parquet(id=pa.array([2]), other=pa.array([1]), v=price))

    warning = advice(landing)

    assert warning.endswith(
        'to take them all, declare `schema: {id: long, v: "decimal(21,2)"}`, which changes the types that '
        f"the table has, and then run `lakefeed rebuild {landing.file} --table rows --yes`"
    )
    (schema,) = re.findall("`(schema: .*?)`", warning)
    landing.set("format: parquet", f"{options}, {schema}")
    rebuild(Pipeline.from_file(landing.file), "rows", run_inline)
    landing.run()
    assert landing.rows() == [{"id": 1, "w": Decimal("7.00")}, {"id": 2, "w": Decimal("1.25")}]


def test_column_of_the_events_is_not_taken_for_one_that_select_makes(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json", "select: [id, v AS w, w AS v]")
    landing.put("1.json", '{"id": 1, "v": 1, "w": "x"}')
    landing.run()
    landing.put("2.json", '{"id": 2, "v": "one", "w": "x"}')

    warning = advice(landing)

    assert "table replace" not in warning
    assert "declare `schema: {id: long, v: json, w: string}`, which changes" in warning


def test_numbers_with_a_decimal_comma_ask_for_the_option_and_not_for_text(tmp_path: Path) -> None:
    form = 'format: {type: csv, header: true, delimiter: ";"}'
    landing = Landing(tmp_path, form, "schema: {id: long, price: double}")
    landing.put("1.csv", "id;price\n1;0,25\n2;1,5\n")

    told = advice(landing)
    landing.set(form.replace("}", ', decimal: ","}'), "schema: {id: long, price: double}")
    landing.run()

    assert told == (
        "2 of 2 sampled events (100.0%) would become dead letters; set `decimal: ','` on the format if that "
        "is the decimal sign"
    )
    assert landing.rows("price") == [0.25, 1.5]


def test_mapping_of_yaml_is_read_as_it_was_written() -> None:
    types = {
        "id": "long",
        "US Gross": "decimal(10,2)",
        "on": "json",
        "a:b": "map<string, long>",
        "ü": "string",
    }
    types |= {"x": "struct<`a b`: long>", "1": "timestamp(ms)", "null": "double", "": "long not null"}

    assert yaml.safe_load(yaml_mapping(types)) == types
    assert yaml_mapping({"id": "long", "price": "decimal(10,2)"}) == '{id: long, price: "decimal(10,2)"}'


def test_all_columns_are_declared_beside_sql_which_knows_no_others() -> None:
    seen = pa.schema([("id", pa.int64()), ("price", pa.decimal128(10, 2)), ("v", pa.int64())])

    assert to_declare(seen, ["v: expected long, got x"]) == "{v: json}"
    assert to_declare(seen, ["v: x"], whole=True) == '{id: long, price: "decimal(10,2)", v: json}'
    assert to_declare(seen, [], whole=True) == ""
