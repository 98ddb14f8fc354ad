"""Files that were corrected: their rows are replaced by what they hold now, in one commit of each table."""

from __future__ import annotations

import gzip
import importlib
import json
import shlex
import shutil
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.errors import LakefeedError, RowsNotReplaced, TableError, UsageError
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.reprocess.files import ReloadPlan, reload, retry_or_forget
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.rewind import rewind
from lakefeed.tables.detail.detail import history
from support.command_line import Lakefeed, in_process
from support.delta_tables import open_any
from support.forks import run_until_killed
from support.landing import Landing
from support.processes import wait_until
from support.vectors import allow, mark_everywhere

TESTS = Path(__file__).parent.parent.parent

NAMED = "schema: {id: long, v: string}, metadata: {_topic: _file}"
PLAIN = "schema: {id: long, v: string}"


def lines(**values: object) -> str:
    """`lines(a=1)` is one record for each name, with the value as its id."""
    return "".join(json.dumps({"id": value, "v": name}) + "\n" for name, value in values.items())


@pytest.fixture
def lakefeed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lakefeed:
    """The command line, whose `rebuild` runs without Spark."""
    module = importlib.import_module("lakefeed.commands.rebuild")
    monkeypatch.setattr(module, "run_pipeline", lambda pipeline, **_: run_inline(pipeline))
    return in_process(capsys, monkeypatch)


def type_in(lakefeed: Lakefeed, *commands: str) -> None:
    """What a message says, word for word."""
    for command in " && ".join(commands).split(" && "):
        name, *arguments = shlex.split(command)
        code, _, said = lakefeed(*arguments)
        assert (name, code) == ("lakefeed", 0), said


def now(landing: Landing) -> list[str]:
    rows = pa.RecordBatchReader.from_stream(DeltaTable(landing.folder / "rows").scan()).read_all()
    return sorted(f"{row['v']}{row['id']}" for row in rows.to_pylist())


def ask(landing: Landing, *names: str) -> list[ReloadPlan]:
    return reload(Pipeline.from_file(landing.file), None, names, who="me")


def counts(landing: Landing) -> list[int]:
    """How many rows each version has."""
    table = DeltaTable(landing.folder / "rows")
    found = []
    for version in range(table.version() + 1):
        table.load_as_version(version)
        found.append(table.to_pyarrow_table().num_rows)
    return found


def assert_proved(landing: Landing) -> None:
    """Both verifications agree with the table."""
    pipeline = Pipeline.from_file(landing.file)
    for deep in (False, True):
        report = verify(pipeline, deep=deep)
        told = [str(one) for table in (*report.tables, report.dead_letters) for one in table.findings]
        assert told == [] and report.sound


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """Three files in one batch; the second one has a mistake and a line that is no record."""
    landing = Landing(tmp_path, table=NAMED)
    landing.put("a.json", lines(a=1, b=2), 1000.25)
    landing.put("b.json", lines(wrong=3, x=4) + "nothing\n", 2000.25)
    landing.put("c.json", lines(c=5), 3000.25)
    landing.run()
    return landing


def test_rows_and_dead_letters_of_a_corrected_file_are_replaced_in_one_commit(landing: Landing) -> None:
    landing.put("b.json", lines(right=3) + "nothing either\n" + lines(y=6), 4000)
    ask(landing, "b.json")
    before = now(landing), len(landing.letters())

    landing.run()

    assert before == (["a1", "b2", "c5", "wrong3", "x4"], 1)
    assert now(landing) == ["a1", "b2", "c5", "right3", "y6"]
    assert [letter["payload"] for letter in landing.letters()] == [b"nothing either"]
    assert counts(landing)[-2:] == [5, 5]
    last = history(open_any(landing.folder / "rows"))[0]
    assert (last.operation, last.rows_added, last.rows_removed) == ("rows", 2, 2)
    assert landing.states() == {
        "1 a.json": "read",
        "2 b.json": "replaced",
        "3 c.json": "read",
        "4 b.json": "read",
    }
    assert_proved(landing)


def test_file_is_reloaded_as_often_as_it_is_corrected(landing: Landing) -> None:
    for at, value in enumerate((7, 8, 9)):
        landing.put("b.json", lines(right=value), 4000 + at)
        ask(landing, "b.json")
        landing.run()

    assert now(landing) == ["a1", "b2", "c5", "right9"]
    assert landing.letters() == []
    assert_proved(landing)


def test_corrections_of_a_file_before_the_next_run_are_one(landing: Landing) -> None:
    for at, value in enumerate((7, 8)):
        landing.put("b.json", lines(right=value), 4000 + at)
        ask(landing, "b.json")
    ask(landing, "b.json")

    landing.run()

    assert now(landing) == ["a1", "b2", "c5", "right8"]
    assert list(landing.states().values()) == ["read", "replaced", "read", "replaced", "read"]
    assert_proved(landing)


