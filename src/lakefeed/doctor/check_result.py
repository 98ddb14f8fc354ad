"""One line of the doctor's report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from lakefeed.errors import LakefeedError


@dataclass(frozen=True)
class CheckResult:
    """What was looked at, how it is, and what to do about it. A run fails where the state is `fail`."""

    check: str
    state: Literal["ok", "warn", "fail"]
    text: str
    remedy: str = ""

    @classmethod
    def of(cls, check: str, error: LakefeedError) -> CheckResult:
        """An error that a run would end with. What to do is in its last line, if it has several."""
        text, _, remedy = str(error).partition("\n")
        return cls(check, "fail", text.removeprefix(f"{check}: "), remedy)
