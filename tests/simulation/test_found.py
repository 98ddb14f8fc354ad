"""Lives that a simulation has found something in, shrunk. Each failed before the repair that it names."""

from __future__ import annotations

from dataclasses import replace

from simulation.cases import Case
from simulation.events import Event
from simulation.sources import play


def test_run_that_reconciles_dead_letters_during_a_rewind_does_not_fail_the_rewind() -> None:
    tables = {"a": {"path": "a", "from": "k", "mode": "deduplicate", "keys": ["id"]}}
    events = [
        Event(0, values={"id": "0", "seq": "10"}),
        Event(0, code="bad_json", raw='{"id": 1', gap=1),
        Event(1, values={"id": "5", "seq": "11"}, gap=1),
    ]
    steps = [
        {"do": "produce", "events": events},
        {"do": "run"},
        {"do": "compact", "table": "a"},
        {"do": "rewind", "table": "a", "back": 2, "at": 2, "inside": {"do": "run"}},
    ]

    assert play(Case(101, tables, steps)) is None


def test_deletion_without_a_sequence_knows_that_of_its_row_in_a_table_with_column_mapping() -> None:
    spec = {
        "path": "a",
        "from": "k",
        "mode": "upsert",
        "keys": ["id"],
        "sequence_by": ["seq"],
        "names": "keep",
    }
    steps = [
        {"do": "produce", "events": [Event(0, values={"id": "4", "seq": "21"})]},
        {"do": "run"},
        {"do": "produce", "events": [Event(0, code="null_payload", key=b'{"id": 4}')]},
        {"do": "run"},
    ]

    assert play(Case(10, {"a": spec}, steps, key="json")) is None


def test_rewind_behind_a_rewind_makes_no_dead_letter_of_a_row_that_it_brings_back() -> None:
    tables = {
        "a": {"path": "a", "from": "k", "mode": "append", "schema": {"id": "long", "price": "decimal(10,2)"}}
    }
    steps = [
        {"do": "produce", "events": [Event(0, values={"id": "0", "seq": "13", "price": "100000000"})]},
        {"do": "run"},
        {"do": "edit", "table": "a", "changes": {"evolve": {"type_change": "rescue"}}},
        {"do": "replay", "table": "a"},
        {"do": "rewind", "table": "a", "back": 1},
        {"do": "replay", "table": "a"},
        {"do": "rewind", "table": "a", "back": 2},
    ]

    assert play(Case(5052, tables, steps)) is None


def test_what_debezium_says_of_each_change_is_no_new_column() -> None:
    spec = {"path": "a", "from": "k", "mode": "upsert", "keys": ["id"], "schema": {"id": "long"}}
    events = [Event(0, values={"id": "1"}, change="c", place=1)]
    steps = [{"do": "produce", "events": events}, {"do": "run"}]

    case = Case(55, {"a": spec | {"evolve": "dead_letter"}}, steps, format="debezium")
    assert play(case) is None


def test_file_that_another_instance_takes_away_is_not_found_anew() -> None:
    tables = {"b": {"path": "b", "from": "k", "mode": "upsert", "keys": ["id"]}}
    source = {"type": "files", "path": "landing", "format": "json", "settle": "0s", "on_change": "fail"}
    steps = [
        {"do": "put", "path": "a.json", "events": [Event(0, values={"id": "5", "seq": "17"})]},
        {"do": "run", "at": 1, "inside": {"do": "run"}},
    ]

    assert play(Case(42, tables, steps, kind="files", source=source | {"after": {"move": "done"}})) is None


def test_small_events_without_rows_do_not_bring_the_same_batch_of_large_ones_for_ever() -> None:
    spec = {"path": "a", "from": "k", "mode": "upsert", "keys": ["id"], "schema": {"id": "long"}}
    large = {"name": '"' + "long" * 50 + '"'}
    events = [
        Event(0, code="null_payload", change="tombstone"),
        Event(0, values={"id": "0", **large}, change="u", place=1),
        Event(1, values={"id": "3", **large}, change="u", place=2),
    ]
    steps = [
        {"do": "batch", "rows": 1000, "bytes": "100B"},
        {"do": "produce", "events": events},
        {"do": "run"},
    ]

    assert play(Case(32, {"a": spec}, steps, format="debezium")) is None


def test_replay_that_adds_a_column_does_not_pass_a_replay_of_the_same_letters() -> None:
    spec = {"path": "a", "from": "k", "mode": "append", "schema": {"id": "long", "price": "decimal(10,2)"}}
    replay = {"do": "replay", "table": "a"}
    steps = [
        {"do": "produce", "events": [Event(0, values={"id": "3", "price": '"x"', "more": "1"})]},
        {"do": "run"},
        {"do": "edit", "table": "a", "changes": {"evolve": {"new_column": "add", "type_change": "rescue"}}},
        {**replay, "at": 2, "inside": replay},
    ]

    assert play(Case(126, {"a": spec}, steps)) is None


def test_slot_that_another_instance_moves_on_has_lost_nothing() -> None:
    tables = {"orders": {"path": "orders", "from": "k", "mode": "upsert", "streams": "public.orders"}}
    source = {"type": "postgres", "connection": "dbname=shopdb", "tables": ["public.orders"]}
    begun = [
        {"do": "create", "name": "orders", "identity": "d"},
        {"do": "commit", "statements": [["insert", "orders", {"id": "1"}]]},
        {"do": "run"},
        {"do": "commit", "statements": [["update", "orders", ["1"], {"n": "1"}]]},
    ]

    for at in range(18, 28):
        steps = [*begun, {"do": "run", "at": at, "inside": {"do": "run"}}]
        assert play(Case(84, tables, steps, kind="postgres", source=source)) is None


def test_file_that_another_instance_reads_and_deletes_meanwhile_is_no_dead_letter() -> None:
    spec = {"path": "a", "from": "k", "mode": "deduplicate", "keys": ["id"], "schema": {"id": "long"}}
    source = {"type": "files", "path": "landing", "format": "json", "settle": "0s", "after": "delete"}
    steps = [
        {"do": "run"},
        {"do": "put", "path": "i.txt", "events": [Event(0, values={"id": "3", "seq": "14"})]},
    ]

    for at in range(1, 8):
        case = Case(18, {"a": spec}, [*steps, {"do": "run", "at": at, "inside": {"do": "run"}}])
        assert play(replace(case, kind="files", source=source | {"on_change": "fail"})) is None
