"""Spark's resolved expressions read from the JVM into the small tree that workers evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa

from lakefeed.sql.catalyst import Catalyst, each
from lakefeed.sql.expression import Call, Column, Expression, Literal
from lakefeed.sql.spark_types import arrow_type, type_in_words
from lakefeed.sql.spark_words import spark_words

FOREIGN = "spark_type"
"""The option of a call whose type tables do not have, such as an interval: its name in Spark."""

REPLACED = "replaced"
"""The option of a call that Spark runs as another expression, which is its only argument."""

_MODES = frozenset(["Cast", "Add", "Subtract", "Multiply", "Divide", "IntegralDivide", "Remainder"])
"""Whose `evalMode` says whether they throw (ANSI) or give null (TRY)."""

_FLAGS = {
    "UnaryMinus": "failOnError",
    "Abs": "failOnError",
    "GetStructField": "ordinal",
    "Like": "escapeChar",
}
"""One other parameter of each."""

_OPERATORS = {
    "Add": "+",
    "Subtract": "-",
    "Multiply": "*",
    "Divide": "/",
    "Remainder": "%",
    "IntegralDivide": "div",
    "UnaryMinus": "-",
    "GetArrayItem": "[ ]",
    "GetMapValue": "[ ]",
    "GetArrayStructFields": "a field of an array",
    "CaseWhen": "case",
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
}
"""What people write, where Spark's own name is the one of its class."""

_CONDITIONAL = frozenset(["CaseWhen", "If", "Coalesce", "And", "Or", "NaNvl"])
"""Which evaluate some of their arguments only for some rows.

Not the functions of `transform` and the like: Spark computes their constants for empty arrays too.
"""


class Reader:
    """Reads resolved expressions; what is constant is computed by Spark while reading.

    A constant that throws is an error of the text, but not where only some rows are evaluated that far.
    """

    def __init__(self, catalyst: Catalyst, columns: Sequence[str]) -> None:
        """`columns` are the names that rows have; Spark knows a column under whatever case a text uses."""
        self._catalyst = catalyst
        self._columns = {name.lower(): name for name in columns}
        self._shared: dict[int, Expression] = {}
        self._conditions = 0
        """How many conditional expressions are around the one that is read."""

    def read(self, spark: Any) -> Expression:
        """The tree of one of Spark's expressions; raises what Spark raises for a constant that throws."""
        function = spark.getClass().getSimpleName()
        if function == "Alias":
            return self.read(spark.child())
        if function == "With":
            return self._with(spark)
        if function == "CommonExpressionRef":
            return self._shared[spark.id().id()]
        written = orjson.loads(spark.dataType().json())
        kind = arrow_type(written)
        if kind is None:
            return self._call(spark, function, pa.null(), ((FOREIGN, type_in_words(written)),))
        if function == "AttributeReference":
            return Column(kind, self._columns[spark.name().lower()])
        if not pa.types.is_nested(kind) and spark.foldable():
            constant = self._constant(spark, kind)
            if constant is not None:
                return constant
        return self._call(spark, function, kind, ())

    def _constant(self, spark: Any, kind: pa.DataType) -> Expression | None:
        """What is the same for all rows; None where it throws for those that are evaluated that far."""
        replaced = self._catalyst.replacement(spark)
        if replaced is not None:
            return self.read(replaced)
        try:
            return Literal(kind, _value(spark.eval(None), kind))
        except Exception as error:
            if not self._conditions or spark_words(error) is None or not spark.children().length():
                raise
            return None

    def _with(self, spark: Any) -> Expression:
        """Put what Spark would compute once where it is used."""
        for definition in each(spark.defs()):
            self._shared[definition.id().id()] = self.read(definition.child())
        return self.read(spark.child())

    def _call(
        self, spark: Any, function: str, kind: pa.DataType, options: tuple[tuple[str, Any], ...]
    ) -> Expression:
        name = _OPERATORS.get(function) or spark.prettyName().lower()
        replaced = self._catalyst.replacement(spark)
        if replaced is not None:
            return Call(kind, function, name, (self.read(replaced),), ((REPLACED, True), *options))
        if function in _MODES:
            options = (*options, ("mode", spark.evalMode().toString()))
        if function in _FLAGS:
            options = (*options, (_FLAGS[function], getattr(spark, _FLAGS[function])()))
        self._conditions += function in _CONDITIONAL
        given = tuple(self.read(one) for one in each(spark.children()))
        self._conditions -= function in _CONDITIONAL
        return Call(kind, function, name, given, options)


def _value(spark: Any, kind: pa.DataType) -> Any:
    """A constant of Spark's as Arrow takes it."""
    if spark is None or isinstance(spark, bool | int | float | bytes):
        return spark
    if pa.types.is_decimal(kind):
        return spark.toJavaBigDecimal()
    return bytes(spark) if pa.types.is_binary(kind) else spark.toString()
