"""A figure, and the report that figures make: a table for people, JSON for programs."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Figure:
    """One thing that was measured.

    `ratio` is to what `beside` names, taken in the same run. `goal` says what was wanted, and `reached`
    whether it came true; a figure without a goal is there to be compared with.
    """

    what: str
    value: float
    unit: str
    ratio: float | None = None
    beside: str = ""
    goal: str = ""
    reached: bool | None = None


@dataclass(frozen=True)
class Asked:
    """How much is measured: 1 is what the documentation tells of, less is for a first look."""

    scale: float = 1.0
    only: str = ""

    def wants(self, name: str) -> bool:
        """Whether something of this name is to be measured."""
        return not self.only or any(one in name for one in self.only.split(","))

    def of(self, amount: int, least: int = 1) -> int:
        """So much of an amount."""
        return max(least, int(amount * self.scale))


def table(part: str, figures: Iterable[Figure]) -> str:
    """The figures of a part, one below the other."""
    rows = [("what", "measured", "ratio", "goal", "")]
    for one in figures:
        ratio = "" if one.ratio is None else f"{one.ratio:.2f} x {one.beside}"
        verdict = {True: "reached", False: "NOT reached", None: ""}[one.reached]
        rows.append((one.what, f"{amount(one.value)} {one.unit}", ratio, one.goal, verdict))
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in rows]
    return "\n".join([f"\n{part}", *(line.rstrip() for line in lines)])


def amount(value: float) -> str:
    """A number with three digits that mean something."""
    if value >= 1000:
        return f"{value:,.0f}"
    return f"{value:.3g}" if value < 100 else f"{value:.0f}"


def as_json(parts: dict[str, list[Figure]]) -> str:
    """All figures of a run."""
    told = {name: [dataclasses.asdict(one) for one in figures] for name, figures in parts.items()}
    return json.dumps(told, indent=2)


def say(text: str) -> None:
    """Progress, beside the report."""
    print(text, file=sys.stderr, flush=True)
