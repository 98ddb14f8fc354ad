"""What the tables of a case must hold, in plain Python: from the file, the events and the positions.

It knows nothing of batches, files, commits, Arrow or Delta. Rows are dictionaries without nulls.
"""

from __future__ import annotations

import datetime as dt
import json
import re
from collections.abc import Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

from simulation.events import OTHER_TOPIC, Event
from support.history_model import HistoryModel
from support.upsert_model import UpsertModel

Row = dict[str, Any]
Place = tuple[str, int]
"""A partition and an offset."""

_PLACE = "__place"
_ORDER = ("bad_name", "new_column")
"""The first that fails gives the code, after those of the columns in the order of the table."""
_METADATA = ("_topic", "_partition", "_offset", "_timestamp", "_key", "_headers")
_WITHIN = dt.timedelta(days=1)
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MOMENT = re.compile(r"\d{4}-\d\d-\d\dT")
_CONDITION = re.compile(r"(\w+) ([<>=]|IS NOT NULL)(?: (-?\d+))?")


class OutOfScope(Exception):
    """A case about which the documentation promises nothing that a model could know."""


@dataclass(frozen=True)
class Refusal:
    """Why an event is a dead letter."""

    stage: str
    code: str


@dataclass(frozen=True)
class Shaped:
    """What a table makes of an event: a row and what it does; no row where it is filtered."""

    row: Row | None = None
    op: str = "upsert"

    @property
    def deletes(self) -> bool:
        """Whether rows go by it."""
        return self.op != "upsert"


class _Misfit(Exception):
    """A value that does not fit its column."""


