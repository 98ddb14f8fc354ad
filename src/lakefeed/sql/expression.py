"""Expressions as Spark's analyzer leaves them: names resolved, types settled, casts written out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa


@dataclass(frozen=True)
class Expression:
    """A part of a condition or of a select item; `type` is what it gives, as the table stores it."""

    type: pa.DataType

    def parts(self) -> Iterator[Expression]:
        """This expression and all that it is made of."""
        yield self

    def columns(self) -> set[str]:
        """The columns that it reads."""
        return {part.name for part in self.parts() if isinstance(part, Column)}


@dataclass(frozen=True)
class Column(Expression):
    """A column of the rows, under the name that they have it."""

    name: str


@dataclass(frozen=True)
class Literal(Expression):
    """A constant; `value` is what Arrow takes for a scalar of the type, None for null."""

    value: Any


@dataclass(frozen=True)
class Call(Expression):
    """A function or operator of Spark's on other expressions.

    `function` is the name of its class in Spark, such as `Add` or `Cast`, `name` what people write, such as
    `+` or `cast`. `options` are its other parameters, such as the ordinal of the field that `GetStructField`
    takes.
    """

    function: str
    name: str
    given: tuple[Expression, ...]
    options: tuple[tuple[str, Any], ...] = ()

    def parts(self) -> Iterator[Expression]:
        """This expression and all that it is made of."""
        yield self
        for one in self.given:
            yield from one.parts()

    def option(self, name: str) -> Any:
        """One of the other parameters, None where the function has none of this name."""
        return dict(self.options).get(name)
