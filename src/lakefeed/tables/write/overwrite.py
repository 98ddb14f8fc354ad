"""Overwrite: the first rows of a run take the place of all rows that are there, in one commit.

Two counters in the log tell which run the content is of: `#run` is the run whose rows are there, `#ended` the
last run that came to its end. While a run has not ended, rows are added to its own, also by the process that
takes over after a kill: so the content is the same as without the kill. The first rows after the end of a
run begin the next one.
"""

from __future__ import annotations

from lakefeed.errors import Fenced
from lakefeed.tables.data_files import data_files
from lakefeed.tables.log.data_file import row_count
from lakefeed.tables.positions import ended_id, run_id
from lakefeed.tables.shape import Shape
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change, NewEntry, refuse_append_only


class OverwriteMode:
    """Replaces the content of a table once in each run. One object for one table and process."""

    def __init__(self, pipeline: str) -> None:
        self._pipeline = pipeline
        self._run, self._ended = run_id(pipeline), ended_id(pipeline)
        self._begun: int | None = None
        """The run that this process has written rows of."""

    def check(self, shape: Shape, path: str) -> None:
        """Raise TableError for a table whose rows must stay."""
        refuse_append_only(shape, path, "`mode: overwrite` would remove rows", "`mode: append`")

    def is_open(self, table: LakeTable) -> bool:
        """Whether the run whose rows are there has not ended: then further rows belong to it."""
        return table.transactions.get(self._run, 0) > table.transactions.get(self._ended, 0)

    def entry(self, table: LakeTable, change: Change) -> NewEntry:
        """The first rows of a run replace all files of the version before; later ones are added."""
        run = table.transactions.get(self._run, 0)
        if self._begun is not None and (run != self._begun or not self.is_open(table)):
            raise Fenced(
                f"{table.path}: another instance of this pipeline has ended the run that this one writes. "
                "This one stops.\nFind the other one, perhaps on another machine, and stop one of the two."
            )
        if not change.files:
            return NewEntry((), change.transactions, change.commit_info)
        if self.is_open(table):
            return NewEntry(change.files, change.transactions, {**change.commit_info, "run": run})
        self.check(table.shape, table.path)
        gone = data_files(table)
        told = {
            "kind": "overwrite",
            "run": run + 1,
            "removed": {"files": len(gone), "rows": row_count(gone)},
        }
        transactions = {**change.transactions, self._run: run + 1}
        return NewEntry(change.files, transactions, {**change.commit_info, **told}, gone, blind=False)

    def landed(self, entry: NewEntry) -> None:
        """Remember the run, so that nobody else ends it unnoticed."""
        self._begun = entry.commit_info.get("run", self._begun)

    def end(self, table: LakeTable, retries: int) -> None:
        """Record that the run is over, whichever process began it. Raises what a commit raises."""
        table.refresh()
        if not self.is_open(table):
            return
        run = table.transactions[self._run]
        expected = {name: table.transactions.get(name) for name in (self._run, self._ended)}
        told = {"pipeline": self._pipeline, "kind": "end", "run": run, "rows": 0}
        append(table, Change([], {self._ended: run}, expected, told), retries=retries)
        self._begun = None
