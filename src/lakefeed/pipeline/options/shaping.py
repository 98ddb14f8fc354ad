"""How a table shapes its rows: Spark SQL in `select` and `where`, rules in `expect`, and `python`."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field

from lakefeed.pipeline.section import SOME_NAMES, Section, as_list
from lakefeed.sql.projection import Otherwise
from lakefeed.text import shown

_LITERAL = re.compile(r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.|\"\")*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", re.DOTALL)
_STAR = re.compile(r"(?:^|[(,.])\s*\*")
_FUNCTION = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
_RULE = re.compile(r"[A-Za-z0-9_\-]{1,100}")


def _check_sql(text: str) -> str:
    if not text.strip():
        raise ValueError("expected an expression of Spark SQL, got nothing")
    return text


def _check_function(text: str) -> str:
    if not _FUNCTION.fullmatch(text):
        raise ValueError(f"expected `module:function`, such as shop.clean:enrich, got {shown(text)}")
    return text


def _check_rule(name: str) -> str:
    if not _RULE.fullmatch(name):
        raise ValueError(
            f"the name of a rule is 1 to 100 letters, digits, underscores or hyphens, got {shown(name)}"
        )
    return name


def _check_items(items: tuple[str, ...]) -> tuple[str, ...]:
    if not items:
        raise ValueError("expected at least one item, such as '*'")
    return items


Sql = Annotated[str, AfterValidator(_check_sql)]
Select = Annotated[
    tuple[Sql, ...],
    BeforeValidator(as_list),
    AfterValidator(_check_items),
    SOME_NAMES,
]
FunctionName = Annotated[str, AfterValidator(_check_function)]


class Expectation(Section):
    """One rule that the rows of a table must meet."""

    that: Sql = Field(
        description="A condition in Spark SQL over the columns of the table; null counts as not met.",
        examples=["price > 0"],
    )
    otherwise: Otherwise = Field(
        default="dead_letter",
        description="What happens to a row that does not meet it: `warn` counts it, `drop` leaves it out, "
        "`dead_letter` makes its event a dead letter, `fail` stops the table before anything of the batch "
        "is committed.",
    )


def _as_rule(value: Any) -> Any:
    return {"that": value} if isinstance(value, str) else value


Expect = dict[
    Annotated[str, AfterValidator(_check_rule)],
    Annotated[Expectation, BeforeValidator(_as_rule, json_schema_input_type=str | Expectation)],
]
"""Rules by name; a rule is its condition, or a condition and what happens otherwise."""


def has_star(select: tuple[str, ...]) -> bool:
    """Whether what `select` makes grows with the events: it is left out, or an item has a `*`."""
    return not select or any(_STAR.search(_LITERAL.sub("''", item)) for item in select)