class Shaper:
    """The way of one event into one table, as its part of the file says."""

    def __init__(self, spec: Mapping[str, Any], key: str | None = None) -> None:
        self.spec = spec
        self.deletes_by_key = key is not None and spec.get("mode") == "upsert"
        self.declared: dict[str, str] | None = spec.get("schema")
        evolve = spec.get("evolve", "add")
        rules = {"new_column": evolve} if isinstance(evolve, str) else evolve
        self.new_column = rules.get("new_column", "add")
        if "*" not in spec.get("select", "*"):
            # Nothing reads further fields.
            self.new_column = "ignore"
        self.type_change = rules.get("type_change", "dead_letter")

    def shape(self, event: Event) -> Shaped | Refusal:
        """The row of an event, or why there is none."""
        if self.deletes_by_key and event.payload is None:
            row = json.loads(event.key) if event.key is not None else {}
            if (where := self.spec.get("where")) and _column_of(where) in row and not self.meets(row, where):
                return Shaped()
            return Shaped(row, "tombstone") if row else Refusal("decode", event.code or "")
        if event.change == "tombstone":
            return Shaped()
        if event.code is not None:
            return Refusal("decode", event.code)
        if event.change is not None:
            return self._changed(event)
        found = self._decoded(event)
        if isinstance(found, Refusal):
            return found
        row = found | self._metadata(event)
        op = "delete" if self.meets(row, self.spec.get("delete_when")) else "upsert"
        op = "truncate" if self.meets(row, self.spec.get("truncate_when")) else op
        deletes = op != "upsert"
        if (where := self.spec.get("where")) and not self.meets(row, where):
            lacks = row.get(_column_of(where)) is None
            if not (deletes and lacks):
                return Shaped()
        row = self._selected(row)
        if not deletes and (refused := self._expected(row)) is not None:
            return refused
        return self._keyed(_without_nulls(row | self._derived(row)), op)

    def _changed(self, event: Event) -> Shaped | Refusal:
        """A change of a database: its row, with what Debezium says of it."""
        about: Row = {"__op": event.change}
        if event.change == "t":
            return Shaped({}, "truncate")
        found = self._decoded(event)
        if isinstance(found, Refusal):
            return found
        row = found | self._metadata(event)
        deletes = event.change == "d"
        if not deletes and (where := self.spec.get("where")) and not self.meets(row, where):
            # A row that no longer meets the condition leaves the table; a new one does not come.
            deletes = event.change == "u"
            if not deletes:
                return Shaped()
        row = _without_nulls(self._selected(row) | about)
        return self._keyed(_without_nulls(row | self._derived(row)), "delete" if deletes else "upsert")

    def _decoded(self, event: Event) -> Row | Refusal:
        row: Row = {}
        rescued: Row = {}
        reasons = []
        misfits: dict[str, str] = {}
        fields = {
            name: value for name, value in event.values.items() if name not in self.spec.get("drop", ())
        }
        renamed = self.spec.get("rename", {})
        if any(new in fields for old, new in renamed.items()):
            reasons.append("bad_name")
        for name, text in fields.items():
            column = renamed[name] if name in renamed else self._column(name)
            value = json.loads(text, parse_float=_Number, parse_int=int)
            if self.declared is None or column not in self.declared:
                if _is_empty(value):
                    continue
                if self.new_column == "dead_letter":
                    reasons.append("new_column")
                elif self.new_column == "rescue":
                    rescued[name] = json.loads(text)
                elif self.new_column == "add":
                    if self.spec.get("names") == "strict" and column != renamed.get(name, name):
                        reasons.append("bad_name")
                    row[column] = _inferred(value)
                continue
            try:
                row[column] = _fitted(self.declared[column].removesuffix(" not null"), value)
            except _Misfit as misfit:
                if self.type_change == "rescue":
                    rescued[name] = json.loads(text)
                else:
                    misfits[column] = str(misfit)
        for column, kind in (self.declared or {}).items():
            if kind.endswith(" not null") and row.get(column) is None:
                misfits.setdefault(column, "missing_value")
        if misfits:
            return Refusal(
                "schema", next(misfits[column] for column in self.declared or () if column in misfits)
            )
        if reasons:
            return Refusal("schema", min(reasons, key=_ORDER.index))
        if rescued:
            row["_rescued"] = rescued
        return _without_nulls(row)

    def _column(self, name: str) -> str:
        if self.spec.get("names") == "keep":
            return name
        clean = re.sub(r"[ ,;{}()\n\t=]", "_", name)
        return clean.lower() if self.spec.get("names") == "lower" else clean

    def _metadata(self, event: Event) -> Row:
        wanted = self.spec.get("metadata", False)
        known = {
            "_topic": event.topic,
            "_partition": event.partition,
            "_offset": event.offset if event.shown is None else event.shown,
            "_timestamp": _EPOCH + dt.timedelta(milliseconds=event.milliseconds),
            "_key": event.key,
            "_headers": [{"key": name, "value": value} for name, value in event.headers] or None,
        }
        names = dict(zip(_METADATA, _METADATA, strict=True)) if wanted is True else wanted or {}
        names = names if isinstance(names, dict) else dict.fromkeys(names) | {one: one for one in names}
        return _without_nulls({new: known[name] for name, new in names.items()})

    @staticmethod
    def meets(row: Row, condition: str | None) -> bool:
        """Whether a row meets a condition, where null is not met."""
        if condition is None:
            return False
        found = _CONDITION.fullmatch(condition)
        assert found, condition
        value = row.get(found[1])
        if value is None or found[2] == "IS NOT NULL":
            return value is not None
        return bool(
            {"<": value < int(found[3]), ">": value > int(found[3])}.get(found[2], value == int(found[3]))
        )

    def _selected(self, row: Row) -> Row:
        if not (items := self.spec.get("select")):
            return row
        made: Row = {}
        for item in items:
            name, _, alias = item.partition(" AS ")
            made |= row if item == "*" else {alias or name: row.get(name)}
        return _without_nulls(made)

    def _expected(self, row: Row) -> Shaped | Refusal | None:
        broken = {
            name: rule["otherwise"]
            for name, rule in self.spec.get("expect", {}).items()
            if not self.meets(row, rule["that"])
        }
        for name, otherwise in broken.items():
            if otherwise == "dead_letter":
                return Refusal("expect", name)
        return Shaped() if "drop" in broken.values() else None

    def _derived(self, row: Row) -> Row:
        made: Row = {}
        for text in self.spec.get("partition_by", ()):
            if row.get(text) == "" and not self.spec.get("ignore_nulls"):
                made[text] = None
            if found := re.fullmatch(r"(day|month)\((\w+)\)", text):
                value = row.get(found[2])
                if value is not None:
                    made[f"{found[2]}_{found[1]}"] = (
                        value.date() if found[1] == "day" else f"{value.year:04}-{value.month:02}"
                    )
        return made

    def _keyed(self, row: Row, op: str) -> Shaped | Refusal:
        keyed = self.spec.get("mode", "append") in ("upsert", "history", "deduplicate")
        if not keyed:
            return Shaped(row)
        partitions = self.spec.get("partition_by", ())
        null = [
            one for one in self.spec["keys"] if row.get(one) is None or (row[one] == "" and one in partitions)
        ]
        if null and op != "truncate":
            return Refusal("write", "null_key")
        if any(row.get(name) is None for name in self.spec.get("sequence_by", ())):
            return Refusal("write", "null_sequence")
        return Shaped(row, op)


