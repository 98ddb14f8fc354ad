"""The expressions of `transform`: JMESPath, with the functions of kafka-delta-ingest.

Imported where a file has a `transform`: most have none, and need no JMESPath.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any

import jmespath
from jmespath import functions
from jmespath.exceptions import JMESPathError

from lakefeed.text import suggestion

_UNITS = {"seconds": 1_000_000, "millis": 1_000, "micros": 1}
_EPOCH = dt.datetime(1970, 1, 1)


class Functions(functions.Functions):
    """The functions of JMESPath, and those of kafka-delta-ingest. Raise where an argument does not fit."""

    @functions.signature({"types": ["string"]}, {"types": ["number"]}, {"types": ["number"]})
    def _func_substr(self, text: str, skip: float, take: float) -> str:
        start = max(0, int(skip))
        return text[start : start + max(0, int(take))]

    @functions.signature({"types": ["number"]})
    def _func_epoch_seconds_to_iso8601(self, number: float) -> str:
        return iso8601(int(number) * _UNITS["seconds"])

    @functions.signature({"types": ["number"]})
    def _func_epoch_millis_to_iso8601(self, number: float) -> str:
        return iso8601(int(number) * _UNITS["millis"])

    @functions.signature({"types": ["number"]})
    def _func_epoch_micros_to_iso8601(self, number: float) -> str:
        return iso8601(int(number))

    @functions.signature({"types": ["number"]})
    def _func_epoch_millis_to_micro(self, number: float) -> int:
        return int(number) * 1000


ISO8601_UNITS = {f"epoch_{unit}_to_iso8601": factor for unit, factor in _UNITS.items()}
"""Functions that make text of an epoch number, and how many microseconds one of its units has."""


def iso8601(micros: int) -> str:
    """A moment as text, with as many groups of three digits behind the second as it needs."""
    try:
        moment = _EPOCH + dt.timedelta(microseconds=micros)
    except OverflowError:
        raise ValueError(f"{micros} microseconds since 1970 lie outside of the years 1 to 9999") from None
    parts = moment.microsecond
    precision = "seconds" if not parts else "microseconds" if parts % 1000 else "milliseconds"
    return moment.isoformat(timespec=precision) + "Z"


OPTIONS = jmespath.Options(custom_functions=Functions())


def parsed(expression: str) -> Any:
    """The parsed expression of JMESPath. Raises ValueError, also for functions that nobody knows."""
    try:
        found = jmespath.compile(expression)
    except JMESPathError as error:
        text = " ".join(str(error).split())
        raise ValueError(f"not a JMESPath expression: {text}") from None
    known = Functions.FUNCTION_TABLE
    for name in _functions(found.parsed):
        if name not in known:
            raise ValueError(f"there is no function {name!r}{suggestion(name, known)}")
    return found


def _functions(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if node["type"] == "function_expression":
            yield node["value"]
        for child in node["children"]:
            yield from _functions(child)
