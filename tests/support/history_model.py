"""What a history table must hold, in plain Python: all changes ever, as if they had come in order."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

Row = dict[str, Any]


class HistoryModel:
    """Every change that has come, and the intervals that they make. Changes are those of `KeyedTable`."""

    def __init__(
        self, keys: Sequence[str], columns: Sequence[str], tracked: Sequence[str], *, ties: bool = False
    ) -> None:
        self.keys, self.columns, self.tracked = keys, columns, tracked
        self.ties = ties
        """Whether the later of two changes of one time counts, deletion or not."""
        self.changes: dict[tuple[Any, ...], dict[Any, Row | None]] = {}
        self.times: dict[tuple[Any, ...], dict[Any, Any]] = {}
        """By key, and for truncations by no key: the time of each change, where changes have an `at`."""
        self.floors: set[Any] = set()

    def apply(self, batch: Iterable[Row]) -> None:
        """Take note of changes; of the same time the last counts, but a deletion wins."""
        for change in batch:
            if change.get("op") == "truncate":
                self.floors.add(change["seq"])
                self.times.setdefault((), {})[change["seq"]] = change.get("at")
                continue
            key = tuple(change[name] for name in self.keys)
            known = self.changes.setdefault(key, {})
            self.times.setdefault(key, {})[change["seq"]] = change.get("at")
            if change.get("op") == "delete":
                known[change["seq"]] = None
            elif self.ties or known.get(change["seq"], change) is not None:
                known[change["seq"]] = {name: change.get(name) for name in self.columns}

    def content(self) -> list[Row]:
        """All rows, in the order of their keys and intervals."""
        found = []
        for key in sorted(self.changes, key=repr):
            points = self.changes[key] | dict.fromkeys(self.floors)
            times = self.times.get((), {}) | self.times[key]
            now: Row | None = None
            for at in sorted(points):
                row = points[at]
                if row is not None and now is not None and self._same(row, now):
                    now.update(row)
                    continue
                if now is not None:
                    now["valid_to"] = at
                    now |= {"valid_to_time": times[at]} if "at" in self.columns else {}
                now = None if row is None else row | {"valid_from": at, "valid_to": None}
                if now is not None:
                    now |= (
                        {"valid_from_time": times[at], "valid_to_time": None} if "at" in self.columns else {}
                    )
                    found.append(now)
        return found

    def _same(self, one: Row, other: Row) -> bool:
        return all(one[name] == other[name] for name in self.tracked)
