"""Wider columns: which types a table would need for events that it refuses, found on a worker."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import pyarrow as pa

from lakefeed.columns.column_types import type_text
from lakefeed.columns.widening import merge_proposals, wider
from lakefeed.engine.task.decoding import EventDecoder
from lakefeed.events import Events, Refused, SomeEvents
from lakefeed.formats import Rules
from lakefeed.formats.refusal import TYPE_CHANGES

MakeDecoder = Callable[[pa.Schema, Rules], EventDecoder]
"""Makes what decodes the events into some columns."""
_Types = dict[str, pa.DataType]


@dataclass(frozen=True)
class Wider:
    """What the refused events of one portion need."""

    columns: pa.Schema | None
    """Columns in the types that the table needs, under the names of the events; None where none helps."""
    refused: list[Refused]
    """The refusals. One names the reason where only a column that cannot be widened is too narrow."""


class WiderColumns:
    """Looks at refused events again: as if nothing were known of their fields, then with wider columns.

    Costs nothing as long as no value is refused for its type.
    """

    def __init__(
        self,
        columns: pa.Schema,
        rules: Rules,
        decoder: MakeDecoder,
        widens: Iterable[str],
        fixed: Mapping[str, str],
    ) -> None:
        """`columns` are those of the table; `widens` may get another type, `fixed` not, for a reason."""
        self._columns, self._rules, self._make = columns, rules, decoder
        self._widens, self._fixed = frozenset(widens), fixed
        self._made: dict[pa.Schema, EventDecoder] = {}

    def look(self, events: Events, refused: list[Refused]) -> Wider:
        """Find the columns that must be wider, so that events become rows which are refused as it is."""
        at = [one.index for one in refused if one.stage == "schema" and one.code in TYPE_CHANGES]
        needed = self._needed(events, at)
        taken = self._taken(events, at, {name: needed[name] for name in needed if name in self._widens})
        left = [index for index in at if index not in taken]
        if needed.keys() & self._fixed.keys() and left:
            refused = self._explained(events, refused, left, needed)
        types = self._needed(events, sorted(taken)) if taken else {}
        columns = pa.schema([pa.field(name, types[name]) for name in types if name in self._widens])
        return Wider(columns if len(columns) else None, refused)

    def _explained(
        self, events: Events, refused: list[Refused], left: Sequence[int], needed: _Types
    ) -> list[Refused]:
        """The refusals, with the reason why a column stays as it is that would have to be wider."""
        helped = self._taken(events, left, needed)
        own = self._needed(events, sorted(helped)) if helped else {}
        reasons = [
            f"{name} is not widened to {type_text(own[name])}: {self._fixed[name]}"
            for name in own
            if name in self._fixed
        ]
        text = "; ".join(reasons)
        return [
            replace(one, error=f"{one.error}; {text}") if text and one.index in helped else one
            for one in refused
        ]

    def _needed(self, events: Events, at: Sequence[int]) -> _Types:
        """The types that columns need for the values of some events, where they have others."""
        if not at:
            return {}
        unknown = self._open.decode(SomeEvents(events, at)).unknown
        fields: dict[str, pa.Field] = {}
        for one in unknown or ():
            name = self._names.get(one.name) or self._names.get(self._folded(one.name))
            if name is None:
                continue
            (fields[name],) = merge_proposals(
                pa.schema([fields[name]] if name in fields else []), pa.schema([one.with_name(name)])
            )
        have = {one.name: one.type for one in self._columns}
        types = {name: wider(have[name], one) for name, one in fields.items()}
        return {name: kind for name, kind in types.items() if not kind.equals(have[name])}

    def _taken(self, events: Events, at: Sequence[int], types: _Types) -> set[int]:
        """Which of some events become rows where columns have these types."""
        if not at or not types:
            return set()
        columns = pa.schema([one.with_type(types.get(one.name, one.type)) for one in self._columns])
        if columns not in self._made:
            self._made = {columns: self._make(columns, self._rules)}
        decoded = self._made[columns].decode(SomeEvents(events, at))
        gone = {one.index for one in decoded.refused} | {*decoded.skipped}
        return {index for number, index in enumerate(at) if number not in gone}

    @cached_property
    def _open(self) -> EventDecoder:
        """Knows no column, and so says of every field what is in it."""
        rules = replace(self._rules, new_column="add", type_change="widen", taken=frozenset())
        return self._make(pa.schema([]), rules)

    @cached_property
    def _names(self) -> dict[str, str]:
        known = [name for name in self._columns.names if name in self._widens or name in self._fixed]
        return {self._folded(name): name for name in known} | {name: name for name in known}

    def _folded(self, name: str) -> str:
        return name if self._rules.names == "strict" else name.lower()
