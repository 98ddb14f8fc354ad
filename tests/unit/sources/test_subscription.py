"""A source as one table sees it: with the streams that the table takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from lakefeed.events import Offsets
from lakefeed.pipeline.table import Table
from lakefeed.sources import SourceClient
from lakefeed.sources.postgres.source import PostgresSource
from lakefeed.sources.subscription import StreamsClient


class _Asked:
    """Remembers the marks that positions are checked with."""

    marks: Mapping[str, int]

    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        self.marks = marks
        return positions


def test_marks_of_streams_that_a_table_does_not_take_are_not_checked() -> None:
    """A log from before may hold them: a table of another stream that was made anew is no concern of it."""
    asked: Any = _Asked()
    source = PostgresSource(connection="host=127.0.0.1", tables=("public.a", "public.b"))
    table = Table(path="/lake/a", from_=("db",), streams=("public.a",))
    client = StreamsClient(cast(SourceClient, asked), source, table)

    found = client.check({"public.a": 5, "public.b": 7}, {"public.a": 1, "public.b": 2})

    assert (found, asked.marks) == ({"public.a": 5}, {"public.a": 1})