def test_file_that_holds_no_record_any_more_takes_its_rows_along(landing: Landing) -> None:
    landing.put("b.json", "\n", 4000)
    ask(landing, "b.json")

    landing.run()

    assert now(landing) == ["a1", "b2", "c5"]
    assert landing.letters() == []
    assert_proved(landing)


def test_file_that_cannot_be_read_replaces_nothing_until_it_is_mended(tmp_path: Path) -> None:
    landing = Landing(tmp_path, table=NAMED)
    landing.put("a.json.gz", gzip.compress(lines(a=1, wrong=2).encode()), 1000)
    landing.run()
    landing.put("a.json.gz", gzip.compress(lines(a=1, right=2).encode())[:-9], 2000)
    ask(landing, "a.json.gz")
    landing.run()
    damaged = now(landing), [letter["code"] for letter in landing.letters()]
    assert_proved(landing)
    landing.put("a.json.gz", gzip.compress(lines(a=1, right=2).encode()), 3000)
    ask(landing, "a.json.gz")

    landing.run()

    assert damaged == (["a1", "wrong2"], ["bad_compression"])
    assert (now(landing), landing.letters()) == (["a1", "right2"], [])
    assert_proved(landing)


def test_unchanged_file_is_read_anew_by_the_pipeline_of_now(landing: Landing) -> None:
    landing.set("format: json", NAMED + ", where: id < 4")
    ask(landing, "*.json")

    landing.run()

    assert now(landing) == ["a1", "b2", "wrong3"]
    assert len(landing.letters()) == 1
    assert_proved(landing)


def test_on_change_reload_does_the_same_by_itself(landing: Landing) -> None:
    landing.set("format: json, on_change: reload", NAMED)
    landing.put("b.json", lines(right=3), 4000)

    landing.run()
    landing.run()

    assert now(landing) == ["a1", "b2", "c5", "right3"]
    assert landing.letters() == []
    assert_proved(landing)


