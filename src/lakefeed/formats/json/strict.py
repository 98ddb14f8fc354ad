"""The strict path: one payload at a time, which decides what is a row and why the rest is not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from lakefeed.columns.column_types import stored_type
from lakefeed.events import Refused
from lakefeed.formats import DEFAULT_RULES, Rules
from lakefeed.formats.fit.json_text import exact_json
from lakefeed.formats.fit.objects import new_field_check
from lakefeed.formats.fit.spellings import Spellings
from lakefeed.formats.fit.values import struct_converter
from lakefeed.formats.json.exact import has_floats, refuse_inexact
from lakefeed.formats.json.extras import both, extras_of
from lakefeed.formats.json.parser import parse
from lakefeed.formats.refusal import Misfit, empty_payload, no_payload


@dataclass
class StrictRows:
    """What the strict path made of some payloads: the indexes of those that became rows, and these rows."""

    good: list[int]
    rows: pa.StructArray
    refused: list[Refused]
    rescued: dict[int, str] = field(default_factory=dict)
    """What did not fit of the payloads that became rows, by index."""


class StrictReader:
    """Reads payloads of one schema, exactly and slowly: some 20 us each."""

    def __init__(
        self, schema: pa.Schema, rules: Rules = DEFAULT_RULES, spellings: Spellings | None = None
    ) -> None:
        self._spellings = spellings
        declared = pa.struct(list(schema))
        self._dropped = rules.dropped
        self._stored = stored_type(declared)
        self._convert = struct_converter(declared, rescue=rules.type_change == "rescue")
        exact = [one for one in schema if one.name in rules.exact and has_floats(one.type)]
        self._exact = pa.struct(exact) if exact else None
        self._check_new = new_field_check(rules, declared)
        self._extras = extras_of(declared) if rules.new_column == "rescue" else None

    def read(self, payloads: Sequence[bytes | None], indexes: Sequence[int]) -> StrictRows:
        """Read the payloads at these indexes."""
        rows: list[dict[str, Any]] = []
        read = StrictRows([], None, [])
        for index in indexes:
            try:
                row, lost = self._row(payloads[index])
            except Misfit as misfit:
                read.refused.append(misfit.refused(index))
                continue
            rows.append(row)
            read.good.append(index)
            if lost:
                read.rescued[index] = exact_json(lost)
        read.rows = pa.array(rows, self._stored)
        return read

    def _row(self, payload: bytes | None) -> tuple[dict[str, Any], dict[str, Any]]:
        if payload is None:
            raise no_payload()
        if not payload:
            raise empty_payload()
        value = parse(payload)
        if self._spellings is not None:
            value = self._spellings.object(value)
        for name in self._dropped:
            value.pop(name, None)
        row, misfits = self._convert(value)
        if self._exact is not None:
            refuse_inexact(self._exact, value)
        if self._check_new:
            self._check_new(value)
        return row, both(row, misfits, self._extras(value) if self._extras else None)
