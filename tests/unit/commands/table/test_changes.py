"""`lakefeed table changes`: every column of every row, as people write values, whatever the paths are."""

from __future__ import annotations

import datetime as dt
import json
import shlex
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed.commands.table import table_command
from lakefeed.testing import Sample, run_samples
from support.command_line import Lakefeed
from support.delta_tables import small_files, write_table

FEED = {"delta.enableChangeDataFeed": "true"}


def rows(run: Lakefeed, path: Path | str, first: int = 0) -> list[dict[str, Any]]:
    code, out, said = run("changes", path, "--from-version", str(first), "--json")
    assert (code, said) == (0, "")
    return [json.loads(line) for line in out.splitlines()]


NAMES = ["a b", "x%y", "ü", "u/v", "世" * 40, "DE"]


def test_a_feed_is_read_whatever_the_partition_values_are(run: Lakefeed, tmp_path: Path) -> None:
    write_table(
        tmp_path / "t",
        [{"id": [number], "k": [name]} for number, name in enumerate(NAMES[:4])],
        partition_by=["k"],
        properties=FEED,
    )
    DeltaTable(tmp_path / "t").delete("id >= 2")
    DeltaTable(tmp_path / "t").update(updates={"id": "id + 10"}, predicate="id = 1")

    told = rows(run, tmp_path / "t")

    assert [(row["id"], row["k"], row["_change_type"]) for row in told[:4]] == [
        (number, name, "insert") for number, name in enumerate(NAMES[:4])
    ]
    assert sorted((row["id"], row["_change_type"], row["_commit_version"]) for row in told[4:]) == [
        (1, "update_preimage", 5),
        (2, "delete", 4),
        (3, "delete", 4),
        (11, "update_postimage", 5),
    ]


def test_a_feed_of_lakefeeds_own_table_is_read(run: Lakefeed, tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        """\
name: shop
sources: {clicks: {type: generate, format: json}}
tables:
  clicks:
    path: clicks
    from: clicks
    schema: {id: long, k: string, at: timestamp}
    partition_by: [k, at]
    properties: {delta.enableChangeDataFeed: "true"}
"""
    )
    samples = [
        Sample(json={"id": number, "k": name, "at": "2026-11-15T10:30:00.5Z"})
        for number, name in enumerate(NAMES)
    ]
    landed = run_samples(tmp_path / "shop.yaml", {"clicks": samples}, tmp_path / "run")

    told = rows(run, landed.path("clicks"))

    assert sorted((row["id"], row["k"], row["at"]) for row in told) == [
        (number, name, "2026-11-15T10:30:00.500000Z") for number, name in enumerate(NAMES)
    ]


def test_a_version_before_the_feed_is_named(run: Lakefeed, tmp_path: Path) -> None:
    write_table(tmp_path, [{"id": [1]}])
    DeltaTable(tmp_path).alter.set_table_properties(FEED)
    write_deltalake(tmp_path, pa.table({"id": [2]}), mode="append")

    code, _, said = run("changes", tmp_path, "--from-version", "0")
    later = rows(run, tmp_path, 1)

    assert code == 2
    assert f"{tmp_path}: the change data feed was off at version 0.\nStart with the version" in said
    assert [row["id"] for row in later] == [2]


def test_a_file_that_a_vacuum_has_taken_is_named(run: Lakefeed, tmp_path: Path) -> None:
    write_table(tmp_path, [{"id": [1]}, {"id": [2]}], properties=FEED)
    next(tmp_path.glob("part-*.parquet")).unlink()

    code, _, said = run("changes", tmp_path, "--from-version", "0")

    assert code == 2
    assert "was deleted by a vacuum.\nStart with a later version.\n" in said


def test_versions_may_be_given_by_time(run: Lakefeed, tmp_path: Path) -> None:
    write_table(tmp_path, [{"id": [1]}])
    between = dt.datetime.now(dt.UTC) + dt.timedelta(milliseconds=5)
    while dt.datetime.now(dt.UTC) <= between:
        pass
    write_deltalake(tmp_path, pa.table({"id": [2]}), mode="append")

    _, before, _ = run("changes", tmp_path, "--from-version", "0", "--to-time", between.isoformat(), "--json")
    _, after, _ = run("changes", tmp_path, "--from-time", between.isoformat(), "--json")
    code, _, said = run("changes", tmp_path, "--from-time", "2200-01-01")
    both, _, told = run("changes", tmp_path, "--from-version", "0", "--from-time", "2h")

    assert [json.loads(line)["id"] for line in (before + after).splitlines()] == [1, 2]
    assert (code, said) == (
        2,
        f"{tmp_path} has no version since 2200-01-01T00:00:00+00:00: see its history.\n",
    )
    expected = "changes takes either --from-version or --from-time, such as --from-version 0.\n"
    assert (both, told) == (2, expected)
    assert run("changes", tmp_path) == (2, "", expected)


