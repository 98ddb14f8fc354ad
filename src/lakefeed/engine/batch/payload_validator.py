"""What tables would make of events, asked before the events are taken: for sources that may refuse them."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from lakefeed.engine.batch.plan import format_of
from lakefeed.formats import Decoder, Format, Rules
from lakefeed.handles.tables import Tables
from lakefeed.rows.rename import as_in_events
from lakefeed.sources import source_of


class PayloadValidator:
    """Decodes payloads as the tables of a source would that declare their columns.

    What only a table's own columns, its SQL or its rules would refuse is not seen here. Each thread has
    decoders of its own.
    """

    def __init__(self, tables: Tables, source: str) -> None:
        self._forms = list(_forms(tables, source))
        self._takes = {name: table.takes for name, table in tables.pipeline.tables.items()}
        self._of_thread = threading.local()

    def columns(self, stream: str) -> int:
        """The columns that a payload of a stream is decoded into at a time, those of nested ones counted."""
        return max((form.width for form in self._forms if self._takes[form.table](stream)), default=0)

    def __call__(self, stream: str, payloads: list[bytes]) -> dict[int, str]:
        """Which payloads of a stream would be dead letters, and why."""
        found: dict[int, str] = {}
        for form, decoder in zip(self._forms, self._decoders(), strict=True):
            if payloads and self._takes[form.table](stream):
                for refused in decoder.decode(payloads).refused:
                    found.setdefault(refused.index, refused.error)
        return dict(sorted(found.items()))

    def _decoders(self) -> list[Decoder]:
        if not hasattr(self._of_thread, "decoders"):
            self._of_thread.decoders = [one.format.decoder(one.columns, one.rules) for one in self._forms]
        decoders: list[Decoder] = self._of_thread.decoders
        return decoders


@dataclass(frozen=True)
class _Form:
    """How payloads are decoded for a table."""

    table: str
    format: Format
    columns: pa.Schema
    rules: Rules

    @cached_property
    def width(self) -> int:
        return sum(map(_leaves, self.columns))


def _leaves(field: pa.Field) -> int:
    kind = field.type
    return sum(_leaves(kind.field(at)) for at in range(kind.num_fields)) if kind.num_fields else 1


def _forms(tables: Tables, source: str) -> Iterator[_Form]:
    format = format_of(source_of(tables.pipeline, source))
    for name, handle in {**tables.handles, **tables.routes}.items():
        declared = handle.events() if handle.spec and source in handle.spec.from_ else None
        if declared is not None:
            yield _Form(name, format, as_in_events(declared, handle.rename), handle.rules(declared))
