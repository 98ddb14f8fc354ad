"""Spark's parser and analyzer, called from Python: texts become resolved trees of Spark's own classes.

Catalyst needs a JVM with Spark's classes, and neither a Spark context nor a session. The analyzer is the
plain one with Spark's built-in functions, in a session too, so that both answer alike.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import orjson
import pyarrow as pa

from lakefeed.sql.spark_types import spark_schema

_ANSI = "spark.sql.ansi.enabled"
_ZONE = "spark.sql.session.timeZone"


def module(package: Any, name: str) -> Any:
    """The one instance of a Scala object."""
    return getattr(getattr(package, f"{name}$"), "MODULE$")


def each(sequence: Any) -> Iterator[Any]:
    """The members of a Scala sequence."""
    for at in range(sequence.length()):
        yield sequence.apply(at)


class Catalyst:
    """Spark's parser and analyzer in one JVM."""

    def __init__(self, jvm: Any) -> None:
        self._jvm = jvm
        catalyst = jvm.org.apache.spark.sql.catalyst
        self._plans = catalyst.plans.logical
        self._analysis = catalyst.analysis
        self._parser = module(catalyst.parser, "CatalystSqlParser")
        self._analyzer = module(catalyst.analysis, "SimpleAnalyzer")
        self._replaceable = jvm.java.lang.Class.forName(
            "org.apache.spark.sql.catalyst.expressions.RuntimeReplaceable"
        )
        self._named = jvm.java.lang.Class.forName("org.apache.spark.sql.catalyst.expressions.NamedExpression")
        self._nothing = module(jvm.scala.collection.immutable, "Nil")
        self._none = module(jvm.scala, "None")

    @contextmanager
    def following_rules(self) -> Iterator[None]:
        """Have the analyzer follow ANSI and UTC meanwhile, whatever the program set in its own session."""
        conf = self._jvm.org.apache.spark.sql.internal.SQLConf.get()
        if conf.ansiEnabled() and conf.sessionLocalTimeZone() in ("UTC", "Etc/UTC"):
            yield
            return
        sessions = self._jvm.org.apache.spark.sql.classic.SparkSession
        default, before = sessions.getDefaultSession(), sessions.getActiveSession()
        if default.isDefined():
            own = default.get().newSession()
            sessions.setActiveSession(own)
            conf = own.sessionState().conf()
        conf.setConfString(_ANSI, "true")
        conf.setConfString(_ZONE, "UTC")
        try:
            yield
        finally:
            if before.isDefined():
                sessions.setActiveSession(before.get())
            elif default.isDefined():
                sessions.clearActiveSession()

    def relation(self, schema: pa.Schema) -> Any:
        """A relation without rows that has these columns."""
        types = module(self._jvm.org.apache.spark.sql.types, "DataType")
        converted = types.fromJson(orjson.dumps(spark_schema(schema)).decode())
        attributes = module(self._jvm.org.apache.spark.sql.catalyst.types, "DataTypeUtils").toAttributes(
            converted
        )
        local = module(self._plans, "LocalRelation")
        return local.apply(attributes, self._nothing, False, self._none)

    def parse(self, text: str) -> Any:
        """A select item or a condition, as Spark's parser reads it."""
        return self._parser.parseExpression(text)

    def select(self, parsed: Any, relation: Any) -> Any:
        """The analyzed plan of one select item over a relation."""
        if not self._named.isInstance(parsed):
            parsed = self._analysis.UnresolvedAlias(parsed, self._none)
        items = self._nothing.prepended(parsed)
        return self._analyzed(self._plans.Project(items, relation))

    def filter(self, parsed: Any, relation: Any) -> Any:
        """The analyzed plan of a condition over a relation."""
        return self._analyzed(self._plans.Filter(parsed, relation))

    def _analyzed(self, plan: Any) -> Any:
        analyzed = self._analyzer.execute(plan)
        self._analyzer.checkAnalysis(analyzed)
        return analyzed

    def replacement(self, expression: Any) -> Any | None:
        """What Spark runs instead of an expression; None where it runs it as it is."""
        return expression.replacement() if self._replaceable.isInstance(expression) else None

    def functions(self) -> list[str]:
        """The names of all functions that Spark has built in."""
        registry = module(self._analysis, "FunctionRegistry").builtin()
        return [one.funcName() for one in each(registry.listFunction())]
