"""verify, rewind, dead-letters and plan as one types them: what is printed, and with which exit code."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.commands import app as line
from lakefeed.commands.dead_letters.letter import letter_lines
from lakefeed.commands.dead_letters.letters_command import topic_and_number
from lakefeed.commands.output import operator, printable
from lakefeed.commands.plan import _table
from lakefeed.engine.instance import only_instance
from lakefeed.errors import UsageError
from lakefeed.reports.plan import PartitionForecast, TableForecast
from lakefeed.text import counted
from support.ledger import assert_each_once, dead_letters, table_ids
from support.offline import drain

Lakefeed = Callable[..., tuple[int, str, str]]


@pytest.fixture
def lakefeed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Lakefeed:
    """The command line inside of this process: exit code, standard output, standard error."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["lakefeed", *map(str, arguments)])
        try:
            line.main()
            code = 0
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return code, said.out, said.err

    return run


def write(folder: Path, time: str = "timestamp", rows: int = 100) -> Path:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks: {{type: generate, rows: {rows}, partitions: 2, bad_ratio: 0.1}}
tables:
  events: {{path: events, from: clicks, schema: {{event_id: long, event_time: {time}}}}}
"""
    )
    return file


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A hundred events, of which none became a row; the reason is mended by now."""
    drain(write(tmp_path, time="timestamp(ms)"))
    return write(tmp_path)


def check_ledger(folder: Path, rows: int = 100) -> None:
    dead = [one["offset"] * 2 + one["partition"] for one in dead_letters(folder / "shop_dead_letters")]
    assert_each_once(range(rows), table_ids(folder / "events"), dead)


