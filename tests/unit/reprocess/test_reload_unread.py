"""Files that are corrected before a table has read them: their dead letters go with the former content."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.reports.verify import verify
from lakefeed.reprocess.files import reload, retry_or_forget
from lakefeed.reprocess.replay import replay
from support.forks import run_until_killed
from support.landing import Landing

BAD = '{"id": 1, "v": "a"\n{"id": 2, "v": "b"\n'
GOOD = '{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\nstill bad\n'
NAMED = "evolve: add, metadata: {_topic: _file}"


def correct(landing: Landing, how: str, name: str = "a.json") -> None:
    pipeline = Pipeline.from_file(landing.file)
    if how == "command":
        (plan,) = reload(pipeline, None, [name], who="me")
        assert [(one.rows, one.dead_letters) for one in plan.tables] == [(0, 2)]
    elif how == "retry":
        (retried,) = retry_or_forget(pipeline, None, [name], forget=False, who="me")
        assert retried.appended_to == []


def payloads(landing: Landing) -> list[bytes]:
    return sorted(letter["payload"] for letter in landing.letters())


def assert_proved(landing: Landing) -> None:
    for deep in (False, True):
        report = verify(Pipeline.from_file(landing.file), deep=deep)
        findings = [str(one) for table in (*report.tables, report.dead_letters) for one in table.findings]
        assert findings == [] and report.sound


@pytest.mark.parametrize("how", ["command", "retry", "reload", "fail", "ignore"])
def test_dead_letters_of_a_file_go_with_its_correction_before_a_table_exists(
    tmp_path: Path, how: str
) -> None:
    on_change = how if how in ("reload", "ignore") else "fail"
    landing = Landing(tmp_path, f"format: json, on_change: {on_change}", NAMED)
    landing.put("a.json", BAD, 1000)
    landing.put("z.json", "never good\n", 1000)
    landing.run()
    refused = len(landing.letters()), (tmp_path / "rows").exists()
    landing.put("a.json", GOOD, 2000)
    correct(landing, how)

    landing.run()
    replay(Pipeline.from_file(landing.file), DeadLetterFilter(), who="me")
    landing.run()

    assert refused == (3, False)
    assert landing.rows("id") == [1, 2]
    assert payloads(landing) == [b"never good", b"still bad"]
    assert_proved(landing)


def test_correction_that_is_refused_as_well_leaves_its_own_dead_letters_alone(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, on_change: reload", NAMED)
    landing.put("a.json", BAD, 1000)
    landing.run()
    landing.put("a.json", "worse\n", 2000)
    landing.run()
    refused = payloads(landing)
    landing.put("a.json", GOOD, 3000)

    landing.run()

    assert refused == [b"worse"]
    assert (landing.rows("id"), payloads(landing)) == ([1, 2], [b"still bad"])
    assert_proved(landing)


@pytest.mark.parametrize("mode", ["append", "history, keys: id, sequence_by: id", "deduplicate, keys: id"])
def test_correction_of_a_file_whose_rows_a_kill_has_kept_out_takes_its_dead_letters_along(
    tmp_path: Path, mode: str
) -> None:
    table = f"schema: {{id: long, v: string}}, metadata: {{_topic: _file}}, mode: {mode}"
    landing = Landing(tmp_path, "format: json, on_change: reload", table)
    landing.put("a.json", '{"id": 1, "v": "wrong"}\nbad\n', 1000)
    run_until_killed(landing.file, "letters_committed")
    killed = payloads(landing), DeltaTable(tmp_path / "rows").to_pyarrow_table().num_rows
    landing.put("a.json", GOOD, 2000)

    landing.run()

    assert killed == ([b"bad"], 0)
    assert landing.rows("v") == ["a", "b"]
    assert payloads(landing) == [b"still bad"]
    assert_proved(landing)


@pytest.mark.parametrize("point", ["letters_committed", "files_written", "table_committed"])
def test_kill_of_the_run_that_reads_the_correction_doubles_nothing(tmp_path: Path, point: str) -> None:
    landing = Landing(tmp_path, "format: json, on_change: reload", NAMED)
    landing.put("a.json", BAD, 1000)
    landing.run()
    landing.put("a.json", GOOD, 2000)

    run_until_killed(landing.file, point)
    landing.run()

    assert (landing.rows("id"), payloads(landing)) == ([1, 2], [b"still bad"])
    assert_proved(landing)


def test_file_that_cannot_be_read_leaves_the_dead_letters_of_its_former_content(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, on_change: reload", NAMED)
    landing.put("a.json.gz", gzip.compress(BAD.encode()), 1000)
    landing.run()
    landing.put("a.json.gz", gzip.compress(GOOD.encode())[:-9], 2000)

    landing.run()

    assert len(landing.letters()) == 3
    landing.put("a.json.gz", gzip.compress(GOOD.encode()), 3000)
    landing.run()
    assert (landing.rows("id"), payloads(landing)) == ([1, 2], [b"still bad"])
    assert_proved(landing)


@pytest.mark.parametrize("how", ["retry", "fail", "ignore"])
@pytest.mark.parametrize(
    "table",
    [
        "evolve: add",
        f"{NAMED}, mode: history, keys: id, sequence_by: id",
        f"{NAMED}, mode: deduplicate, keys: id",
    ],
)
def test_table_that_an_earlier_batch_has_created_takes_the_correction_of_a_file_without_rows(
    tmp_path: Path, table: str, how: str
) -> None:
    """No table has rows of the former content, so none has to be able to replace them."""
    on_change = "ignore" if how == "ignore" else "fail"
    landing = Landing(tmp_path, f"format: json, max_files: 1, on_change: {on_change}", table)
    landing.put("a.json", BAD, 1000)
    landing.run()
    landing.put("m.json", '{"id": 3, "v": "m"}\n', 1500)
    landing.put("a.json", GOOD, 2000)
    if how == "retry":
        retry_or_forget(Pipeline.from_file(landing.file), None, ["a.json"], forget=False, who="me")

    landing.run()

    assert landing.rows("id") == [1, 2, 3]
    assert payloads(landing) == [b"still bad"]
    assert_proved(landing)
