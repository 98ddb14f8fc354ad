"""The page on reliability names tests that exist, and every test of the faults that it promises."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs" / "reliability.md").read_text()
NAMED = set(re.findall(r"`(test_\w+)`", PAGE))
# What they test is the laboratory itself, or no fault.
APART = {
    "test_random_walk_keeps_the_ledger",
    "test_walk_is_the_same_for_the_same_seed",
    "test_walk_that_finds_something_tells_the_steps_to_it",
    "test_every_way_of_meddling_is_tried",
    "test_laboratory_tells_what_it_found_and_how_to_see_it_again",
    "test_status_agrees_with_what_duckdb_counts",
}


def defined(folder: Path) -> set[str]:
    return {
        name
        for file in folder.rglob("test_*.py")
        for name in re.findall(r"^def (test_\w+)", file.read_text(), re.MULTILINE)
    }


def test_every_test_that_the_page_names_exists() -> None:
    assert NAMED - defined(TESTS) == set()


def test_every_test_of_a_fault_is_on_the_page() -> None:
    assert defined(TESTS / "faults") - NAMED - APART == set()
