"""Checkpoints of a log: one file from which a table is read, in place of many entries."""

from __future__ import annotations

from dataclasses import dataclass

from lakefeed.stores import store_errors
from lakefeed.tables.entries import last_checkpoint, versions
from lakefeed.tables.protocol import refuse_unkept
from lakefeed.tables.table import LakeTable


@dataclass(frozen=True)
class Plan:
    """What a checkpoint would stand for; nothing has been changed."""

    version: int
    last: int | None
    entries: int
    """Entries that a reader has to read today."""

    @property
    def nothing(self) -> bool:
        """Whether the newest version has a checkpoint already."""
        return self.last == self.version


def plan(table: LakeTable) -> Plan:
    """Look at the newest checkpoint, and at the entries since."""
    refuse_unkept(table, "checkpoint")
    table.refresh()
    with store_errors(table.path):
        last = last_checkpoint(table.store)
        since = [version for version in versions(table.store) if version > (-1 if last is None else last)]
    return Plan(table.version, last, len(since))


def run(table: LakeTable, plan: Plan) -> int:
    """Write a checkpoint of the newest version; it makes no version of its own."""
    with store_errors(table.path):
        table.delta.create_checkpoint()
    return table.version