RICH = {
    "id": [1],
    "at": pa.array([dt.datetime(2026, 11, 15, 10, 30, 0, 500, dt.UTC)], pa.timestamp("us", "UTC")),
    "day": [dt.date(2026, 11, 15)],
    "price": [Decimal("9.90")],
    "meta": [{"ip": "10.0.0.1", "tags": ["a", None], "raw": b"\x00\xff"}],
    "counts": pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
    "data": [b"\x00\xff"],
    "word": [b"plain"],
    "flag": [True],
    "nothing": pa.array([None], pa.string()),
    "text": ["two\nlines"],
}
WRITTEN = {
    "id": "1",
    "at": "2026-11-15T10:30:00.000500Z",
    "day": "2026-11-15",
    "price": "9.90",
    "meta": '{"ip":"10.0.0.1","tags":["a",null],"raw":"AP8="}',
    "counts": '{"a":1}',
    "data": "0x00ff",
    "word": "plain",
    "flag": "true",
    "nothing": "null",
    "text": "two\\nlines",
    "_change_type": "insert",
    "_commit_version": "0",
}


def test_values_are_shown_as_people_write_them(run: Lakefeed, tmp_path: Path) -> None:
    write_table(tmp_path, [RICH])

    _, out, _ = run("changes", tmp_path, "--from-version", "0")

    names, values = out.splitlines()[1:3]
    assert names.split() == [*WRITTEN, "_commit_timestamp"]
    assert values.split("  ")[0] == "1"
    for value in WRITTEN.values():
        assert value in values
    assert "datetime" not in out and "Decimal" not in out and "b'" not in out


def test_rows_wider_than_the_terminal_are_shown_one_value_below_the_other(
    run: Lakefeed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_table(tmp_path, [RICH])
    monkeypatch.setattr(table_command, "_PIPE", 80)

    _, out, _ = run("changes", tmp_path, "--from-version", "0")

    lines = out.splitlines()
    assert lines[1] == "row 1"
    told = dict(line.split(maxsplit=1) for line in lines[2:-1])
    assert {name: told[name] for name in WRITTEN} == WRITTEN
    assert lines[-1] == "1 row"


def test_json_holds_maps_as_objects_and_every_column(run: Lakefeed, tmp_path: Path) -> None:
    write_table(tmp_path, [RICH])

    [row] = rows(run, tmp_path)

    assert row["counts"] == {"a": 1}
    assert row["meta"] == {"ip": "10.0.0.1", "tags": ["a", None], "raw": "AP8="}
    assert (row["at"], row["price"], row["data"]) == ("2026-11-15T10:30:00.000500Z", "9.90", "AP8=")


def test_changes_come_from_the_feed_in_the_order_of_versions(run: Lakefeed, tmp_path: Path) -> None:
    write_table(tmp_path, [{"id": [1, 2]}, {"id": [3]}], properties={"delta.enableChangeDataFeed": "true"})
    DeltaTable(tmp_path).delete("id = 1")

    _, out, _ = run("changes", tmp_path, "--from-version", "0", "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    _, some, _ = run("changes", tmp_path, "--from-version", "1", "--to-version", "1")

    told = [(row["id"], row["_change_type"], row["_commit_version"]) for row in rows]
    assert sorted(told[:2]) == [(1, "insert", 0), (2, "insert", 0)]
    assert told[2:] == [(3, "insert", 1), (1, "delete", 2)]
    assert some.startswith("versions 1 to 1: change data feed\n") and some.endswith("\n1 row\n")


def test_changes_without_a_feed_are_the_appends_and_name_what_they_leave_out(
    run: Lakefeed, tmp_path: Path
) -> None:
    path = small_files(tmp_path)
    run("optimize", path, "--yes")
    DeltaTable(path).delete("id = 1")

    code, out, said = run("changes", path, "--from-version", "4", "--json", "--limit", "5")
    rows = [json.loads(line) for line in out.splitlines()]

    assert code == 0
    assert [(row["id"], row["day"], row["_commit_version"]) for row in rows] == [
        (4, "2026-11-01", 4),
        (5, "2026-11-02", 5),
    ]
    assert said.startswith("version 8 (DELETE) is not shown: it removed rows")
    _, _, command = said.strip().partition("To turn it on: lakefeed table ")
    assert run(*shlex.split(command))[0] == 0
    assert DeltaTable(path).metadata().configuration["delta.enableChangeDataFeed"] == "true"


def test_changes_of_versions_that_are_not_there_are_refused(run: Lakefeed, tmp_path: Path) -> None:
    write_table(tmp_path, [{"id": [1]}])

    code, _, said = run("changes", tmp_path, "--from-version", "7")

    assert (code, said) == (
        2,
        f"{tmp_path} has no version 7 yet: the newest is 0.\nChoose versions from 0 to 0.\n",
    )
