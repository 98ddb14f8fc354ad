"""Tables whose columns nobody declared: what most of the events hold decides, in a run without Spark."""

from __future__ import annotations

import datetime as dt
import re
import shlex
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakefeed import Pipeline
from lakefeed.columns.column_types import type_text
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.test_file import Case
from lakefeed.reports.plan.plan import PlannedTable, plan_run
from lakefeed.testing import Landed, Sample, check, run_samples
from lakefeed.testing.landed import _moved
from support.command_line import Lakefeed

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


def test_objects_that_are_empty_arrays_now_and_then_make_a_struct_and_no_dead_letters(tmp_path: Path) -> None:
    events: list[Any] = [{"id": n, "meta": {"tag": f"t{n}"} if n % 2 else []} for n in range(100)]
    events += [{"id": 100, "meta": ["x"]}]

    landed = land(tmp_path, events)

    assert types(landed) == {"id": "long", "meta": "struct<tag: string>"}
    rows = {row["id"]: row["meta"] for row in landed.rows("orders")}
    assert rows == {n: {"tag": f"t{n}" if n % 2 else None} for n in range(100)}
    (letter,) = landed.dead_letters("orders")
    assert letter["error"] == 'meta: expected struct<tag: string>, got ["x"]'


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
    handle = Tables(pipeline.model_copy(update={"tables": {"orders": moved}})).handles["orders"]
    handle.look()
    columns = handle.columns()
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

    (tmp_path / "shop.yaml").write_text(text)
    case = Case(events={"orders": [Sample(json=one) for one in events]}, tables={"orders/a": {"rows": []}})
    pipeline = Pipeline.from_file(tmp_path / "shop.yaml").model_copy(update={"tests": {"case": case}})
    (verdict,) = check(pipeline)
    landed = land(tmp_path, events, text)

    assert verdict.columns["orders"][1] == "v     json    40 numbers, 20 strings -> each as its JSON text"
    assert landed.dead_letters("orders") == []
    assert len(landed.rows("orders/a")) == len(landed.rows("orders/b")) == 30
    schema = DeltaTable(landed.path("orders/a")).schema().to_json()
    assert '"lakefeed.type":"json"' in schema


