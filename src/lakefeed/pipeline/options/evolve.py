"""What becomes of events that do not fit the columns of their table."""

from __future__ import annotations

from typing import Annotated, Literal, get_args

from pydantic import Field

from lakefeed.pipeline.section import Section, Shorthand

NewColumn = Literal["add", "ignore", "rescue", "dead_letter", "fail"]
TypeChange = Literal["widen", "dead_letter", "rescue", "fail"]

RESCUED = "_rescued"
"""The column that keeps what did not fit, as the text of a JSON object."""


class Evolve(Section):
    """What happens to fields without a column in the table, and to values that do not fit their column."""

    new_column: NewColumn = Field(
        default="add",
        description="A field without a column in the table: `add` the column, `ignore` the field, `rescue` "
        "it as JSON in the column `_rescued`, make the event a `dead_letter`, or `fail`: stop "
        "the table.",
    )
    type_change: TypeChange = Field(
        default="widen",
        description="A value that does not fit its column: `widen` the column, if its type was inferred and "
        "a wider number or time holds all values, else make the event a dead letter; make each such event a "
        "`dead_letter`; `rescue` the value as JSON in the column `_rescued`; or `fail`: stop the table.",
    )

    @property
    def rescues(self) -> bool:
        """Whether the table has the column `_rescued`."""
        return "rescue" in (self.new_column, self.type_change)


EvolveField = Annotated[Evolve, Shorthand({rule: {"new_column": rule} for rule in get_args(NewColumn)})]
"""A mapping, or the rule for new columns alone: `evolve: ignore`."""
