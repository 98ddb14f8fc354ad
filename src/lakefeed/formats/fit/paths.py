"""Paths of values: which payload a value of a column belongs to, and the steps from there to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa


@dataclass(frozen=True)
class Element:
    """A step into a list: the number of the element, and how many the list has."""

    number: int
    count: int


Step = str | Element
"""A step on the way to a value: the name of a field, the key of a map, or an element of a list."""


class Level:
    """The values of one column, at any depth; the top level is the payloads. Knows where each value is."""

    is_top = True
    in_list = False
    """Whether the values are parts of lists or maps, at any depth."""
    depth = -1
    """How many structs, lists and maps hold the value; the payload itself does not count."""

    def row(self, at: int) -> int:
        """The index of the payload that holds the value."""
        return at

    def steps(self, at: int) -> list[Step]:
        """The way from the payload to the value."""
        return []

    def path(self, at: int) -> list[str | int]:
        """The same way, as a message shows it."""
        return [step.number if isinstance(step, Element) else step for step in self.steps(at)]

    def field(self, name: str) -> Level:
        """The level of a field, where the values of this level are structs."""
        return _Field(self, name)


class _Field(Level):
    is_top = False

    def __init__(self, parent: Level, name: str) -> None:
        self._parent = parent
        self._name = name
        self.in_list = parent.in_list
        self.depth = parent.depth + 1

    def row(self, at: int) -> int:
        return self._parent.row(at)

    def steps(self, at: int) -> list[Step]:
        return [*self._parent.steps(at), self._name]


class Elements(Level):
    """The elements of lists, one list after the other; with keys, the items of maps."""

    is_top, in_list = False, True

    def __init__(self, parent: Level, offsets: np.ndarray[Any, Any], keys: pa.Array | None = None) -> None:
        self._parent = parent
        self._offsets = offsets
        self._keys = keys
        self.depth = parent.depth + 1

    def row(self, at: int) -> int:
        """That of the payload with the list that holds the element."""
        return self._parent.row(self._owner(at))

    def steps(self, at: int) -> list[Step]:
        """The way to the list, and the element in it; or the way to the map, and the key in it."""
        owner = self._owner(at)
        start, end = self._offsets[owner : owner + 2].tolist()
        step = Element(at - start, end - start) if self._keys is None else str(self._keys[at].as_py())
        return [*self._parent.steps(owner), step]

    def _owner(self, at: int) -> int:
        return int(np.searchsorted(self._offsets, at, side="right")) - 1
