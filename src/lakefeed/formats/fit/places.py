"""Where a value is: which payload it belongs to, and its path from there, also inside lists and maps."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from lakefeed.formats.fit.rescue import Element, Step

Path = list[str | int]


class Level:
    """The values of one column, at any depth, each at its place in that column."""

    is_top = False
    in_list = False
    """Whether the values are parts of lists or maps, at any depth."""

    @property
    def depth(self) -> int:
        """How many structs, lists and maps hold the value; the payload itself does not count."""
        raise NotImplementedError

    def row(self, at: int) -> int:
        """The place of the payload that holds the value."""
        raise NotImplementedError

    def path(self, at: int) -> Path:
        """The way from the payload to the value."""
        raise NotImplementedError

    def trail(self, at: int) -> list[Step]:
        """The same way, as one goes it in JSON."""
        raise NotImplementedError

    def field(self, name: str) -> Level:
        """The level of a field, where the values of this level are structs."""
        return _Field(self, name)


class Rows(Level):
    """The payloads themselves."""

    is_top = True
    depth = -1

    def row(self, at: int) -> int:
        """The place itself."""
        return at

    def path(self, at: int) -> Path:
        """No way to go."""
        return []

    def trail(self, at: int) -> list[Step]:
        """No way to go."""
        return []


@dataclass(frozen=True)
class _Field(Level):
    parent: Level
    name: str

    def row(self, at: int) -> int:
        return self.parent.row(at)

    @property
    def in_list(self) -> bool:  # type: ignore[override]
        return self.parent.in_list

    @property
    def depth(self) -> int:
        return self.parent.depth + 1

    def path(self, at: int) -> Path:
        return [*self.parent.path(at), self.name]

    def trail(self, at: int) -> list[Step]:
        return [*self.parent.trail(at), self.name]


@dataclass(frozen=True, eq=False)
class Elements(Level):
    """The elements of lists, one list after the other."""

    parent: Level
    offsets: np.ndarray[Any, Any]
    in_list = True

    @property
    def depth(self) -> int:
        """One more than that of the list."""
        return self.parent.depth + 1

    def row(self, at: int) -> int:
        """The payload of the list that holds the element."""
        return self.parent.row(self._owner(at))

    def path(self, at: int) -> Path:
        """The way to the list, and the number of the element in it."""
        owner = self._owner(at)
        return [*self.parent.path(owner), int(at - self.offsets[owner])]

    def trail(self, at: int) -> list[Step]:
        """The way to the list, and the element in it."""
        owner = self._owner(at)
        start, end = self.offsets[owner : owner + 2].tolist()
        return [*self.parent.trail(owner), Element(at - start, end - start)]

    def _owner(self, at: int) -> int:
        return int(np.searchsorted(self.offsets, at, side="right")) - 1


@dataclass(frozen=True, eq=False)
class Items(Elements):
    """The items of maps, one map after the other."""

    keys: pa.Array

    def path(self, at: int) -> Path:
        """The way to the map, and the key of the item in it."""
        return [*self.parent.path(self._owner(at)), str(self.keys[at].as_py())]

    def trail(self, at: int) -> list[Step]:
        """The same."""
        return [*self.parent.trail(self._owner(at)), str(self.keys[at].as_py())]