def killed(point: str, *arguments: object) -> None:
    """Run `lakefeed` in a process of its own that kills itself at this point."""
    done = subprocess.run(
        [sys.executable, "-m", "lakefeed", *map(str, arguments)],
        env={**os.environ, "LAKEFEED_KILL_AT": point},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == -signal.SIGKILL, done.stderr


def test_verify_prints_what_it_proved(lakefeed: Lakefeed, shop: Path) -> None:
    code, out, said = lakefeed("verify", shop)

    assert (code, said) == (0, "")
    assert out.splitlines() == [
        "events: 0 rows in 0 files, versions 0 to 1",
        "  clicks/0: offsets 0 to 49, 50 events read, 50 dead letters",
        "  clicks/1: offsets 0 to 49, 50 events read, 50 dead letters",
        "dead letters: 100 rows in 1 file, versions 0 to 1",
        "shop: sound: nothing lost, nothing twice",
    ]


def test_verify_counts_dead_letters_as_they_are_after_a_replay(lakefeed: Lakefeed, shop: Path) -> None:
    lakefeed("dead-letters", "replay", shop, "--yes")

    code, out, _ = lakefeed("verify", shop)

    assert code == 0
    left = [len(at) for at in (dead_letters_of(shop, 0), dead_letters_of(shop, 1))]
    assert sum(left) == 10
    assert out.splitlines()[1:3] == [
        f"  clicks/{number}: offsets 0 to 49, 50 events read, {counted(count, 'dead letter')}, "
        f"{50 - count} more replayed or discarded"
        for number, count in enumerate(left)
    ]


def dead_letters_of(shop: Path, partition: int) -> list[int]:
    letters = DeltaTable(shop.parent / "shop_dead_letters").to_pyarrow_table().to_pylist()
    return [letter["offset"] for letter in letters if letter["partition"] == partition]


def test_verify_names_the_pipelines_that_feed_a_table(lakefeed: Lakefeed, shop: Path) -> None:
    file = shop.parent / "store.yaml"
    file.write_text(
        shop.read_text().replace("name: shop", "name: store").replace("from:", "share: true, from:")
    )
    drain(file)

    code, out, _ = lakefeed("verify", shop)

    assert code == 3
    assert "  fed by pipelines shop and store\n  shop/clicks/0: offsets 0 to 49, 50 events read" in out
    assert "  store/clicks/1: offsets 0 to 49, 50 events read" in out
    assert (
        "pipelines shop and store both feed the table from the same events: 50 events of partition 1 there "
        "twice, offsets 0 to 49\n" in out
    )


def test_verify_exits_with_3_and_names_what_is_wrong(lakefeed: Lakefeed, shop: Path) -> None:
    lakefeed("dead-letters", "replay", shop, "--yes")
    file = next((shop.parent / "events").glob("part-*.parquet"))
    file.unlink()

    code, out, _ = lakefeed("verify", shop)
    json_code, json_out, _ = lakefeed("verify", shop, "--deep", "--json")

    assert code == json_code == 3
    assert f"  ! file: version 3: {file.name} with 90 rows is missing\n" in out
    assert out.endswith("shop: 1 finding, marked with !\n")
    found = json.loads(json_out)
    assert found["sound"] is False
    assert found["tables"][0]["findings"][0]["kind"] == "file"


def test_verify_does_not_call_sound_what_it_could_not_count(lakefeed: Lakefeed, shop: Path) -> None:
    lakefeed("dead-letters", "replay", shop, "--yes")
    for entry in (shop.parent / "events" / "_delta_log").glob("*.json"):
        entry.write_text(entry.read_text().replace('"stats":', '"unknown":'))

    code, out, _ = lakefeed("verify", shop)

    assert code == 3
    assert "  not checked: some files have no statistics, so rows could not be counted; the first" in out
    assert out.endswith("shop: no problem found, but some checks were not possible: see `not checked`\n")


def test_replay_tells_what_became_of_the_letters(lakefeed: Lakefeed, shop: Path) -> None:
    _, shown, _ = lakefeed("dead-letters", "replay", shop, "--dry-run")
    code, out, said = lakefeed("dead-letters", "replay", shop, "--table", "events", "--yes")
    json_code, json_out, _ = lakefeed("dead-letters", "replay", shop, "--json", "--yes")

    assert (code, said, json_code) == (0, "", 0)
    assert "events: 90 dead letters would become rows, 10 would fail again\n" in shown
    assert shown.endswith("Nothing was changed (--dry-run).\n")
    assert out.startswith("events: 90 dead letters became rows, 10 failed again\n")
    assert "  new column brand string\n" in out
    assert "  decode/bad_json: 10 letters, such as: line 1 column" in out
    assert json.loads(json_out)[0]["rows"] == 0
    check_ledger(shop.parent)


def test_killed_replay_and_a_second_call_make_each_letter_a_row_once(lakefeed: Lakefeed, shop: Path) -> None:
    killed("replay_committed", "dead-letters", "replay", shop, "--yes")
    left = len(dead_letters(shop.parent / "shop_dead_letters"))
    code, out, _ = lakefeed("verify", shop)

    _, second, _ = lakefeed("dead-letters", "replay", shop, "--yes")

    assert (code, left) == (3, 100)
    assert "  ! interrupted: " in out
    assert second.startswith("events: 0 dead letters became rows, 10 failed again\n")
    check_ledger(shop.parent)
    assert lakefeed("verify", shop)[0] == 0


def test_killed_rewind_is_finished_by_the_next_run(lakefeed: Lakefeed, shop: Path) -> None:
    lakefeed("dead-letters", "replay", shop, "--yes")

    killed("rewind_committed", "rewind", shop, "--table", "events", "--to-version", "1", "--yes")
    left = len(dead_letters(shop.parent / "shop_dead_letters"))
    code, out, _ = lakefeed("verify", shop)
    drain(shop)
    returned = len(dead_letters(shop.parent / "shop_dead_letters"))
    lakefeed("dead-letters", "replay", shop, "--yes")

    assert (code, left, returned) == (3, 10, 100)
    assert "  ! interrupted: " in out
    check_ledger(shop.parent)
    assert lakefeed("verify", shop, "--deep")[0] == 0


def test_rewind_tells_rows_and_offsets_and_a_dry_run_changes_nothing(
    lakefeed: Lakefeed, tmp_path: Path
) -> None:
    file = write(tmp_path)
    drain(file, batch=20)
    version = DeltaTable(tmp_path / "events").version()

    code, shown, said = lakefeed("rewind", file, "--table", "events", "--to-version", 2, "--dry-run")
    unchanged = DeltaTable(tmp_path / "events").version()
    _, done, _ = lakefeed("rewind", file, "--table", "events", "--to-version", 2, "--yes")

    assert (code, said, unchanged) == (0, "", version)
    assert shown.startswith(
        f"events: would be rewound from version {version} to the content of version 2 of 20"
    )
    assert "  rows: 90 -> 36\n  clicks/0: next 50 -> 20, 30 offsets to read again\n" in shown
    assert "  6 dead letters of these offsets stay dead letters; after the next run, " in shown
    assert shown.endswith("Nothing was changed (--dry-run).\n")
    assert f", as the new version {version + 1}\n" in done
    drain(file)
    check_ledger(tmp_path)


def test_history_tells_rewind_and_replay_as_commands_with_their_rows(lakefeed: Lakefeed, shop: Path) -> None:
    lakefeed("dead-letters", "replay", shop, "--yes")
    lakefeed("rewind", shop, "--table", "events", "--to-version", 1, "--yes")

    _, found, _ = lakefeed("table", "history", shop.parent / "events", "--json")

    told = [(one["operation"], one["rows_added"], one["rows_removed"]) for one in json.loads(found)[:2]]
    assert told == [("rewind", 0, 90), ("replay", 90, 0)]
    assert {one["by"] for one in json.loads(found)[:2]} == {f"lakefeed command, {operator()}"}
    assert json.loads(found)[-1]["by"] == "lakefeed pipeline shop"


def test_the_plan_of_a_rewind_says_that_the_pipeline_runs_and_the_rewind_is_refused(
    lakefeed: Lakefeed, tmp_path: Path
) -> None:
    file = write(tmp_path)
    drain(file, batch=20)
    arguments = ("rewind", file, "--table", "events", "--to-version", 2)

    with only_instance(Pipeline.from_file(file)):
        code, shown, _ = lakefeed(*arguments)
        _, found, _ = lakefeed(*arguments, "--json")
        refused, _, said = lakefeed(*arguments, "--yes")
    _, stopped, _ = lakefeed(*arguments)

    process = f"is running on this machine as process {os.getpid()}"
    assert (code, json.loads(found)["running"], refused) == (0, True, 1)
    assert f"  note: pipeline shop {process}; a rewind is refused until it has stopped\n" in shown
    assert shown.endswith("Nothing was changed. To do it, stop the pipeline, then: --yes\n")
    assert "is already running on this machine" in said
    assert "running" not in stopped and stopped.endswith("To do it: --yes\n")


def test_what_a_run_was_set_can_be_set_for_the_commands_that_look_at_it(
    lakefeed: Lakefeed, tmp_path: Path
) -> None:
    file = write(tmp_path)
    file.write_text(file.read_text().replace("path: events", "path: elsewhere"))
    drain(file)
    write(tmp_path)
    there = ("--set", "tables.events.path=elsewhere")

    for command in (("status",), ("plan",), ("verify",), ("validate",), ("dead-letters", "list")):
        assert lakefeed(*command, file, *there)[0] == 0
    _, found, _ = lakefeed("status", file, "--json", *there)
    _, other, _ = lakefeed("status", file, "--json")

    assert json.loads(found)["tables"][0]["rows"] == 90
    assert json.loads(other)["tables"][0]["version"] is None


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["rewind", "--table", "events"], "give either --to-version or --to-time"),
        (
            ["rewind", "--table", "events", "--to-time", "soon"],
            "--to-time: expected a time such as 2026-11-15T10:00:00Z, or 2h for two hours ago, got 'soon'",
        ),
        (["rewind", "--table", "event", "--to-version", "1"], "did you mean 'events'?"),
        (["dead-letters", "discard", "--yes"], "--reason: say why these dead letters are discarded"),
        (["dead-letters", "list", "--since", "x"], "--since: expected a time"),
    ],
)
def test_wrong_arguments_exit_with_2_and_say_what_is_wrong(
    arguments: list[str], told: str, lakefeed: Lakefeed, shop: Path
) -> None:
    handle = 2 if arguments[0] == "dead-letters" else 1

    code, _, said = lakefeed(*arguments[:handle], shop, *arguments[handle:])

    assert code == 2
    assert told in said


