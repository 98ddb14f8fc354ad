"""`query`: the SQL that fills a table, and the names of the relations that it reads.

Spark's own parser decides what a query reads when it runs. This reading of the text needs no Spark, so that
the file is checked, and the pipeline is drawn, without a JVM.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Annotated

from pydantic import AfterValidator

from lakefeed.text import suggestion

_TOKEN = re.compile(
    r"""(?P<skip>\s+|--[^\n]*|/\*.*?\*/)
    |(?P<text>[rR]?'(?:[^'\\]|\\.|'')*'|[rR]?"(?:[^"\\]|\\.|"")*")
    |`(?P<quoted>(?:[^`]|``)+)`
    |(?P<word>\w+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ENDS_FROM = {
    *("WHERE", "GROUP", "ORDER", "HAVING", "LIMIT", "OFFSET", "UNION", "INTERSECT", "EXCEPT", "MINUS"),
    *("WINDOW", "SORT", "CLUSTER", "DISTRIBUTE", "QUALIFY"),
}
_NO_RELATION = {"VALUES", "SELECT", "WITH", "INLINE"}
_NO_NAME = _NO_RELATION | _ENDS_FROM | {"LATERAL", "TABLE", "FROM", "JOIN", "ON", "USING", "AS"}
"""Words that name nothing unless they are quoted."""


def _one_statement(text: str) -> str:
    query = text.strip().removesuffix(";").rstrip()
    if not any(kind != "text" for kind, _ in _tokens(query)):
        raise ValueError("expected a SQL query such as SELECT ... FROM ..., got nothing")
    if any(word == ";" and kind == "other" for kind, word in _tokens(query)):
        raise ValueError("expected one query; remove what comes behind the first `;`")
    first = next(word for _, word in _tokens(query)).upper()
    if first not in ("SELECT", "WITH", "FROM", "VALUES", "TABLE", "("):
        raise ValueError(f"expected a query that begins with SELECT or WITH, got {first[:20]}")
    return query


QueryText = Annotated[str, AfterValidator(_one_statement)]
"""One query, without the semicolon at its end."""


@dataclass
class _Level:
    """What is known between one pair of parentheses."""

    called: bool = False
    """Whether they are those of a function, whose FROM is no clause: `extract(year FROM day)`."""
    has_query: bool = False
    in_from: bool = False
    expects: bool = False
    """Whether a relation may come next."""
    in_with: bool = False
    names_next: bool = False
    """Whether the name of a common table expression comes next."""
    pending: str = ""
    recursive: bool = False
    common: set[str] = field(default_factory=set)


def relations(query: str) -> list[str]:
    """The names of what a query reads, in their order, without its common table expressions.

    A name of several parts keeps its dots.
    """
    return list(dict.fromkeys(_relations(list(_tokens(query)))))


def calls(query: str) -> list[str]:
    """The names in front of parentheses, in their order: functions, and words of SQL."""
    tokens = list(_tokens(query))
    called = [text for (kind, text), after in pairwise(tokens) if kind == "word" and after == ("other", "(")]
    return [name for name in dict.fromkeys(called) if name.upper() not in _BEFORE_QUERY | _NO_NAME]


def table_of(relation: str, tables: Sequence[str]) -> str | None:
    """The table that a relation of a query names; Spark does not mind the case."""
    if relation in tables:
        return relation
    return next((name for name in tables if name.casefold() == relation.casefold()), None)


def unknown_table(relation: str, others: Iterable[str]) -> str:
    """What is wrong with a relation that is no table of the file; `others` are those that could be meant."""
    if "." in relation:
        hint = "; a query reads tables of this file by their names"
    else:
        hint = suggestion(relation, others)
    return f"reads '{relation}', which is no table of this file{hint}"


def inputs_in_order(queries: Mapping[str, str | None]) -> dict[str, list[str]]:
    """Tables with queries and the tables that they read, each behind those that it reads.

    `queries` has all tables. Raises ValueError for a circle.
    """
    names = list(queries)
    inputs = {
        name: [found for each in relations(query) if (found := table_of(each, names))]
        for name, query in queries.items()
        if query
    }
    ordered: list[str] = []
    for name in inputs:
        _visit(name, inputs, [], ordered)
    return {name: inputs[name] for name in ordered}


def _visit(name: str, inputs: Mapping[str, Sequence[str]], way: list[str], ordered: list[str]) -> None:
    if name in ordered or name not in inputs:
        return
    if name in way:
        raise ValueError(" -> ".join([*way[way.index(name) :], name]))
    for one in inputs[name]:
        _visit(one, inputs, [*way, name], ordered)
    ordered.append(name)


def _tokens(query: str) -> Iterator[tuple[str, str]]:
    for found in _TOKEN.finditer(query):
        kind = found.lastgroup
        if kind is not None and kind != "skip":
            yield kind, found[kind].replace("``", "`") if kind == "quoted" else found[kind]


