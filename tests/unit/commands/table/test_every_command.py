"""What all commands of `lakefeed table` share: the plan first, the reason kept, the words of a refusal."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from support.command_line import Lakefeed
from support.delta_tables import commit_info, make_old, small_files

CHANGING = {
    "optimize": ["optimize"],
    "z-order": ["optimize", "--z-order", "id"],
    "delete": ["delete", "--where", "id = 1"],
    "replace": ["replace", "--where", "id = 1", "--from", "{other}"],
    "layout": ["replace", "--partition-by", "id"],
    "restore": ["restore", "--to-version", "3"],
    "set": ["properties", "--set", "mine=yours"],
    "vacuum": ["vacuum"],
}


@pytest.mark.parametrize("case", CHANGING)
def test_change_shows_its_plan_does_nothing_without_yes_and_then_records_the_reason(
    case: str, run: Lakefeed, tmp_path: Path
) -> None:
    path = small_files(tmp_path / "t")
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"id": [1], "day": ["2026-11-02"]}), other)
    (path / "orphan.parquet").write_bytes(b"x")
    make_old(path, 30)
    name, *options = (word.format(other=other) for word in CHANGING[case])

    code, planned, _ = run(name, path, *options)
    before = DeltaTable(path).version()
    done_code, done, said = run(name, path, *options, "--yes", "--reason", "ticket 42")

    assert (code, before) == (0, 5)
    assert f"{path}, version 5" in planned
    assert planned.endswith("Nothing was changed. To do it: --yes\n")
    assert (done_code, said) == (0, "")
    assert "Done: version 6" in done
    assert DeltaTable(path).version() > 5
    assert (commit_info(path)["reason"], commit_info(path)["by"]) == ("ticket 42", "command")


@pytest.mark.parametrize("case", [*CHANGING, "checkpoint", "drop"])
def test_json_holds_the_plan_and_what_was_done(case: str, run: Lakefeed, tmp_path: Path) -> None:
    path = small_files(tmp_path / "t")
    other = tmp_path / "other.parquet"
    pq.write_table(pa.table({"id": [1], "day": ["2026-11-02"]}), other)
    (path / "orphan.parquet").write_bytes(b"x")
    make_old(path, 30)
    name, *options = (word.format(other=other) for word in CHANGING.get(case, [case]))

    planned = json.loads(run(name, path, *options, "--json")[1])
    done = json.loads(run(name, path, *options, "--json", "--yes")[1])

    assert planned["done"] is False and planned["plan"]["version"] == 5
    assert done["done"] is True and done["report"]


@pytest.mark.parametrize(
    "command", [["optimize"], ["optimize", "--z-order", "id"], ["delete", "--where", "id >= 0"]]
)
def test_a_missing_file_is_named_before_anything_is_planned(
    command: list[str], run: Lakefeed, tmp_path: Path
) -> None:
    path = small_files(tmp_path)
    gone = sorted(path.rglob("part-*.parquet"))[-1]
    gone.unlink()
    name, *options = command

    code, out, said = run(name, path, *options)

    assert (code, out) == (1, "")
    assert said.startswith(f"error: {path}: {gone.relative_to(path)}: the log names it, and it is not there.")
    assert "--where" not in said


def test_a_damaged_file_is_named(run: Lakefeed, tmp_path: Path) -> None:
    path = small_files(tmp_path)
    torn = sorted(path.rglob("part-*.parquet"))[-1]
    torn.write_bytes(b"PAR1" * 10)

    code, _, said = run("optimize", path, "--yes")

    assert code == 1
    assert said.startswith(f"error: {path}: {torn.relative_to(path)} cannot be read: ")


def test_table_is_found_by_its_name_in_a_pipeline_file(run: Lakefeed, tmp_path: Path) -> None:
    small_files(tmp_path / "lake")
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\nsources: {clicks: {type: generate, rows: 1}}\n"
        "tables: {events: {path: lake, from: clicks}}\n"
    )

    _, out, _ = run("history", "events", "--file", file, "--limit", "1")
    code, _, said = run("history", "event", "--file", file)
    gone, _, missing = run("history", "dead_letters", "--file", file)

    assert "WRITE" in out
    assert code == 2 and "has no table 'event', did you mean 'events'?" in said
    assert gone == 1 and f"{tmp_path}/shop_dead_letters: there is no Delta table." in missing


def test_secrets_given_as_storage_are_not_shown(run: Lakefeed, tmp_path: Path) -> None:
    code, out, said = run(
        "detail", "s3://lake/t",
        "--storage", "AWS_ENDPOINT_URL=http://127.0.0.1:9", "--storage", "AWS_ALLOW_HTTP=true",
        "--storage", "AWS_REGION=us-east-1", "--storage", "AWS_ACCESS_KEY_ID=canary-access-key",
        "--storage", "AWS_SECRET_ACCESS_KEY=canary-secret-key", "--storage", "max_retries=0",
        "--storage", "retry_timeout=1s",
    )  # fmt: skip

    assert code == 1 and "s3://lake/t: the store does not answer" in said
    assert "canary" not in out + said


def test_wrong_combinations_are_told(run: Lakefeed, tmp_path: Path) -> None:
    path = small_files(tmp_path)

    for arguments, told in {
        ("replace", path): "replace takes either --where and --from, or --partition-by, or --column.",
        ("restore", path): "restore takes either --to-version or --to-time.",
        (
            "restore",
            path,
            "--to-time",
            "noon",
        ): "--to-time: expected a time such as 2026-11-15T10:00:00Z, or 2h for two hours ago, got 'noon'",
        ("optimize", path, "--min-size", "big"): "--min-size: expected a size such as 64KB",
        ("vacuum", path, "--retain", "7"): "--retain: expected a duration such as",
        ("optimize", path, "--z-order", "id", "--min-size", "1MB"): "--min-size is for compaction",
        ("detail", "ftp://x/y"): "PATH: expected a local path",
        ("replace", path, "--partition-by", "hour(id)"): "--partition-by hour(id): ",
        ("replace", path, "--column", "id long", "--column", "id double"): "--column: 'id' is given twice",
        ("replace", path, "--column", "id double default 0"): "--column id: ",
        ("detail", path, "--filters", "idd"): "has no column 'idd', did you mean 'id'?",
    }.items():
        code, _, said = run(*arguments)

        assert code == 2, arguments
        assert told in said
        assert "Traceback" not in said
