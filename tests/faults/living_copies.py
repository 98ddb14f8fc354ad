"""What the copies of a database have to hold, and in which rows they differ from it."""

from __future__ import annotations

import datetime as dt
import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from faults.schema_changes import ChangingDatabase

Row = dict[str, str | None]
"""Every value as the server prints it."""


@dataclass(frozen=True)
class Copy:
    """A Delta table, by the name of its table in the file, and what it has of which table of the database."""

    name: str
    path: Path
    table: str
    mode: str = "upsert"
    rename: dict[str, str] = field(default_factory=dict)
    where: str = "true"
    select: dict[str, str] = field(default_factory=dict)
    """Its columns, each with its expression; all columns of the database where there is none."""

    @property
    def stream(self) -> str:
        return f"public.{self.table}"


def differences(copy: Copy, db: ChangingDatabase, letters: Iterable[Row]) -> list[str]:
    """The rows that differ, but for those whose newest change is a dead letter; each in words."""
    columns, key = db.columns(copy.table), db.tables()[copy.table]
    listed = ", ".join(f'"{name}"::text' for name in columns)
    values = db.select(f"SELECT {listed} FROM ONLY {copy.table} WHERE {copy.where}")
    rows = _rows(copy.path)
    if not key:
        return _bag_difference(copy, rows, columns, values)
    wanted = {_key(row, key): row for row in (dict(zip(columns, one, strict=True)) for one in values)}
    present = rows
    if copy.mode == "append":
        names = {_clean(one): [_clean(old) for old in db.former_names(copy.table, one)] for one in columns}
        present = [_by_names_of_now(row, names) for row in _replayed(rows)]
    if copy.mode == "history":
        present = [row for row in rows if row["valid_to"] is None]
    found = {_key(row, key): row for row in present}
    if len(found) < len(present):
        twice = Counter(_key(row, key) for row in present).most_common(1)
        return [f"{copy.path.name}: a key is there more than once: {twice}"]
    expected = _expected(copy, db, columns, wanted)
    differing = []
    for one in sorted(found.keys() | wanted.keys(), key=str):
        mine, theirs = found.get(one), expected.get(one)
        if mine and theirs and all(_same(mine.get(name), value) for name, value in theirs.items()):
            continue
        if theirs is None or not any(_is_of(letter, wanted[one]) for letter in letters):
            differing.append(f"{copy.name} {copy.path.name}: {one} is {_short(mine)}, not {_short(theirs)}")
    return differing


def _expected(
    copy: Copy, db: ChangingDatabase, columns: list[str], rows: dict[tuple[str | None, ...], Row]
) -> dict[tuple[str | None, ...], Row]:
    """The rows as the copy should have them, by the key."""
    if copy.select:
        key = db.tables()[copy.table]
        listed = ", ".join(f"({one})::text" for one in [*key, *copy.select.values()])
        values = db.select(f"SELECT {listed} FROM ONLY {copy.table} WHERE {copy.where}")
        return {row[: len(key)]: dict(zip(copy.select, row[len(key) :], strict=True)) for row in values}
    names = {one: copy.rename.get(one, _clean(one)) for one in columns}
    return {key: {names[one]: value for one, value in row.items()} for key, row in rows.items()}


def _clean(name: str) -> str:
    return re.sub(r"[ ,;{}()\n\t=]", "_", name)


def letters_of(path: Path) -> dict[tuple[str, str], list[Row]]:
    """The changes that are dead letters, by table of the file and stream."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in _rows(path):
        change = json.loads(row["payload"], parse_float=str, parse_int=str)
        found.setdefault((row["table"], row["topic"]), []).append(change)
    return found


def _is_of(letter: Row, row: Row) -> bool:
    """Whether a change made a row what it is; it may leave large values out."""
    left_out = letter.get("_unchanged") or ()
    return letter["_op"] != "delete" and all(
        _text(letter[name]) == _text(value)
        for name, value in row.items()
        if name in letter and name not in left_out
    )


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        return []
    scan = DeltaTable(str(path)).scan()
    rows: list[dict[str, Any]] = pa.RecordBatchReader.from_stream(scan).read_all().to_pylist()
    return rows


def _replayed(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What a log of changes makes of nothing."""
    state: dict[str, dict[str, Any]] = {}
    moved: dict[str, Any] = {}
    for row in sorted(rows, key=lambda row: (row["_lsn"], row["_ordinal"])):
        key, op = row["id"], row["_op"]
        if op == "truncate":
            state.clear()
        elif op == "delete":
            moved = state.pop(key, {})
        else:
            before = state.get(key, {}) if op == "update" else moved
            state[key] = {**row, **{name: before.get(name) for name in row["_unchanged"] or ()}}
    return list(state.values())


def _by_names_of_now(row: dict[str, Any], names: dict[str, list[str]]) -> dict[str, Any]:
    """A row of a log, which has each value under the name that the column had when the change was made."""
    found = {}
    for name, former in names.items():
        values = (row.get(one) for one in (name, *former))
        found[name] = next((value for value in values if value is not None), None)
    return found


def _bag_difference(copy: Copy, rows: list[dict[str, Any]], columns: list[str], values: Any) -> list[str]:
    """The same for a log of a table without a key, whose changes have the row before."""
    bag: Counter[tuple[str | None, ...]] = Counter()
    for row in sorted(rows, key=lambda row: (row["_lsn"], row["_ordinal"])):
        before = row if row["_op"] == "delete" else row["_before"]
        if row["_op"] == "truncate":
            bag.clear()
            continue
        if row["_op"] in ("delete", "update"):
            bag[tuple(_text(before[name]) for name in columns)] -= 1
        if row["_op"] != "delete":
            bag[tuple(_text(row[name]) for name in columns)] += 1
    bag = Counter({row: times for row, times in bag.items() if times})
    wanted = Counter(values)
    return [] if bag == wanted else [f"{copy.path.name}: {bag} is not {wanted}"]


def _key(row: dict[str, Any], key: list[str]) -> tuple[str | None, ...]:
    return tuple(_text(row.get(name)) for name in key)


def _text(value: Any) -> str | None:
    """A history keeps the type that it has: what was a date before may be its midnight."""
    if isinstance(value, dt.datetime):
        value = value.replace(tzinfo=None)
    text = None if value is None else str(value).replace("T", " ").removesuffix(".000000Z")
    return text and text.removesuffix(" 00:00:00")


def _same(mine: Any, theirs: str | None) -> bool:
    if isinstance(mine, Decimal) and theirs is not None:
        return str(mine) == theirs or (theirs != "NaN" and mine == Decimal(theirs))
    return _text(mine) == _text(theirs)


def _short(row: dict[str, Any] | None) -> str:
    if row is None:
        return "there"
    return str({name: str(value)[:12] for name, value in row.items() if not name.startswith("_")})