def _relations(tokens: list[tuple[str, str]]) -> Iterator[str]:
    levels = [_Level()]
    at = 0
    while at < len(tokens):
        kind, text = tokens[at]
        level, word = levels[-1], text.upper() if kind == "word" else ""
        named = kind == "quoted" or (kind == "word" and word not in _NO_NAME and not word[0].isdigit())
        if text == "(" and kind == "other":
            before = tokens[at - 1] if at else ("", "")
            called = before[0] == "quoted" or (before[0] == "word" and before[1].upper() not in _BEFORE_QUERY)
            levels.append(_Level(called, expects=level.expects, in_from=level.expects))
        elif text == ")" and kind == "other" and len(levels) > 1:
            levels.pop()
            _close(levels[-1])
        elif level.names_next and named and word != "RECURSIVE":
            level.pending, level.names_next = text.casefold(), False
            if level.recursive:
                level.common.add(level.pending)
        elif level.expects and named:
            name, at = _name(tokens, at)
            level.expects = False
            is_function = at + 1 < len(tokens) and tokens[at + 1] == ("other", "(")
            if not is_function and not any(name.casefold() in each.common for each in levels):
                yield name
        else:
            _step(level, word or text, tokens, at)
        at += 1


_BEFORE_QUERY = {
    *("FROM", "JOIN", "IN", "EXISTS", "AS", "ON", "AND", "OR", "NOT", "WHERE", "SELECT", "UNION", "ALL"),
    *("EXCEPT", "INTERSECT", "MINUS", "LATERAL", "HAVING", "WHEN", "THEN", "ELSE", "BY", "ANY", "SOME"),
    *("DISTINCT", "USING", "VALUES", "BETWEEN", "CASE", "LIKE", "IS"),
}
"""Words behind which parentheses are not those of a call."""


def _close(level: _Level) -> None:
    level.expects = False
    if level.in_with and level.pending:
        level.common.add(level.pending)
        # What comes behind it is a comma with the next one, or the query itself.
        level.pending = ""


def _name(tokens: list[tuple[str, str]], at: int) -> tuple[str, int]:
    """The name that begins here, with all its parts, and where it ends."""
    parts = [tokens[at][1]]
    while at + 2 < len(tokens) and tokens[at + 1] == ("other", "."):
        at += 2
        parts.append(tokens[at][1])
    return ".".join(parts), at


def _step(level: _Level, word: str, tokens: list[tuple[str, str]], at: int) -> None:
    """Take note of a word or a sign that is no name."""
    before = tokens[at - 1][1].upper() if at else ""
    if word == "WITH" and not level.has_query:
        level.in_with = level.names_next = True
    elif word == "RECURSIVE":
        level.recursive = True
    elif word == "SELECT":
        level.has_query, level.in_from, level.expects, level.in_with = True, False, False, False
    elif word == "FROM":
        if before != "DISTINCT" and (level.has_query or not level.called):
            level.in_from = level.expects = level.has_query = True
            level.in_with = False
    elif word == "JOIN":
        level.in_from = level.expects = True
    elif word == "TABLE" and before in ("", "("):
        level.expects = True
    elif word == ",":
        level.names_next = level.in_with and not level.pending
        level.expects = level.in_from
    elif word in _ENDS_FROM | _NO_RELATION or (word == "LATERAL" and _next_is(tokens, at, "VIEW")):
        level.in_from = level.expects = False


def _next_is(tokens: list[tuple[str, str]], at: int, word: str) -> bool:
    return at + 1 < len(tokens) and tokens[at + 1][1].upper() == word