def test_discard_needs_yes_and_a_reason_that_the_commit_keeps(lakefeed: Lakefeed, shop: Path) -> None:
    arguments = ("dead-letters", "discard", shop, "--stage", "decode", "--since", "1h")

    _, shown, _ = lakefeed(*arguments)
    before = len(dead_letters(shop.parent / "shop_dead_letters"))
    code, out, _ = lakefeed(*arguments, "--yes", "--reason", "cut off by the producer")

    commit_info = json.loads(DeltaTable(shop.parent / "shop_dead_letters").history(1)[0]["lakefeed"])
    assert shown == (
        '10 dead letters would be discarded\nNothing was changed. To do it: --yes --reason "why"\n'
    )
    assert (before, code, out) == (100, 0, "10 dead letters discarded\n")
    assert commit_info["reason"] == "cut off by the producer"
    assert "@" in commit_info["who"]


def test_list_counts_letters_and_show_prints_their_payloads(lakefeed: Lakefeed, shop: Path) -> None:
    code, out, _ = lakefeed("dead-letters", "list", shop)
    _, counted, _ = lakefeed("dead-letters", "list", shop, "--json")
    _, shown, _ = lakefeed("dead-letters", "show", shop, "--stage", "schema", "--offset", 0, "--partition", 0)
    _, records, _ = lakefeed("dead-letters", "show", shop, "--stage", "decode", "--limit", 1, "--json")
    _, none, _ = lakefeed("dead-letters", "show", shop, "--code", "none")

    assert code == 0
    assert out.startswith("events <- clicks  schema/")
    assert out.endswith("100 dead letters\n")
    assert sum(one["letters"] for one in json.loads(counted)) == 100
    assert "events <- clicks partition 0 at offset 0, dead since 20" in shown
    assert '    "event_id": 0,\n' in shown
    (record,) = json.loads(records)
    assert record["payload"].startswith('{"event_id":')
    assert record["code"] == "bad_json"
    assert none == "none of 100 dead letters match\n"