@dataclass
class Taken:
    """What one table has made of the events that it has read; copied for each version of it."""

    positions: dict[str, int] = field(default_factory=dict)
    rows: dict[Place, Row] = field(default_factory=dict)
    state: Any = None
    is_over: bool = True
    """With `overwrite`: whether the last run has come to its end, so that the next one replaces its rows."""
    replayed: dict[Place, Refusal] = field(default_factory=dict)
    """Dead letters that a replay has made rows of, or has left out."""


class TableModel:
    """One table: its content, and its dead letters by partition and offset."""

    def __init__(self, spec: Mapping[str, Any], key: str | None = None) -> None:
        self.spec = dict(spec)
        self.key = key
        self.taken = Taken(state=_state(spec))
        self.letters: dict[Place, Refusal] = {}
        self.fresh: set[Any] = set()
        """Keys and sequences of the letters that are replayed."""
        self.ahead: dict[Place, Refusal] = {}
        """Dead letters that a killed run has left of events which the table has not read."""
        self.versions: dict[int, Taken] = {}

    def edit(self, changes: Mapping[str, Any]) -> None:
        """Go on with another file; a key that becomes None is left out."""
        merged = self.spec | dict(changes)
        self.spec = {name: value for name, value in merged.items() if value is not None}

    def read(self, events: Mapping[str, Iterable[Event]], positions: Mapping[str, int]) -> None:
        """Read every event up to these positions."""
        shaper = Shaper(self.spec, self.key)
        for partition, end in sorted(positions.items()):
            begin = self.taken.positions.get(partition, 0)
            for event in events[partition]:
                if begin <= event.offset < end:
                    self._take((partition, event.offset), event, shaper)
            self.taken.positions[partition] = end

    def would_refuse(self, event: Event) -> Refusal | None:
        """Why an event that is still to be read will be a dead letter."""
        shaped = Shaper(self.spec, self.key).shape(event)
        return shaped if isinstance(shaped, Refusal) else None

    def _take(self, place: Place, event: Event, shaper: Shaper) -> None:
        if place in self.letters or place in self.ahead:
            self.letters[place] = self.letters.get(place) or self.ahead.pop(place)
            return
        shaped = shaper.shape(event)
        if isinstance(shaped, Refusal):
            self.letters[place] = shaped
        elif shaped.row is not None:
            self._land(place, shaped, event=event)

    def _land(
        self, place: Place, shaped: Shaped, *, replayed: bool = False, event: Event | None = None
    ) -> None:
        assert shaped.row is not None
        taken, mode = self.taken, self.spec.get("mode", "append")
        if mode == "overwrite" and taken.is_over and not replayed:
            taken.rows.clear()
            taken.is_over = False
        if mode in ("append", "overwrite"):
            taken.rows[place] = shaped.row
            return
        if self.spec.get("ignore_nulls"):
            self._refuse_disorder(shaped.row)
        if shaped.op == "tombstone":
            shaped.row.update(dict.fromkeys(self.spec.get("sequence_by", ())))
        change = shaped.row | {"op": shaped.op}
        change |= {"": shaped.row}
        if event is not None and event.change is not None:
            taken.state.follow()
            change |= {_PLACE: event.place, "from": str(event.partition)}
        key = tuple(shaped.row.get(name) for name in self.spec["keys"])
        if mode == "deduplicate":
            taken.state.add(key, shaped.row)
        elif replayed and shaped.op == "upsert" and self._is_tied(key, shaped.row):
            return
        elif mode == "history":
            taken.state.apply([{**change, "seq": shaped.row[self.spec["sequence_by"][0]]}])
        else:
            if replayed and not self.spec.get("sequence_by"):
                # The row of a key may be newer; a deletion is known by its place.
                if key not in self.fresh and (key in taken.state.rows or taken.state.is_buried(key, place)):
                    return
                self.fresh.add(key)
            taken.state.apply([change])
            if shaped.deletes:
                taken.state.note_grave(key, place)

    def _is_tied(self, key: tuple[Any, ...], row: Row) -> bool:
        """Whether the table has a change of the same sequence: which of the two is later, it does not know.

        Of two letters that are sent together, the later one in the source wins.
        """
        for name in self.spec.get("sequence_by", ()):
            if (key, row[name]) in self.fresh:
                return False
            if self.taken.state.has(key, row[name]):
                return True
            self.fresh.add((key, row[name]))
        return False

    def _refuse_disorder(self, row: Row) -> None:
        """What becomes of a late partial change depends on the batch that it is in."""
        if self.spec.get("truncate_when"):
            raise OutOfScope("partial changes before and after a truncation")
        for name in self.spec.get("sequence_by", ()) if row.get("seq") is not None else ():
            newest = getattr(self.taken.state, "newest", {})
            key = tuple(row.get(one) for one in self.spec["keys"])
            if newest.get(key, row[name]) > row[name]:
                raise OutOfScope("a late change with ignore_nulls")
            newest[key] = row[name]

    def replay(self, events: Mapping[Place, Event]) -> None:
        """Send all dead letters again that the table has read past."""
        shaper = Shaper(self.spec, self.key)
        self.fresh = set[Any]()
        for place in sorted(self.letters, key=lambda one: (one[0], one[1])):
            shaped = shaper.shape(events[place])
            if isinstance(shaped, Refusal) or not self._is_own_letter(place):
                continue
            self.taken.replayed[place] = self.letters.pop(place)
            if shaped.row is not None:
                self._land(place, shaped, replayed=True)

    def discard(self) -> None:
        """Drop all dead letters that the table has read past."""
        self.letters = {place: one for place, one in self.letters.items() if not self._is_own_letter(place)}

    def _is_own_letter(self, place: Place) -> bool:
        """Whether the table has read past it, and it is not one of another pipeline."""
        of_other = place[0].startswith(OTHER_TOPIC)
        return place[1] < self.taken.positions.get(place[0], 0) and not of_other

    def note_version(self, version: int) -> None:
        """Keep the state as that of a version of the table."""
        self.versions[version] = deepcopy(self.taken)

    def rewind(self, version: int) -> None:
        """Go back to a version; rows of later replays become dead letters unless they are read again."""
        before, self.taken = self.taken, deepcopy(self.versions[version])
        for place, refusal in before.replayed.items():
            if place not in self.taken.replayed and place[1] < self.taken.positions.get(place[0], 0):
                self.letters[place] = refusal
        for place in self.taken.replayed:
            self.letters.pop(place, None)

    def restore(self, version: int) -> None:
        """Bring the rows of a version back, and what it knew of deletions; positions stay."""
        now, self.taken = self.taken, deepcopy(self.versions[version])
        self.taken.positions, self.taken.replayed = now.positions, now.replayed
        self.taken.is_over = now.is_over

    def delete(self, where: str) -> None:
        """Take rows out as if they had never come. That is no deletion of their keys."""
        taken = self.taken
        if taken.state is None:
            taken.rows = {place: row for place, row in taken.rows.items() if not Shaper.meets(row, where)}
        else:
            taken.state.forget(where)

    def content(self) -> list[Row]:
        """All rows, without nulls."""
        if self.taken.state is None:
            return list(self.taken.rows.values())
        found: list[Row] = self.taken.state.content()
        if self.spec["mode"] != "history":
            return found
        return [_history_row(row, self.spec) for row in found]


