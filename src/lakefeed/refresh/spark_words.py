"""What Spark says about a query, as an error of its table."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from lakefeed.engine.flow_run import spark_errors
from lakefeed.errors import LakefeedError, TableError

_CLASS = re.compile(r"\[[A-Z][A-Z0-9_.]+\] ")
_MOST = 400


class QueryError(TableError):
    """A query that Spark refuses, or that fails with the rows that there are."""


@contextmanager
def spark_words(table: str) -> Iterator[None]:
    """Turn what Spark says of a query into QueryError; a Spark that is lost becomes BatchFailed."""
    try:
        with spark_errors():
            yield
    except LakefeedError as error:
        said = said_by_spark(str(error.__cause__)) if error.__cause__ is not None else ""
        if not said:
            raise
        raise QueryError(f"table {table}: the query failed: {said}") from error


def said_by_spark(text: str) -> str:
    """The message with its class, such as `[DIVIDE_BY_ZERO] Division by zero.`; empty where there is none."""
    found = _CLASS.search(text)
    if found is None:
        return ""
    # What follows is the plan, the query with a mark, or the stack.
    said = re.split(r"\n\s*at |\n'|\nJVM stacktrace|\n== |;\n|\n\n", text[found.start() :])[0]
    lines = " ".join(line.strip() for line in said.splitlines() if line.strip())
    position = re.search(r"line (\d+),? pos(?:ition)? (\d+)", text)
    where = f" (line {position[1]}, position {position[2]} of the query)" if position else ""
    lines = re.sub(r" SQLSTATE: \w+", "", lines).split("; line ")[0]
    return f"{lines[:_MOST]}{where}"
