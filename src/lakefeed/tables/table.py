"""One Delta table as the driver sees it: opened or created, its schema, its positions, its next version."""

from __future__ import annotations

import copy
import datetime as dt
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
from deltalake import DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from lakefeed.columns.mapping import MAPPING, is_mapped, unmapped
from lakefeed.stores import (
    delta_options,
    finish_commit,
    finish_newest_commit,
    is_locked,
    local_folder,
    read_tagged,
    store_errors,
    store_path,
)
from lakefeed.tables.admission import refuse_unfit, replaced, unwritable
from lakefeed.tables.column_mapping import with_mapping
from lakefeed.tables.log.checkpoint import last_checkpoint, read_transactions
from lakefeed.tables.log.commit_info import (
    COMMIT_KEY,
    commit_info_of,
    commit_metadata,
    commit_properties,
    only_known,
)
from lakefeed.tables.log.entry import LOG, Entry, entry_name, parse_entry, read_entry
from lakefeed.tables.log.log import LiveFiles, Log, Snapshot
from lakefeed.tables.log.mirror import Files, alter_mirrored, create_mirrored
from lakefeed.tables.log.vector import FEATURE
from lakefeed.tables.log.write import (
    footprint,
    puts_entries,
    sync_entry,
    sync_folder,
    write_entry,
    writes_entries,
)
from lakefeed.tables.shape import Shape

__all__ = ["COMMIT_KEY", "LakeTable", "commit_info_of", "commit_metadata", "commit_properties", "only_known"]


