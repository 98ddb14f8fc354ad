"""YAML's syntax errors in plain words, each at the line where the mistake was made.

The parser names the line where it stopped, which is often one or more lines after the mistake: a
missing colon shows in the line after, an open bracket at the end of the file. No message repeats what the
file holds: it may be a secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml

_KEY = re.compile(r"""\s*(?:- +)*("[^"]*"|'[^']*'|[^\s:#"'\[\]{},]+)\s*:(\s|$)""")
_COLON_WITHOUT_SPACE = re.compile(r"\s*(?:- +)*[\w.-]+:[^\s:/]")
_CLOSED_BY = {"[": "]", "{": "}"}

Mistake = tuple[int, str]
"""A line, counted from one, and what is wrong there."""


def syntax_error(error: yaml.YAMLError, text: str) -> Mistake:
    """The line of the mistake, and what it is."""
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        position = getattr(error, "position", 0)
        return text.count("\n", 0, position) + 1, "a character that may not be in a text file"
    stopped = _ParserError(error, text)
    return (
        stopped.of_characters()
        or stopped.of_brackets()
        or stopped.of_colons()
        or stopped.of_sections()
        or (stopped.line, "this line does not fit those above; look at colons, quotes and indentation")
    )


def without_snippets(error: yaml.YAMLError) -> yaml.YAMLError:
    """The parser's own words without the lines that it quotes."""
    for mark in (getattr(error, "problem_mark", None), getattr(error, "context_mark", None)):
        if mark is not None:
            mark.buffer = None
    return error


