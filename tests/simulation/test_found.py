"""Lives that a simulation has found something in, shrunk. Each failed before the repair that it names."""

from __future__ import annotations

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


def test_file_that_another_instance_takes_away_is_not_found_anew() -> None:
    tables = {"b": {"path": "b", "from": "k", "mode": "upsert", "keys": ["id"]}}
    source = {"type": "files", "path": "landing", "format": "json", "settle": "0s", "on_change": "fail"}
    steps = [
        {"do": "put", "path": "a.json", "events": [Event(0, values={"id": "5", "seq": "17"})]},
        {"do": "run", "at": 1, "inside": {"do": "run"}},
    ]

    assert play(Case(42, tables, steps, kind="files", source=source | {"after": {"move": "done"}})) is None


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