class _First:
    """The first row of each key; with `within`, also a row that is long enough after those of its key."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        within = spec.get("within")
        self.column = within["column"] if within else None
        self.keys = spec["keys"]
        self.rows: list[Row] = []
        self.newest: dict[Any, Any] = {}

    def add(self, key: Any, row: Row) -> None:
        moment = row.get(self.column)
        if key in self.newest:
            newest = self.newest[key]
            # A time that is missing counts as any.
            if moment is None or newest is None or moment - newest <= _WITHIN:
                return
        self.newest[key] = moment
        self.rows.append(row)

    def forget(self, where: str) -> None:
        """Take rows out; the keys of which none is left are new again."""
        rows, self.rows, self.newest = self.rows, [], {}
        for row in rows:
            if not Shaper.meets(row, where):
                self.rows.append(row)
                self.newest[tuple(row.get(name) for name in self.keys)] = row.get(self.column)

    def content(self) -> list[Row]:
        return self.rows


class _Upserts(UpsertModel):
    """Keyed rows of any columns, as new ones may come."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        super().__init__(spec["keys"], next(iter(spec.get("sequence_by", ())), None), [""])
        self.ignore_nulls = bool(spec.get("ignore_nulls"))
        self.newest: dict[Any, Any] = {}
        self.partitions = spec.get("partition_by", ())
        self.places: dict[Any, dict[str, int]] = {}

    def has(self, key: tuple[Any, ...], sequence: Any) -> bool:
        """Whether the row of a key is of a sequence."""
        return bool(self.rows.get(key, {}).get("") == sequence)

    def follow(self) -> None:
        """Order changes by their places in the log of a database; of two of one place, the later wins."""
        self.sequence, self.ties = _PLACE, True

    def forget(self, where: str) -> None:
        """Take rows out, and leave no note of it."""
        self.rows = {key: row for key, row in self.rows.items() if not Shaper.meets(row["column"], where)}

    def note_grave(self, key: tuple[Any, ...], place: Place) -> None:
        """Remember the last deletion of a key in each partition."""
        there = self.places.setdefault(key, {})
        there[place[0]] = max(place[1], there.get(place[0], -1))

    def is_buried(self, key: tuple[Any, ...], place: Place) -> bool:
        """Whether a deletion of a key is later, or of another partition, which has no order with this one."""
        there = self.places.get(key, {})
        return any(partition != place[0] or at > place[1] for partition, at in there.items())

    def apply(self, batch: Iterable[Row]) -> None:
        changes = []
        for change in batch:
            before = self.rows.get(tuple(change.get(name) for name in self.keys), {}).get("column", {})
            changes.append(change | {"column": (before if self.ignore_nulls else {}) | change[""]})
        self.columns = ["column"]
        super().apply(changes)

    def content(self) -> list[Row]:
        """All rows. Delta has no empty text in a partition value: a change that brings it makes a null."""
        rows = [row["column"] for row in self.rows.values()]
        return [
            {name: None if name in self.partitions and one == "" else one for name, one in row.items()}
            for row in rows
        ]