class _ParserError:
    """What the parser said, and the text around it. Each `of_...` returns None where it does not apply."""

    def __init__(self, error: yaml.MarkedYAMLError, text: str) -> None:
        assert error.problem_mark is not None
        self._text = text
        self._lines = text.splitlines()
        self._problem, self._context = error.problem or "", error.context or ""
        self._mark = error.problem_mark
        self._began = error.context_mark
        self.line = self._mark.line + 1

    def of_characters(self) -> Mistake | None:
        """Characters that mean something else than their author thought."""
        if "found character '\\t'" in self._problem:
            indents = not self._written(self.line)[: self._mark.column].strip()
            return self.line, (
                "a tab in the indentation; indent with spaces" if indents else "a tab where a space is meant"
            )
        if "that cannot start any token" in self._problem:
            return self.line, self._may_not_begin(self._text[self._mark.index])
        if self._context in ("while scanning an alias", "while scanning an anchor"):
            return self.line, self._may_not_begin("*" if self._context.endswith("alias") else "&")
        if "undefined alias" in self._problem:
            return self.line, (
                "an alias (*) of an anchor (&) that is not defined above; put quotes around it if it is text"
            )
        if self._context.startswith("found duplicate anchor") and self._began:
            return self.line, f"this anchor (&) is given twice; first in line {self._began.line + 1}"
        if self._context == "while scanning a double-quoted scalar":
            return self.line, "a backslash inside double quotes begins an escape; use single quotes"
        if self._context == "while scanning a quoted scalar" and self._began:
            return self._open_quote(self._began)
        if self._context == "while scanning a block scalar":
            return self.line, ("the text after | or > begins in the next line; quote a value that begins so")
        if "another document" in self._problem:
            return self.line, "a second document begins here (---); a file holds one pipeline"
        return None

    def of_brackets(self) -> Mistake | None:
        """Brackets that are not closed, closed by another kind, or never opened."""
        opened, written = self._open_bracket(), self._written(self.line)
        if opened and re.search(r"""[{\[].*(?<!["'])\$\{""", written):
            return self.line, 'inside { } and [ ], put quotes around "${NAME}"'
        if (opened or ": " in written[: self._mark.column]) and re.search(r"(struct|map)\s*<", written):
            return self.line, "put quotes around the type"
        if opened is not None:
            sign, line, closed_by = opened
            if closed_by == _CLOSED_BY[sign]:
                return self.line, f"a comma is missing inside {sign} {closed_by}"
            ends = f"is closed by {closed_by}" if closed_by else "is not closed"
            return line, f"the {sign} that opens here {ends}"
        found = re.search(r"but found '([\]}])'", self._problem)
        return (self.line, f"{found[1]} closes nothing that is open") if found else None

    def of_colons(self) -> Mistake | None:
        """Colons that are missing, without their space, or inside of a value."""
        if "could not find expected ':'" in self._problem and self._began:
            return self._without_colon(self._began.line + 1)
        if "mapping values are not allowed" in self._problem:
            if ": " in self._written(self.line)[: self._mark.column]:
                return self.line, 'a value holds a colon and a space; put quotes around it: key: "a: b"'
            above = self._line_above()
            if above and not _KEY.match(self._written(above)):
                return self._without_colon(above)
            if above:
                return self._too_deep(above)
        if "but found ':'" in self._problem:
            return self.line, "a colon without a key before it"
        return None

    def of_sections(self) -> Mistake | None:
        """Lines that belong to no section, and what follows a value that has ended."""
        if self._problem.startswith("expected '<document start>'"):
            first = next(number for number, line in enumerate(self._lines, 1) if line.strip())
            return self.line, f"begins further left than line {first}; the top keys begin in one column"
        if "block mapping start" in self._problem or "block sequence start" in self._problem:
            above = self._line_above()
            if above and _indentation(self._written(above)) < self._mark.column:
                return self._too_deep(above)
            return self.line, "its indentation fits no line above; the keys of a section begin in one column"
        if "but found '?'" in self._problem:
            return self.line, ("a key among list entries; indent it as its section is, or begin it with `- `")
        if "but found '-'" in self._problem:
            return self.line, (
                "a list entry among keys; a section holds either `key: value` lines or `- ` lines"
            )
        if "expected <block end>" in self._problem:
            quote = self._quote_before()
            if quote is not None and quote.start_mark.line < quote.end_mark.line:
                return self._open_quote(quote.start_mark)
            return self.line, (
                "something follows a closed quote or bracket; put quotes around the whole value"
            )
        return None

    def _written(self, line: int) -> str:
        return self._lines[line - 1] if line <= len(self._lines) else ""

    def _line_above(self) -> int | None:
        above = range(self.line - 1, 0, -1)
        return next((each for each in above if self._written(each).split("#")[0].strip()), None)

    def _too_deep(self, above: int) -> Mistake:
        return self.line, (
            f"indented further than line {above}, which holds a value already; begin both in one column"
        )

    def _without_colon(self, line: int) -> Mistake:
        if _COLON_WITHOUT_SPACE.match(self._written(line)):
            return line, "a space is missing after the colon: write `key: value`"
        return line, "a colon is missing: write `key: value`, or `key:` above indented lines"

    def _open_quote(self, mark: yaml.Mark) -> Mistake:
        return mark.line + 1, f"the quote ({self._text[mark.index]}) that opens here is not closed"

    def _may_not_begin(self, sign: str) -> str:
        return f"a value may not begin with {sign}; put quotes around it"

    def _tokens(self) -> Iterator[yaml.Token]:
        """The tokens of the text, up to the first error."""
        try:
            yield from yaml.scan(self._text)
        except yaml.YAMLError:
            return

    def _open_bracket(self) -> tuple[str, int, str] | None:
        """The bracket that is open where the parser stopped: its sign, its line, and what closes it."""
        stack: list[tuple[str, yaml.Mark]] = []
        wanted: tuple[str, yaml.Mark] | None = None
        for token in self._tokens():
            if wanted is None and token.start_mark.index >= self._mark.index:
                if not stack:
                    return None
                wanted = stack[-1]
            if isinstance(token, yaml.FlowSequenceStartToken | yaml.FlowMappingStartToken):
                stack.append((self._text[token.start_mark.index], token.start_mark))
            elif isinstance(token, yaml.FlowSequenceEndToken | yaml.FlowMappingEndToken) and stack:
                sign, mark = opened = stack.pop()
                closed_by = self._text[token.start_mark.index]
                if opened == wanted or (wanted and closed_by != _CLOSED_BY[sign]):
                    return sign, mark.line + 1, closed_by
        wanted = wanted or (stack[-1] if stack else None)
        return (wanted[0], wanted[1].line + 1, "") if wanted else None

    def _quote_before(self) -> yaml.ScalarToken | None:
        """The quoted text that ends right before the character at which the parser stopped."""
        last: yaml.Token | None = None
        for token in self._tokens():
            if token.start_mark.index >= self._mark.index:
                break
            last = token
        return last if isinstance(last, yaml.ScalarToken) and not last.plain else None


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip(" "))
