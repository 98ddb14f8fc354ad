"""What `select`, `where` and `expect` of a table make of its events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal as OneOf

import pyarrow as pa

from lakefeed.sql.expression import Expression

BATCH_TIME = "_batch_time"
"""What texts may use beside the columns of the events: when the batch was planned, the same in all its tasks.

Whoever evaluates an expression that reads it puts it beside the columns.
"""

Otherwise = OneOf["warn", "drop", "dead_letter", "fail"]
"""What happens to a row that does not meet a rule."""


@dataclass(frozen=True)
class Item:
    """One column of the table: its name, the SQL that makes it, and the same as an expression.

    The text has the alias that the file gives it. A `*` has become one item for each column.
    """

    name: str
    text: str
    expression: Expression


@dataclass(frozen=True)
class Rule:
    """One rule of `expect`; its expression reads the rows as the table gets them."""

    name: str
    text: str
    otherwise: Otherwise
    expression: Expression


@dataclass(frozen=True)
class Projection:
    """`select`, `where` and `expect` of a table, analyzed for the columns of its events.

    `where` and the items read `input`, the rules read `output`. Without `select` the items are all columns.
    Made on the driver, and pickled to the workers.
    """

    input: pa.Schema
    output: pa.Schema
    where: Expression | None
    where_text: str | None
    items: tuple[Item, ...]
    rules: tuple[Rule, ...]
    needs_spark: str | None
    """None where Arrow does all of it, else one sentence: which part has what Arrow does not."""

    def columns(self) -> set[str]:
        """The columns of the events that `where` and the items read."""
        read = [item.expression for item in self.items] + ([self.where] if self.where is not None else [])
        return set().union(*(one.columns() for one in read))
