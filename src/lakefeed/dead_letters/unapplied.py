"""Changes of rows that are dead letters: the copy of a database lacks them until they are replayed."""

from __future__ import annotations

from collections import Counter

from lakefeed.dead_letters.find import DeadLetterFilter, read_dead_letters
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.route import safe_value
from lakefeed.sources.subscription import is_by_stream
from lakefeed.text import counted


def unapplied_changes(tables: Tables) -> dict[str, int]:
    """How many dead letters are changes of the rows of a table, by table; copies without any are left out.

    A row that has changed again since, or was read anew, is up to date all the same: the count is what may
    be missing, and a replay shows what is.
    """
    copies = [handle for handle in tables.handles.values() if is_copy(tables, handle)]
    if not copies or tables.dead_letters.look() is None:
        return {}
    letters: Counter[tuple[str, str | None]] = Counter()
    for batch in read_dead_letters(tables, DeadLetterFilter(), ["table", "topic"]):
        letters.update(zip(*(column.to_pylist() for column in batch.columns), strict=True))
    found = {handle.name: _count(tables, handle, letters) for handle in copies}
    return {name: count for name, count in found.items() if count}


def is_copy(tables: Tables, handle: TableHandle) -> bool:
    """Whether the rows of a table are changed by a source of changes, such as a database."""
    spec = handle.spec
    if spec is None or spec.mode not in ("upsert", "history"):
        return False
    return any(source.brings_changes for source in tables.sources_of(spec))


def _count(tables: Tables, handle: TableHandle, letters: Counter[tuple[str, str | None]]) -> int:
    assert handle.spec is not None
    of_table = {stream: count for (table, stream), count in letters.items() if table == handle.id.table}
    if handle.id.key and is_by_stream(handle.spec, tables.sources_of(handle.spec)):
        of_table = {
            stream: count
            for stream, count in of_table.items()
            if safe_value(stream or "") == handle.id.key[0]
        }
    return sum(of_table.values())


def unapplied_words(count: int) -> str:
    """What it means for the rows of a table that so many of its changes are dead letters."""
    are, keys = ("is a dead letter", "its key") if count == 1 else ("are dead letters", "their keys")
    return f"{counted(count, 'change')} {are}: the rows of {keys} may be older than those of the database"


def unapplied_remedy(file: str, table: str) -> str:
    """What to type."""
    return (
        f"See why with `lakefeed dead-letters list {file} --table {table}`; once the table takes them, type "
        f"`lakefeed dead-letters replay {file} --table {table} --yes`."
    )
