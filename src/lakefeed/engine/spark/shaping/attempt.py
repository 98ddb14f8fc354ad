"""Expressions of Spark that may throw: a row for which one does is told from the others, and why it threw.

Spark is ANSI: a bad cast or a division by zero fails the task, and the batch with it. `TryEval`, which
Spark's own `try_` functions are made of, gives null where its child throws. Around a struct, which is never
null by itself, it tells which rows threw. It does not say why. For those rows alone the expression is
evaluated again, inside `scala.util.Try`, which keeps the exception: its message has Spark's error class and
Spark's words.

All of it is made of classes that Spark has, so that it runs on every executor without a library of ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from lakefeed.sql.catalyst import module
from lakefeed.text import in_backticks

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_EXPRESSIONS = "org.apache.spark.sql.catalyst.expressions"
_OBJECTS = f"{_EXPRESSIONS}.objects"


class Attempt:
    """One expression over the columns of a frame."""

    def __init__(self, frame: DataFrame, wanted: Column) -> None:
        """`wanted` is a struct: an expression that is never null by itself."""
        self._frame = frame
        self._wanted = wanted
        context: Any = frame.sparkSession.sparkContext
        self._gateway = context._gateway
        self._jvm = context._jvm
        self._columns = self._jvm.org.apache.spark.sql.classic.ExpressionUtils

    def value(self) -> Column:
        """What the expression gives; null where it throws."""
        expressions = self._jvm.org.apache.spark.sql.catalyst.expressions
        return self._column(expressions.TryEval(self._expression(self._wanted)))

    def columns(self) -> set[str]:
        """The columns that the expression reads, in lower case."""
        read = self._analyzed().references().toSeq()
        return {read.apply(at).name().lower() for at in range(read.length())}

    def reason(self) -> Column:
        """What Spark says when it throws. Only for rows for which it does: others fail the task."""
        from pyspark.sql import functions as F

        row = F.struct(*(F.col(in_backticks(name)) for name in self._frame.columns))
        held = self._made(
            f"{_OBJECTS}.NewInstance",
            self._class("scala.util.Success"),
            self._sequence([self._expression(row)]),
            self._nothing(),
            False,
            self._kind("scala.util.Success"),
            self._none(),
        )
        tried = self._called(held, "map", "scala.util.Try", self._bound())
        thrown = self._called(self._called(tried, "failed", "scala.util.Try"), "get", "java.lang.Throwable")
        # The projection puts an exception of its own around what the expression throws.
        cause = self._called(thrown, "getCause", "java.lang.Throwable")
        message = self._called(cause, "getMessage", "java.lang.String")
        text = self._made(
            f"{_OBJECTS}.StaticInvoke",
            self._class("org.apache.spark.unsafe.types.UTF8String"),
            module(self._jvm.org.apache.spark.sql.types, "StringType"),
            "fromString",
            self._sequence([message]),
            self._nothing(),
            True,
            True,
            True,
            self._none(),
        )
        return self._column(text)

    def _bound(self) -> Any:
        """The expression as a function from rows, which is compiled where it is first called."""
        plan = module(self._jvm.org.apache.spark.sql.catalyst.optimizer, "ReplaceExpressions").apply(
            self._analyzed()
        )
        columns = self._made(f"{_EXPRESSIONS}.package$AttributeSeq", plan.child().output())
        bound = self._jvm.org.apache.spark.sql.catalyst.expressions.BindReferences.bindReference(
            plan.projectList().head().child(), columns, False
        )
        encoder = "org.apache.spark.sql.catalyst.encoders.ExpressionEncoder$Deserializer"
        function = self._made(encoder, self._sequence([bound]))
        return self._made(f"{_EXPRESSIONS}.Literal", function, self._kind("scala.Function1"))

    def _analyzed(self) -> Any:
        jvm_frame: Any = self._frame.select(self._wanted.alias("wanted"))._jdf
        return jvm_frame.queryExecution().analyzed()

    def _called(self, target: Any, method: str, gives: str, *arguments: Any) -> Any:
        kind, given = self._kind(gives), self._sequence(arguments)
        invoke = f"{_OBJECTS}.Invoke"
        return self._made(invoke, target, method, kind, given, self._nothing(), False, True, True)

    def _made(self, name: str, *arguments: Any) -> Any:
        """An instance of a class of Spark's; its constructor is found by the number of arguments."""
        array = self._gateway.new_array(self._jvm.java.lang.Object, len(arguments))
        for at, one in enumerate(arguments):
            array[at] = one
        found = [
            one for one in self._class(name).getConstructors() if one.getParameterCount() == len(arguments)
        ]
        return found[0].newInstance(array)

    def _class(self, name: str) -> Any:
        return self._jvm.java.lang.Class.forName(name)

    def _kind(self, name: str) -> Any:
        return self._jvm.org.apache.spark.sql.types.ObjectType(self._class(name))

    def _sequence(self, members: Sequence[Any]) -> Any:
        found = self._jvm.java.util.ArrayList()
        for one in members:
            found.add(one)
        return self._jvm.scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq()

    def _nothing(self) -> Any:
        return self._sequence([])

    def _none(self) -> Any:
        return self._jvm.scala.Option.empty()

    def _expression(self, column: Column) -> Any:
        return self._columns.expression(column._jc)

    def _column(self, expression: Any) -> Column:
        from pyspark.sql.classic.column import Column as ClassicColumn

        return ClassicColumn(self._columns.column(expression))
