"""The tables that a query reads: which versions they have, and whether rows have come or gone since one.

Read from the log alone, with a handle of its own: the flow that feeds a table is not disturbed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lakefeed.handles.tables import Tables
from lakefeed.stores import open_store
from lakefeed.tables.log.entry import Cleaned
from lakefeed.tables.log.log import Log
from lakefeed.tables.positions import query_id, read_by_query


@dataclass(frozen=True)
class SeenInput:
    """What a table was when it was looked at."""

    table_id: str
    version: int
    """The newest version."""
    changed: tuple[int, ...] = ()
    """Versions among those looked at in which rows came or went: a compaction is none."""


class Input:
    """One table that a query reads."""

    def __init__(self, name: str, path: str, storage: Mapping[str, str]) -> None:
        self.name = name
        self.path = path
        self.storage = dict(storage)
        self.store = open_store(path, self.storage)
        self._seen: SeenInput | None = None

    def look(self, since: int) -> SeenInput | None:
        """The table now, with the versions behind `since` that changed rows; None where there is none.

        Versions whose entries are gone count as changes.
        """
        before = self._seen
        # A query looks every few seconds: only what has come since the last look is listed.
        log = Log.open_from(self.store, before.version) if before else None
        log = log or Log.open(self.store)
        if log is None:
            self._seen = None
            return None
        newest = log.newest
        if before is None or newest < before.version:
            metadata = log.metadata() or {}
            before = SeenInput(str(metadata.get("id", "")), since)
        if since < 0:
            # All of it is new, however many versions that are.
            self._seen = SeenInput(before.table_id, newest, (newest,))
            return self._seen
        fresh = range(max(since, before.version) + 1, newest + 1)
        changed = [one for one in before.changed if one > since]
        changed += [one for one in fresh if _has_changed(log, one)]
        self._seen = SeenInput(before.table_id, newest, tuple(changed))
        return self._seen


def _has_changed(log: Log, version: int) -> bool:
    if version not in log.versions:
        return True
    try:
        return log.entry(version).data_change
    except Cleaned:
        return True


@dataclass(frozen=True)
class QueryFreshness:
    """How fresh the rows of a table are: what its query has read, and what has come since."""

    seen: Mapping[str, SeenInput]
    missing: tuple[str, ...] = ()
    """Tables that the query reads and that do not exist yet."""
    recorded: Mapping[str, int] | None = None
    """The versions that the rows were made of; None where they were made by another query, or never."""

    @property
    def behind(self) -> int | None:
        """Versions with other rows that the query has not seen; None where it has never run."""
        if self.recorded is None:
            return None
        return sum(len(one.changed) for one in self.seen.values())

    @property
    def is_due(self) -> bool:
        """Whether the query would find something new."""
        return not self.missing and self.behind != 0

    @property
    def versions(self) -> dict[str, int]:
        """The newest version of each."""
        return {name: one.version for name, one in self.seen.items()}


class Inputs:
    """All tables that the query of one table reads."""

    def __init__(self, tables: Tables, table: str, names: Sequence[str]) -> None:
        pipeline = tables.pipeline
        spec = pipeline.tables[table]
        self._pipeline = pipeline.name
        self._asked = [spec.query or "", spec.evolve.new_column]
        self.inputs = [Input(name, tables.handles[name].path, pipeline.storage_for(name)) for name in names]

    def stand(self, transactions: Mapping[str, int]) -> QueryFreshness:
        """Compare what the log of the query's table holds with the tables that it reads."""
        recorded = read_by_query(transactions, self._pipeline)
        found = {one.name: one.look(recorded.get(one.name, -1)) for one in self.inputs}
        seen = {name: one for name, one in found.items() if one is not None}
        missing = tuple(name for name, one in found.items() if one is None)
        same = transactions.get(query_id(self._pipeline)) == self.mark(seen)
        older = any(one.version < recorded.get(name, 0) for name, one in seen.items())
        known = same and recorded.keys() == seen.keys() and not older and not missing
        return QueryFreshness(seen, missing, recorded if known else None)

    def mark(self, seen: Mapping[str, SeenInput]) -> int:
        """A number for the query and the tables behind the names in it: another one stands for other rows."""
        parts = [*self._asked, *(f"{name}={seen[name].table_id}" for name in sorted(seen))]
        return int(hashlib.sha256("\0".join(parts).encode()).hexdigest()[:15], 16)

    def transactions(self, seen: Mapping[str, SeenInput]) -> dict[str, int]:
        """What the log must hold when the rows are made of these versions."""
        versions = {query_id(self._pipeline, name): one.version for name, one in seen.items()}
        return {query_id(self._pipeline): self.mark(seen), **versions}
