from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from lakefeed import Pipeline, UsageError
from lakefeed.pipeline.table import Table
from lakefeed.sources.generate.source import GenerateSource
from support.landing import Landing


def test_run_hands_over_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        "lakefeed.run.run",
        lambda pipeline, once, master, **_: calls.append((pipeline, once, master)),
    )
    pipeline = Pipeline(
        name="shop",
        sources={"clicks": GenerateSource(rows=1)},
        tables={"clicks": Table(path="/lake/clicks", from_=("clicks",))},
    )

    pipeline.run(once=True, master="local[1]")

    assert calls == [(pipeline, True, "local[1]")]


def test_commands_are_methods_with_typed_results(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json", "schema: {id: long}")
    landing.put("a.json", '{"id": 1}\n{"id": "x"}\n')
    pipeline = Pipeline.from_file(landing.file)

    planned = pipeline.plan()
    landing.run()
    status, proof = pipeline.status(), pipeline.verify(deep=True)
    landing.set("format: json", "drop: [id]")
    shown = Pipeline.from_file(landing.file).replay(table="rows", dry_run=True)

    assert [(table.name, table.action) for table in planned.tables] == [("rows", "create")]
    assert [(table.rows, table.lag) for table in status.tables] == [(1, 0)]
    assert proof.sound and proof.tables[0].findings == []
    assert [(table.table, table.rows) for table in shown] == [("rows", 1)]
    assert landing.letters() != []


def test_dead_letters_are_chosen_by_keywords_and_an_unknown_table_is_refused(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json", "schema: {id: long}")
    landing.put("a.json", '{"id": "x"}\n{"id": 1}\n{"id"\n')
    landing.run()
    landing.set("format: json", "drop: [id]")
    codes = [letter["code"] for letter in landing.letters()]
    pipeline = Pipeline.from_file(landing.file)

    (tables,) = pipeline.replay(code="wrong_type")

    assert codes == ["wrong_type", "bad_json"]
    assert tables.rows == 1
    assert [letter["code"] for letter in landing.letters()] == ["bad_json"]
    with pytest.raises(UsageError, match="there is no table 'row', did you mean 'rows'"):
        pipeline.replay(table="row")


def test_a_table_is_rewound_by_a_method(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("a.json", '{"id": 1}\n')
    landing.run()
    landing.put("b.json", '{"id": 2}\n')
    landing.run()
    pipeline = Pipeline.from_file(landing.file)

    pipeline.rewind("rows", to_version=1)
    after = landing.rows("id")
    landing.run()

    assert (after, landing.rows("id")) == ([1], [1, 2])
    with pytest.raises(UsageError, match="give either to_version or to_time"):
        pipeline.rewind("rows")


def test_tests_of_a_pipeline_and_of_the_file_next_to_it_give_verdicts(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources: {clicks: {type: generate}}
tables: {clicks: {path: clicks, from: clicks, schema: {id: long}}}
"""
    )
    (tmp_path / "shop.test.yaml").write_text(
        """\
tests:
  good: {events: {clicks: [{json: {id: 1}}]}, tables: {clicks: {rows: [{id: 1}]}}}
  bad: {events: {clicks: [{json: {id: 1}}]}, tables: {clicks: {rows: [{id: 2}]}}}
"""
    )

    verdicts = Pipeline.from_file(file).test()

    assert [(verdict.name, verdict.passed) for verdict in verdicts] == [("good", True), ("bad", False)]
