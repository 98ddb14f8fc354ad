"""Rebuilding a table: its events are read from the beginning, and its rows are replaced in one commit.

An ordinary run writes the rows into a staging table in a folder of the table. Then one commit of the table
removes its files and adds those of the staging table where they are, with its columns, layout and positions.
Killed before that commit, the table is as it was, and the next rebuild continues with the staging table.
Dead letters are staged as well, and follow the commit as those of a rewind do.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from lakefeed.columns.mapping import HIGHEST_ID, MODE
from lakefeed.columns.staged import FOLDER
from lakefeed.dead_letters.reconcile import reconcile
from lakefeed.engine.faultpoints import passing
from lakefeed.engine.instance import only_instance
from lakefeed.errors import TableError, UsageError
from lakefeed.files import WrittenFile
from lakefeed.handles.anew import commands_to_make_anew
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.shaping_digest import rebuild_problem
from lakefeed.handles.sharing import other_feeders
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reprocess.readable_again import refuse_unreadable_again, strict
from lakefeed.sources import source_of
from lakefeed.stores import store_errors
from lakefeed.tables.column_mapping import highest_id
from lakefeed.tables.data_files import data_files
from lakefeed.tables.detail.shaped import shaped_by
from lakefeed.tables.file_rows import named_partition
from lakefeed.tables.log.data_file import DataFile, row_count
from lakefeed.tables.log.entry import LOG
from lakefeed.tables.log.listing import listing
from lakefeed.tables.log.log import Log
from lakefeed.tables.positions import (
    feeders_of,
    rebuild_id,
    replay_id,
    rows_by_shaping,
    shaping_id,
    tombstones_id,
)
from lakefeed.tables.table import LakeTable
from lakefeed.tables.verify.verify import VerifiedLog, verify_log
from lakefeed.tables.write.commit import commit
from lakefeed.tables.write.keyed.tombstones import TOMBSTONES_FOLDER
from lakefeed.tables.write.mode import Change
from lakefeed.tables.write.rebuild import RebuildMode
from lakefeed.text import suggestion

_FOLDER = "rebuild-"
_LETTERS = "-dead_letters"
_MOST_COMMANDS = 20
"""How many tables of a route a message names."""

Run = Callable[[Pipeline], None]
"""Runs a pipeline until it has read what is there."""


@dataclass
class RebuildReport:
    """What a rebuild did, or would do."""

    table: str
    rows_now: int | None
    other_rows: int = 0
    """Rows that were made with other shaping options than the file has now."""
    continues: bool = False
    """Whether an earlier rebuild was cut short, and its rows are used."""
    reads: list[str] = field(default_factory=list)
    """What is read from the beginning."""
    notes: list[str] = field(default_factory=list)
    rows_then: int | None = None
    dead_letters: int = 0
    version: int | None = None
    """The version that the rebuild made; None for a dry run."""


def rebuild(
    pipeline: Pipeline, table: str, run: Run, *, who: str = "", dry_run: bool = False
) -> RebuildReport:
    """Make a table anew from its source, with the options that the file has now.

    The old version stays readable until the one commit that replaces all rows. Raises DataLoss before
    anything is written where the source no longer has events that the table was made of.
    """
    if dry_run:
        return _Rebuild(pipeline, table).report
    with only_instance(pipeline):
        planned = _Rebuild(pipeline, table, reconciling=True)
    run(planned.staged)
    passing("rebuild_staged")
    with only_instance(pipeline):
        report = _Rebuild(pipeline, table, reconciling=True).replace(who)
    return replace(report, continues=planned.report.continues)


class _Rebuild:
    """One rebuild as the table and the staging table are now."""

    def __init__(self, pipeline: Pipeline, table: str, *, reconciling: bool = False) -> None:
        self._pipeline, self._table_name = pipeline, table
        self._tables = Tables(pipeline)
        self._handle = _handle(self._tables, table)
        opened = self._handle.look()
        if opened is None:
            raise TableError(
                f"table {table}: there is no Delta table at {self._handle.path} yet; a run creates it."
            )
        self._table: LakeTable = opened
        RebuildMode().check(opened.shape, self._handle.path)
        if reconciling:
            reconcile(self._tables, self._handle)
        self._refuse_others()
        self._digest = self._tables.shaping_of(table)
        self._number = opened.transactions.get(rebuild_id(pipeline.name), 0) + 1
        self._folder = f"{_FOLDER}{self._number}-{self._options_digest()}"
        self.staged = self._staging_pipeline()
        refuse_unreadable_again(pipeline, self._handle, opened)
        self._staging = Tables(self.staged).handles[table]
        self.report = self._report()

    def replace(self, who: str) -> RebuildReport:
        """Let the rows of the staging table take the place of those of the table."""
        verified, staging = self._verified()
        refused = sum(chain.letters for chain in verified.chains.values())
        if refused:
            # Their number is set in the commit, and they follow it there.
            self._tables.open_dead_letters()
        letters = self._tables.dead_letters.look()
        transactions = self._transactions(staging, letters)
        stored = verified.snapshot.files.values()
        files, rows = [_adopted(self._folder, file, staging.schema) for file in stored], row_count(stored)
        self._copy_tombstones(staging)
        info = {
            "pipeline": self._pipeline.name,
            "kind": "rebuild",
            "who": who,
            "rows": rows,
            "shaping": self._digest,
            "sources": list(self._spec.from_),
            "chains": _chains(verified),
            "begun": verified.created,
            "dead_letters": self._letters_path,
            **self._left_out(),
        }
        expected = {name: self._table.transactions.get(name) for name in transactions}
        with self._handle.lock:
            change = Change(
                files, transactions, expected, info, self._table.shape, becomes=self._becomes(staging)
            )
            landed = commit(self._table, change, RebuildMode(), retries=self._spec.commit_retries)
        passing("rebuild_committed")
        reconcile(self._tables, self._handle)
        self._clean_up()
        self.report.version, self.report.rows_then = landed.version, rows
        self.report.dead_letters = refused
        return self.report

    @property
    def _spec(self) -> Any:
        return self._pipeline.tables[self._table_name]

    @property
    def _letters_path(self) -> str:
        return f"{self._handle.path.rstrip('/')}/{self._folder}{_LETTERS}"

    def _options_digest(self) -> str:
        """What a rebuild must have in common with one that was interrupted, to continue it."""
        models = [self._spec, *(self._pipeline.inputs[name] for name in self._spec.from_)]
        options = [one.model_dump(mode="json", exclude_defaults=True) for one in models]
        text = json.dumps([self._digest, options], sort_keys=True, default=str)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def _refuse_others(self) -> None:
        """Raise TableError where the table has rows of events that the file does not name."""
        for (pipeline, source), _ in other_feeders(self._pipeline, self._handle):
            raise TableError(
                f"table {self._table_name}: pipeline {pipeline} has fed it from source {source}, which does "
                "not feed it in this file, so a rebuild would lose these rows.\n"
                "Add the source to `from`, or move the table to a new `path`."
            )

    def _staging_pipeline(self) -> Pipeline:
        """The pipeline that reads the events of this table alone, into the staging table."""
        pipeline, spec, storage = self._pipeline, self._spec, self._handle.storage
        path = f"{self._handle.path.rstrip('/')}/{self._folder}"
        keys = spec.keys or pipeline.keys_of_feeders(self._table_name)
        own: dict[str, Any] = {"path": path, "keys": keys, "create": True}
        if spec.updates == "merge_on_read":
            # A file with deletion vectors could not be added to another table.
            own["updates"] = "copy_on_write"
        letters = {"path": self._letters_path, "storage": storage}
        return pipeline.model_copy(
            update={
                "sources": {name: strict(source_of(pipeline, name)) for name in spec.from_},
                "tables": {self._table_name: spec.model_copy(update=own)},
                "dead_letters": pipeline.dead_letters.model_copy(update=letters),
                "http": None,
                "statsd": None,
            }
        )

    def _report(self) -> RebuildReport:
        rows = row_count(data_files(self._table))
        by_shaping = rows_by_shaping(self._table.transactions, self._pipeline.name)
        others = sum(count for digest, count in by_shaping.items() if digest != self._digest)
        report = RebuildReport(self._table_name, rows, others if rows is None else min(rows, others))
        report.continues = self._staging.look() is not None
        report.reads = list(self._spec.from_)
        for fed in self._pipeline.graph.fed_from(self._table_name):
            report.notes.append(
                f"table {fed} is fed from {self._table_name}; rebuild it afterwards: "
                f"lakefeed rebuild {self._pipeline.file_argument} --table {fed} --yes"
            )
        return report

    def _verified(self) -> tuple[VerifiedLog, LakeTable]:
        """The staging table, proved by its log. Raises TableError where it must not replace the rows."""
        name, staging = self._table_name, self._staging.look()
        log = Log.open(self._staging.store)
        if staging is None or log is None:
            raise TableError(f"table {name}: the run has made no row, so nothing was replaced.")
        verified = verify_log(log)
        if verified.findings:
            raise TableError(f"table {name}: nothing was replaced: {verified.findings[0].text}.")
        held, now = feeders_of(self._table.transactions), feeders_of(staging.transactions)
        for (pipeline, source), positions in held.items():
            reached = now.get((pipeline, source), {})
            behind = [one for one, at in positions.items() if reached.get(one, -1) < at]
            if behind:
                raise TableError(
                    f"table {name}: the new rows end before what the table has read of source {source} "
                    f"({behind[0]}), so nothing was replaced yet.\nRun the command again: it continues."
                )
        self._refuse_loss(verified, staging)
        return verified, staging

    def _left_out(self) -> dict[str, Any]:
        """What commit info says of rows that `where` and `expect` have left out of the staging table."""
        log = Log.open(self._staging.store)
        assert log is not None
        shaped = shaped_by(log)
        counts = {"filtered": shaped.filtered, "expectations": shaped.expectations}
        return {key: count for key, count in counts.items() if count}

    def _refuse_loss(self, verified: VerifiedLog, staging: LakeTable) -> None:
        """Raise TableError where most of the events would become dead letters, or no row is left."""
        read = sum(chain.read for chain in verified.chains.values())
        refused = sum(chain.letters for chain in verified.chains.values())
        limit = self._pipeline.dead_letters.stop_above
        most = 0.5 if limit is None else limit
        there, rows = row_count(data_files(self._table)), row_count(data_files(staging))
        if refused > most * read:
            raise TableError(
                f"table {self._table_name}: {refused:,} of {read:,} events would become dead letters, so "
                "nothing was replaced.\n"
                f"The reasons are in the table {self._letters_path}. Correct the file and run the command "
                "again, or raise `dead_letters.stop_above`."
            )
        if there and not rows:
            raise TableError(
                f"table {self._table_name}: no row would be left of {there:,}, so nothing was replaced.\n"
                "Correct `where` or `expect` and run the command again."
            )

    def _becomes(self, staging: LakeTable) -> Any:
        """The shape of the staging table. Raises TableError where the protocol of the table lacks a part."""
        new, old = staging.shape, self._table.shape
        modes = [one.properties.get(MODE, "none") for one in (old, new)]
        if len({*modes}) > 1:
            raise TableError(
                f"table {self._table_name}: {MODE} of the table is {modes[0]!r}, and {modes[1]!r} by the "
                "file, so nothing was replaced.\n"
                "Give a table with 'name' the option `names: keep`; for any other, choose another path."
            )
        lacking = sorted(new.features - old.features)
        if lacking or new.reader > old.reader or new.writer > old.writer:
            what = f"the feature {lacking[0]}" if lacking else "a newer protocol"
            raise TableError(
                f"table {self._table_name}: its new rows need {what}, which the table does not have, so "
                f"nothing was replaced.\nInstead: lakefeed table drop {self._handle.path} --yes, then run "
                "the pipeline."
            )
        if new.is_mapped:
            # It never falls, whatever ids the new columns have.
            highest = max(highest_id(new.properties), highest_id(old.properties))
            new = replace(new, properties={**new.properties, HIGHEST_ID: str(highest)})
        return new

    def _transactions(self, staging: LakeTable, letters: LakeTable | None) -> dict[str, int]:
        """Positions and marks as the staging table has them, and the counters of the table itself."""
        name, before = self._pipeline.name, self._table.transactions
        found = dict(staging.transactions)
        for digest in rows_by_shaping(before, name):
            found.setdefault(shaping_id(name, digest), 0)
        if tombstones_id(name) in before:
            found.setdefault(tombstones_id(name), 0)
        found[rebuild_id(name)] = self._number
        if letters:
            key, reconciled = replay_id(name), replay_id(name, self._handle.name)
            found[key] = max(before.get(key, 0), letters.transactions.get(reconciled, 0)) + 1
        return found

    def _copy_tombstones(self, staging: LakeTable) -> None:
        """Tombstones are found by their names, which no other file has."""
        with store_errors(self._handle.path):
            kept = [one for one in listing(staging.store, ()).kept if one.path.startswith(TOMBSTONES_FOLDER)]
            if kept:
                self._table.store.create_dir(TOMBSTONES_FOLDER, recursive=True)
            for file in kept:
                pafs.copy_files(
                    file.path,
                    file.path,
                    source_filesystem=staging.store,
                    destination_filesystem=self._table.store,
                )

    def _clean_up(self) -> None:
        """Remove the logs of staging tables. Their data files are of this table now, or vacuum takes them."""
        store = self._table.store
        with store_errors(self._handle.path):
            for info in store.get_file_info(pafs.FileSelector("", allow_not_found=True)):
                if not info.base_name.startswith(_FOLDER):
                    continue
                if info.base_name.endswith(_LETTERS):
                    store.delete_dir(info.path)
                    continue
                for folder in (LOG, FOLDER):
                    if store.get_file_info(f"{info.path}/{folder}").type == pafs.FileType.Directory:
                        store.delete_dir(f"{info.path}/{folder}")


def _handle(tables: Tables, table: str) -> TableHandle:
    """The handle of a table that can be rebuilt. Raises UsageError for any other."""
    spec = tables.pipeline.tables.get(table)
    if spec is None:
        known = list(tables.pipeline.tables)
        raise UsageError(f"--table: the pipeline has no table '{table}'{suggestion(table, known)}")
    if why := rebuild_problem(spec):
        commands = commands_to_make_anew(tables, [table]) if spec.route else ()
        drops = f"\nIts tables: {' && '.join(commands)}" if 0 < len(commands) <= _MOST_COMMANDS else ""
        raise UsageError(f"table {table} cannot be rebuilt: {why}{drops}")
    return tables.handles[table]


def _adopted(folder: str, file: DataFile, columns: pa.Schema) -> WrittenFile:
    """A file of the staging table, which has these columns, as one of the table."""
    partition = dict(named_partition(file.partition, columns))
    return WrittenFile(f"{folder}/{file.path}", file.size, partition, file.stats or "{}", file.rows or 0)


def _chains(verified: VerifiedLog) -> dict[str, list[int]]:
    """By source and partition: the first offset, the next one, how many events, how many dead letters."""
    return {
        chain.partition: [chain.first, chain.next, chain.read, chain.letters]
        for chain in verified.chains.values()
    }
