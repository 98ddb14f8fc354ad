"""A request that is not taken: the status, what is wrong, and how to put it right."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson


class Refusal(Exception):
    """Raised anywhere on the way of a request; nothing of the request is kept."""

    def __init__(
        self,
        status: int,
        error: str,
        fix: str,
        *,
        headers: Mapping[str, str] | None = None,
        closes: bool = False,
        **more: Any,
    ) -> None:
        super().__init__(error)
        self.status = status
        self.body = orjson.dumps({"error": error, "fix": fix, **more})
        self.headers = dict(headers or {})
        self.closes = closes
        """Whether the connection ends with the answer, as the rest of the body is not read."""


def later(seconds: float, error: str, fix: str, status: int = 503) -> Refusal:
    """One that may be tried again, after so many seconds."""
    return Refusal(status, error, fix, headers={"Retry-After": str(max(1, round(seconds)))}, closes=True)