def test_plan_shows_what_was_seen_and_foresees_what_a_run_refuses(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(ORDERS)
    events = [{"id": n, "total": "n/a" if n % 50 == 0 else n + 0.25, "o": {"v": n}} for n in range(300)]
    pipeline = Pipeline.from_file(tmp_path / "shop.yaml")
    moved = _moved(pipeline, {"orders": [Sample(json=one) for one in events]}, tmp_path / "run")

    (told,) = plan_run(moved).tables

    assert told.columns == ["id long", "total double", "o struct<v: long>"]
    assert told.seen == [
        "id     long    300 numbers",
        "total  double  294 numbers, 6 strings -> those 6 become dead letters",
        "o      struct  300 objects",
        "o.v    long    300 numbers",
    ]
    assert told.sampled_dead_letters == {"wrong_type": 6}
    assert told.warnings == []


def test_plan_warns_loudly_when_inferred_columns_refuse_a_tenth_of_the_events(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(ORDERS)
    events = [
        {"id": n, **{name: "x" if n % 25 == at else n for at, name in enumerate("abc")}} for n in range(100)
    ]
    pipeline = Pipeline.from_file(tmp_path / "shop.yaml")
    moved = _moved(pipeline, {"orders": [Sample(json=one) for one in events]}, tmp_path / "run")

    (told,) = plan_run(moved).tables

    assert told.warnings == [
        "12 of 100 sampled events (12.0%) would become dead letters; to take them all, declare "
        "`schema: {a: json, b: json, c: json}`"
    ]


def waiting(folder: Path, have: pa.Table, events: list[Any], text: str = ORDERS) -> PlannedTable:
    """What is foretold for a table that has these rows."""
    (folder / "shop.yaml").write_text(text)
    pipeline = Pipeline.from_file(folder / "shop.yaml")
    moved = _moved(pipeline, {"orders": [Sample(json=one) for one in events]}, folder / "run")
    write_deltalake(Tables(moved).handles["orders"].path, have)
    (told,) = plan_run(moved).tables
    return told


HAVE = pa.table({"id": [1], "customer": [{"name": "Ada"}]})


def test_plan_names_the_field_that_is_new_and_says_how_a_column_of_the_table_becomes_json(
    tmp_path: Path,
) -> None:
    odd = {2: "x", 3: {"name": "Ada", "vip": 1.5}}
    events = [
        {"id": "wrong" if n >= 80 else n, "customer": odd.get(n % 10, {"name": "Ada", "vip": True})}
        for n in range(100)
    ]

    told = waiting(tmp_path, HAVE, events)

    (warning,) = (text for text in told.warnings if "sampled" in text)
    assert told.columns == ["customer.vip json"]
    assert "declare" not in warning
    assert warning.startswith(
        "28 of 100 sampled events (28.0%) would become dead letters; to take them all, stop the pipeline "
        "and run `lakefeed table replace "
    )
    assert warning.endswith("/orders --column 'id json' --column 'customer json' --yes`")


def test_plan_advises_the_types_of_all_columns_at_once_and_the_advice_works(
    tmp_path: Path, lakefeed: Lakefeed
) -> None:
    have = pa.table({"id": [1], "a": [1], "b": [1], "seen": [dt.datetime(2026, 1, 1, tzinfo=dt.UTC)]})
    seen = "2026-01-01T00:00:00Z"
    events = [
        {"id": n, "a": "x" if n % 2 else n, "b": n + 0.5, "seen": "soon" if n % 5 else seen}
        for n in range(100)
    ]

    (tmp_path / "shop.yaml").write_text(ORDERS)
    pipeline = Pipeline.from_file(tmp_path / "shop.yaml")
    moved = _moved(pipeline, {"orders": [Sample(json=one) for one in events]}, tmp_path / "run")
    write_deltalake(Tables(moved).handles["orders"].path, have)
    (told,) = plan_run(moved).tables
    (warning,) = (text for text in told.warnings if "sampled" in text)
    command = re.search(r"`lakefeed (table replace .*)`", warning)
    assert warning.startswith("90 of 100 sampled events (90.0%) would become dead letters; to take them all")
    assert command
    assert told.widened[0].startswith("column b: long -> double; ")
    assert command[1].endswith(" --column 'a json' --column 'seen string' --yes")
    assert lakefeed(*shlex.split(command[1]))[0] == 0
    (changed,) = plan_run(moved).tables
    assert changed.sampled_dead_letters == {}


def test_json_that_is_declared_for_a_struct_of_the_table_tells_the_command(tmp_path: Path) -> None:
    declared = ORDERS.replace("from: orders}", "from: orders, schema: {customer: json}}")

    told = waiting(tmp_path, HAVE, [], declared)

    assert told.refused is not None
    assert "is struct<name: string> in the table and json in the pipeline file" in told.refused
    assert "--column 'customer json' --yes`" in told.refused


values = st.sampled_from([1, 2.5, "x", "2026-11-15T10:00:00Z", True, None, [], [1], ["x", 1], {"a": 1}])


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.tuples(values, values, st.integers(1, 30)), min_size=1, max_size=5))
def test_plan_test_and_run_infer_the_same(parts: list[tuple[Any, Any, int]]) -> None:
    events = [{"id": 1, "v": v, "o": {"w": w}} for v, w, count in parts for _ in range(count)]
    samples = {"orders": [Sample(json=event, partition=n % 3) for n, event in enumerate(events)]}
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "shop.yaml").write_text(ORDERS)
        pipeline = Pipeline.from_file(Path(folder) / "shop.yaml")
        (planned,) = plan_run(_moved(pipeline, samples, Path(folder) / "plan")).tables
        landed = run_samples(pipeline, samples, Path(folder) / "run")
        case = Case(events=samples, tables={"orders": {"rows": []}})
        (verdict,) = check(pipeline.model_copy(update={"tests": {"case": case}}))

        assert verdict.columns["orders"] == planned.seen
        made = {name: kind.replace("string", "json") for name, kind in types(landed).items()}
        assert [column.replace("string", "json") for column in planned.columns] == [
            f"{name} {kind}" for name, kind in made.items()
        ]
        assert sum(planned.sampled_dead_letters.values()) == len(landed.dead_letters("orders"))
