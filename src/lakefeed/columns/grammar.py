"""Reading a small grammar from left to right, with the position in every complaint."""

from __future__ import annotations

import re

_SPACE = re.compile(r"\s*")
_WORD = re.compile(r"\w+")
_NUMBER = re.compile(r"\d+")
_QUOTED = re.compile(r"`([^`]*)`")
_NOT_NULL = re.compile(r"not\s+null\b", re.IGNORECASE)


class TypeSyntaxError(ValueError):
    """A text that does not follow the grammar; the message holds the position, counted from 1."""


class Cursor:
    """A position in a text; spaces between tokens do not count."""

    def __init__(self, text: str) -> None:
        """Stand at the first token."""
        self._text = text
        self._at = 0
        self._skip_space()

    @property
    def position(self) -> int:
        """Where the next token begins, counted from 0."""
        return self._at

    def error(self, message: str, position: int | None = None) -> TypeSyntaxError:
        """The complaint about the token at a position, by default about the next one."""
        at = self._at if position is None else position
        # Whoever wrote `string` need not count to know where it begins.
        return TypeSyntaxError(f"{message} (at character {at + 1})" if at else message)

    def take(self, symbol: str) -> bool:
        """Pass the symbol if it is next."""
        found = self._text.startswith(symbol, self._at)
        if found:
            self._advance(len(symbol))
        return found

    def expect(self, symbol: str) -> None:
        """Pass the symbol or complain."""
        if not self.take(symbol):
            raise self.error(f"expected '{symbol}'{self._instead()}")

    def take_word(self, wanted: str) -> str:
        """Pass a word made of letters, digits and underscores."""
        return self._take(_WORD, wanted)[0]

    def take_number(self, wanted: str) -> int:
        """Pass a whole number."""
        return int(self._take(_NUMBER, wanted)[0])

    def take_name(self) -> str:
        """Pass a name: a word, or anything between backticks."""
        if self._text.startswith("`", self._at):
            return self._take(_QUOTED, "a closing backtick")[1]
        return self.take_word("a field name")

    def take_not_null(self) -> bool:
        """Pass `not null` if it is next."""
        match = _NOT_NULL.match(self._text, self._at)
        if match:
            self._advance(match.end() - self._at)
        return match is not None

    def expect_end(self) -> None:
        """Complain about anything that is left."""
        if self._at < len(self._text):
            raise self.error(f"unexpected '{self._rest()}'", self._at)

    def _take(self, pattern: re.Pattern[str], wanted: str) -> re.Match[str]:
        match = pattern.match(self._text, self._at)
        if match is None:
            raise self.error(f"expected {wanted}{self._instead()}")
        self._advance(match.end() - self._at)
        return match

    def _instead(self) -> str:
        return f", got '{self._rest()}'" if self._at < len(self._text) else " but the text ends"

    def _rest(self) -> str:
        rest = self._text[self._at :]
        return rest if len(rest) <= 20 else rest[:20] + "..."

    def _advance(self, length: int) -> None:
        self._at += length
        self._skip_space()

    def _skip_space(self) -> None:
        space = _SPACE.match(self._text, self._at)
        assert space is not None
        self._at = space.end()
