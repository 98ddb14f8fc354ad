"""Tables whose positions are not those of one source and one log: fed by another table, or parted by a route.

What they hold in the middle of a run depends on batches. Then they must hold a part of what they should, each
row once; after a run that came to its end, all of it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any

from simulation.checks import LogReader, Wrong, compare, text_of
from simulation.model import Place, Refusal, TableModel
from simulation.pipelines import Spec, draw_table

if TYPE_CHECKING:
    from simulation.cases import Player

Row = dict[str, Any]
ROUTE = "r"
CHAIN = "z"
_ROUTED_BY = ("op", "name", "id")
_TAKES_BACK = ("delete", "foreign_delete", "restore", "rewind")
"""Steps that take rows out of a table which appends: the reader of such a table rightly stops."""
_UNSAFE = re.compile(r"[^A-Za-z0-9_.\-]")
_LONGEST = 100


def draw_derived(random: Random, tables: Mapping[str, Spec]) -> dict[str, Spec]:
    """Some lives have a table that another one feeds, or one with a route."""
    derived: dict[str, Spec] = {}
    modes = ("append", "deduplicate", "upsert")
    feeders = [name for name, spec in tables.items() if spec["mode"] in modes]
    if feeders and random.random() < 0.15:
        parent = random.choice(feeders)
        derived[CHAIN] = {"path": CHAIN, "from": parent}
        if tables[parent]["mode"] == "upsert":
            derived[CHAIN] |= {"mode": "upsert"}
    if random.random() < 0.12:
        derived[ROUTE] = _draw_route(random)
    return derived


def _draw_route(random: Random) -> Spec:
    spec = draw_table(random, ROUTE, {"mode": "append"})
    column = random.choice([name for name in _ROUTED_BY if name in spec.get("schema", ("id",))])
    for option in ("partition_by", "select", "path"):
        spec.pop(option, None)
    return {"route": f"{ROUTE}/t_{{{column}}}", **spec}


def suits(derived: Mapping[str, Spec], tables: Mapping[str, Spec], step: Mapping[str, Any]) -> bool:
    """Whether a step leaves what is derived as it is, so that its reader has no reason to stop."""
    inner = step.get("inside")
    if inner and not suits(derived, tables, inner):
        return False
    if step["do"] == "expire":
        return not derived
    if CHAIN not in derived or step.get("table") != derived[CHAIN]["from"]:
        return True
    keyed = tables[step["table"]]["mode"] == "upsert"
    return step["do"] != "vacuum" and step["do"] not in (("restore",) if keyed else _TAKES_BACK)


class Derived:
    """Checks these tables for a player."""

    def __init__(self, player: Player, tables: Mapping[str, Spec]) -> None:
        self._player = player
        self._tables = tables
        self._logs: dict[str, LogReader] = {}

    def check(self, letters: Iterable[Row], *, complete: bool) -> None:
        """Compare with what they are derived from; all of it after a run that is `complete`."""
        letters = list(letters)
        for name, spec in self._tables.items():
            if name == ROUTE:
                self._check_route(spec, letters, complete=complete)
            else:
                self._check_chain(name, spec, complete=complete)

    def _check_chain(self, name: str, spec: Spec, *, complete: bool) -> None:
        rows = [_own(row) for row in self._rows(name)]
        parent = self._player.models[spec["from"]]
        if complete:
            compare(f"chain of {parent.spec['mode']}", parent.content(), rows)
        elif parent.spec["mode"] != "upsert":
            _compare_part(f"chain of {parent.spec['mode']}", parent.content(), rows)

    def _check_route(self, spec: Spec, letters: list[Row], *, complete: bool) -> None:
        world = self._player.world
        model = TableModel(spec, self._player.case.key)
        model.read(world.events, world.ends())
        expected: dict[str, list[Row]] = {}
        refused = dict(model.letters)
        column = spec["route"].partition("{")[2].rstrip("}")
        for place, row in model.taken.rows.items():
            folder = _folder(row.get(column))
            if folder is None:
                refused[place] = Refusal("write", "bad_route")
            else:
                expected.setdefault(folder, []).append(row)
        root = world.folder / ROUTE
        there = {one.name for one in root.iterdir() if one.name != ".lakefeed"} if root.is_dir() else set()
        if unexpected := there - expected.keys():
            raise Wrong("route", f"tables that no event asks for: {sorted(unexpected)}")
        for folder, rows in expected.items():
            found = self._rows(f"{ROUTE}/{folder}")
            (compare if complete else _compare_part)("route", rows, found)
        self._check_letters(refused, [one for one in letters if one["table"] == ROUTE], complete=complete)

    @staticmethod
    def _check_letters(refused: Mapping[Place, Refusal], found: list[Row], *, complete: bool) -> None:
        places = Counter((f"{one['topic']}-{one['partition']}", one["offset"]) for one in found)
        for one in found:
            place = f"{one['topic']}-{one['partition']}", one["offset"]
            if places[place] > 1:
                raise Wrong("route letters", f"{place} is a dead letter twice")
            if refused.get(place) != Refusal(one["stage"], one["code"]):
                raise Wrong("route letters", f"{place} is {one['code']} and should be {refused.get(place)}")
        if complete and refused.keys() - places.keys():
            raise Wrong("route letters", f"no dead letter of {sorted(refused.keys() - places.keys())}")

    def _rows(self, path: str) -> list[Row]:
        log = self._logs.setdefault(path, LogReader(self._player.world.folder / path))
        log.read()
        return log.rows()


def _folder(value: Any) -> str | None:
    """The last part of the path of a row's table; None for a value that has none."""
    if value is None or not 0 < len(str(value)) <= _LONGEST:
        return None
    return "t_" + _UNSAFE.sub("_", str(value))


def _own(row: Row) -> Row:
    """A row without what the change feed says of it."""
    return {name: value for name, value in row.items() if name not in ("__op", "__sequence", "__timestamp")}


def _compare_part(kind: str, expected: Iterable[Row], found: Iterable[Row]) -> None:
    """Raise Wrong for a row that should not be there, or not so often."""
    more = Counter(map(text_of, found)) - Counter(map(text_of, expected))
    if more:
        lines = [f"  unexpected {count} x {text}" for text, count in more.items()]
        raise Wrong(kind, "\n".join(["rows that should not be there", *lines[:12]]))
