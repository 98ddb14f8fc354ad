"""Where the tables of a source would go on, or begin."""

from __future__ import annotations

from lakefeed.dead_letters.pending import dead_letters_foreseen, start_of
from lakefeed.engine.start_positions import outdated_texts
from lakefeed.events import Offsets, lowest
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.sharing import refuse_ingested, refuse_second_copy, refuse_seek_ahead
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reports.plan.warnings import Warnings
from lakefeed.sources import SourceClient, source_of
from lakefeed.sources.held_positions import held_positions
from lakefeed.sources.subscription import StreamsClient, is_by_stream, unfit_streams
from lakefeed.tables.positions import marks_of


class Starts:
    """Asks one source for the start of each table, one by one; tables of a route before the route."""

    def __init__(self, tables: Tables, source: str, client: SourceClient, warnings: Warnings) -> None:
        self._tables, self._source, self._client, self._warnings = tables, source, client, warnings
        self.at: dict[str, Offsets] = {}
        """By table; without those that a run would stop at."""
        self.skipped: dict[str, str] = {}
        """Streams that a table, or the source, does not read, with why."""
        self.held: dict[str, Offsets] = {}
        """What of it the logs have; of a route, those of its tables."""

    def look(self, handle: TableHandle) -> None:
        """Find the start of a table. Raises LakefeedError where a run would stop at it."""
        assert handle.spec is not None
        name, pipeline = handle.name, self._tables.pipeline
        sources = self._tables.sources_of(handle.spec)
        unfit = unfit_streams(self._client, sources, name, handle.spec)
        self.skipped |= unfit
        seen = StreamsClient(self._client, source_of(pipeline, self._source), handle.spec, unfit)
        made = [one for one in self._tables.handles.values() if one.id.key and one.id.table == name]
        known = [one.name for one in made if self.held.get(one.name)]
        if name not in self._tables.routes or not known:
            self.held[name] = _held(handle, pipeline, self._source)
            self.at[name] = self._start(seen, handle)
            return
        self.held[name] = lowest(self.held[one] for one in known)
        if not all(one in self.at for one in known):
            # What a run would stop at is told of that table.
            return
        start = lowest(self.at[one] for one in known)
        if is_by_stream(handle.spec, self._tables.sources_of(handle.spec)):
            # Streams whose table is still to be made are read from their beginning.
            start = seen.check(start, {})
        self.at[name] = start

    def shown(self, handle: TableHandle) -> Offsets:
        """The start of a table as a plan shows it; of a route by stream, without what its tables show."""
        assert handle.spec is not None
        start, name = self.at[handle.name], handle.name
        if name not in self._tables.routes:
            return start
        if not is_by_stream(handle.spec, self._tables.sources_of(handle.spec)):
            return start
        return {one: at for one, at in start.items() if one not in self.held[name]}

    def _start(self, client: SourceClient, handle: TableHandle) -> Offsets:
        pipeline, source, held = self._tables.pipeline, self._source, self.held[handle.name]
        if not held:
            letters = dead_letters_foreseen(self._tables, source, handle.name)
            start = start_of(self._tables, client, source, handle.name, letters)
            refuse_second_copy(pipeline, source, handle, start, client.marks())
            refuse_ingested(pipeline, source, handle, start, held)
            return start
        if handle.spec and handle.spec.app_id:
            refuse_seek_ahead(pipeline, source, handle, held)
        start = client.check(held, marks_of(handle.table.transactions, pipeline.name, source))
        refuse_ingested(pipeline, source, handle, start, held)
        self._warnings.look_at_positions(handle.name, source, held, start)
        marks = marks_of(handle.table.transactions, pipeline.name, source)
        for text in outdated_texts(pipeline, source, client, marks, start):
            self._warnings.add(handle.name, text)
        return start


def _held(handle: TableHandle, pipeline: Pipeline, source: str) -> Offsets:
    if not handle.exists or handle.spec is None:
        return {}
    return held_positions(pipeline, source, handle.spec, handle.table.transactions)
