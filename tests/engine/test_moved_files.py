"""A copied folder stops the run of its source, the other source goes on, and `--yes` reads the copy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from support.command_line import in_process
from support.ledger import table_ids


@pytest.mark.usefixtures("spark")
def test_copied_folder_stops_its_source_alone_until_the_command_says_yes(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = in_process(capsys, monkeypatch, "run")
    for name in ("old", "other"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.json").write_text('{"event_id": 1}\n')
    file = tmp_path / "shop.yaml"

    def write(path: str) -> None:
        file.write_text(
            f"""\
name: shop
sources:
  drops: {{type: files, path: {path}, format: json, settle: 1ms}}
  more: {{type: files, path: other, format: json, settle: 1ms}}
tables:
  rows: {{path: rows, from: drops, schema: {{event_id: long}}}}
  others: {{path: others, from: more, schema: {{event_id: long}}}}
"""
        )

    write("old")
    run_inline(Pipeline.from_file(file))
    shutil.copytree(tmp_path / "old", tmp_path / "new", copy_function=shutil.copyfile)
    (tmp_path / "other" / "2.json").write_text('{"event_id": 2}\n')
    write("new")

    code, _, told = run(file, "--once")
    stopped = table_ids(tmp_path / "rows"), sorted(table_ids(tmp_path / "others"))
    again, _, _ = run(file, "--once", "--yes")

    assert code == 1
    assert f"start once with: lakefeed run {file} --yes" in told
    assert stopped == ([1], [1, 2])
    assert again == 0
    assert table_ids(tmp_path / "rows") == [1, 1]
