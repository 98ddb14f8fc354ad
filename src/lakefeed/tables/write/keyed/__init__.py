"""Tables whose rows have keys: changes are folded, the rows that they are about are found, and replaced."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class KeyRules:
    """What tells the rows of a table apart, and what makes a change newer than another."""

    keys: tuple[str, ...]
    sequence_by: tuple[str, ...] = ()
    """Empty: the position decides."""
    ignore_nulls: bool = False
    """Whether a null says nothing about its column."""