class LakeTable:
    """A table that this process writes.

    Used by one thread at a time; holds the positions that fences rely on. The files of the table are known to
    `delta` only, which goes through all of them to move on: so it moves when it is needed, not before.
    """

    _read_to = -1
    """The version up to which entries have been read."""
    _durable_to = -1
    """The version up to which entries outlive a power cut, of those that were read or written here."""
    is_emptied = False
    """Whether the rows of the version are left out of account: see `emptied`."""
    _own: tuple[Entry, Hashable] | None = None
    """The entry that was put into a store behind that version, if nobody has moved on to it yet."""

    def __init__(
        self, name: str, delta: DeltaTable, store: pafs.FileSystem, *, durable: bool = False
    ) -> None:
        self.name = name
        self.durable = durable
        """Whether entries on a disk are to outlive a power cut, those of others before them included."""
        self.path = store_path(store)
        self.store = store
        self._delta = delta
        self._shape: tuple[int, Shape] | None = None
        self._admitted: Shape | None = None
        self._digest: bytes | None = None
        self._live = LiveFiles(store)
        with store_errors(self.path):
            # Before it is read: what replaces it meanwhile is noticed then.
            self._footprint = footprint(store, self.version)
            self.transactions = read_transactions(store, self.version)
        self._read_to = self.version

    @classmethod
    def open(
        cls,
        name: str,
        path: str,
        storage: Mapping[str, str],
        store: pafs.FileSystem,
        *,
        foreign: bool = False,
        durable: bool = False,
    ) -> LakeTable | None:
        """Open the table at `path`; None where there is none.

        A `foreign` table is looked after but not fed: it may have features that Lakefeed does not write, and
        each operation refuses those that it cannot keep.
        """
        with store_errors(path):
            # A run that does not see its own last commit would write its rows again.
            finish_newest_commit(store, LOG)
            try:
                delta = DeltaTable(path, storage_options=delta_options(path, storage))
            except TableNotFoundError:
                return None
            if not foreign:
                refuse_unfit(Shape.of(delta), path)
            return cls(name, delta, store, durable=durable)

    @classmethod
    def create(
        cls,
        name: str,
        path: str,
        storage: Mapping[str, str],
        store: pafs.FileSystem,
        *,
        schema: pa.Schema,
        partition_by: Sequence[str],
        properties: Mapping[str, str],
        transactions: Mapping[str, int],
        commit_info: Mapping[str, Any],
        durable: bool = False,
    ) -> LakeTable:
        """Create the table with its first positions in version 0.

        Takes the existing one if another was faster.
        """
        with store_errors(path):
            mapped = is_mapped(properties)
            make = partial(
                DeltaTable.create,
                schema=Schema.from_arrow(unmapped(schema)),
                mode="error",
                partition_by=list(partition_by),
                configuration={key: value for key, value in properties.items() if key not in MAPPING},
                commit_properties=commit_properties(transactions, commit_info),
                raise_if_key_not_exists=only_known(properties),
            )
            options, delta = delta_options(path, storage), None
            try:
                if mapped:
                    if not puts_entries(store, options):
                        raise unwritable(path)
                    create_mirrored(store, make, partial(with_mapping, properties=properties))
                elif is_locked(store):
                    create_mirrored(store, make)
                else:
                    delta = make(path, storage_options=options)
            except (DeltaError, FileExistsError) as error:
                overtaken = isinstance(error, CommitFailedError | FileExistsError)
                if not overtaken and "already exists" not in str(error):
                    raise
            if delta is None:
                delta = DeltaTable(path, storage_options=options)
                refuse_unfit(Shape.of(delta), path)
            table = cls(name, delta, store, durable=durable)
            if durable:
                sync_entry(store, table.version)
                sync_folder(store)
                table._durable_to = table.version
            return table

    @property
    def version(self) -> int:
        """The version that the next commit starts from."""
        return max(self._read_to, self._delta.version())

    @property
    def next_version(self) -> int:
        """The version behind those whose entries have been read, and with them the positions."""
        return self._read_to + 1

    @property
    def delta(self) -> DeltaTable:
        """The table with all its files, at `version`."""
        if self._delta.version() < self._read_to:
            with store_errors(self.path):
                # Not to the newest: what has come since, nobody has looked at.
                self._delta.load_as_version(self._read_to)
        return self._delta

    @property
    def writes_entries(self) -> bool:
        """Whether the next entry may be written here; otherwise delta-rs must write it."""
        if is_locked(self.store):
            return True
        return writes_entries(self._delta, self.store) and not self.is_adrift

    @property
    def is_adrift(self) -> bool:
        """Whether the newest entry that has been read is gone: the log was cleaned, or is another one.

        On a store, as it was when somebody looked last: `confirm` does, before each commit.
        """
        if local_folder(self.store) is None:
            return self._footprint is None
        return writes_entries(self._delta, self.store) and footprint(self.store, self._read_to) is None

    @property
    def shape(self) -> Shape:
        """What the table is, as far as its entries have been read."""
        version = self._delta.version()
        if self._shape is None or self._shape[0] != version:
            self._shape = version, Shape.of(self._delta)
        return self._shape[1]

    def emptied(self, shape: Shape) -> LakeTable:
        """The same version without its rows, in another shape: for an entry that replaces all of them."""
        table = copy.copy(self)
        table._shape, table.is_emptied = (self._delta.version(), shape), True
        return table

    @property
    def schema(self) -> pa.Schema:
        """The table's schema in Arrow types."""
        return self.shape.schema

    @property
    def partition_columns(self) -> list[str]:
        """The names of the partition columns, in order."""
        return list(self.shape.partition_columns)

    @property
    def properties(self) -> dict[str, str]:
        """The table properties."""
        return dict(self.shape.properties)

    @property
    def has_vectors(self) -> bool:
        """Whether files of the table may have deletion vectors."""
        return FEATURE in self.shape.features

    def live(self) -> Snapshot:
        """The files and positions at `version` with all that the log says, deletion vectors included.

        Read from the log once, then kept. delta-rs does not tell which file has which vector.
        """
        with store_errors(self.path):
            return self._live.at(self.version)

    def log(self) -> Log:
        """The log as it lies in the store now. Raises TableError where the table is gone."""
        found = Log.open(self.store)
        if found is None:
            raise replaced(self.path, self._read_to)
        return found

    def at(self, version: int | dt.datetime) -> DeltaTable:
        """Another version of the table, by number or by moment, in a handle of its own."""
        with store_errors(self.path):
            # The options are kept by the handle, which has no public name for them.
            delta = DeltaTable(self.path, storage_options=self._delta._storage_options)
            delta.load_as_version(version)
            return delta

    def confirm(self) -> None:
        """Make sure that the log is still the one that was read, and the table one that may be fed.

        Called before each commit, which relies on both. Raises TableError, after which the table is left
        alone until the next start.
        """
        self._check_ground()
        if self.durable and self._durable_to < self._read_to:
            # Whoever wrote the entry that this process began with may have left it to the disk.
            with store_errors(self.path):
                sync_entry(self.store, self._read_to)
            self._durable_to = self._read_to
        if self._admitted is not self.shape:
            refuse_unfit(self.shape, self.path)
            self._admitted = self.shape

    def _check_ground(self) -> dict[int, dict[str, Any]] | None:
        """Raise TableError unless the newest entry that was read is still there, or was cleaned away.

        In that case the log has been read anew; returns the versions passed, as `refresh` does.
        """
        with store_errors(self.path):
            found = footprint(self.store, self._read_to)
            if found is None and self._footprint is not None:
                self._reopen()
                if local_folder(self.store) is None:
                    self._footprint = None
                return self.refresh(grounded=True)
            if found != self._footprint:
                if (
                    self._digest is None
                    or read_entry(self.store, self._read_to, positions_only=True).digest != self._digest
                ):
                    raise replaced(self.path, self._read_to)
                # The same entry, moved or copied.
                self._footprint = found
        return None

    def refresh(self, *, grounded: bool = False) -> dict[int, dict[str, Any]]:
        """Move to the newest version; return the commit information of the versions passed, by version.

        Raises TableError for a log that is another one by now; unless the caller is `grounded`, as it has
        just looked at that.
        """
        passed = None if grounded else self._check_ground()
        if passed is not None:
            return passed
        infos: dict[int, dict[str, Any]] = {}
        with store_errors(self.path):
            own, self._own = self._own, None
            if own is not None and own[0].version == self.next_version:
                # Put into a store here: nobody is asked for it, or for what follows.
                self._take(*own, infos)
                return infos
            if self.is_adrift:
                self._reopen()
            if not self.writes_entries:
                self._delta.update_incremental()
                if self._delta.version() < self._read_to:
                    raise replaced(self.path, self._read_to)
                self._read_on(infos, self._delta.version())
            else:
                self._read_on(infos)
                newest = last_checkpoint(self.store)
                if newest is not None and self._read_to < newest:
                    # It stands for versions whose entries are gone, or have come since.
                    self._delta.update_incremental()
                    self._read_on(infos, self._delta.version())
            if self._read_to < self._delta.version():
                # The log was cleaned past it; a checkpoint has its positions. What was found before the hole
                # may be no part of the table.
                self._footprint, self._digest = footprint(self.store, self._delta.version()), None
                self.transactions = read_transactions(self.store, self._delta.version())
                self._read_to = self._delta.version()
                infos.clear()
        return infos

    def _read_on(self, infos: dict[int, dict[str, Any]], last: int | None = None) -> None:
        """Read entry after entry up to the last, or up to the first that is not there."""
        # Counted one by one: a version whose entry could not be read must be read by the next call, or its
        # positions would never be known, and its events would be written again.
        while last is None or self._read_to < last:
            version = self._read_to + 1
            try:
                content, found = read_tagged(self.store, entry_name(version))
            except FileNotFoundError:
                if finish_commit(self.store, entry_name(version)):
                    continue
                return
            entry = parse_entry(self.store, version, content, positions_only=True)
            if entry.reshapes and self._delta.version() <= self._read_to:
                self._delta.load_as_version(version)
            if self.durable and self._durable_to < version:
                # Others may have left that to the disk. What stands on a torn entry is lost with it.
                sync_entry(self.store, version)
                self._durable_to = version
            self._take(entry, found, infos)

    def _take(self, entry: Entry, found: Hashable | None, infos: dict[int, dict[str, Any]]) -> None:
        self._read_to = entry.version
        self._footprint, self._digest = found, entry.digest
        self.transactions.update(entry.transactions)
        infos[entry.version] = entry.info

    def _reopen(self) -> None:
        """Read the log anew, as the newest entry that was read is gone: cleaned, or of another table."""
        try:
            fresh = DeltaTable(self.path, storage_options=self._delta._storage_options)
        except TableNotFoundError as error:
            raise replaced(self.path, self._read_to) from error
        if Shape.of(fresh).table_id != self.shape.table_id or fresh.version() < self._read_to:
            raise replaced(self.path, self._read_to)
        self._delta, self._shape = fresh, None
        self._live.forget()

    def put(self, actions: Iterable[Mapping[str, Any]]) -> FileExistsError | None:
        """Write the next entry, right behind the newest that was read; only one writer can have it.

        Returns the error of whoever came second; on a store that may be this writer, as an answer was lost.
        Raises TableError where delta-rs must write all entries.
        """
        if not self.writes_entries:
            raise unwritable(self.path)
        try:
            content, made = write_entry(self.store, self.next_version, actions, durable=self.durable)
        except FileExistsError as error:
            return error
        self._durable_to = self.next_version if self.durable else -1
        entry = parse_entry(self.store, self.next_version, content, positions_only=True)
        if local_folder(self.store) is None and made is not None and not entry.reshapes:
            self._own = entry, made
        return None

    def change(self, alter: Callable[[DeltaTable], None], since: int | None = None) -> None:
        """Run one of delta-rs's own table operations, then move to the version that it made."""
        with store_errors(self.path):
            self.alter(alter, since=since)
        self.refresh()

    def alter(
        self, change: Callable[[DeltaTable], object], reads: Files = tuple, since: int | None = None
    ) -> None:
        """Let delta-rs commit; where there is a lock table, which delta-rs does not know, on a copy.

        Then only these files are there, and no versions before `since`. Raises CommitFailedError.
        """
        if is_locked(self.store):
            alter_mirrored(self, change, reads(), self.version if since is None else since)
        else:
            change(self.delta)
