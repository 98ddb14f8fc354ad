"""Checkpoints of a log: one file from which a table is read, instead of many entries."""

from __future__ import annotations

import logging
from dataclasses import dataclass

from deltalake.exceptions import DeltaError

from lakefeed.errors import LakefeedError
from lakefeed.stores import is_conditional, store_errors
from lakefeed.tables.log.lean_checkpoint import write_lean_checkpoint
from lakefeed.tables.log.write import sync_checkpoint
from lakefeed.tables.protocol import refuse_unkept
from lakefeed.tables.table import LakeTable

_log = logging.getLogger("lakefeed")
_INTERVAL = 100
"""Commits between two checkpoints, where the table does not say: as delta-rs has it."""
_IN_PARTS = "v2Checkpoint"
"""The feature of tables whose checkpoints may be of version 2."""


@dataclass(frozen=True)
class CheckpointPlan:
    """What a checkpoint would stand for; nothing has been changed."""

    version: int
    last: int | None
    entries: int
    """Entries that a reader has to read today."""

    @property
    def nothing(self) -> bool:
        """Whether the newest version has a checkpoint already."""
        return self.last == self.version


def plan(table: LakeTable) -> CheckpointPlan:
    """Look at the newest checkpoint, and at the entries since."""
    refuse_unkept(table, "checkpoint")
    table.refresh()
    log = table.log()
    last = log.newest_checkpoint
    return CheckpointPlan(table.version, None if last < 0 else last, log.since_checkpoint)


def run(table: LakeTable, plan: CheckpointPlan) -> int:
    """Write a checkpoint of the newest version; it makes no version of its own."""
    with store_errors(table.path):
        _write(table)
    return table.version


def checkpoint_when_due(table: LakeTable, version: int) -> None:
    """Do so every `delta.checkpointInterval` versions."""
    said = table.properties.get("delta.checkpointInterval", "")
    if (version + 1) % (int(said) if said.isdecimal() and int(said) else _INTERVAL) == 0:
        checkpoint_now(table)


def checkpoint_now(table: LakeTable) -> None:
    """Write a checkpoint and delete the entries that are too old.

    What fails is done the next time: the commit before it stands without it.
    """
    try:
        _write(table)
        if table.durable:
            # Before the entries go that it stands for. Others may have made versions behind this one.
            sync_checkpoint(table.store, table.version)
        if table.properties.get("delta.enableExpiredLogCleanup", "true").lower() == "true":
            table.delta.cleanup_metadata()
    except (DeltaError, LakefeedError, OSError) as error:
        _log.debug("no checkpoint of %s", table.path, exc_info=error)


def _write(table: LakeTable) -> None:
    lean = table.has_vectors and _IN_PARTS not in table.shape.features and is_conditional(table.store)
    if lean:
        write_lean_checkpoint(table.store, table.version, durable=table.durable)
    else:
        table.delta.create_checkpoint()
