"""The names that columns of Postgres have in events, and so in a Delta table."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from shlex import quote

from lakefeed.columns.names import clean_column_name
from lakefeed.columns.staged import STAGED
from lakefeed.sources.postgres.events import METADATA
from lakefeed.text import listed, quoted_name, sql_name

_OWN = frozenset((*METADATA.names, *STAGED.names))


def event_name(column: str) -> str:
    """The name of a column in events: without characters that no Delta table takes.

    A name that Lakefeed gives to a column of its own (`_op`) gets an underscore at its end.
    """
    name = clean_column_name(column)
    return f"{name}_" if name.lower() in _OWN else name


def other_names(columns: Iterable[str]) -> dict[str, str]:
    """The columns that have another name in events, with that."""
    return {column: event_name(column) for column in columns if event_name(column) != column}


def name_problem(stream: str, columns: Iterable[str]) -> str | None:
    """Why no Delta table can have all these columns: two of them would have one name."""
    columns = list(columns)
    if not other_names(columns):
        return None
    alike: dict[str, list[str]] = defaultdict(list)
    for column in columns:
        alike[event_name(column).lower()].append(column)
    for name, several in alike.items():
        changed = [column for column in several if event_name(column) != column]
        if len(several) > 1 and changed:
            names = listed(f"`{column}`" for column in several)
            return (
                f"{stream} has the columns {names}, and all of them would be called {name} in a Delta table."
                f"\nRename one of them in the database: ALTER TABLE {sql_name(stream)} RENAME COLUMN "
                f"{quoted_name(changed[-1])} TO ...; then have the rows read anew: "
                f"lakefeed snapshot FILE --source NAME --stream {quote(stream)} --yes"
            )
    return None
