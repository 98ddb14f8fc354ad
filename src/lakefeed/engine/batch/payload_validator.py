"""What tables would make of events, asked before the events are taken: for sources that may refuse them."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from lakefeed.columns.column_types import DECLARED, JSON
from lakefeed.engine.batch.plan import format_of
from lakefeed.errors import LakefeedError
from lakefeed.formats import Decoder, Format, Rules
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.routed_tables import RoutedTables
from lakefeed.handles.tables import Tables
from lakefeed.rows.rename import as_in_events
from lakefeed.sources import source_of


class PayloadValidator:
    """Decodes payloads as the tables of a source would that declare their columns.

    What only inferred columns, SQL or rules of a table would refuse is not seen here, whether the table has
    been looked at or not. Each thread has decoders of its own.
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
        spec = handle.spec
        if spec is None or source not in spec.from_ or spec.declared is None:
            continue
        if spec.evolve.new_column == "dead_letter":
            _look(handle)
        events = handle.events() or spec.declared
        rules = handle.rules(events)
        columns = pa.schema(_checked(events, with_others=rules.new_column == "dead_letter"))
        yield _Form(name, format, as_in_events(columns, handle.rename), rules)


def _look(handle: TableHandle | RoutedTables) -> None:
    """Let the handle know the columns that its table has beside the declared ones: events may have them."""
    if isinstance(handle, TableHandle):
        # The flow of a table that cannot be looked at says why.
        with suppress(LakefeedError):
            handle.look()


def _checked(columns: Iterable[pa.Field], *, with_others: bool) -> Iterator[pa.Field]:
    """The declared columns; `with_others` also those of inferred types, which take every value.

    An inferred column may get a wider type, and then takes what it refuses now.
    """
    for one in columns:
        if DECLARED in (one.metadata or {}):
            yield one.with_type(_checked_type(one.type, with_others=with_others))
        elif with_others:
            yield one.with_type(JSON).with_nullable(True)


def _checked_type(kind: pa.DataType, *, with_others: bool) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct(list(_checked(kind, with_others=with_others)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_checked_type(kind.value_type, with_others=with_others)))
    if pa.types.is_map(kind):
        item = kind.item_field.with_type(_checked_type(kind.item_type, with_others=with_others))
        return pa.map_(kind.key_type, item)
    return kind