class _History(HistoryModel):
    """Intervals of rows of any columns."""

    def __init__(self, spec: Mapping[str, Any]) -> None:
        super().__init__(spec["keys"], ["column"], [])
        self.untracked = {*spec["keys"], *spec["sequence_by"], *spec.get("track_except", ()), *_names(spec)}
        self.track = spec.get("track")

    def apply(self, batch: Iterable[Row]) -> None:
        super().apply([change | {"column": change[""]} for change in batch])

    def has(self, key: tuple[Any, ...], sequence: Any) -> bool:
        """Whether there is a change of a key and a sequence."""
        return sequence in self.changes.get(key, {})

    def _same(self, one: Row, other: Row) -> bool:
        return self._tracked(one) == self._tracked(other)

    def _tracked(self, row: Row) -> Row:
        wanted = self.track
        return {
            name: value
            for name, value in row["column"].items()
            if (name in wanted if wanted else name not in self.untracked)
        }


def _names(spec: Mapping[str, Any]) -> set[str]:
    """Metadata columns and derived partition columns, which a history does not track."""
    wanted = spec.get("metadata", False)
    names = (
        set(_METADATA)
        if wanted is True
        else set(wanted.values() if isinstance(wanted, dict) else wanted or ())
    )
    derived = (re.fullmatch(r"(day|month)\((\w+)\)", text) for text in spec.get("partition_by", ()))
    return names | {f"{found[2]}_{found[1]}" for found in derived if found}


