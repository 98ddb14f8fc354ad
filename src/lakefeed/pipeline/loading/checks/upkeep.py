"""What the layout and the upkeep of a table need of the rest of it: columns that exist, a fitting store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from lakefeed.columns.column_types import type_text
from lakefeed.pipeline.options.sort_by import order_problem
from lakefeed.text import did_you_mean

if TYPE_CHECKING:
    from lakefeed.pipeline.secrets import Path

_LOG_PROPERTIES = {
    "checkpoint_every": "delta.checkpointinterval",
    "retain": "delta.logretentionduration",
}


@dataclass(frozen=True)
class UpkeepOutline:
    """What the file says about the upkeep of one table, and at which path; broken parts are left out."""

    ordered_by: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The columns of `cluster_by` and `sort_by`."""
    properties: tuple[str, ...] = ()
    given: Mapping[tuple[str, ...], tuple[Any, Path]] = field(default_factory=dict)

    @classmethod
    def of_data(cls, name: str, table: Mapping[str, Any], pipeline: object) -> UpkeepOutline:
        """The outline of a table's mapping; `pipeline` is the pipeline's own `upkeep`."""
        own = table.get("upkeep")
        given: dict[tuple[str, ...], tuple[Any, Path]] = {}
        if own not in ("off", False):
            given |= _leaves(pipeline, ("upkeep",))
            given |= _leaves(own, ("tables", name, "upkeep"))
        ordered = {key: table.get(key) for key in ("sort_by", "cluster_by")}
        properties = table.get("properties")
        return cls(
            {
                key: tuple(map(str, given))
                for key, given in ordered.items()
                if isinstance(given, list | tuple)
            },
            tuple(map(str, properties)) if isinstance(properties, dict) else (),
            given,
        )


def _leaves(upkeep: object, path: Path) -> dict[tuple[str, ...], tuple[Any, Path]]:
    found: dict[tuple[str, ...], tuple[Any, Path]] = {}
    for key, value in upkeep.items() if isinstance(upkeep, dict) else ():
        if isinstance(value, dict):
            found |= {(key, name): (leaf, (*path, key, name)) for name, leaf in value.items()}
        else:
            found[(key,)] = (value, (*path, key))
    return found


def upkeep_problems(
    name: str,
    upkeep: UpkeepOutline,
    location: str | None,
    columns: Mapping[str, pa.Field | None],
    partition_columns: set[str],
) -> Iterator[tuple[Path, str]]:
    """What does not fit, with the path of the key; `columns` is empty where they are not declared."""
    for key, names in upkeep.ordered_by.items():
        for at, column in enumerate(names):
            if problem := order_problem(column, columns, partition_columns):
                yield ("tables", name, key, at), problem
    if ("delete_after", "column") in upkeep.given:
        column, path = upkeep.given["delete_after", "column"]
        if problem := _age_problem(str(column), columns):
            yield path, f"table {name}: {problem}" if path[0] == "upkeep" else problem
    engine, path = upkeep.given.get(("engine",), ("", ()))
    if engine == "spark" and location and "://" in location and not location.startswith("file:"):
        yield (
            path,
            f"Spark's commits to {location} are not conditional, so commits of other writers could be lost; "
            "leave `engine` out",
        )
    for key, written in _LOG_PROPERTIES.items():
        twice = next((one for one in upkeep.properties if one.lower() == written), None)
        if twice and ("log", key) in upkeep.given:
            yield (
                ("tables", name, "properties", twice),
                f"`upkeep.log.{key}` says this already; give one of them",
            )


def _age_problem(column: str, columns: Mapping[str, pa.Field | None]) -> str | None:
    if columns and column not in columns:
        return f"the table has no column '{column}'{did_you_mean(column, columns)}"
    known = columns.get(column)
    if known is not None and not (pa.types.is_timestamp(known.type) or pa.types.is_date(known.type)):
        return f"a row's age needs a timestamp or date column, '{column}' is {type_text(known.type)}"
    return None
