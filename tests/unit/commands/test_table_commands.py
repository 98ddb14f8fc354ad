"""`lakefeed table ...` as a user types it: the plan first, the reason kept, the words of a refusal."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

from lakefeed.commands.app import main
from lakefeed.commands.output import operator
from support.delta_tables import content, ids, make_old, write_table

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """The command line in this process: exit code, standard output, standard error."""

    def call(*arguments: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lakefeed", "table", *map(str, arguments)])
        try:
            main()
            code: Any = 0
        except SystemExit as end:
            code = end.code or 0
        out, said = capsys.readouterr()
        return code, out, said

    return call


def small_files(path: Path, **more: Any) -> Path:
    batches = [{"id": [number], "day": [f"2026-11-0{number % 2 + 1}"]} for number in range(6)]
    write_table(path, batches, partition_by=["day"], **more)
    return path


def commit_info(path: Path) -> dict[str, Any]:
    told: dict[str, Any] = json.loads(DeltaTable(path).history(1)[0]["lakefeed"])
    return told


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
    case: str, run: Run, tmp_path: Path
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
def test_json_holds_the_plan_and_what_was_done(case: str, run: Run, tmp_path: Path) -> None:
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


def test_optimize_twice_leaves_one_file_a_partition_and_nothing_to_do(run: Run, tmp_path: Path) -> None:
    path = small_files(tmp_path)
    before = content(path)

    _, done, _ = run("optimize", path, "--yes")
    _, again, _ = run("optimize", path, "--yes")

    assert "6 files" in done and "After: 2 files" in done and "6 rows" in done
    assert again.endswith("Nothing to do: no partition has two small files.\n")
    assert content(path) == before


def test_detail_tells_everything_and_advises(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t"
    batches = [{"id": [number, 0, 1000], "day": [str(number), "x", "x"]} for number in range(30)]
    write_table(
        path,
        batches,
        partition_by=["day"],
        properties={"delta.deletedFileRetentionDuration": "interval 1 hours"},
        positions="shop/clicks/0",
    )

    code, out, said = run("detail", path, "--filters", "id")
    found = json.loads(run("detail", path, "--filters", "id", "--json")[1])

    assert (code, said) == (0, "")
    for text in (
        "version 29",
        "60 files",
        "90 rows; 60 small (target 128 MB)",
        "protocol: reader 1, writer 2",
        "owner: pipeline shop, source clicks",
        "id: long",
        "delta.deletedFileRetentionDuration = interval 1 hours",
        "partitions by day (31, the largest):",
        "day=x: 30 files",
        "delta.deletedFileRetentionDuration is 1h: a query or a stream that takes longer finds its files",
        "Partitioned by day into 31 partitions",
        "30 of 60 files are small (below 64 MB) and would become 1.",
        "a filter on one value of id reads",
    ):
        assert text in out, text
    assert found["positions"] == {"shop/clicks/0": 29}
    assert len(found["advice"]) == 4


def test_table_in_good_shape_gets_no_advice(run: Run, tmp_path: Path) -> None:
    write_table(tmp_path, [{"id": [1]}])

    assert "advice:\n  none: the table is in good shape\n" in run("detail", tmp_path)[1]


def test_history_and_files_tell_who_why_and_how_large(run: Run, tmp_path: Path) -> None:
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


def test_history_tells_how_many_rows_came_and_went(run: Run, tmp_path: Path) -> None:
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
    run: Run, tmp_path: Path
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


@pytest.mark.parametrize(
    "command", [["optimize"], ["optimize", "--z-order", "id"], ["delete", "--where", "id >= 0"]]
)
def test_a_missing_file_is_named_before_anything_is_planned(
    command: list[str], run: Run, tmp_path: Path
) -> None:
    path = small_files(tmp_path)
    gone = sorted(path.rglob("part-*.parquet"))[-1]
    gone.unlink()
    name, *options = command

    code, out, said = run(name, path, *options)

    assert (code, out) == (1, "")
    assert said.startswith(f"error: {path}: {gone.relative_to(path)}: the log names it, and it is not there.")
    assert "--where" not in said


def test_a_damaged_file_is_named(run: Run, tmp_path: Path) -> None:
    path = small_files(tmp_path)
    torn = sorted(path.rglob("part-*.parquet"))[-1]
    torn.write_bytes(b"PAR1" * 10)

    code, _, said = run("optimize", path, "--yes")

    assert code == 1
    assert said.startswith(f"error: {path}: {torn.relative_to(path)} cannot be read: ")


def test_changes_come_from_the_feed_in_the_order_of_versions(run: Run, tmp_path: Path) -> None:
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
    run: Run, tmp_path: Path
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


def test_changes_of_versions_that_are_not_there_are_refused(run: Run, tmp_path: Path) -> None:
    write_table(tmp_path, [{"id": [1]}])

    code, _, said = run("changes", tmp_path, "--from-version", "7")

    assert (code, said) == (
        2,
        f"{tmp_path} has no version 7 yet: the newest is 0.\nChoose versions from 0 to 0.\n",
    )


def test_replace_column_takes_names_with_blanks_and_no_null_where_none_may_be(
    run: Run, tmp_path: Path
) -> None:
    path = tmp_path / "t"
    columns = pa.schema([pa.field("the total", pa.int64()), pa.field("code", pa.string(), nullable=False)])
    write_deltalake(path, pa.table({"the total": [1, 2], "code": ["7", "x"]}, schema=columns))

    code, _, said = run("replace", path, "--column", "the total decimal(10, 2)", "--yes")
    refused, _, why = run("replace", path, "--column", "code long", "--or-null", "--yes")

    assert (code, said) == (0, "")
    assert str(DeltaTable(path).schema().fields[0].type) == 'PrimitiveType("decimal(10,2)")'
    assert refused == 1
    assert '1 value of code cannot become long, such as "x"' in why
    assert "choose json: it is not null" in why
    assert DeltaTable(path).version() == 1


def test_replace_makes_a_column_not_null_or_says_why_not(run: Run, tmp_path: Path) -> None:
    path = str(tmp_path / "t")
    rows = {"code": pa.array(["1", "2"], pa.string()), "note": pa.array(["x", None], pa.string())}
    write_deltalake(path, pa.table(rows))

    code, told, said = run("replace", path, "--column", "code long not null", "--yes")
    refused, _, why = run("replace", path, "--column", "note string not null", "--or-null", "--yes")

    assert (code, refused) == (0, 1), said + why
    assert "column code is string, would be long not null" in told
    assert "1 value of note is null, so it cannot be not null.\nNothing was changed." in why
    assert "--where 'note is null'" in why
    [column, _] = DeltaTable(path).schema().fields
    assert (str(column.type), column.nullable) == ('PrimitiveType("long")', False)


def test_replace_where_repairs_exactly_those_rows(run: Run, tmp_path: Path) -> None:
    path = small_files(tmp_path / "t", positions="shop/clicks/0")
    write_deltalake(tmp_path / "fix", pa.table({"day": ["2026-11-02"] * 2, "id": [11, 13]}))

    _, planned, _ = run("replace", path, "--where", "day = '2026-11-02'", "--from", tmp_path / "fix")
    run("replace", path, "--where", "day = '2026-11-02'", "--from", tmp_path / "fix", "--yes")

    assert "3 rows would be removed from at most 3 files" in planned
    assert f"2 rows of {tmp_path / 'fix'} would be added" in planned
    assert ids(path) == [0, 2, 4, 11, 13]
    assert DeltaTable(path).transaction_version("shop/clicks/0") == 5


@pytest.mark.parametrize(
    ("rows", "code", "told"),
    [
        ({"id": [1], "day": ["2026-11-09"]}, 1, "some rows do not meet \"day = '2026-11-02'\""),
        ({"id": [1]}, 2, "lacks day; it must have the table's 2 columns: id long, day string"),
        ({"id": [1], "day": ["2026-11-02"], "x": [1]}, 2, "also has x; it must have"),
        ({"id": ["one"], "day": ["2026-11-02"]}, 1, "its rows do not fit the table"),
    ],
)
def test_replace_with_wrong_rows_changes_nothing(
    rows: dict[str, Any], code: int, told: str, run: Run, tmp_path: Path
) -> None:
    path = small_files(tmp_path / "t")
    pq.write_table(pa.table(rows), tmp_path / "fix.parquet")

    found, _, said = run(
        "replace", path, "--where", "day = '2026-11-02'", "--from", tmp_path / "fix.parquet", "--yes"
    )

    assert found == code
    assert told in said
    assert DeltaTable(path).version() == 5


def test_replace_partition_by_moves_every_row_and_keeps_what_the_table_is(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "t"
    moments = pa.array([1_763_202_600_000_000, 1_763_289_000_000_000], pa.timestamp("us", "UTC"))
    write_table(
        path,
        [{"id": [1, 2], "at": moments, "country": ["DE", "AT"]}],
        partition_by=["country"],
        properties={"delta.logRetentionDuration": "interval 40 days"},
        positions="shop/clicks/0",
    )

    _, planned, _ = run("replace", path, "--partition-by", "day(at), country")
    run("replace", path, "--partition-by", "day(at), country", "--yes")
    _, again, _ = run("replace", path, "--partition-by", "at_day, country")
    run("replace", path, "--partition-by", "", "--yes")
    table = DeltaTable(path)

    assert "partitioned by country, would be partitioned by at_day, country" in planned
    assert "Stop the pipeline first, and give its file the same `partition_by`" in planned
    assert "already partitioned like this" in again
    assert table.metadata().partition_columns == []
    assert table.metadata().configuration == {"delta.logRetentionDuration": "interval 40 days"}
    assert table.transaction_version("shop/clicks/0") == 0
    rows = table.to_pyarrow_table().sort_by("id").to_pylist()
    assert [(row["id"], row["country"], str(row["at_day"])) for row in rows] == [
        (1, "DE", "2025-11-15"),
        (2, "AT", "2025-11-16"),
    ]


def test_restore_of_a_pipelines_table_needs_to_be_told_to_keep_positions(run: Run, tmp_path: Path) -> None:
    path = small_files(tmp_path, positions="shop/clicks/0")

    code, _, said = run("restore", path, "--to-version", "2", "--yes")
    kept_code, _, _ = run("restore", path, "--to-version", "2", "--keep-positions", "--yes")

    assert code == 1 and "lakefeed rewind FILE --table NAME --to-version 2" in said
    assert kept_code == 0 and ids(path) == [0, 1, 2]


def test_vacuum_shows_what_it_would_delete_and_leave(run: Run, tmp_path: Path) -> None:
    path = small_files(tmp_path)
    (path / "orphan.parquet").write_bytes(b"xyz")
    (path / "README").write_text("mine")
    make_old(path, 30)

    _, planned, _ = run("vacuum", path, "--retain", "10d")
    code, _, said = run("vacuum", path, "--retain", "1h")

    assert "1 file, 3 bytes unneeded for longer than 10d\n  orphan.parquet (3 bytes)\n" in planned
    assert "not deleted: README, which do not belong to the table" in planned
    assert code == 1 and "a retention of 1h is too short" in said and "--allow-short-retention" in said
    assert run("vacuum", path, "--retain", "1h", "--allow-short-retention")[0] == 0


def test_properties_are_set_and_taken_away(run: Run, tmp_path: Path) -> None:
    path = small_files(tmp_path, properties={"delta.logRetentionDuration": "interval 40 days"})

    _, planned, _ = run("properties", path, "--set", "delta.checkpointInterval=5", "--set", "mine=x")
    run("properties", path, "--set", "delta.checkpointInterval=5", "--set", "mine=x", "--yes")
    _, away, _ = run("properties", path, "--unset", "mine", "--unset", "delta.logRetentionDuration", "--yes")
    _, shown, _ = run("properties", path)
    write_deltalake(path, pa.table({"id": [9], "day": ["x"]}), mode="append")

    assert "delta.checkpointInterval: not set -> 5" in planned
    assert "mine: x -> not set" in away
    assert shown == "delta.checkpointInterval = 5\n"
    assert ids(path)[-1] == 9
    assert DeltaTable(path).metadata().partition_columns == ["day"]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("delta.logRetentionDuration=banana", "expected an interval such as 'interval 7 days', got 'banana'"),
        ("delta.appendOnly=yes", "expected true or false, got 'yes'"),
        ("delta.chekpointInterval=5", "did you mean 'delta.checkpointInterval'?"),
        ("delta.columnMapping.mode=name", "refused: column mapping is not readable by every engine"),
        ("delta.checkpointPolicy=v2", "not a property that can be set here"),
        ("novalue", "--set expects KEY=VALUE, got 'novalue'."),
    ],
)
def test_property_that_would_harm_the_table_is_refused(
    given: str, told: str, run: Run, tmp_path: Path
) -> None:
    write_table(tmp_path, [{"id": [1]}])

    code, _, said = run("properties", tmp_path, "--set", given, "--yes")

    assert code == 2 and told in said
    assert DeltaTable(tmp_path).version() == 0


def test_convert_makes_a_table_of_parquet_files_where_they_lie(run: Run, tmp_path: Path) -> None:
    for day in ("2026-11-01", "2026-11-02"):
        (tmp_path / f"day={day}").mkdir()
        pq.write_table(pa.table({"id": [int(day[-1])]}), tmp_path / f"day={day}" / "a.parquet")
    (tmp_path / "_SUCCESS").touch()

    _, planned, _ = run("convert", tmp_path, "--partition-by", "day date")
    code, done, said = run("convert", tmp_path, "--partition-by", "day date", "--reason", "adopt", "--yes")
    again, _, already = run("convert", tmp_path, "--yes")

    assert "2 rows would become a Delta table\n  id: long\n  day: date\npartitioned by day\n" in planned
    assert (code, said) == (0, "") and done.startswith(planned.rpartition("Nothing")[0])
    rows = DeltaTable(tmp_path).to_pyarrow_table().sort_by("id").to_pylist()
    assert [(row["id"], str(row["day"])) for row in rows] == [(1, "2026-11-01"), (2, "2026-11-02")]
    assert commit_info(tmp_path)["reason"] == "adopt"
    assert again == 2 and "is a Delta table already" in already


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            {"a.parquet": {"id": [1]}, "b.parquet": {"id": ["x"]}},
            "column id is long in a.parquet and string in b",
        ),
        (
            {"a.parquet": {"id": [1]}, "_tmp/b.parquet": {"id": [1]}},
            "_tmp/b.parquet is inside; move it somewhere else",
        ),
        (
            {"a=1/x.parquet": {"id": [1]}, "b=1/x.parquet": {"id": [1]}},
            "directories of a and others in those of b",
        ),
        ({}, "there are no Parquet files."),
    ],
)
def test_what_cannot_become_one_table_is_refused(
    files: dict[str, dict[str, Any]], told: str, run: Run, tmp_path: Path
) -> None:
    for name, rows in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        pq.write_table(pa.table(rows), tmp_path / name)

    code, _, said = run("convert", tmp_path, "--yes")

    assert code in (1, 2) and told in said
    assert not (tmp_path / "_delta_log").exists()


def test_drop_deletes_the_table_and_nothing_else(run: Run, tmp_path: Path) -> None:
    path = small_files(tmp_path / "t", positions="shop/clicks/0")
    marks = [Transaction("shop/clicks/#topic", 7), Transaction("shop/#replay", 1)]
    write_deltalake(
        path,
        DeltaTable(path).to_pyarrow_table(),
        mode="append",
        commit_properties=CommitProperties(app_transactions=marks),
    )
    write_deltalake(path / "nested", pa.table({"id": [1]}))
    (path / "README").write_text("mine")

    _, planned, _ = run("drop", path)
    code, _, _ = run("drop", path, "--yes")

    assert (
        "The positions of 1 source partition are deleted too: a pipeline that still uses this path would"
        in planned
    )
    assert "Not deleted: nested, README" in planned
    assert code == 0
    assert sorted(file.name for file in path.iterdir()) == ["README", "nested"]
    assert ids(path / "nested") == [1]


def test_drop_of_a_table_alone_in_its_directory_leaves_no_directory(run: Run, tmp_path: Path) -> None:
    path = small_files(tmp_path / "t")

    run("drop", path, "--yes")

    assert not path.exists()


def test_checkpoint_is_written_once(run: Run, tmp_path: Path) -> None:
    path = small_files(tmp_path)

    _, done, _ = run("checkpoint", path, "--yes")
    _, again, _ = run("checkpoint", path, "--yes")

    assert "last checkpoint never, 6 entries since" in done and "Done: a checkpoint of version 5." in done
    assert "Nothing to do" in again
    assert list((path / "_delta_log").glob("*.checkpoint.parquet"))


def test_table_is_found_by_its_name_in_a_pipeline_file(run: Run, tmp_path: Path) -> None:
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


def test_secrets_given_as_storage_are_not_shown(run: Run, tmp_path: Path) -> None:
    code, out, said = run(
        "detail", "s3://lake/t",
        "--storage", "AWS_ENDPOINT_URL=http://127.0.0.1:9", "--storage", "AWS_ALLOW_HTTP=true",
        "--storage", "AWS_REGION=us-east-1", "--storage", "AWS_ACCESS_KEY_ID=canary-access-key",
        "--storage", "AWS_SECRET_ACCESS_KEY=canary-secret-key", "--storage", "max_retries=0",
        "--storage", "retry_timeout=1s",
    )  # fmt: skip

    assert code == 1 and "s3://lake/t: the store does not answer" in said
    assert "canary" not in out + said


def test_wrong_combinations_are_told(run: Run, tmp_path: Path) -> None:
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
