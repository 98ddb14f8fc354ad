"""Random changes against the models of upsert and history, many times over, read by other engines too."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
from duckdb_extensions import import_extension

from support.keyed_table import KeyedTable
from unit.tables.write import test_history_model, test_upsert_model

Play = Callable[[Path, int, str], KeyedTable]
PLAYS: dict[str, Play] = {"upsert": test_upsert_model.play, "history": test_history_model.play}
LAYOUTS = ("copy_on_write", "merge_on_read")


def play_models(folder: Path, seeds: range) -> int:
    """Play every seed in each mode and layout; returns how many runs that were. Raises at a difference."""
    import_extension("delta")
    runs = 0
    for seed in seeds:
        for mode, play in PLAYS.items():
            for layout in LAYOUTS:
                home = folder / f"{mode}-{layout}-{seed}"
                try:
                    compare(play(home, seed, layout))
                except AssertionError as error:
                    error.add_note(f"{mode}, {layout}, seed {seed}")
                    raise
                shutil.rmtree(home)
                runs += 1
    return runs


def compare(table: KeyedTable) -> None:
    """DuckDB and Polars read the rows that we read."""
    ours = sorted(map(repr, (_plain(row) for row in table.rows())))
    for engine, rows in _others(table):
        assert sorted(map(repr, map(_plain, rows))) == ours, engine


def _others(table: KeyedTable) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    names = table.table.schema.names
    with duckdb.connect() as connection:
        connection.execute("LOAD delta")
        listed = ", ".join(f'"{name}"' for name in names)
        found = connection.execute(f"SELECT {listed} FROM delta_scan('{table.path}')").fetchall()
        yield "duckdb", [dict(zip(names, row, strict=True)) for row in found]
    yield "polars", pl.read_delta(table.path).select(names).to_dicts()


def _plain(row: dict[str, Any]) -> dict[str, Any]:
    """Polars has no null struct: one of nulls is the same."""
    nothing = [name for name, one in row.items() if isinstance(one, dict) and not any(one.values())]
    return row | dict.fromkeys(nothing)
