"""Formats that know their columns before they see a payload, and read them one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pyarrow as pa

from lakefeed.formats import Decoded, Decoder, Rules
from lakefeed.formats.fit.conversions import Conversions
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.fit.rescue import Rescued
from lakefeed.formats.joining import joined
from lakefeed.formats.refusal import Misfit, Misfits, no_payload


@dataclass(frozen=True)
class UnfitValue:
    """A value that is of no kind that its column is read as: why it does not fit, and its JSON text."""

    column: str
    misfit: Misfit
    text: str


@dataclass(frozen=True)
class Columns:
    """What was read from some payloads: a value for each in every column, null for those that are misfits."""

    values: Mapping[str, pa.Array]
    misfits: Misfits = field(default_factory=dict)
    changes: Mapping[int, Sequence[UnfitValue]] = field(default_factory=dict)
    """By the index of the payload; null stands for them in the columns."""


Read = Callable[[Sequence[bytes]], Columns]
"""Reads all columns that a format makes, those that are not in the schema too."""


class FixedDecoder(Decoder):
    """Decodes payloads of a format that makes the columns `made` and reads them with `read`."""

    def __init__(
        self,
        schema: pa.Schema,
        rules: Rules,
        made: pa.Schema,
        read: Read,
        conversions: Conversions | None = None,
    ) -> None:
        self._made = made
        self._read = read
        self._rules = rules
        self._fitter = Fitter(schema, rules, conversions)
        self._required = {column.name for column in schema if not column.nullable}

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Every payload becomes a row or a refusal; what becomes of one does not depend on the others."""
        indexes = [index for index, payload in enumerate(payloads) if payload is not None]
        columns = self._read([payload for payload in payloads if payload is not None])
        refused = {index: no_payload() for index, payload in enumerate(payloads) if payload is None}
        return joined(len(payloads), [(indexes, self._fitted(columns, len(indexes)))], refused)

    def _fitted(self, columns: Columns, count: int) -> Decoded:
        kind = pa.struct([(name, column.type) for name, column in columns.values.items()])
        made = pa.Array.from_buffers(kind, count, [None], children=list(columns.values.values()))
        misfits = dict(columns.misfits)
        rescued: dict[int, Rescued] = {}
        for index, changes in columns.changes.items():
            for change in changes:
                self._judge(index, change, misfits, rescued)
        return self._fitter.fit(made, misfits, self._made, rescued)

    def _judge(self, index: int, change: UnfitValue, misfits: Misfits, rescued: dict[int, Rescued]) -> None:
        if change.column in self._rules.dropped:
            return
        if self._rules.type_change == "rescue" and change.column not in self._required:
            rescued.setdefault(index, {})[change.column] = change.text
        else:
            misfits.setdefault(index, change.misfit)
