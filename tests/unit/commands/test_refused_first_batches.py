"""A table that has refused everything so far: what the run, `list` and `replay` say, and the exit code."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer

from lakefeed import Pipeline, TableError
from lakefeed.commands.run import RefusedEvents
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import AllRefused, RunEvent, all_of
from lakefeed.reprocess.rebuild import rebuild
from support.command_line import Lakefeed
from support.landing import Landing
from support.ledger import dead_letters, table_ids

FILE = """\
name: shop
sources: {events: {type: files, path: in, format: json, settle: 0s}}
tables:
  events: {path: events, from: events, evolve: ignore, schema: {event_id: long, price: PRICE, count: long}}
"""


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    (tmp_path / "in").mkdir()
    rows = [{"event_id": n, "price": f"${n % 7}", "count": "many" if n < 3 else n} for n in range(50)]
    (tmp_path / "in" / "a.json").write_text("".join(json.dumps(one) + "\n" for one in rows))
    (tmp_path / "shop.yaml").write_text(FILE.replace("PRICE", "double"))
    return tmp_path / "shop.yaml"


def test_list_groups_by_column_with_three_samples(lakefeed: Lakefeed, shop: Path) -> None:
    (shop.parent / "in" / "b.json").write_text('{"event_id": 60, "price": 1.5, "count": "x"}\n{"event_id"\n')
    run_inline(Pipeline.from_file(shop))

    code, out, _ = lakefeed("dead-letters", "list", shop)
    _, text, _ = lakefeed("dead-letters", "list", shop, "--json")

    lines = out.splitlines()
    first, *_ = json.loads(text)
    assert code == 0
    assert lines[0].startswith("events <- events  schema/wrong_type, column price: 50 dead letters, ")
    assert lines[1:4] == [f'  such as: price: expected double, got "${n}"' for n in range(3)]
    assert lines[4].startswith("events <- events  ")
    assert {line.partition(":")[0] for line in lines[4::2]} >= {
        "events <- events  schema/wrong_type, column count",
        "events <- events  decode/bad_json",
    }
    assert (first["column"], first["dead_letters"], len(first["samples"])) == ("price", 50, 3)


def test_replay_of_a_table_that_does_not_exist_yet_says_what_waits(
    lakefeed: Lakefeed, tmp_path: Path
) -> None:
    """The remedy that it prints is tried: a schema, a run, a replay."""
    cut_off = "name: shop\nsources: {events: {type: generate, rows: 20, bad_ratio: 1}}\n"
    shop = tmp_path / "shop.yaml"
    shop.write_text(f"{cut_off}tables: {{events: {{path: events, from: events}}}}\n")
    run_inline(Pipeline.from_file(shop))
    _, out, _ = lakefeed("dead-letters", "replay", shop, "--yes")

    assert not (tmp_path / "events").exists()
    assert out.splitlines() == [
        "events: 0 dead letters became rows, 0 failed again",
        "  20 are waiting: the table does not exist yet; run the pipeline, which creates it, then replay "
        "them. If no event shows which columns it has, declare its `schema` first",
    ]

    text = cut_off.replace("bad_ratio: 1", "bad_ratio: 1, format: text")
    shop.write_text(f"{text}tables: {{events: {{path: events, from: events, schema: {{data: string}}}}}}\n")
    run_inline(Pipeline.from_file(shop))
    _, out, _ = lakefeed("dead-letters", "replay", shop, "--yes")

    assert out == "events: 20 dead letters became rows, 0 failed again\n"
    assert len(table_ids(tmp_path / "events", "data")) == 20
    assert dead_letters(tmp_path / "shop_dead_letters") == []


def test_replay_of_files_that_were_read_with_the_wrong_encoding_names_the_rebuild(
    lakefeed: Lakefeed, tmp_path: Path
) -> None:
    landing = Landing(tmp_path, "format: {type: csv, header: true}", "schema: {id: long, town: string}")
    landing.put("a.csv", "id,town\n1,Köln\n2,Bonn\n".encode("latin-1"))
    landing.run()
    landing.set("format: {type: csv, header: true}, encoding: latin-1", "schema: {id: long, town: string}")
    _, out, _ = lakefeed("dead-letters", "replay", landing.file, "--yes")
    *_, hint = out.splitlines()
    before, _, command = hint.partition(": lakefeed ")

    rebuild(Pipeline.from_file(landing.file), "rows", run_inline)

    assert (
        before
        == "  if the files were read with the wrong format or encoding, correct it, then read them again"
    )
    assert command == f"rebuild {landing.file} --table rows --yes"
    assert landing.rows("town") == ["Bonn", "Köln"]
    assert landing.letters() == []


def watched(pipeline: Pipeline, refused: RefusedEvents) -> list[RunEvent]:
    seen: list[RunEvent] = []
    run_inline(pipeline, all_of(seen.append, refused.watch))
    return seen


def test_a_table_that_refuses_everything_at_first_is_an_error(shop: Path) -> None:
    pipeline = Pipeline.from_file(shop)
    refused = RefusedEvents(pipeline, fails_on_any=False, allows_all=False)
    seen = watched(pipeline, refused)

    (event,) = (one for one in seen if isinstance(one, AllRefused))
    assert event.text == (
        "its first batch of 50 events became dead letters, most often wrong_type: price: "
        'expected double, got "$0" (file 1)'
    )
    with pytest.raises(
        TableError, match=r"its first batch of 50 events became .*; it has no row yet"
    ) as error:
        refused.end()
    assert "or add --allow-dead-letters" in str(error.value).lower()

    again = RefusedEvents(pipeline, fails_on_any=True, allows_all=False)
    watched(pipeline, again)
    again.end()


def test_all_refused_may_be_allowed(shop: Path) -> None:
    pipeline = Pipeline.from_file(shop)
    refused = RefusedEvents(pipeline, fails_on_any=False, allows_all=True)
    watched(pipeline, refused)

    refused.end()


def test_a_first_batch_of_dead_letters_is_no_error_once_rows_have_come(shop: Path) -> None:
    (shop.parent / "in" / "b.json").write_text('{"event_id": 60, "price": 1.5, "count": 1}\n')
    shop.write_text(shop.read_text() + "flush: {rows: 10}\n")
    pipeline = Pipeline.from_file(shop)
    refused = RefusedEvents(pipeline, fails_on_any=False, allows_all=False)

    seen = watched(pipeline, refused)
    (shop.parent / "in" / "c.json").write_text('{"event_id": "x"}\n')
    later = RefusedEvents(pipeline, fails_on_any=False, allows_all=False)
    watched(pipeline, later)

    assert any(isinstance(one, AllRefused) for one in seen)
    refused.end()
    later.end()
    assert table_ids(shop.parent / "events") == [60]


def test_rows_land_and_new_dead_letters_end_the_run_with_3(
    shop: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shop.write_text(FILE.replace("PRICE", "string"))
    pipeline = Pipeline.from_file(shop)
    refused = RefusedEvents(pipeline, fails_on_any=True, allows_all=False)
    watched(pipeline, refused)

    with pytest.raises(typer.Exit) as ended:
        refused.end()

    assert ended.value.exit_code == 3
    assert caplog.messages[-1] == "3 new dead letters, and --fail-on-dead-letters is given"
    assert len(table_ids(shop.parent / "events")) == 47
    nothing_new = RefusedEvents(pipeline, fails_on_any=True, allows_all=False)
    watched(pipeline, nothing_new)
    nothing_new.end()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--allow-dead-letters"], "--allow-dead-letters has an effect only with --once"),
        (["--fail-on-dead-letters"], "--fail-on-dead-letters has an effect only with --once"),
        (["--once", "--allow-dead-letters", "--fail-on-dead-letters"], "contradict each other"),
    ],
)
def test_options_that_have_no_effect_are_refused(
    lakefeed: Lakefeed, shop: Path, options: list[str], message: str
) -> None:
    code, _, said = lakefeed("run", shop, *options)

    assert code == 2
    assert message in said
