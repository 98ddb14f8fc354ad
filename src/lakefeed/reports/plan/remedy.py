"""The types with which sampled events fit a table, for all columns that refuse some of them in one go."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import pyarrow as pa

from lakefeed.columns.column_types import JSON, type_text
from lakefeed.columns.widening import merged_proposals, widen
from lakefeed.formats import Decoded
from lakefeed.formats.refusal import TYPE_CHANGES, name_text, refused_column

Decode = Callable[[pa.Schema], Iterable[Decoded]]
"""Decodes the sampled events for a table with these columns; a field without a column is proposed as one."""

_MOST_ROUNDS = 20
_TEXTS = (pa.types.is_string, pa.types.is_timestamp, pa.types.is_date)


@dataclass(frozen=True)
class Remedy:
    """The types that columns need, as text, and how many of the refused events fit with them."""

    types: dict[str, str] = field(default_factory=dict)
    taken: int = 0


def remedy_for(columns: pa.Schema, refused: int, decode: Decode) -> Remedy:
    """Find the columns that refuse values, also those that only show once others take theirs."""
    wrong: set[str] = set()
    proposal = pa.schema([])
    for _ in range(_MOST_ROUNDS):
        decoded = list(decode(pa.schema([one for one in columns if one.name not in wrong])))
        more = _refusing(decoded, columns) - wrong
        proposal = merged_proposals(*(one.unknown for one in decoded)) or pa.schema([])
        if not more:
            break
        wrong |= more
    types = {
        one.name: _wider(one.type, proposal.field(one.name).type)
        for one in columns
        if one.name in wrong and one.name in proposal.names
    }
    refusing = _refusing(decode(_with(columns, types)), columns)
    types |= dict.fromkeys(refusing & types.keys(), JSON)
    left = sum(len(one.refused) for one in decode(_with(columns, types)))
    return Remedy({name: type_text(kind) for name, kind in types.items()}, max(0, refused - left))


def _refusing(decoded: Iterable[Decoded], columns: pa.Schema) -> set[str]:
    """The columns whose types refuse events."""
    refused = (one for each in decoded for one in each.refused if one.code in TYPE_CHANGES)
    names = {refused_column(one.stage, one.error) for one in refused}
    return {name for name in columns.names if name_text(name) in names}


def _with(columns: pa.Schema, types: dict[str, pa.DataType]) -> pa.Schema:
    return pa.schema([one.with_type(types.get(one.name, one.type)) for one in columns])


def _wider(have: pa.DataType, seen: pa.DataType) -> pa.DataType:
    """A type for the values of a column and for those of the events."""
    if pa.types.is_nested(have) or pa.types.is_nested(seen):
        return JSON
    both = widen(have, seen)
    is_text = pa.types.is_string(both) and not all(any(one(kind) for one in _TEXTS) for kind in (have, seen))
    return JSON if is_text or both.equals(have) else both
