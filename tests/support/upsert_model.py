"""What an upsert table must hold, in plain Python: the model that random runs are compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]


class UpsertModel:
    """A table as a dictionary. Changes are those of `KeyedTable`; partial ones name their silent columns."""

    def __init__(
        self, keys: Sequence[str], sequence: str | None, columns: Sequence[str], *, ties: bool = False
    ) -> None:
        self.keys, self.sequence, self.columns = keys, sequence, columns
        self.ties = ties
        """Whether the later of two changes of one sequence wins, deletion or not."""
        self.rows: dict[tuple[Any, ...], Row] = {}
        self.graves: dict[tuple[Any, ...], Any] = {}
        self.floor: Any = -1
        self._clock = 0

    def apply(self, batch: Iterable[Row]) -> None:
        """Apply a batch: its changes in their order, each if it is newer than what is there."""
        numbered = []
        for change in batch:
            self._clock += 1
            newness = change[self.sequence] if self.sequence else self._clock
            if newness is None:
                newness = self._newest(change, numbered)
            deletes = change.get("op", "upsert") != "upsert" and not self.ties
            numbered.append((newness, deletes, self._clock, change))
        for newness, _, _, change in sorted(numbered, key=lambda one: one[:3]):
            key = tuple(change.get(name) for name in self.keys)
            if change.get("op") == "truncate":
                self.floor = max(self.floor, newness)
                self.rows = {one: row for one, row in self.rows.items() if row[""] > newness}
            elif self._is_stale(newness, key, change):
                continue
            elif change.get("op") in ("delete", "tombstone"):
                self.rows.pop(key, None)
                self.graves[key] = newness
            else:
                before, silent = self.rows.get(key, {}), change.get("unchanged") or ()
                row = {name: (before if name in silent else change).get(name) for name in self.columns}
                self.rows[key] = row | {"": newness}

    def _is_stale(self, newness: Any, key: tuple[Any, ...], change: Row) -> bool:
        grave = self.graves.get(key, -1)
        # Truncations come from partition 0, and have no order with changes of other partitions.
        in_order = self.ties and change.get("from", "0") == "0"
        buried = newness < self.floor if in_order else newness <= self.floor
        buried |= newness < grave if self.ties else newness <= grave
        return bool(buried or newness < self.rows.get(key, {"": -1})[""])

    def _newest(self, change: Row, before: list[Any]) -> Any:
        """How new what a tombstone deletes is: the row, a deletion, or a change before it in its batch."""
        key = tuple(change[name] for name in self.keys)
        own = [one[0] for one in before if tuple(one[3].get(name) for name in self.keys) == key]
        return max([self.rows.get(key, {"": -1})[""], self.graves.get(key, -1), *own])

    def content(self) -> list[Row]:
        """All rows, in the order of their keys."""
        found = [{name: row[name] for name in self.columns} for row in self.rows.values()]
        return sorted(found, key=lambda row: tuple(map(repr, (row[name] for name in self.keys))))
