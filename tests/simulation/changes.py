"""Lives of a database: changes of Debezium in place of plain events, into tables that follow its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

from simulation.events import Event, Producer
from simulation.pipelines import Spec, draw_table

FORMAT = "debezium"
_NOT_HERE = ("sequence_by", "delete_when", "truncate_when", "ignore_nulls", "expect", "where")
"""Options that changes do not have, or that judge what a change leaves out."""


def suits_changes(step: Mapping[str, Any]) -> bool:
    """Whether the model knows what a step means for changes; a change that is sent again it does not."""
    return step["do"] != "replay" and "expect" not in step.get("changes", ())


def draw_database_tables(random: Random) -> dict[str, Spec]:
    """One or two tables that follow a table of a database."""
    return {name: _draw_table(random, name) for name in "ab"[: random.choice((1, 1, 2))]}


def _draw_table(random: Random, name: str) -> Spec:
    spec = draw_table(random, name, {"mode": "upsert"})
    for option in _NOT_HERE:
        spec.pop(option, None)
    if "schema" in spec and random.random() < 0.3:
        spec["where"] = random.choice(("id > 1", "seq < 40"))
    return spec | {"keys": ["id"]}


class DatabaseProducer(Producer):
    """Turns the events of a producer into changes: their order is that of the log of the database."""

    _place = 1_000

    def event(self) -> Event:
        """The next change. Some are of the same place as the one before, or are sent again."""
        plain, random = super().event(), self._random
        if plain.code is not None:
            return replace(plain, change="tombstone") if plain.raw is None else plain
        again = random.random()
        self._place += 0 if again < 0.15 else 1
        late = random.choice((1, 3)) if again > 0.93 else 0
        change = random.choices(("c", "u", "d", "r", "t"), (4, 5, 3, 1, 0.3 if not plain.partition else 0))[0]
        values = {"id": plain.values["id"]} if change == "d" else {} if change == "t" else plain.values
        return replace(plain, change=change, values=values, place=self._place - late)
