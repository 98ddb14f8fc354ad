"""Tables whose columns nobody declared: what most of the events hold decides, in a run without Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.lake import Lake
from lakefeed.pipeline.types import type_text
from lakefeed.testing import Landed, Sample, run_samples

ORDERS = """\
name: shop
sources:
  orders: {type: kafka, brokers: "localhost:9", topics: [orders], format: json}
tables:
  orders: {path: lake/orders, from: orders}
"""


def land(folder: Path, events: list[Any], text: str = ORDERS) -> Landed:
    file = folder / "shop.yaml"
    file.write_text(text)
    samples = [Sample(json=event, partition=n % 3) for n, event in enumerate(events)]
    return run_samples(file, {"orders": samples}, folder / "run")


def types(landed: Landed) -> dict[str, str]:
    schema = pa.schema(DeltaTable(landed.path("orders")).schema().to_arrow())
    return {field.name: type_text(field.type) for field in schema}


def test_a_few_odd_values_become_dead_letters_and_the_others_rows(tmp_path: Path) -> None:
    events = [{"id": n, "total": "n/a" if n % 50 == 0 else n + 0.25} for n in range(2_000)]

    landed = land(tmp_path, events)

    assert types(landed) == {"id": "long", "total": "double"}
    assert len(landed.rows("orders")) == 1_960
    assert {letter["code"] for letter in landed.dead_letters("orders")} == {"wrong_type"}
    assert len(landed.dead_letters("orders")) == 40


def test_a_column_of_mixed_types_takes_every_value_and_remembers_so(tmp_path: Path) -> None:
    values = [1, "n/a", 2.5, True, {"a": [1]}, None, [1, "x"]]
    events = [{"id": n, "v": value, "o": {"w": value}, "l": [value]} for n, value in enumerate(values)]

    landed = land(tmp_path, events)

    assert types(landed) == {"id": "long", "v": "string", "o": "struct<w: string>", "l": "array<string>"}
    assert landed.dead_letters("orders") == []
    rows = {row["id"]: row for row in landed.rows("orders")}
    texts = ["1", "n/a", "2.5", "true", '{"a":[1]}', None, '[1,"x"]']
    assert [rows[n]["v"] for n in range(7)] == texts
    assert [rows[n]["o"] and rows[n]["o"]["w"] for n in range(7) if n != 5] == [one for one in texts if one]
    assert [rows[n]["l"] for n in range(7) if n != 5] == [[one] for one in texts if one]

    pipeline = Pipeline.from_file(tmp_path / "shop.yaml")
    moved = pipeline.tables["orders"].model_copy(update={"path": landed.path("orders")})
    place = Lake(pipeline.model_copy(update={"tables": {"orders": moved}})).places["orders"]
    place.look()
    columns = place.columns()
    assert columns is not None
    assert {field.name: type_text(field.type) for field in columns} == {
        **{"id": "long", "v": "json"},
        **{"o": "struct<w: json>", "l": "array<json>"},
    }


def test_a_mixed_column_that_comes_later_is_added_by_the_same_rule(tmp_path: Path) -> None:
    table = "  orders: {path: lake/orders, from: orders, schema: {id: long, o: 'struct<a: long>'}}"
    text = ORDERS.replace("  orders: {path: lake/orders, from: orders}", table)
    events = [{"id": n, "new": n if n % 2 else "x", "o": {"a": 1, "b": [n, "x"]}} for n in range(40)]

    landed = land(tmp_path, events, text)

    assert types(landed) == {"id": "long", "o": "struct<a: long, b: array<string>>", "new": "string"}
    assert landed.dead_letters("orders") == []
    assert {row["new"] for row in landed.rows("orders")} == {"x", *(str(n) for n in range(40) if n % 2)}


def test_tables_of_a_route_take_mixed_values_too(tmp_path: Path) -> None:
    table = '  orders: {route: "lake/{kind}", from: orders}'
    text = ORDERS.replace("  orders: {path: lake/orders, from: orders}", table)
    events = [{"kind": "ab"[n % 2], "v": n if n % 3 else "x"} for n in range(60)]

    landed = land(tmp_path, events, text)

    assert landed.dead_letters("orders") == []
    assert len(landed.rows("orders/a")) == len(landed.rows("orders/b")) == 30
    schema = DeltaTable(landed.path("orders/a")).schema().to_json()
    assert '"lakefeed.type":"json"' in schema
