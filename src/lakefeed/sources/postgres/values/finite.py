"""Infinite dates and timestamps as the first and the last value that a column of Delta holds."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from fnmatch import fnmatchcase

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.sources.postgres.values.column_names import event_name

_DAYS = ("0001-01-01", "9999-12-31")
_TIMES = ("00:00:00", "23:59:59.999999")
_ZONES = {"date": None, "timestamp": "", "timestamptz": "+00"}


def finite_texts(texts: pa.Array, type_name: str) -> pa.Array:
    """The texts of a column of Postgres, without infinite values where its type has some."""
    if type_name not in _ZONES:
        return texts
    zone = _ZONES[type_name]
    first, last = (
        day if zone is None else f"{day} {time}{zone}" for day, time in zip(_DAYS, _TIMES, strict=True)
    )
    texts = pc.if_else(pc.equal(texts, "infinity"), last, texts)
    return pc.if_else(pc.equal(texts, "-infinity"), first, texts)


def finite_json(value: object, kind: pa.DataType) -> str | None:
    """An infinite value of a dead letter as a finite one of this type; None for any other."""
    if value not in ("infinity", "-infinity"):
        return None
    at = 1 if value == "infinity" else 0
    if pa.types.is_date(kind):
        return _DAYS[at]
    return f"{_DAYS[at]}T{_TIMES[at]}Z" if pa.types.is_timestamp(kind) else None


def is_finite(stream: str, column: str, keys: Collection[str], patterns: Iterable[str]) -> bool:
    """Whether infinite values of a column become finite; `patterns` are names as `schema.table.column`.

    In a column of the key they stay infinite: two keys would become one.
    """
    name = event_name(column)
    if name in map(event_name, keys):
        return False
    parts = (pattern.rpartition(".") for pattern in patterns)
    return any(
        (not table or fnmatchcase(stream, table)) and fnmatchcase(name, event_name(own))
        for table, _, own in parts
    )
