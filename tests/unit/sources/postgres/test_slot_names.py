"""Two sources of a file do not share a replication slot."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.errors import PipelineFileError


def load(folder: Path, first: str, second: str) -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  a: {{type: postgres, host: db, database: shop, tables: public.a, {first}}}
  b: {{type: postgres, host: db, database: shop, tables: public.b, {second}}}
tables:
  a: {{path: a, from: a}}
  b: {{path: b, from: b}}
"""
    )
    return Pipeline.from_file(file)


@pytest.mark.parametrize(
    ("first", "second"),
    [("slot: both",) * 2, ("slot: both, publication: a", "slot: both, publication: b")],
)
def test_slot_that_two_sources_would_read_is_refused(first: str, second: str, tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match=r"'a' has the replication slot 'both' already.*`slot`"):
        load(tmp_path, first, second)


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("snapshot: initial", "snapshot: initial"),
        ("publication: both", "publication: both"),
        ("publication: both, slot: mine", "publication: both"),
        ("slot: both", "slot: both, port: 5433"),
        ("slot: both", "slot: both, snapshot: only"),
    ],
)
def test_slots_that_differ_or_are_not_used_are_no_trouble(first: str, second: str, tmp_path: Path) -> None:
    assert list(load(tmp_path, first, second).sources) == ["a", "b"]
