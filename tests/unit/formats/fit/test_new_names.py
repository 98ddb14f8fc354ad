"""Names of new fields that no column may have: the event is a dead letter, and the table is not changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed import Pipeline
from lakefeed.columns.column_types import declared_schema
from lakefeed.columns.names import column_name_problem
from lakefeed.formats import Rules
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.json.format import JsonFormat
from lakefeed.formats.json.strict import StrictReader
from lakefeed.testing import Sample, run_samples

ID = declared_schema({"id": "long"})
BAD = [
    "a\0b",
    "\0",
    "",
    " ",
    "a,b",
    "a;b",
    "a{b",
    "a(b",
    "a=b",
    "a\nb",
    "a\tb",
    "x" * 256,
    "é" * 128,
    "x" * 10**6,
]
GOOD = ["x" * 255, "é" * 127, "a.b", "a`b", 'a"b', "a/b", "a%b", "日本", "a\x01b"]


@pytest.mark.parametrize("name", BAD)
def test_a_name_that_no_column_may_have_refuses_its_event_alone(name: str) -> None:
    for value in (2, {name: 2}):
        payloads = [{"id": 1}, {"id": 2, name if value == 2 else "new": value}, *[{"id": 3, "ok": 1}] * 40]

        found = JsonFormat().decoder(ID).decode([json.dumps(each).encode() for each in payloads])

        assert [(one.index, one.code) for one in found.refused] == [(1, "bad_name")]
        assert [len(one.error) < 400 for one in found.refused] == [True]
        assert found.unknown is not None
        assert found.unknown.names == ["ok"]


@pytest.mark.parametrize("name", GOOD)
def test_other_names_are_proposed(name: str) -> None:
    found = JsonFormat().decoder(ID).decode([json.dumps({"id": 1, name: 1}).encode()])

    assert found.unknown is not None
    assert (found.unknown.names, found.refused) == ([name], [])


def test_half_a_surrogate_pair_is_no_name() -> None:
    found = JsonFormat().decoder(ID).decode([b'{"id": 1, "a\\ud800": 1}', b'{"id": 1, "b": {"\\udc00": 1}}'])

    assert [one.code for one in found.refused] == ["bad_json", "bad_json"]


@settings(deadline=None)
@given(st.lists(st.text(st.sampled_from("aAb \0=.é"), max_size=3), min_size=1, max_size=4), st.booleans())
def test_both_paths_agree_about_names(names: list[str], inside: bool) -> None:
    fields = dict.fromkeys(names, 1)
    payload = json.dumps({"new": fields} if inside else fields).encode()

    fast = JsonFormat().decoder(ID).decode([payload, b'{"id": 1}', b'{"z": 1}'])
    strict = StrictReader(ID).read([payload], [0])

    assert [one for one in fast.refused if one.index == 0] == strict.refused
    assert not [field.name for field in fast.unknown or () if column_name_problem(field.name)]


EVENTS: list[dict[str, Any]] = [
    {"id": 1, "at": "2026-11-15T10:00:00Z"},
    {"id": 2, "a\0b": 2},
    {"id": 3, "n": {"a\0b": 2}},
    {"id": 4, "x" * 10**6: 2},
    {"id": 5, "deep": json.loads('{"o":' * 45 + "1" + "}" * 45)},
    {"id": 6, "deep": json.loads("[" * 600 + "1" + "]" * 600)},
    {"id": 7, "_offset": 3},
    {"id": 8, "_Topic": "x"},
    {"id": 9, "at_day": "2026-11-15", "at": "2026-11-15T10:00:00Z"},
    {"id": 10, "ID": 3},
    {"id": 11, "fine": "x", "at": "2026-11-15T10:00:00Z"},
]
CODES = ["bad_name"] * 3 + ["too_deep"] * 2 + ["bad_name"] * 4


@pytest.mark.parametrize("schema", ["", "schema: {id: long, at: timestamp}"])
def test_a_run_ends_with_each_such_event_as_a_dead_letter(schema: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: kafka, brokers: "localhost:1", topics: [clicks], format: json}}
tables:
  events:
    path: lake/events
    from: clicks
    metadata: true
    partition_by: [day(at)]
    {schema}
"""
    )
    samples = [Sample.model_validate({"text": json.dumps(event)}) for event in EVENTS]

    landed = run_samples(Pipeline.from_file(file), {"clicks": samples}, tmp_path / "run")

    letters = sorted(landed.dead_letters("events"), key=lambda letter: letter["offset"])
    assert [(letter["offset"], letter["code"]) for letter in letters] == list(enumerate(CODES, start=1))
    assert sorted(row["id"] for row in landed.rows("events")) == [1, 11]
    table = DeltaTable(str(tmp_path / "run" / "tables" / "events"))
    assert table.version() <= 3
    assert "fine" in pa.schema(table.schema().to_arrow()).names


def test_rules_that_do_not_add_take_every_name() -> None:
    payload = b'{"id": 1, "a\\u0000b": 2, "%s": 3}' % (b"x" * 300)

    ignored = JsonFormat().decoder(ID, Rules("ignore")).decode([payload])
    rescued = JsonFormat().decoder(ID, Rules("rescue")).decode([payload])

    assert ignored.rows.to_pylist() == rescued.rows.to_pylist() == [{"id": 1}]
    assert rescued.rescued is not None
    assert json.loads(rescued.rescued[0].as_py()) == {"a\0b": 2, "x" * 300: 3}


@pytest.mark.parametrize("name", ["bad name", "A"])
def test_a_bad_name_in_a_list_that_is_rescued_refuses_its_event_in_every_format(name: str) -> None:
    schema = declared_schema({"items": "array<struct<a: long>>"})
    row = {"items": [{"a": "no number", name: 1}]}
    rules = Rules("add", "rescue")

    from_json = JsonFormat().decoder(schema, rules).decode([json.dumps(row).encode()])
    typed = Fitter(schema, rules).fit(pa.array([row]))

    assert from_json.refused == typed.refused
    assert [one.code for one in typed.refused] == ["bad_name"]
    assert from_json.unknown is None
