"""Files that were read under two names of a source or a pipeline are reported, and rewound as printed."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.reports.verify import verify
from support.command_line import in_process
from support.landing import Landing

TABLE = "schema: {id: long}"


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    landing = Landing(tmp_path, table=TABLE)
    landing.put("a.json", '{"id": 1}\n{"id": 2}\n', at=1)
    landing.put("b/c.json", '{"id": 3}\n', at=2)
    return landing


def renamed(landing: Landing, kind: str, *, shared: bool) -> None:
    landing.set("format: json", TABLE + (", share: true" if shared else ""))
    text = landing.file.read_text()
    text = text.replace("drops", "other") if kind == "source" else text.replace("name: shop", "name: other")
    landing.file.write_text(text)


def findings(landing: Landing) -> list[str]:
    (table,) = verify(Pipeline.from_file(landing.file)).tables
    return [str(one) for one in table.findings]


@pytest.mark.parametrize("kind", ["source", "pipeline"])
def test_second_copy_under_another_name_is_found_and_rewound(
    landing: Landing, kind: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lakefeed = in_process(capsys, monkeypatch)
    landing.run()
    renamed(landing, kind, shared=True)
    landing.run()
    landing.put("new.json", '{"id": 4}\n', at=3)
    landing.run()
    (noted,) = verify(Pipeline.from_file(landing.file)).tables
    renamed(landing, kind, shared=False)

    (found,) = findings(landing)

    assert landing.rows("id") == [1, 1, 2, 2, 3, 3, 4]
    who = "sources drops and other of pipeline shop" if kind == "source" else "pipelines shop and other"
    back = "name the source `drops` again" if kind == "source" else "set `name: shop` again"
    text, _, remedy = found.partition("\n")
    assert text.endswith(
        f"{who} both feed the table from the same files: 2 files with 3 records there twice, "
        f"such as {landing.into}/a.json."
    )
    assert any("2 files with 3 records" in note and "share: true" in note for note in noted.notes)
    command = f"lakefeed rewind {landing.file} --table rows --to-version 1 --yes"
    assert remedy == (
        f"To take the second copy out, stop the run, {back}, and type: {command}\n"
        "If both are meant to feed the table, set `share: true` on it."
    )
    landing.set("format: json", TABLE)
    assert lakefeed(*shlex.split(command)[1:])[0] == 0
    landing.run()
    assert landing.rows("id") == [1, 2, 3, 4]
    assert findings(landing) == []
    assert landing.is_sound


def test_other_files_of_another_pipeline_are_no_second_copy(landing: Landing, tmp_path: Path) -> None:
    landing.run()
    landing.put("../more/d.json", '{"id": 9}\n', at=1)
    landing.set("format: json", TABLE + ", share: true", path="more")
    landing.file.write_text(landing.file.read_text().replace("name: shop", "name: other"))
    landing.run()
    landing.file.write_text(landing.file.read_text().replace(", share: true", ""))

    assert landing.rows("id") == [1, 2, 3, 9]
    assert findings(landing) == []


def test_second_copy_without_the_other_ledger_is_no_verdict(landing: Landing) -> None:
    landing.run()
    renamed(landing, "source", shared=True)
    landing.run()
    renamed(landing, "source", shared=False)
    shutil.rmtree(landing.folder / "shop_drops_files")

    (table,) = verify(Pipeline.from_file(landing.file)).tables

    assert table.findings == []
    assert (
        "sources drops and other of pipeline shop both feed the table; whether from the same events cannot "
        "be told" in table.notes
    )