def test_table_without_the_column_replaces_what_a_commit_of_the_file_alone_has_added(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, max_files: 1", PLAIN)
    landing.put("a.json", lines(a=1), 1000)
    landing.put("b.json", lines(wrong=2, x=3), 2000)
    landing.run()
    landing.put("b.json", lines(right=2), 3000)
    ask(landing, "b.json")

    landing.run()

    assert now(landing) == ["a1", "right2"]
    assert_proved(landing)


def test_table_whose_commit_has_rows_of_other_files_stops_until_it_is_made_anew(tmp_path: Path) -> None:
    landing = Landing(tmp_path, table=PLAIN)
    landing.put("a.json", lines(a=1), 1000)
    landing.put("b.json", lines(wrong=2), 2000)
    landing.run()
    landing.put("b.json", lines(right=2), 3000)

    (plan,) = ask(landing, "b.json")
    with pytest.raises(RowsNotReplaced) as stopped:
        landing.run()

    (one,) = plan.anew
    assert (one.table, one.why) == (
        "rows",
        f"table rows: nothing tells which of its rows are of {landing.into}/b.json, so they cannot be "
        "replaced: no column has the path for all of them (`metadata: {_topic: _file}`)",
    )
    assert plan.commands == [f"lakefeed rebuild {landing.file} --table rows --yes"]
    assert str(stopped.value) == (
        f"{one.why}.\nStop the pipeline, and make it anew from the files of now: {plan.commands[0]}"
    )
    assert now(landing) == ["a1", "wrong2"]


@pytest.mark.parametrize("table", [NAMED, PLAIN])
def test_rows_of_replayed_dead_letters_go_with_their_file(tmp_path: Path, table: str) -> None:
    landing = Landing(tmp_path, "format: json, max_files: 1", f"{table}, expect: {{low: id < 3}}")
    landing.put("a.json", lines(a=1), 1000)
    landing.put("b.json", lines(b=2, high=3), 2000)
    landing.run()
    landing.set("format: json, max_files: 1", table)
    replay(Pipeline.from_file(landing.file), DeadLetterFilter(), who="me")
    landing.put("b.json", lines(right=3), 3000)

    (plan,) = ask(landing, "b.json")
    if table == PLAIN:
        assert ["nothing tells which of its rows" in one.why for one in plan.anew] == [True]
        return
    landing.run()

    assert now(landing) == ["a1", "right3"]
    assert_proved(landing)


def test_file_that_is_gone_and_unknown_names_are_refused(landing: Landing) -> None:
    (landing.into / "b.json").unlink()

    with pytest.raises(UsageError, match=r"there is no file .*b\.json any more"):
        ask(landing, "b.json")
    with pytest.raises(UsageError, match="no file in the ledger is named z"):
        ask(landing, "z.json")

    assert len(landing.states()) == 3


def test_corrected_file_can_be_retried(landing: Landing) -> None:
    landing.put("b.json", lines(right=3), 4000)

    retry_or_forget(Pipeline.from_file(landing.file), None, ["b.json"], forget=False, who="me")
    landing.run()

    assert now(landing) == ["a1", "b2", "c5", "right3", "wrong3", "x4"]


UPSERT = f"{NAMED}, mode: upsert, keys: id, sequence_by: at".replace("v: string", "v: string, at: long")


def changes(**values: tuple[int, int]) -> str:
    """`changes(a=(1, 10))` is a change of the row 1 to `a`, at 10."""
    rows = ({"id": number, "v": name.rstrip("_"), "at": at} for name, (number, at) in values.items())
    return "".join(json.dumps(row) + "\n" for row in rows)


def test_corrected_changes_are_applied_by_their_sequence(tmp_path: Path) -> None:
    landing = Landing(tmp_path, table=UPSERT)
    landing.put("a.json", changes(a=(1, 10), wrong=(2, 10), same=(4, 10)), 1000)
    landing.put("b.json", changes(newer=(1, 20), b=(3, 10)), 2000)
    landing.run()
    landing.put("a.json", changes(a_=(1, 11), right=(2, 10), same=(4, 10), new=(5, 1)), 3000)
    ask(landing, "a.json")

    landing.run()

    assert now(landing) == ["b3", "new5", "newer1", "right2", "same4"]
    assert_proved(landing)


@pytest.mark.parametrize("correction", [{}, {"wrong": (2, 9)}])
def test_change_that_is_taken_back_stops_the_upsert_table_with_what_to_do(
    tmp_path: Path, correction: dict[str, tuple[int, int]], lakefeed: Lakefeed
) -> None:
    """What an earlier file said of the row is in no table any more: only all files tell."""
    landing = Landing(tmp_path, table=UPSERT)
    landing.put("old.json", changes(old=(2, 1)), 500)
    landing.put("a.json", changes(a=(1, 10), wrong=(2, 10)), 1000)
    landing.run()
    landing.put("a.json", changes(a=(1, 10), **correction), 3000)
    ask(landing, "a.json")

    with pytest.raises(LakefeedError, match=r"the row id=2 is of it") as told:
        landing.run()
    stopped = now(landing)
    type_in(lakefeed, str(told.value).partition("of now: ")[2])
    landing.run()

    assert stopped == ["a1", "wrong2"]
    assert now(landing) == ["a1", f"{'wrong' if correction else 'old'}2"]
    assert_proved(landing)


@pytest.mark.parametrize(
    ("table", "problem"),
    [
        (f"{NAMED}, mode: upsert, keys: id", "without `sequence_by`, nothing tells whether"),
        (
            UPSERT.replace("metadata: {_topic: _file}, ", ""),
            "does not tell which of its rows are of the file",
        ),
        (UPSERT + ", ignore_nulls: true", "with `ignore_nulls`, a row has values of several files"),
        (UPSERT + ", delete_when: v is null", "a deletion that the file had cannot be undone"),
        (UPSERT.replace("upsert", "history"), "with `mode: history`, rows of other files depend on them"),
        (f"{NAMED}, mode: deduplicate, keys: id", "with `mode: deduplicate`, rows of other files depend"),
        (f"{NAMED}, mode: overwrite", "with `mode: overwrite`, rows of other files depend on them"),
    ],
)
def test_tables_whose_rows_nothing_can_replace_are_made_anew(
    tmp_path: Path, table: str, problem: str, lakefeed: Lakefeed
) -> None:
    landing = Landing(tmp_path, "format: json, max_files: 1", table)
    for at, name in enumerate("abc"):
        landing.put(f"{name}.json", changes(**{name: (at + 1, 10)}), 1000 + at)
    landing.run()
    landing.put("b.json", changes(right=(2, 10)), 3000)

    (plan,) = ask(landing, "b.json")
    for command in plan.commands:
        type_in(lakefeed, command)
    landing.run()

    assert [problem in one.why for one in plan.anew] == [True]
    assert now(landing) == ["a1", "c3", "right2"]
    assert_proved(landing)


def test_table_whose_rows_must_stay_is_refused_before_anything_is_noted(tmp_path: Path) -> None:
    landing = Landing(tmp_path, table=f"{NAMED}, properties: {{delta.appendOnly: 'true'}}")
    landing.put("a.json", lines(a=1), 1000)
    landing.run()

    with pytest.raises(TableError, match=r"the table has delta\.appendOnly=true"):
        ask(landing, "a.json")

    assert landing.states() == {"1 a.json": "read"}


def test_table_whose_source_has_lost_a_file_is_refused_before_anything_is_noted(tmp_path: Path) -> None:
    landing = Landing(tmp_path, table=f"{NAMED}, mode: deduplicate, keys: id")
    landing.put("a.json", lines(a=1), 1000)
    gone = landing.put("b.json", lines(b=2), 2000)
    landing.run()
    gone.unlink()
    landing.put("a.json", lines(right=1), 3000)

    with pytest.raises(RowsNotReplaced, match=r"Nor can it be made anew: .* 1 file that it has read is gone"):
        ask(landing, "a.json")

    assert list(landing.states().values()) == ["read", "read"]


def test_tables_of_a_source_and_those_that_they_feed_are_made_anew_by_the_commands_in_their_order(
    tmp_path: Path, lakefeed: Lakefeed
) -> None:
    """One replaces the rows, one feeds others, one is a history, one has a route, one follows changes."""
    landing = Landing(tmp_path, "format: json, max_files: 1", NAMED)
    at = "schema: {id: long, v: string, at: long}"
    landing.file.write_text(
        f"""\
name: shop
sources:
  drops: {{type: files, path: in, settle: 1ms, format: json, max_files: 1}}
  feed: {{type: delta, path: hist, change_feed: true}}
tables:
  gold: {{path: gold, from: silver, {PLAIN}}}
  silver: {{path: silver, from: bronze, {PLAIN}}}
  hist: {{path: hist, from: drops, {at}, mode: history, keys: id, sequence_by: at,
         properties: {{delta.enableChangeDataFeed: 'true'}}}}
  copy: {{path: copy, from: feed, mode: upsert, keys: [id, at], {at}}}
  bronze: {{path: bronze, from: drops, {NAMED}}}
  rows: {{path: rows, from: drops, {NAMED}}}
  by_name: {{route: 'lake/{{v}}', from: drops, {PLAIN}, mode: deduplicate, keys: id}}
flush: {{rows: 1000}}
"""
    )
    for number, name in enumerate("abc"):
        landing.put(f"{name}.json", changes(**{name: (number + 1, 10)}), 1000 + number)
    landing.run()
    landing.put("b.json", changes(a=(2, 10)), 3000)

    code, said, _ = lakefeed("files", "reload", landing.file, "b.json", "--yes")
    commands = [line.strip() for line in said.splitlines() if line.startswith("    lakefeed ")]
    for command in commands:
        type_in(lakefeed, command)
    landing.run()

    rebuilt = [f"lakefeed rebuild {landing.file} --table {name} --yes" for name in ("hist", "bronze")]
    fed = [f"lakefeed rebuild {landing.file} --table {name} --yes" for name in ("silver", "gold")]
    dropped = [f"lakefeed table drop {tmp_path}/lake/{name} --yes" for name in "abc"]
    assert (code, sorted(commands)) == (0, sorted([*rebuilt, *fed, *dropped]))
    assert [commands.index(one) for one in (rebuilt[1], *fed)] == sorted(
        commands.index(one) for one in (rebuilt[1], *fed)
    )
    for name in ("rows", "bronze", "silver", "gold", "hist", "copy"):
        found = DeltaTable(tmp_path / name).to_pyarrow_table()
        assert sorted(zip(found["id"].to_pylist(), found["v"].to_pylist(), strict=True)) == [
            (1, "a"),
            (2, "a"),
            (3, "c"),
        ], name
    routed = {v: DeltaTable(tmp_path / "lake" / v).to_pyarrow_table()["id"].to_pylist() for v in "ac"}
    assert {v: sorted(ids) for v, ids in routed.items()} == {"a": [1, 2], "c": [3]}
    assert_proved(landing)


def test_source_that_takes_its_files_away_is_not_told_to_read_all_of_them(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, after: delete", f"{NAMED}, mode: deduplicate, keys: id")
    landing.put("a.json", lines(a=1), 1000)
    landing.run()
    landing.put("a.json", lines(b=1), 2000)

    with pytest.raises(TableError, match=r"Take its rows out .*lakefeed files forget .*/a\.json --yes"):
        ask(landing, "a.json")


@pytest.mark.parametrize("point", ["batch_planned", "files_written", "letters_committed", "table_committed"])
def test_kill_leaves_the_old_rows_or_the_new_ones_and_the_next_run_finishes(
    landing: Landing, point: str
) -> None:
    landing.put("b.json", lines(right=3) + "nothing either\n", 4000)
    ask(landing, "b.json")

    run_until_killed(landing.file, point)
    killed = now(landing)
    landing.run()

    old, new = ["a1", "b2", "c5", "wrong3", "x4"], ["a1", "b2", "c5", "right3"]
    assert killed == (new if point == "table_committed" else old)
    assert now(landing) == new
    assert [letter["payload"] for letter in landing.letters()] == [b"nothing either"]
    assert_proved(landing)


@pytest.mark.parametrize(
    "more",
    [
        "properties: {delta.enableChangeDataFeed: 'true'}",
        "partition_by: [v]",
        "sort_by: [id]",
        "route: 'lake/{v}'",
    ],
)
def test_layouts_keep_what_they_promise(tmp_path: Path, more: str) -> None:
    landing = Landing(tmp_path, table=f"{NAMED}, {more}")
    if "route" in more:
        landing.file.write_text(landing.file.read_text().replace("path: rows, ", ""))
    landing.put("a.json", lines(x=1) + lines(y=2), 1000)
    landing.put("b.json", lines(x=3) + lines(z=4), 2000)
    landing.run()
    landing.put("b.json", lines(y=5), 3000)
    ask(landing, "b.json")

    landing.run()

    paths = [tmp_path / "rows"] if "route" not in more else [tmp_path / "lake" / v for v in "xyz"]
    found = [row for path in paths for row in DeltaTable(path).to_pyarrow_table().to_pylist()]
    assert sorted((row["id"], row["v"]) for row in found) == [(1, "x"), (2, "y"), (5, "y")]
    if "ChangeDataFeed" in more:
        table = DeltaTable(tmp_path / "rows")
        feed = pa.table(table.load_cdf(table.version()).read_all()).to_pylist()
        told = sorted((row["_change_type"], row["id"]) for row in feed)
        assert told == [("delete", 3), ("delete", 4), ("insert", 5)]
    assert_proved(landing)


def test_table_that_has_the_column_since_later_is_told_by_its_commits(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, max_files: 1", PLAIN)
    landing.put("a.json", lines(a=1), 1000)
    landing.run()
    landing.set("format: json", NAMED)
    landing.put("b.json", lines(b=2), 2000)
    landing.put("c.json", lines(c=3), 2000)
    landing.run()
    landing.put("a.json", lines(right=1), 3000)
    ask(landing, "a.json")

    landing.run()

    assert now(landing) == ["b2", "c3", "right1"]
    assert_proved(landing)


def test_rewind_over_a_reload_reads_the_file_as_it_is_now(landing: Landing) -> None:
    before = DeltaTable(landing.folder / "rows").version()
    landing.put("b.json", lines(right=3), 4000)
    ask(landing, "b.json")
    landing.run()

    rewind(Pipeline.from_file(landing.file), "rows", to_version=before, who="me")
    old = now(landing)
    landing.run()

    assert old == ["a1", "b2", "c5", "wrong3", "x4"]
    assert now(landing) == ["a1", "b2", "c5", "right3"]
    assert_proved(landing)


def test_table_that_is_made_anew_has_each_file_once(landing: Landing) -> None:
    landing.put("b.json", lines(right=3), 4000)
    ask(landing, "b.json", "c.json")
    landing.run()
    shutil.rmtree(landing.folder / "rows")

    landing.run()

    assert now(landing) == ["a1", "b2", "c5", "right3"]
    assert_proved(landing)


def test_ledger_of_an_older_release_gets_the_column(landing: Landing) -> None:
    ledger = landing.folder / "shop_drops_files"
    log = ledger / "_delta_log" / "00000000000000000000.json"
    actions = [json.loads(action) for action in log.read_text().splitlines()]
    metadata = next(action["metaData"] for action in actions if "metaData" in action)
    schema = json.loads(metadata["schemaString"])
    schema["fields"] = [field for field in schema["fields"] if field["name"] != "replaces"]
    metadata["schemaString"] = json.dumps(schema)
    log.write_text("".join(json.dumps(action) + "\n" for action in actions))
    older = DeltaTable(ledger).to_pyarrow_table().schema.names
    landing.put("b.json", lines(right=3), 4000)
    ask(landing, "b.json")

    landing.run()

    assert DeltaTable(ledger).to_pyarrow_table().schema.names == [*older, "replaces"]
    assert now(landing) == ["a1", "b2", "c5", "right3"]
    assert_proved(landing)


def test_rows_from_before_a_move_are_not_taken_for_those_of_another_file(
    landing: Landing, lakefeed: Lakefeed
) -> None:
    moved = landing.folder / "moved"
    landing.into.rename(moved)
    landing.into = moved
    landing.set("format: json", NAMED, "moved")
    landing.run()
    landing.put("b.json", lines(right=3), 4000)

    (plan,) = ask(landing, "b.json")

    assert f"no row is of {moved}/b.json, but rows of {landing.folder}/in/b.json may" in plan.anew[0].why
    type_in(lakefeed, *plan.commands)
    landing.run()
    assert now(landing) == ["a1", "b2", "c5", "right3"]
    assert_proved(landing)


def test_run_that_is_on_replaces_the_rows(landing: Landing) -> None:
    landing.set("format: json, on_change: ignore", NAMED)

    with landing.running():
        landing.put("d.json", lines(d=6), 4000)
        wait_until(lambda: "d6" in now(landing), 120, lambda: str(now(landing)))
        landing.put("b.json", lines(right=3), 5000)
        ask(landing, "b.json")
        wait_until(lambda: "right3" in now(landing), 120, lambda: str(now(landing)))

    assert now(landing) == ["a1", "b2", "c5", "d6", "right3"]
    assert landing.letters() == []
    assert_proved(landing)


def test_plan_and_status_count_a_file_that_waits_to_be_reloaded(landing: Landing) -> None:
    landing.put("b.json", lines(right=3), 4000)
    ask(landing, "b.json")
    pipeline = Pipeline.from_file(landing.file)

    lags = plan_run(pipeline).tables[0].lag, status(pipeline).tables[0].lag
    landing.run()

    assert lags == (1, 1)
    assert (plan_run(pipeline).tables[0].lag, status(pipeline).tables[0].lag) == (0, 0)


def test_table_that_cannot_replace_rows_stops_alone_and_its_remedy_works(
    tmp_path: Path, lakefeed: Lakefeed
) -> None:
    both = f"{NAMED}}}, plain: {{path: plain, from: drops, {{}}"
    landing = Landing(tmp_path, "format: json, on_change: reload", both.replace("{}", PLAIN))
    landing.put("a.json", lines(a=1), 1000)
    landing.put("b.json", lines(wrong=2), 2000)
    landing.run()
    landing.put("b.json", lines(right=2), 3000)
    plain = tmp_path / "plain"

    with pytest.raises(
        LakefeedError, match=r"table plain: nothing tells which of its rows are of .*b\.json"
    ) as told:
        landing.run()
    stopped = now(landing), sorted(DeltaTable(plain).to_pyarrow_table()["v"].to_pylist())
    command = str(told.value).partition("of now: ")[2]
    landing.set("format: json, on_change: reload", both.replace("{}", NAMED))
    type_in(lakefeed, command)
    landing.run()

    assert stopped == (["a1", "right2"], ["a", "wrong"])
    assert command == f"lakefeed rebuild {landing.file} --table plain --yes"
    assert sorted(DeltaTable(plain).to_pyarrow_table()["v"].to_pylist()) == ["a", "right"]
    assert_proved(landing)


def test_rows_taken_out_by_hand_and_a_forgotten_file_come_to_the_same(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lakefeed = in_process(capsys, monkeypatch)
    landing = Landing(tmp_path, "format: json, start: new", f"{NAMED}, mode: deduplicate, keys: id")
    landing.run()
    landing.put("a.json", lines(a=1), 1000)
    file = landing.put("b.json", lines(wrong=2), 2000)
    landing.run()
    landing.put("b.json", lines(right=2), 3000)

    with pytest.raises(TableError, match="Take its rows out") as told:
        ask(landing, "b.json")
    forget = str(told.value).partition("new file: ")[2]
    where = ("--where", f"_file = '{file}'")
    deleted = lakefeed("table", "delete", tmp_path / "rows", *where, "--yes")[0]
    forgotten = lakefeed(*shlex.split(forget)[1:])[0]
    landing.run()

    assert (deleted, forgotten) == (0, 0)
    assert now(landing) == ["a1", "right2"]


@pytest.mark.parametrize("table", [NAMED, PLAIN])
def test_rows_are_told_apart_behind_deletion_vectors_and_compactions(
    tmp_path: Path, table: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lakefeed = in_process(capsys, monkeypatch)
    landing = Landing(tmp_path, f"format: json, max_files: {1 if table == PLAIN else 9}", table)
    landing.put("a.json", lines(gone=1, a=2, aa=3), 1000)
    landing.put("b.json", lines(wrong=5, x=6), 2000)
    landing.run()
    allow(tmp_path / "rows")
    mark_everywhere(tmp_path / "rows", [0])
    landing.put("b.json", lines(right=5), 3000)

    (plan,) = ask(landing, "b.json")
    if table == PLAIN:
        assert ["nothing tells which of its rows are of" in one.why for one in plan.anew] == [True]
        return
    landing.run()
    by_vector = now(landing)
    assert lakefeed("table", "optimize", tmp_path / "rows", "--yes")[0] == 0
    landing.put("b.json", lines(again=5), 4000)
    ask(landing, "b.json")
    landing.run()

    assert by_vector == ["a2", "aa3", "right5"]
    assert now(landing) == ["a2", "aa3", "again5"]
    assert verify(Pipeline.from_file(landing.file), deep=True).sound


def test_file_of_which_nothing_landed_is_not_mixed_up_with_one_of_another_source(tmp_path: Path) -> None:
    landing = Landing(tmp_path, table=NAMED)
    other = "us: {type: files, path: us, settle: 1ms, format: json}"
    text = (
        landing.file.read_text()
        .replace("sources: {", f"sources: {{{other}, ")
        .replace("drops,", "[drops, us],")
    )
    landing.file.write_text(text)
    landing.put("day.json", "nothing\n", 1000)
    landing.put("../us/day.json", lines(us=1), 1000)
    landing.run()
    landing.put("day.json", lines(eu=2), 2000)
    ask(landing, "in/day.json")

    landing.run()

    assert now(landing) == ["eu2", "us1"]
    assert landing.letters() == []
    assert_proved(landing)


def reused_name(tmp_path: Path, table: str = NAMED) -> Landing:
    """A file was read and deleted, and another one of its name was read, which has a mistake."""
    landing = Landing(tmp_path, "format: json, after: delete", table)
    landing.put("day.json", lines(first=1), 1000)
    landing.run()
    landing.set("format: json, on_change: reload", table)
    landing.put("day.json", lines(wrong=2), 2000)
    return landing


@pytest.mark.parametrize("by_command", [False, True])
def test_rows_of_an_earlier_file_of_the_same_name_stay(tmp_path: Path, by_command: bool) -> None:
    landing = reused_name(tmp_path)
    landing.run()
    landing.put("day.json", lines(right=2), 3000)
    if by_command:
        ask(landing, "day.json")

    landing.run()

    assert now(landing) == ["first1", "right2"]
    assert_proved(landing)


def test_file_whose_rows_only_its_reused_name_could_tell_is_refused(tmp_path: Path) -> None:
    landing = reused_name(tmp_path)
    landing.put("other.json", lines(other=3), 2000)
    landing.run()
    landing.put("day.json", lines(right=2), 3000)

    with pytest.raises(TableError, match="cannot be replaced: an earlier file had the same path") as refused:
        ask(landing, "day.json")

    assert "table drop" not in str(refused.value)
    assert "lakefeed table delete" in str(refused.value)
    assert now(landing) == ["first1", "other3", "wrong2"]


def forgotten_name(tmp_path: Path, how: str, *others: str) -> Landing:
    """A file was read and left the ledger or was forgotten, and another one of its name has a mistake."""
    options = "format: json, on_change: reload" + (", forget_after: 1ms" if how == "forget_after" else "")
    landing = Landing(tmp_path, options, NAMED)
    day = landing.put("day.json", lines(first=1), 1000)
    landing.put("last.json", lines(last=9), 1500)
    landing.run()
    if how == "forget_after":
        day.unlink()
        landing.run()
        assert landing.states() == {"2 last.json": "read"}
    else:
        retry_or_forget(Pipeline.from_file(landing.file), None, ["day.json"], forget=True, who="me")
    for name in ("day.json", *others):
        landing.put(name, lines(wrong=2), 2000)
    landing.run()
    landing.put("day.json", lines(right=2), 3000)
    return landing


@pytest.mark.parametrize("by_command", [False, True])
@pytest.mark.parametrize("how", ["forget_after", "files forget"])
def test_rows_of_an_earlier_file_of_the_same_name_that_was_forgotten_stay(
    tmp_path: Path, how: str, by_command: bool
) -> None:
    landing = forgotten_name(tmp_path, how)
    if by_command:
        ask(landing, "day.json")

    landing.run()

    assert now(landing) == ["first1", "last9", "right2"]
    assert_proved(landing)


@pytest.mark.parametrize("how", ["forget_after", "files forget"])
def test_file_is_refused_where_an_earlier_one_of_its_name_may_have_left_the_ledger(
    tmp_path: Path, how: str
) -> None:
    landing = forgotten_name(tmp_path, how, "other.json")

    with pytest.raises(TableError, match="cannot be replaced: an earlier file had the same path") as refused:
        ask(landing, "day.json")

    assert "table drop" not in str(refused.value)
    assert "lakefeed table delete" in str(refused.value)
    assert now(landing) == ["first1", "last9", "wrong2", "wrong2"]


@pytest.mark.parametrize("is_changed", [False, True])
def test_retry_of_a_file_whose_reload_waits_leaves_the_reload(landing: Landing, is_changed: bool) -> None:
    landing.put("b.json", lines(right=3), 4000)
    ask(landing, "b.json")
    if is_changed:
        landing.put("b.json", lines(righter=3), 5000)

    retry_or_forget(Pipeline.from_file(landing.file), None, ["b.json"], forget=False, who="me")
    landing.run()

    assert now(landing) == ["a1", "b2", "c5", "righter3" if is_changed else "right3"]
    assert_proved(landing)


@pytest.mark.parametrize("on_change", ["fail", "reload"])
@pytest.mark.parametrize("mode", ["history, keys: id, sequence_by: at", "deduplicate, keys: id"])
def test_table_whose_mode_cannot_replace_rows_is_made_anew_by_the_command_that_is_named(
    tmp_path: Path, on_change: str, mode: str, lakefeed: Lakefeed
) -> None:
    """A later file repeats the wrong value, which is in no row of its own then."""
    table = f"schema: {{id: long, v: string, at: long}}, mode: {mode}"
    landing = Landing(tmp_path, f"format: json, max_files: 1, on_change: {on_change}", table)
    landing.put("a.json", changes(wrong=(1, 10)), 1000)
    landing.put("b.json", changes(wrong=(1, 20), b=(2, 20)), 2000)
    landing.run()
    landing.put("a.json", changes(right=(1, 10)), 3000)

    if on_change == "fail":
        ask(landing, "a.json")
    with pytest.raises(RowsNotReplaced, match="rows of other files depend on them") as told:
        landing.run()
    type_in(lakefeed, str(told.value).partition("of now: ")[2])
    landing.run()

    rows = DeltaTable(landing.folder / "rows").to_pyarrow_table().to_pylist()
    # The corrected file is read last, and `deduplicate` keeps the row of a key that is read first.
    own = [("right", 10)] if "history" in mode else []
    assert sorted((row["v"], row["at"]) for row in rows) == [("b", 20), *own, ("wrong", 20)]
    assert_proved(landing)


BEGINS = [
    "mode: history, keys: id, sequence_by: at",
    "mode: deduplicate, keys: id",
    "mode: upsert, keys: id",
    "expect: {known: id > 0}",
]


def three_files(tmp_path: Path, options: str, table: str) -> Landing:
    """Three files, each a batch of its own, with a dead letter each."""
    landing = Landing(tmp_path, f"format: json, max_files: 1, {options}", table)
    landing.run()
    for at, name in enumerate("abc"):
        landing.put(f"{name}.json", changes(**{name: (at + 1, 10)}) + "refused\n", 1000 + at)
    landing.run()
    return landing


@pytest.mark.parametrize("table", BEGINS)
def test_table_that_is_made_anew_after_a_correction_takes_it_as_any_file(tmp_path: Path, table: str) -> None:
    """It has read nothing of the former content, however many batches lie between the two."""
    landing = three_files(
        tmp_path, "on_change: reload", f"schema: {{id: long, v: string, at: long}}, {table}"
    )
    shutil.rmtree(tmp_path / "rows")
    landing.put("a.json", changes(right=(1, 10)) + "refused as well\n", 3000)

    landing.run()

    assert now(landing) == ["b2", "c3", "right1"]
    assert sorted(one["payload"] for one in landing.letters()) == [b"refused", b"refused", b"refused as well"]
    assert_proved(landing)


@pytest.mark.parametrize("table", BEGINS)
def test_table_that_began_behind_a_file_takes_its_correction_as_any_file(tmp_path: Path, table: str) -> None:
    landing = three_files(tmp_path, "start: new", NAMED)
    own = f"late: {{path: late, from: drops, schema: {{id: long, v: string, at: long}}, {table}}}"
    text = landing.file.read_text()
    landing.file.write_text(text.replace("}}\nflush", f"}}, {own}}}\nflush"))
    landing.run()
    landing.put("d.json", changes(d=(4, 10)), 2500)
    landing.run()
    landing.put("a.json", changes(right=(1, 10)), 3000)
    ask(landing, "a.json")

    landing.run()

    late = DeltaTable(tmp_path / "late").to_pyarrow_table()
    assert sorted(late["v"].to_pylist()) == ["d", "right"]
    assert_proved(landing)


def test_tables_of_a_route_that_came_later_have_no_rows_of_earlier_files(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, max_files: 1", f"{PLAIN}, route: 'lake/{{v}}'")
    landing.file.write_text(landing.file.read_text().replace("path: rows, ", ""))
    landing.put("a.json", lines(x=1), 1000)
    landing.put("b.json", lines(y=2), 2000)
    landing.run()
    landing.put("a.json", lines(x=3), 3000)
    ask(landing, "a.json")

    landing.run()

    found = [DeltaTable(tmp_path / "lake" / v).to_pyarrow_table()["id"].to_pylist() for v in "xy"]
    assert found == [[3], [2]]
    assert_proved(landing)
