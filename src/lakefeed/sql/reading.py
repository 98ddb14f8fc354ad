"""Spark's resolved expressions read from the JVM into the small tree that workers evaluate."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa

from lakefeed.sql.catalyst import Catalyst, each
from lakefeed.sql.expression import Call, Column, Expression, Literal
from lakefeed.sql.spark_types import arrow_type, type_in_words

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


class Reader:
    """Reads resolved expressions; what is constant is computed by Spark while reading."""

    def __init__(self, catalyst: Catalyst, columns: Sequence[str]) -> None:
        """`columns` are the names that rows have; Spark knows a column under whatever case a text uses."""
        self._catalyst = catalyst
        self._columns = {name.lower(): name for name in columns}
        self._shared: dict[int, Expression] = {}

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
            replaced = self._catalyst.replacement(spark)
            return (
                self.read(replaced) if replaced is not None else Literal(kind, _value(spark.eval(None), kind))
            )
        return self._call(spark, function, kind, ())

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
        return Call(kind, function, name, tuple(self.read(one) for one in each(spark.children())), options)


def _value(spark: Any, kind: pa.DataType) -> Any:
    """A constant of Spark's as Arrow takes it."""
    if spark is None or isinstance(spark, bool | int | float | bytes):
        return spark
    if pa.types.is_decimal(kind):
        return spark.toJavaBigDecimal()
    return bytes(spark) if pa.types.is_binary(kind) else spark.toString()