def _history_row(row: Row, spec: Mapping[str, Any]) -> Row:
    ends = {
        spec.get("valid_from", "valid_from"): row["valid_from"],
        spec.get("valid_to", "valid_to"): row["valid_to"],
    }
    current = {spec["is_current"]: row["valid_to"] is None} if "is_current" in spec else {}
    return _without_nulls(row["column"] | ends | current)


def _state(spec: Mapping[str, Any]) -> Any:
    match spec.get("mode", "append"):
        case "upsert":
            return _Upserts(spec)
        case "history":
            return _History(spec)
        case "deduplicate":
            return _First(spec)
    return None


class _Number(float):
    """A number with a fraction or an exponent."""

    text: str

    def __new__(cls, text: str) -> _Number:
        made = super().__new__(cls, text)
        made.text = text
        return made


def _fitted(kind: str, value: Any) -> Any:
    """A value of JSON in a column of a declared type."""
    if value is None:
        return None
    if kind.startswith("struct<"):
        if not isinstance(value, dict):
            raise _Misfit("wrong_type")
        fields = dict(one.split(": ") for one in kind[7:-1].split(", "))
        if set(value) - set(fields):
            raise OutOfScope("a new field in an object")
        return {name: _fitted(fields[name], one) for name, one in value.items()}
    if kind.startswith("array<"):
        if not isinstance(value, list):
            raise _Misfit("wrong_type")
        return [_fitted(kind[6:-1], one) for one in value]
    if kind == "long":
        if isinstance(value, bool | _Number) or not isinstance(value, int):
            raise _Misfit("wrong_type")
        if not -(2**63) <= value < 2**63:
            raise _Misfit("out_of_range")
        return value
    if kind == "double":
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise _Misfit("wrong_type")
        if float(value) in (float("inf"), float("-inf")):
            raise _Misfit("out_of_range")
        return float(value)
    if kind == "boolean":
        if not isinstance(value, bool):
            raise _Misfit("wrong_type")
        return value
    if kind.startswith("decimal"):
        return _decimal(value)
    if not isinstance(value, str):
        raise _Misfit("wrong_type" if kind == "string" else "bad_timestamp")
    return _moment(value) if kind == "timestamp" else value


def _decimal(value: Any) -> Decimal:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _Misfit("wrong_type" if not isinstance(value, str) else "bad_decimal")
    number = Decimal(value.text if isinstance(value, _Number) else value)
    if number != round(number, 2):
        raise _Misfit("bad_decimal")
    if abs(number) >= 10**8:
        raise _Misfit("out_of_range")
    return number


def _moment(text: str) -> dt.datetime:
    try:
        return dt.datetime.fromisoformat(text).astimezone(dt.UTC)
    except ValueError:
        raise _Misfit("bad_timestamp") from None


def _inferred(value: Any) -> Any:
    """A value of a column that nobody has declared; what events have there is always of one type."""
    if isinstance(value, _Number):
        return float(value)
    if isinstance(value, str) and _MOMENT.match(value):
        return _moment(value)
    return value


def _is_empty(value: Any) -> bool:
    return value is None or value == [] or value == {}


def _column_of(condition: str) -> str:
    return condition.split(" ", 1)[0]


def _without_nulls(value: Any) -> Any:
    """The same without nulls in objects, so that a missing field and a null are the same."""
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    if isinstance(value, list):
        return [_without_nulls(one) for one in value]
    return value
