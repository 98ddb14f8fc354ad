"""Commands on the table of a life and writers that are not Lakefeed, with what the model says of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lakefeed.errors import Conflict, TableError
from lakefeed.tables.operations import delete, properties, restore
from lakefeed.tables.operations.operation import operation_info
from simulation.model import TableModel
from simulation.pipelines import Spec

if TYPE_CHECKING:
    from simulation.cases import Player

Step = dict[str, Any]
_INTERVALS = ("3", "4", "11")


def draw_operation(random: Random, name: str, spec: Spec) -> Step | None:
    """A step of this file for a table, if it has one that fits."""
    able = [do for do, fits in _FITS.items() if fits(spec)]
    if not able:
        return None
    step: Step = {"do": random.choice(able), "table": name}
    match step["do"]:
        case "delete" | "foreign_delete":
            step["where"] = random.choice(("id > 2", "id < 1", "seq < 14", "seq > 12", "id = 0"))
        case "restore":
            step["back"] = random.randrange(1, 4)
        case "foreign_append":
            step |= {"id": random.randrange(6), "seq": random.randrange(10, 30)}
    return step


def _has_numbers(spec: Spec) -> bool:
    """Whether the table has `id` and `seq` under these names."""
    selected = spec.get("select")
    return "schema" in spec and (not selected or "*" in selected or {"id", "seq"} <= {*selected})


_FITS: Mapping[str, Callable[[Spec], bool]] = {
    # Rows of a history belong together; which of them a deletion takes is not for a model of changes.
    "delete": lambda spec: _has_numbers(spec) and spec["mode"] != "history",
    "foreign_delete": lambda spec: _has_numbers(spec) and spec["mode"] != "history",
    "foreign_append": lambda spec: _has_numbers(spec) and spec["mode"] == "append",
    "properties": lambda spec: True,
    "restore": lambda spec: True,
}


class Operations:
    """Plays these steps for a player."""

    def __init__(self, player: Player) -> None:
        self._player = player
        self.told: set[str] = set()
        """What `verify` rightly finds after these steps: rows of others, and positions ahead of rows."""
        self._foreign = 0

    def play(self, step: Step) -> None:
        """Do what the step says, and let the model do the same if it is in the log."""
        name = step["table"]
        player = self._player
        player._read(complete=False)
        table = player._table(name)
        if table is not None:
            getattr(self, f"_{step['do']}")(step, table, player.models[name])
            player._read(complete=False)

    def _delete(self, step: Step, table: Any, model: TableModel) -> None:
        info = operation_info("delete", by="command", who="", reason=None)
        plan = delete.plan(table, step["where"])
        log = self._player.logs[step["table"]]
        before = log.version
        with suppress(*([Conflict] if "inside" in step else [])):
            self._player._killable(step, lambda: delete.run(table, plan, info))
        self._follow(step, before, "delete", lambda: model.delete(step["where"]))

    def _restore(self, step: Step, table: Any, model: TableModel) -> None:
        versions = sorted(model.versions)
        if len(versions) < 2:
            return
        version = versions[max(0, len(versions) - 1 - step["back"])]
        info = operation_info("restore", by="command", who="", reason=None)
        before = self._player.logs[step["table"]].version
        try:
            plan = restore.plan(table, version)
            self._player._killable(step, lambda: restore.run(table, plan, info))
        except TableError as error:
            gone = step["table"] in self._player.vacuumed and "vacuum" in str(error)
            if not gone and not (isinstance(error, Conflict) and "inside" in step):
                raise
        self._follow(step, before, "restore", lambda: model.restore(version))
        self.told.add("restore")

    def _properties(self, step: Step, table: Any, model: TableModel) -> None:
        wanted = {"delta.checkpointInterval": _INTERVALS[table.version % len(_INTERVALS)]}
        info = operation_info("properties", by="command", who="", reason=None)
        plan = properties.plan(table, wanted)
        if not plan.nothing:
            self._player._killable(step, lambda: properties.run(table, plan, info))

    def _foreign_append(self, step: Step, table: Any, model: TableModel) -> None:
        self._foreign += 1
        self.told.add("foreign")
        row = {"id": step["id"], "seq": step["seq"]}
        made = pa.table({name: pa.array([value], pa.int64()) for name, value in row.items()})
        write_deltalake(table.path, made, mode="append", schema_mode="merge")
        model.taken.rows["foreign", self._foreign] = row

    def _foreign_delete(self, step: Step, table: Any, model: TableModel) -> None:
        self.told.add("foreign")
        DeltaTable(table.path).delete(step["where"])
        model.delete(step["where"])

    def _follow(self, step: Step, before: int, kind: str, then: Callable[[], None]) -> None:
        log = self._player.logs[step["table"]]
        log.read()
        if any(one.get("kind") == kind for one in log.infos[before + 1 :]):
            then()


OPERATIONS = frozenset(_FITS)
"""The names of these steps."""
