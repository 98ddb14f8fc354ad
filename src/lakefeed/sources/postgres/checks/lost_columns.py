"""Columns that a table does not have any more, or that its changes do not bring."""

from __future__ import annotations

import zlib
from collections.abc import Collection, Iterable, Mapping

from lakefeed.sources.postgres.checks.marks import column_mark, name_number
from lakefeed.sources.postgres.relations import TableInfo
from lakefeed.sources.postgres.replication.publication import Published
from lakefeed.sources.postgres.values.column_names import event_name

_GENERATED = " generated"


class LostColumns:
    """Says why events of a table lack columns, by the catalog of now and the marks of a Delta table."""

    def __init__(self, table: TableInfo, published: Published, marks: Mapping[str, int]) -> None:
        self._table, self._published = table, published
        self._now = dict(table.columns)
        """By the number that a column keeps: its name, with ` generated` where it is."""
        numbers = _numbers(table.stream, marks)
        self._held = {number: marks[column_mark(table.stream, number)] for number in numbers}

    def why(self, columns: Iterable[str], expected: Collection[str]) -> dict[str, str]:
        """By column, named as in events."""
        found = {column: self._why(column, column in expected) for column in columns}
        return {column: text for column, text in found.items() if text}

    def _why(self, column: str, is_expected: bool) -> str | None:
        own = {event_name(name.removesuffix(_GENERATED)): number for number, name in self._now.items()}
        if column in own:
            return self._of_present(own[column], is_expected)
        crc = zlib.crc32(column.encode())
        before = [number for number, mark in self._held.items() if name_number(mark) == crc]
        if before:
            return self._moved(before[0])
        return "does not have" if is_expected else None

    def _of_present(self, number: str, is_expected: bool) -> str | None:
        """A column that the table has, and that its events do not bring."""
        name, mark = self._now[number], self._held.get(number)
        if name.endswith(_GENERATED):
            return "computes for itself: the server does not send generated columns" if is_expected else None
        if self._published.columns is not None and name not in self._published.columns:
            return "has, but the publication does not publish" if is_expected else None
        if mark is not None and mark != zlib.crc32(name.encode()):
            return "had under another name when these changes were made"
        # It came later: the rows that were changed before had no value there.
        return None

    def _moved(self, number: str) -> str:
        if number not in self._now:
            return "does not have any more: it was dropped"
        return f"does not have any more: it is called {self._now[number].removesuffix(_GENERATED)} now"


def _numbers(stream: str, marks: Mapping[str, int]) -> list[str]:
    """The numbers of the columns that marks are of."""
    before, _, behind = column_mark(stream, "?").partition("?")
    own = (name for name in marks if name.startswith(before) and name.endswith(behind))
    return [one for name in own if (one := name.removeprefix(before).removesuffix(behind)).isdigit()]
