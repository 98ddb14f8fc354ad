"""Delta table properties: which ones would break a promise of Lakefeed."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from lakefeed.pipeline.options.client_options import OptionText

_UNREADABLE = "not readable by every engine"
_REFUSED: dict[str, tuple[str, str]] = {
    "delta.settransactionretentionduration": (
        "",
        "refused: positions in the table's log would expire, and events be repeated after a long pause",
    ),
    "delta.columnmapping.mode": (
        "none",
        f"refused: column mapping is {_UNREADABLE}; a new table with `names: keep` has it",
    ),
    "delta.columnmapping.maxcolumnid": ("", "refused: whoever adds a column counts it"),
    "delta.enabledeletionvectors": (
        "false",
        f"refused: deletion vectors are {_UNREADABLE}; use `updates: merge_on_read`",
    ),
    "delta.enabletypewidening": ("false", f"refused: type widening is {_UNREADABLE}"),
    "delta.enablerowtracking": (
        "false",
        "refused: tables with row tracking cannot be written without Spark's Delta",
    ),
}
"""By lower-case name: the one value that is harmless, and why any other is refused."""

_REFUSED_FEATURES = ("columnmapping", "deletionvectors", "typewidening", "timestampntz", "rowtracking")


def property_problem(name: str, value: str) -> str | None:
    """Why the property is refused, or None."""
    folded = name.strip().lower()
    if not folded:
        return "a property needs a name"
    if folded in _REFUSED:
        harmless, reason = _REFUSED[folded]
        return None if value.lower() == harmless else reason
    if folded.startswith("delta.feature.") and folded.removeprefix("delta.feature.").startswith(
        _REFUSED_FEATURES
    ):
        return f"refused: a table with this feature is {_UNREADABLE}"
    return None


def _check(properties: dict[str, str]) -> dict[str, str]:
    details = [
        InitErrorDetails(
            type=PydanticCustomError("property", "{problem}", {"problem": problem}), loc=(name,), input=None
        )
        for name, value in properties.items()
        if (problem := property_problem(name, value))
    ]
    if details:
        raise ValidationError.from_exception_data("properties", details, hide_input=True)
    return properties


Properties = Annotated[dict[str, OptionText], AfterValidator(_check)]
"""Table properties as text, without those that Lakefeed cannot keep its promises with."""
