"""Whether a table makes columns that its rows have already, as the table that it is fed from makes them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lakefeed.text import listed

if TYPE_CHECKING:
    from lakefeed.pipeline.loading.outline import Outline, TableOutline
    from lakefeed.pipeline.secrets import Path


def made_problems(outline: Outline) -> Iterator[tuple[Path, str]]:
    """Columns that both tables make: each row of the second one would be a dead letter."""
    for name, table in outline.tables.items():
        for feeding in dict.fromkeys(outline.reads.get(source) for source in table.sources or ()):
            if feeding is None or feeding == name or _leaves_new_columns_out(table):
                continue
            yield from _problems(name, table, feeding, outline.tables[feeding])


def _problems(
    name: str, table: TableOutline, feeding: str, fed_by: TableOutline
) -> Iterator[tuple[Path, str]]:
    there = _made(fed_by)
    if fed_by.reshapes:
        # Which of them are columns of the table, its `select` or its function says.
        there = {column: option for column, option in there.items() if option != "metadata"}
    brought = {column.casefold(): column for column in there if column not in {*table.drop, *table.rename}}
    clashes: dict[str, list[str]] = {}
    for column, option in _made(table).items():
        if column.casefold() in brought:
            clashes.setdefault(option, []).append(brought[column.casefold()])
    for option, columns in clashes.items():
        noun = "column" if len(columns) == 1 else "columns"
        yield (
            ("tables", name, option),
            f"rows of table '{feeding}' have the {noun} {listed(columns)} already. "
            f"{_other_names(option, columns)}, or leave out what they have: `drop: [{', '.join(columns)}]`",
        )


def _other_names(option: str, columns: list[str]) -> str:
    match option:
        case "metadata":
            return "Choose other names, `metadata: {_topic: NAME}`, or one column, `metadata: {as: NAME}`"
        case "partition_by":
            return f"Partition by that, `partition_by: [{columns[0]}]`, name another with `as NAME`"
        case _:
            return f"Choose another name, `{option}: NAME`"


def _made(table: TableOutline) -> dict[str, str]:
    """The columns that the keys of a table make, and the key."""
    made = dict.fromkeys(table.metadata.schema.names, "metadata")
    made |= {field.name: "partition_by" for field in table.partition_by if field and field.derived}
    return made | dict(table.interval)


def _leaves_new_columns_out(table: TableOutline) -> bool:
    """Whether only declared columns count, so that others of the same names do no harm."""
    return bool(table.columns) and (table.new_column in ("ignore", "rescue") or "select" in table.keys)
