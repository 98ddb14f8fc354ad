"""`lakefeed table history` and `files`: who, why, how many rows, and how large."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.commands.output import operator
from lakefeed.engine.inline import run_inline
from support.command_line import Lakefeed
from support.delta_tables import small_files, write_table


def test_history_and_files_tell_who_why_and_how_large(run: Lakefeed, tmp_path: Path) -> None:
    path = small_files(tmp_path)
    run("optimize", path, "--where", "day = '2026-11-01'", "--yes", "--reason", "too many")

    _, versions, _ = run("history", path, "--limit", "2")
    _, files, _ = run("files", path, "--where", "day = '2026-11-02'")
    limited = json.loads(run("files", path, "--limit", "1", "--json")[1])
    newest = json.loads(run("history", path, "--json")[1])[0]

    assert [line.split()[0] for line in versions.splitlines()] == ["version", "6", "5"]
    assert f"compact          lakefeed command, {operator()}  too many" in versions
    assert "WRITE        +1  delta-rs:py" in versions
    assert files.count("day=2026-11-02/") == 3 and "3 of 3 files" in files
    assert (len(limited["files"]), limited["total"]) == (1, 4)
    assert (newest["operation"], newest["reason"]) == ("compact", "too many")
    assert (newest["account"]["kind"], newest["account"]["by"]) == ("compact", "command")


def test_history_tells_how_many_rows_came_and_went(run: Lakefeed, tmp_path: Path) -> None:
    write_table(tmp_path, [{"id": list(range(1500))}])
    run("delete", tmp_path, "--where", "id < 3", "--yes")
    run("optimize", tmp_path, "--z-order", "id", "--yes")
    DeltaTable(tmp_path).update(updates={"id": "id + 10000"}, predicate="id = 7")

    _, out, _ = run("history", tmp_path)
    told = json.loads(run("history", tmp_path, "--json")[1])

    lines = out.splitlines()
    column = slice(lines[0].index("rows") - 5, lines[0].index("rows") + 4)
    assert [line[column].strip() for line in lines[1:]] == ["+1 -1", "", "-3", "+1,500"]
    assert [(one["rows_added"], one["rows_removed"]) for one in told] == [(1, 1), (0, 0), (0, 3), (1500, 0)]


def test_history_counts_rows_of_restore_and_replace_and_names_who_typed_them(
    run: Lakefeed, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    write_table(path, [{"id": [1, 2, 3]}, {"id": [4, 5]}])
    pq.write_table(pa.table({"id": [1]}), tmp_path / "new.parquet")
    run("replace", path, "--where", "id < 3", "--from", tmp_path / "new.parquet", "--yes")
    run("replace", path, "--column", "id string", "--yes")
    run("restore", path, "--to-version", "0", "--yes")

    told = json.loads(run("history", path, "--json")[1])

    assert [(one["operation"], one["rows_added"], one["rows_removed"]) for one in told[:3]] == [
        ("restore", 3, 4),
        ("replace", 4, 4),
        ("replace", 1, 2),
    ]
    assert {one["by"] for one in told[:3]} == {f"lakefeed command, {operator()}"}


@pytest.mark.parametrize("updates", ["copy_on_write", "merge_on_read"])
@pytest.mark.parametrize(("mode", "moved"), [("upsert", (2, 2)), ("history", (4, 2))])
def test_history_tells_what_changes_by_key_did_to_rows(
    run: Lakefeed, tmp_path: Path, mode: str, moved: tuple[int, int], updates: str
) -> None:
    """A row is changed, one is deleted, one is new, and seven stay; a closed interval is a row that came."""
    file = tmp_path / "shop.yaml"
    (tmp_path / "in").mkdir()
    columns = "{id: long, at: long, v: long, gone: boolean}"
    file.write_text(
        "name: shop\nsources: {drops: {type: files, path: in, format: json, settle: 1ms}}\ntables:\n"
        "  t: {path: t, from: drops, keys: id, sequence_by: at, delete_when: gone, "
        f"schema: {columns}, mode: {mode}, updates: {updates}}}\n"
    )
    for name, rows in {
        "1": [{"id": number, "at": 1} for number in range(9)],
        "2": [{"id": 1, "at": 2, "v": 5}, {"id": 20, "at": 2}, {"id": 3, "at": 2, "gone": True}],
    }.items():
        (tmp_path / "in" / name).with_suffix(".json").write_text("\n".join(map(json.dumps, rows)))
        run_inline(Pipeline.from_file(file))

    told = json.loads(run("history", tmp_path / "t", "--json")[1])
    newest, first = (one for one in told if one["operation"] == mode)

    assert (first["rows_added"], first["rows_removed"]) == (9, 0)
    assert (newest["rows_added"], newest["rows_removed"]) == moved
    assert f"+{moved[0]} -{moved[1]}" in run("history", tmp_path / "t")[1]
