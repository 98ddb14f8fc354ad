"""The tokens of a `.proto` file, with their lines."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_TOKEN = re.compile(
    r"""(?P<space>[\s\ufeff]+|//[^\n]*|/\*.*?\*/)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<name>\.?[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)
      | (?P<number>(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?|0[xX][0-9a-fA-F]+)
      | (?P<sign>[{}\[\]()<>=;,:+/.-])""",
    re.VERBOSE | re.DOTALL,
)
_HEXADECIMAL = re.compile(r"0[xX][0-9a-fA-F]+")
_WHOLE = [(_HEXADECIMAL, 16), (re.compile("0[0-7]*"), 8), (re.compile("[1-9][0-9]*"), 10)]
_LONGEST_NUMBER = 20
_CLOSING = {"{": "}", "[": "]", "(": ")", "<": ">"}


class ProtoSyntaxError(ValueError):
    """A `.proto` file that cannot be read; the text has the line."""


class _Token(NamedTuple):
    kind: str
    text: str
    line: int


_END = "the end of the file"


class Tokens:
    """The tokens of a file, taken one after the other."""

    def __init__(self, text: str) -> None:
        self._tokens = list(_tokens(text))
        self._next = 0

    @property
    def next(self) -> str:
        """The next token, without taking it; empty at the end."""
        token = self._tokens[self._next]
        return token.text if token.kind != "end" else ""

    def take(self) -> str:
        """The next token, whatever it is."""
        if not self.next:
            raise self.error("something more")
        text = self.next
        self._next += 1
        return text

    def takes(self, text: str) -> bool:
        """Take the next token if it is this one."""
        if self.next != text:
            return False
        self._next += 1
        return True

    def expect(self, text: str) -> None:
        """Take the next token, which must be this one."""
        if not self.takes(text):
            raise self.error(f"'{text}'")

    def name(self, what: str) -> str:
        """Take a name, with dots or without."""
        return self._of("name", what)

    def quoted(self, what: str) -> str:
        """Take a text in quotes; texts that follow each other are one."""
        found = self._of("text", what)[1:-1]
        while self._tokens[self._next].kind == "text":
            found += self.take()[1:-1]
        return found

    def whole_number(self, what: str) -> int:
        """Take a whole number, decimal, octal or hexadecimal, with a sign or without."""
        factor = -1 if self.takes("-") else 1
        token = self._of("number", what)
        for shape, base in _WHOLE:
            if shape.fullmatch(token) and len(token) <= _LONGEST_NUMBER:
                number = factor * int(token, base)
                if -(2**31) <= number < 2**31:
                    return number
        self._next -= 1
        raise self.error(what)

    def skip_statement(self) -> None:
        """Take everything up to the next `;`, or a whole block in braces."""
        while True:
            if self.next == "{":
                self.skip_block()
                # An option may have a block for its value, and ends behind it.
                self.takes(";")
                return
            if self.next in ("[", "("):
                self.skip_block()
            elif self.take() == ";":
                return

    def skip_block(self) -> None:
        """Take a block with all that is inside it."""
        open_blocks = [_CLOSING[self.take()]]
        while open_blocks:
            token = self.take()
            if token == open_blocks[-1]:
                open_blocks.pop()
            elif token in _CLOSING and token != "<":
                open_blocks.append(_CLOSING[token])

    def error(self, expected: str) -> ProtoSyntaxError:
        """The next token is not what was expected."""
        token = self._tokens[self._next]
        got = _END if token.kind == "end" else f"'{token.text[:40]}'"
        return ProtoSyntaxError(f"line {token.line}: expected {expected}, got {got}")

    def _of(self, kind: str, what: str) -> str:
        if self._tokens[self._next].kind != kind:
            raise self.error(what)
        return self.take()


def _tokens(text: str) -> Iterable[_Token]:
    at, line = 0, 1
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ProtoSyntaxError(f"line {line}: unexpected {text[at]!r}")
        # Hexadecimal digits would be taken for a zero and a name.
        hexadecimal = _HEXADECIMAL.match(text, at)
        token = hexadecimal[0] if hexadecimal else found[0]
        if found.lastgroup != "space":
            yield _Token(found.lastgroup or "", token, line)
        line += token.count("\n")
        at += len(token)
    yield _Token("end", "", line)
