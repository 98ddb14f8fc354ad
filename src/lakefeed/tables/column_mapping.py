"""Column mapping in the schema of a log: ids and physical names of new columns, kept for those that stay."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import orjson

from lakefeed.columns.mapping import HIGHEST_ID, ID, MODE, PHYSICAL_NAME

Json = dict[str, Any]
FEATURE = "columnMapping"
_NAMES = uuid.UUID("5b8f0a5e-6b0b-4c1e-9d53-6f3c1f0f8a51")


def mapped(columns: str, before: str | None, table_id: str, highest: int) -> tuple[str, int]:
    """The columns with the ids and names that they had `before`, new ones with their own; the highest id.

    Equal arguments give equal names: tasks may write files with columns that the table is about to get.
    """
    made, old = orjson.loads(columns), orjson.loads(before) if before else {"fields": []}
    highest = max(highest, *(one["metadata"].get(ID, 0) for _, one in fields_of(old)), 0)
    numbers = _Numbers(table_id, highest)
    _map_fields(made["fields"], old["fields"], "", numbers)
    return orjson.dumps(made, option=orjson.OPT_SORT_KEYS).decode(), numbers.highest


def with_added(columns: str, added: str) -> str:
    """The columns with others behind them, also inside structs: of a known one, only what is new is given."""
    made = orjson.loads(columns)
    _add(made["fields"], orjson.loads(added)["fields"])
    return orjson.dumps(made).decode()


def with_mapping(actions: Sequence[Json], properties: Mapping[str, str]) -> None:
    """Make the first entry of a table that of one with column mapping, which these properties ask for.

    The protocol names the feature, as readers that take only its versions into account would find no values.
    """
    for action in actions:
        if info := action.get("commitInfo"):
            # What it says of the table was true before this.
            info["operationParameters"] = {"mode": "ErrorIfExists"}
        elif metadata := action.get("metaData"):
            columns, highest = mapped(metadata["schemaString"], None, metadata["id"], highest_id(properties))
            own = {MODE: properties[MODE], HIGHEST_ID: str(highest)}
            metadata |= {"schemaString": columns, "configuration": {**metadata["configuration"], **own}}
        elif protocol := action.get("protocol"):
            readers = {*protocol.get("readerFeatures", ()), FEATURE}
            writers = {*protocol.get("writerFeatures", ()), *readers, "appendOnly", "invariants"}
            if properties.get("delta.enableChangeDataFeed", "").lower() == "true":
                writers.add("changeDataFeed")
            protocol |= {
                "minReaderVersion": 3,
                "minWriterVersion": 7,
                "readerFeatures": sorted(readers),
                "writerFeatures": sorted(writers),
            }


def highest_id(properties: Mapping[str, str]) -> int:
    """The highest id that a column of the table has ever had, by its property."""
    return int(properties.get(HIGHEST_ID, 0))


def without_mapping(struct: Json) -> Iterator[str]:
    """The columns and fields, by their paths, that have no id or no physical name."""
    for path, one in fields_of(struct):
        found = one["metadata"]
        if not isinstance(found.get(ID), int) or not isinstance(found.get(PHYSICAL_NAME), str):
            yield path


def fields_of(kind: Any, above: str = "") -> Iterator[tuple[str, Json]]:
    """Every column and every field inside of one, by its path."""
    match kind:
        case {"fields": fields}:
            for one in fields:
                path = f"{above}{one['name']}"
                yield path, one
                yield from fields_of(one["type"], f"{path}.")
        case {"elementType": inner} | {"valueType": inner}:
            yield from fields_of(inner, above)


class _Numbers:
    """Gives new columns their ids and physical names."""

    def __init__(self, table_id: str, highest: int) -> None:
        self._table_id = table_id
        self.highest = highest

    def next(self, path: str) -> Json:
        self.highest += 1
        name = uuid.uuid5(_NAMES, f"{self._table_id}/{self.highest}/{path}")
        return {ID: self.highest, PHYSICAL_NAME: f"col-{name}"}


def _map_fields(fields: Sequence[Json], before: Sequence[Json], above: str, numbers: _Numbers) -> None:
    known = {one["name"]: one for one in before}
    for one in fields:
        path, old = f"{above}{one['name']}", known.get(one["name"])
        own = old["metadata"] if old else numbers.next(path)
        one["metadata"] |= {key: own[key] for key in (ID, PHYSICAL_NAME)}
        _map_type(one["type"], old["type"] if old else None, f"{path}.", numbers)


def _map_type(kind: Any, before: Any, above: str, numbers: _Numbers) -> None:
    match kind, before:
        case {"fields": fields}, _:
            _map_fields(fields, before["fields"] if _is_struct(before) else [], above, numbers)
        case {"elementType": inner}, {"elementType": old}:
            _map_type(inner, old, above, numbers)
        case {"valueType": inner}, {"valueType": old}:
            _map_type(inner, old, above, numbers)
        case {"elementType": inner} | {"valueType": inner}, _:
            _map_type(inner, None, above, numbers)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, dict) and "fields" in kind


def _add(fields: list[Json], added: Sequence[Json]) -> None:
    known = {one["name"]: one for one in fields}
    for one in added:
        if one["name"] in known:
            _add_inside(known[one["name"]]["type"], one["type"])
        else:
            fields.append(one)


def _add_inside(kind: Any, added: Any) -> None:
    match kind, added:
        case {"fields": fields}, {"fields": more}:
            _add(fields, more)
        case {"elementType": inner}, {"elementType": more}:
            _add_inside(inner, more)
        case {"valueType": inner}, {"valueType": more}:
            _add_inside(inner, more)
