"""Who rewrites a table for upkeep: delta-rs on the driver, or another engine with the same results."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from lakefeed.engine.lake import Place
from lakefeed.stores import open_store
from lakefeed.tables import clustering, compaction, deletion, log, vacuum
from lakefeed.tables.operation import operation_account
from lakefeed.tables.table import LakeTable, account_of

BY = "upkeep"


@dataclass(frozen=True)
class Change:
    """What a step took away, and what stands in its place."""

    files_before: int = 0
    files_after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


class Rewriter(Protocol):
    """What upkeep has done to one table. Plans are made on the newest version, by its own handle."""

    def table(self) -> LakeTable:
        """The newest version, in a handle that the stream does not use."""

    def compact(self, plan: compaction.Plan, step: compaction.Step) -> Change:
        """Make larger files of the small ones of a partition; every row stays."""

    def cluster(self, plan: clustering.Plan, step: clustering.Step) -> Change:
        """Order the rows of a partition; every row stays."""

    def delete(self, where: str) -> Change:
        """Delete the rows that meet a condition."""

    def vacuum(self, plan: vacuum.Plan, on_file: Callable[[], None]) -> Change:
        """Delete the files of a plan."""


class DeltaRewriter:
    """The operations of `tables/`, beside the stream: its commits go on meanwhile.

    Each commit checks what has landed since it was begun; where somebody else has changed the same files, it
    raises Conflict, and the table is as they left it.
    """

    def __init__(self, place: Place, pipeline: str) -> None:
        self._place = place
        self._pipeline = pipeline
        self._table: LakeTable | None = None

    def table(self) -> LakeTable:
        """Opened once, then moved on."""
        if self._table is None:
            place = self._place
            store = open_store(place.path, place.storage)
            self._table = LakeTable.open(place.name, place.path, place.storage, store)
            assert self._table is not None, f"{place.path} is no table any more"
        else:
            self._table.refresh()
        return self._table

    def compact(self, plan: compaction.Plan, step: compaction.Step) -> Change:
        """One commit that says it changes no data."""
        table = self.table()
        return self.change(compaction.run_step(table, plan, step, self._account("compact")))

    def cluster(self, plan: clustering.Plan, step: clustering.Step) -> Change:
        """One commit that says it changes no data."""
        table = self.table()
        return self.change(clustering.run_step(table, plan, step, self._account("cluster")))

    def delete(self, where: str) -> Change:
        """One commit, or none where no row meets the condition."""
        table = self.table()
        plan = deletion.plan(table, where)
        return self.change(deletion.run(table, plan, self._account("delete")).versions)

    def vacuum(self, plan: vacuum.Plan, on_file: Callable[[], None]) -> Change:
        """One commit that tells of it, then the files."""
        report = vacuum.run(self.table(), plan, self._account("vacuum"), on_file=on_file)
        before, after = report.before, report.after
        return Change(before.files - after.files, 0, before.bytes - after.bytes, 0)

    def _account(self, kind: str) -> dict[str, object]:
        return operation_account(kind, by=BY, pipeline=self._pipeline)

    def change(self, versions: tuple[int, ...]) -> Change:
        """What our own commits among these versions did; the others are the stream's."""
        removed, added = [], []
        for version in versions:
            entry = log.read(self.table().store, version)
            if account_of(entry.info).get("by") == BY:
                removed += [int(action.get("size") or 0) for action in entry.removes]
                added += [int(action["size"]) for action in entry.adds]
        return Change(len(removed), len(added), sum(removed), sum(added))
