"""`lakefeed dead-letters`: list, show, replay and discard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.commands.dead_letters.dead_letter import dead_letter_lines
from lakefeed.commands.dead_letters.dead_letters_command import topic_and_number
from lakefeed.commands.output import printable
from lakefeed.errors import TableError, UsageError
from support.command_line import Lakefeed
from support.dead_shop import check_ledger, killed
from support.landing import Landing
from support.ledger import dead_letters


def test_replay_tells_what_became_of_the_letters(lakefeed: Lakefeed, shop: Path) -> None:
    _, shown, _ = lakefeed("dead-letters", "replay", shop, "--dry-run")
    code, out, said = lakefeed("dead-letters", "replay", shop, "--table", "events", "--yes")
    json_code, json_out, _ = lakefeed("dead-letters", "replay", shop, "--json", "--yes")

    assert (code, said, json_code) == (0, "", 0)
    assert "events: 90 dead letters would become rows, 10 would fail again\n" in shown
    assert shown.endswith("Nothing was changed (--dry-run).\n")
    assert out.startswith("events: 90 dead letters became rows, 10 failed again\n")
    assert "  new column brand string\n" in out
    assert "  decode/bad_json: 10 dead letters, such as: line 1 column" in out
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
    assert sum(one["dead_letters"] for one in json.loads(counted)) == 100
    assert "events <- clicks partition 0 at offset 0, dead since 20" in shown
    assert '    "event_id": 0,\n' in shown
    (record,) = json.loads(records)
    assert record["payload"].startswith('{"event_id":')
    assert record["code"] == "bad_json"
    assert none == "none of 100 dead letters match\n"


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

    from lakefeed.commands.dead_letters.dead_letter import dead_letter_records
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
    (record,) = dead_letter_records(pa.Table.from_pylist([row], schema=DEAD_LETTER_SCHEMA))

    told = dead_letter_lines(record)

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


def test_table_that_differs_from_its_schema_stops_a_replay_alone(tmp_path: Path, lakefeed: Lakefeed) -> None:
    landing = Landing(tmp_path, table="schema: {id: long, v: string}, expect: {known: id > 1}")
    text = landing.file.read_text()
    tables = ("other: {path: other", "third: {path: third")
    own = "from: drops, schema: {id: long, v: string}, expect: {known: id > 1}}"
    more = "".join(f", {one}, {own}" for one in tables)
    landing.file.write_text(text.replace("}}\nflush", f"}}{more}}}\nflush"))
    landing.put("a.json", '{"id": 1, "v": "a"}\n{"id": 2, "v": "b"}\n', 1000)
    landing.run()
    wrong = landing.file.read_text().replace("known: id > 1", "known: id > 0")
    other = "other, from: drops, schema: {id: "
    landing.file.write_text(wrong.replace(f"{other}long", f"{other}date"))

    named = lakefeed("dead-letters", "replay", landing.file, "--table", "other", "--yes")
    code, out, said = lakefeed("dead-letters", "replay", landing.file, "--yes")
    with pytest.raises(TableError, match="table other"):
        Pipeline.from_file(landing.file).replay()

    assert named[0] == 1 and "table other" in named[2]
    assert (code, said) == (1, named[2])
    assert "rows: 1 dead letter became a row, 0 failed again\n" in out
    assert "other: stopped, for the reason below\n" in out
    assert "third: 1 dead letter became a row, 0 failed again\n" in out
    assert [one["table"] for one in dead_letters(tmp_path / "shop_dead_letters")] == ["other"]
    assert lakefeed("dead-letters", "replay", landing.file, "--table", "rows", "--yes")[0] == 0