def test_plan_prints_what_a_run_would_do(lakefeed: Lakefeed, tmp_path: Path) -> None:
    file = write(tmp_path)

    code, out, said = lakefeed("plan", file)
    _, json_out, _ = lakefeed("plan", file, "--json")
    drain(file)
    _, after, _ = lakefeed("plan", file)

    assert (code, said) == (0, "")
    assert out.startswith(
        f"events: create at {tmp_path / 'events'}\n  columns, inferred from 90 waiting events:\n"
    )
    assert "    + event_id long\n" in out
    assert "  clicks 0: begins at 0, end 50, lag 50\n" in out
    assert "  of 100 sampled events would be dead letters: 10 bad_json\n" in out
    assert out.endswith("Nothing was changed.\n")
    assert json.loads(json_out)["tables"][0]["action"] == "create"
    assert after == (
        "events: nothing to change\n"
        "  clicks 0: continues at 50, end 50, lag 0\n"
        "  clicks 1: continues at 50, end 50, lag 0\n"
        "Nothing was changed.\n"
    )


def test_verify_and_plan_import_neither_spark_nor_pandas(shop: Path) -> None:
    looks = """
import sys
sys.argv = ["lakefeed", *sys.argv[1:]]
from lakefeed.commands.app import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(sorted(name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j", "pandas")))
"""

    for command in ("verify", "plan"):
        done = subprocess.run(
            [sys.executable, "-c", looks, command, str(shop)], capture_output=True, text=True, timeout=60
        )

        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize(
    ("payload", "lines"),
    [
        (b'{"a": 1}', ["payload, 8 bytes:", "  {", '    "a": 1', "  }"]),
        (b"\x1b[31mred\n", ["payload, 9 bytes:", "  \\x1b[31mred"]),
        (b"\xff\x00ab", ["payload, 4 bytes, not text:", f"  00000000  {'ff 00 61 62':<48} ..ab"]),
        (None, ["payload: none"]),
    ],
)
def test_payload_is_shown_readably_and_cannot_drive_the_terminal(
    payload: bytes | None, lines: list[str]
) -> None:
    import pyarrow as pa

    from lakefeed.commands.dead_letters.letter import letter_records
    from lakefeed.rows.dead_letter import DEAD_LETTER_SCHEMA

    row = {field.name: None for field in DEAD_LETTER_SCHEMA} | {
        "dead_at": 0,
        "table": "events",
        "source": "clicks",
        "stage": "decode",
        "code": "bad",
        "error": "bad\x07",
        "topic": "clicks",
        "partition": 0,
        "offset": 5,
        "key": b"k",
        "headers": [{"key": "h", "value": b"\xff"}],
        "payload": payload,
    }
    (record,) = letter_records(pa.Table.from_pylist([row], schema=DEAD_LETTER_SCHEMA))

    told = letter_lines(record)

    assert told[:4] == [
        "events <- clicks clicks-0 at offset 5, dead since 1970-01-01T00:00:00Z",
        "  decode/bad: bad\\x07",
        "  key: k",
        "  header h: /w==",
    ]
    assert told[4:-1] == [f"  {line}" for line in lines]


