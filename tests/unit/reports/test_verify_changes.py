"""What `verify` proves of tables whose rows change: every change is counted, and every key is there once."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed import Pipeline
from lakefeed.reports.verify import verify
from support.offline import drain

MODES = ("upsert", "deduplicate")


def fill(folder: Path, mode: str) -> Path:
    file = folder / "shop.yaml"
    sequence = "sequence_by: event_id" if mode == "upsert" else ""
    file.write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate, rows: 300, partitions: 2, bad_ratio: 0.1}}}}
tables:
  newest:
    path: newest
    from: clicks
    mode: {mode}
    keys: user_id
    {sequence}
    schema: {{event_id: long, user_id: long}}
    evolve: {{new_column: ignore}}
"""
    )
    drain(file, batch=60)
    return file


def findings(file: Path) -> list[str]:
    (table,) = verify(Pipeline.from_file(file), deep=True).tables
    return [one.text for one in table.findings]


@pytest.mark.parametrize("mode", MODES)
def test_a_sound_table_has_no_finding(mode: str, tmp_path: Path) -> None:
    assert findings(fill(tmp_path, mode)) == []


@pytest.mark.parametrize(("mode", "part"), [("upsert", "folded"), ("deduplicate", "duplicates")])
def test_changes_that_do_not_add_up_are_named(mode: str, part: str, tmp_path: Path) -> None:
    file = fill(tmp_path, mode)
    newest = DeltaTable(tmp_path / "newest").version()
    entry = tmp_path / "newest" / "_delta_log" / f"{newest:020}.json"
    lines = [json.loads(line) for line in entry.read_text().splitlines()]
    (info,) = (line["commitInfo"] for line in lines if "commitInfo" in line)
    told = json.loads(info["lakefeed"])
    told[part] += 1
    info["lakefeed"] = json.dumps(told)
    entry.write_text("\n".join(map(json.dumps, lines)))

    (found,) = findings(file)

    assert "changes do not add up to" in found
    assert f"{told[part]:,} {part}" in found


@pytest.mark.parametrize("mode", MODES)
def test_a_key_that_somebody_has_written_again_is_named(mode: str, tmp_path: Path) -> None:
    file = fill(tmp_path, mode)
    row = DeltaTable(tmp_path / "newest").to_pyarrow_table().slice(0, 1)
    write_deltalake(tmp_path / "newest", pa.table(row), mode="append")

    found = findings(file)

    user = row.column("user_id")[0].as_py()
    assert f"1 row whose key another row has, such as user_id={user}" in found
