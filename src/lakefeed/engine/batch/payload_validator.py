"""What tables would make of events, asked before the events are taken: for sources that may refuse them."""

from __future__ import annotations

import threading
from collections.abc import Iterator

from lakefeed.engine.batch.plan import format_of
from lakefeed.formats import Decoder
from lakefeed.handles.tables import Tables
from lakefeed.rows.rename import as_in_events
from lakefeed.sources import source_of


class PayloadValidator:
    """Decodes payloads as the tables of a source would that declare their columns.

    What only a table's own columns, its SQL or its rules would refuse is not seen here.
    """

    def __init__(self, tables: Tables, source: str) -> None:
        self._decoders = list(_decoders(tables, source))
        self._takes = {name: table.takes for name, table in tables.pipeline.tables.items()}
        self._lock = threading.Lock()

    def __call__(self, stream: str, payloads: list[bytes]) -> dict[int, str]:
        """Which payloads of a stream would be dead letters, and why."""
        found: dict[int, str] = {}
        with self._lock:
            for table, decoder in self._decoders:
                if payloads and self._takes[table](stream):
                    for refused in decoder.decode(payloads).refused:
                        found.setdefault(refused.index, refused.error)
        return dict(sorted(found.items()))


def _decoders(tables: Tables, source: str) -> Iterator[tuple[str, Decoder]]:
    format = format_of(source_of(tables.pipeline, source))
    for name, handle in {**tables.handles, **tables.routes}.items():
        declared = handle.events() if handle.spec and source in handle.spec.from_ else None
        if declared is not None:
            yield name, format.decoder(as_in_events(declared, handle.rename), handle.rules(declared))