def test_text_without_oddities_is_printed_as_it_is() -> None:
    assert printable("größe = 5 €") == "größe = 5 €"


@pytest.mark.parametrize("command", [["list"], ["show"], ["replay"], ["discard"]], ids=" ".join)
def test_filter_for_a_table_that_nobody_has_is_a_mistake_of_typing(
    lakefeed: Lakefeed, shop: Path, command: list[str]
) -> None:
    code, out, said = lakefeed("dead-letters", *command, shop, "--table", "event")
    _, none, _ = lakefeed("dead-letters", *command, shop, "--code", "no_such_code")

    assert (code, out) == (2, "")
    assert "--table: there is no table 'event', did you mean 'events'?" in said
    assert none == "none of 100 dead letters match\n"


def test_letters_of_a_table_that_the_file_has_no_more_are_still_found(lakefeed: Lakefeed, shop: Path) -> None:
    shop.write_text(shop.read_text().replace("events: {path", "visits: {path"))

    code, out, _ = lakefeed("dead-letters", "list", shop, "--table", "events")
    new_code, none, _ = lakefeed("dead-letters", "list", shop, "--table", "visits")

    assert (code, out.splitlines()[-1]) == (0, "100 dead letters")
    assert (new_code, none) == (0, "none of 100 dead letters match\n")


def test_letters_that_died_together_are_shown_from_the_last_offset_on(lakefeed: Lakefeed, shop: Path) -> None:
    _, out, _ = lakefeed("dead-letters", "show", shop, "--partition", "0", "--limit", "3", "--json")

    assert [one["offset"] for one in json.loads(out)] == [49, 48, 47]


def test_partition_may_be_named_as_messages_name_it() -> None:
    assert topic_and_number(None, "my-orders-12") == ("my-orders", 12)
    assert topic_and_number("orders", "3") == ("orders", 3)
    for wrong in ("orders", "-1", "orders-x"):
        with pytest.raises(UsageError, match="expected a number, or a topic and a number such as orders-0"):
            topic_and_number(None, wrong)
    with pytest.raises(UsageError, match="is of topic orders, but --topic is clicks"):
        topic_and_number("clicks", "orders-1")


def test_plan_of_a_run_that_would_stop_fails(lakefeed: Lakefeed, tmp_path: Path) -> None:
    drain(write(tmp_path))

    code, out, _ = lakefeed("plan", write(tmp_path, time="date"))

    assert "events: would stop: " in out
    assert code == 1


def test_plan_says_why_waiting_events_show_no_column() -> None:
    told = TableForecast("events", "lake/events", "create")
    told.resumes = {"clicks": {"0": PartitionForecast(0, 3, 3, True)}}

    told.lag = told.sampled = 3
    waiting = _table(told)[1]
    told.lag = told.sampled = 0
    none = _table(told)[1]

    assert (
        waiting == "  columns: inferred from the first events; 3 events wait, none has a column with a value"
    )
    assert none == "  columns: inferred from the first events; there are none yet"


def test_plan_warns_of_columns_that_few_events_show() -> None:
    told = TableForecast("events", "lake/events", "create", ["id long"], inferred=True)
    told.sampled = told.seen_in = 1

    assert _table(told)[1] == (
        "  columns, inferred from 1 waiting event; declare `schema` if later events may differ:"
    )
