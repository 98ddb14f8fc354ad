"""What the log of a table that is read tells: its snapshot, and the rows that each version adds."""

from __future__ import annotations

import re
import time
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import Schema

from lakefeed.columns.widening import wider
from lakefeed.errors import TableError
from lakefeed.sources.delta.event_time import ordered
from lakefeed.sources.delta.offset import BEGINNING, MOST_ROWS, MOST_VERSIONS, DeltaOffset, version_start
from lakefeed.sources.delta.piece import Piece
from lakefeed.sources.delta.readable import refuse_unreadable
from lakefeed.sources.delta.source import DeltaSource
from lakefeed.stores import local_folder, located, open_store, store_errors, store_path
from lakefeed.tables.log.change_feed import DELETE, INSERT, ChangedFile, changed_files, committed, is_on
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.entry import Cleaned, Entry, entry_name, read_entry
from lakefeed.tables.log.log import Log
from lakefeed.tables.log.roaring import Positions
from lakefeed.tables.log.vector import DeletionVector, read_vector
from lakefeed.tables.log.write import footprint
from lakefeed.tables.table import commit_info_of

_LOOK_EVERY = 0.25


@dataclass(frozen=True)
class ReadShape:
    """What a table is at some version."""

    id: str
    schema: str
    """Its columns, as the log has them."""
    tells_changes: bool = False
    """Whether it has a change data feed."""

    @classmethod
    def of(cls, metadata: dict[str, Any], store: pafs.FileSystem, version: int) -> ReadShape:
        """From a `metaData` action of a version."""
        columns = metadata.get("schemaString")
        if not columns:
            raise TableError(
                f"{store_path(store)}: the metadata of version {version} has no schemaString, so nobody can "
                "read the table."
            )
        tells_changes = is_on(dict(metadata.get("configuration") or ()))
        return cls(str(metadata.get("id")), str(columns), tells_changes)


@dataclass(frozen=True)
class VersionRows:
    """What a snapshot or a version has for a reader."""

    pieces: tuple[Piece, ...]
    schema: str
    rows: int
    stops: str | None = None
    """What the version does to rows that were there before: its operation; None where it only adds some."""
    only_deletes: bool = False
    committed: int = 0
    """When a version was committed, in milliseconds since 1970."""
    schema_before: str | None = None
    """The columns that rows which leave the table had there; None where they are the same."""

    def schema_of(self, piece: Piece) -> str:
        """The columns in which a piece is read: a restore brings back narrower ones than its rows may fit."""
        gone = piece.change == DELETE and self.schema_before is not None
        return str(self.schema_before) if gone else self.schema


class History:
    """The log of one table, read as far as somebody has asked. -1 is the newest version of no table."""

    def __init__(self, source: DeltaSource) -> None:
        """With `change_feed`, a version has its changes, else the rows that it adds.

        Files whose paths `exclude` matches are as if they were not there. The files of a snapshot are in the
        order of `event_time_order`, if it is given.
        """
        self.store = store = open_store(source.path, source.storage)
        self._change_feed, self._event_time = source.change_feed, source.event_time_order
        self._exclude = re.compile(source.exclude) if source.exclude else None
        self.newest = -1
        self._patient, self._looked_at = local_folder(store) is None, -_LOOK_EVERY
        self.log: Log | None = None
        self._shapes: dict[int, ReadShape] = {}
        self._news: dict[int, VersionRows] = {}
        self._snapshots: dict[int, VersionRows] = {}
        self._footprint: Hashable | None = None
        self.restores: dict[int, int] = {}
        """Versions that bring back an older one, and which, as far as somebody has asked."""
        self.look()

    def look(self) -> None:
        """See which versions there are; an object store is not asked more than some times a second."""
        if self._patient and time.monotonic() - self._looked_at < _LOOK_EVERY:
            return
        self._looked_at = time.monotonic()
        if self.newest >= 0 and footprint(self.store, self.newest) == self._footprint:
            grown = self.newest
            while footprint(self.store, grown + 1) is not None:
                grown += 1
            if grown != self.newest:
                self.newest, self._footprint = grown, footprint(self.store, grown)
            return
        self.log = Log.open(self.store)
        self._shapes, self._news, self._snapshots, self.restores = {}, {}, {}, {}
        self.newest = self.log.newest if self.log else -1
        self._footprint = footprint(self.store, self.newest) if self.log else None
        if self.newest >= MOST_VERSIONS:
            raise TableError(f"{store_path(self.store)} has {self.newest:,} versions, more than can be read.")

    @property
    def end(self) -> DeltaOffset:
        """Behind the newest version; the beginning while there is no table."""
        return BEGINNING if self.newest < 0 else version_start(self.newest + 1)

    @property
    def id(self) -> str | None:
        """The id of the table; None where there is none."""
        return self.shape(self.newest).id if self.newest >= 0 else None

    def shape(self, version: int) -> ReadShape:
        """What the table is at a version."""
        if version not in self._shapes:
            self._shapes[version] = self._find_shape(version)
        return self._shapes[version]

    def version(self, number: int) -> VersionRows:
        """What a version adds. Raises Cleaned where the log has no entry of it any more."""
        if number not in self._news:
            entry = self._entry(number)
            refuse_unreadable(self.store, number, entry.protocol)
            if entry.metadata is not None:
                self._shapes[number] = ReadShape.of(entry.metadata, self.store, number)
            elif number - 1 in self._shapes:
                self._shapes[number] = self._shapes[number - 1]
            if (back_to := _restored(entry)) is not None:
                # Made anew, as those who watch a run look at it from other threads.
                self.restores = {**self.restores, number: back_to}
            self._news[number] = self._news_of(entry)
        return self._news[number]

    def _entry(self, number: int) -> Entry:
        with store_errors(store_path(self.store)):
            try:
                return read_entry(self.store, number, self._written(number))
            except FileNotFoundError:
                raise Cleaned(self.store, number) from None

    def _written(self, number: int) -> int:
        """When the file of an entry was written, which is the time of its changes; else nobody asks."""
        if not self._change_feed:
            return 0
        return (self.store.get_file_info(entry_name(number)).mtime_ns or 0) // 1_000_000

    def known(self, number: int) -> VersionRows | None:
        """What a version adds, where somebody has asked for it before."""
        return self._news.get(number)

    def forget(self, before: int) -> None:
        """Let go of what versions before this one add."""
        for number in [number for number in self._news if number < before]:
            del self._news[number]
            self._shapes.pop(number, None)

    def snapshot(self, version: int) -> VersionRows:
        """All rows of a version. Raises TableError where the log cannot rebuild it any more."""
        if version not in self._snapshots:
            log = Log.open(self.store)
            if log is None:
                raise TableError(f"there is no Delta table at {store_path(self.store)} any more.")
            shape = self.shape(version)
            files = ordered(log.snapshot(version).files.values(), self._event_time, shape.schema)
            found = [ChangedFile(file, INSERT) for file in files]
            # A feed begins with all rows as if this version had inserted them.
            moment = committed(log.entry(version)) if self._change_feed and version in log.versions else 0
            pieces = tuple(self._pieces(found, DeltaOffset(False, version), moment))
            rows = sum(piece.live for piece in pieces)
            self._snapshots[version] = VersionRows(pieces, shape.schema, rows)
        return self._snapshots[version]

    def live(self, piece: Piece) -> int:
        """How many rows of a piece are read, to the row."""
        if piece.only is not None:
            return len(self._difference(piece.only, piece.vector))
        if piece.vector is None or piece.rows == (piece.of or piece.rows):
            return piece.live
        deleted = read_vector(self.store, piece.vector)
        return piece.rows - int(((deleted >= piece.first) & (deleted < piece.first + piece.rows)).sum())

    def _difference(self, only: DeletionVector, without: DeletionVector | None) -> Positions:
        """The rows that one vector names and another does not."""
        named = read_vector(self.store, only)
        return named if without is None else np.setdiff1d(named, read_vector(self.store, without))

    def known_snapshot(self, version: int) -> VersionRows | None:
        """All rows of a version, where somebody has asked for them before."""
        return self._snapshots.get(version)

    def _news_of(self, entry: Entry) -> VersionRows:
        if self._change_feed:
            return self._changes_of(entry)
        ours = commit_info_of(entry.info)
        # `delete_after` takes rows away for their age alone, and writes only what was there before.
        aged = (ours.get("kind"), ours.get("by")) == ("delete", "upkeep")
        added = [ChangedFile(file, INSERT) for file in entry.adds if file.data_change and not aged]
        removed = [file for file in entry.removes if file.data_change and not aged]
        pieces = tuple(self._pieces(added, version_start(entry.version)))
        rows = sum(piece.live for piece in pieces)
        stops = _operation(entry) if removed else None
        schema = self.shape(entry.version).schema if pieces else ""
        return VersionRows(
            pieces, schema, rows, stops, only_deletes=bool(removed) and not added, committed=entry.timestamp
        )

    def _changes_of(self, entry: Entry) -> VersionRows:
        """The changes of a version; it stops the reader where the feed was off and rows have come or gone."""
        shape = self.shape(entry.version)
        if entry.data_change and not shape.tells_changes:
            return VersionRows((), shape.schema, 0, _operation(entry), committed=entry.timestamp)
        changed = [
            one
            for one in changed_files(entry)
            if one.only is None or len(self._difference(one.only, one.file.vector))
        ]
        pieces = tuple(self._pieces(changed, version_start(entry.version), committed(entry)))
        rows = sum(piece.live for piece in pieces)
        before = None
        if entry.metadata is not None and any(piece.change == DELETE for piece in pieces):
            former = self.shape(entry.version - 1).schema
            before = former if _is_wider(former, shape.schema) else None
        return VersionRows(pieces, shape.schema, rows, committed=entry.timestamp, schema_before=before)

    def _pieces(self, files: Sequence[ChangedFile], at: DeltaOffset, moment: int = 0) -> Iterator[Piece]:
        row = 0
        for one in files:
            file = one.file
            # Deleted rows keep their numbers, so that a vector that comes later moves no offset.
            counted = file.rows is not None and one.only is None
            rows = (file.rows or 0) + file.deleted if counted else self._footer_rows(file)
            if row + rows >= MOST_ROWS:
                raise TableError(
                    f"{store_path(self.store)}: {at} has more than {MOST_ROWS:,} rows, too many to be "
                    "read.\nBegin with a later version: `start: {version: N}`."
                )
            # What is left out keeps its offsets, so that another pattern moves none.
            if rows and not (self._exclude and self._exclude.search(file.path)):
                start = DeltaOffset(at.past, at.version, row)
                piece = Piece(start, file.path, rows, file.size, file.partition, file.modified, file.vector)
                if self._change_feed:
                    piece = replace(piece, modified=moment, change=one.kind, only=one.only)
                yield piece
            row += rows

    def _footer_rows(self, file: DataFile) -> int:
        with store_errors(store_path(self.store)):
            try:
                store, path = located(self.store, file.path)
                with store.open_input_file(path) as stream:
                    return int(pq.ParquetFile(stream).metadata.num_rows)
            except FileNotFoundError:
                raise TableError(
                    f"{store_path(self.store)}: {file.path} is gone, and the log does not say how many rows "
                    "it had: a vacuum has removed it before it was read.\nBegin with a later version: "
                    "`start: {version: N}`."
                ) from None

    def _find_shape(self, version: int) -> ReadShape:
        """Look back for the entry or checkpoint that says it, and which features the table has."""
        assert self.log is not None
        found: dict[str, dict[str, Any]] = {}
        for number in range(version, -1, -1):
            if number in self._shapes:
                known = self._shapes[number]
                return ReadShape.of(found["metaData"], self.store, version) if "metaData" in found else known
            try:
                said = self._said(number)
            except FileNotFoundError:
                break
            if "protocol" not in found:
                refuse_unreadable(self.store, number, said.get("protocol"))
            found = said | found
            if len(found) == 2:
                break
        metadata = found.get("metaData") or self.log.metadata()
        if metadata is None:
            raise TableError(f"{store_path(self.store)}: the log has no metadata of version {version}.")
        return ReadShape.of(metadata, self.store, version)

    def _said(self, number: int) -> dict[str, dict[str, Any]]:
        """What a version says of the columns and the protocol of the table, or a checkpoint of it."""
        assert self.log is not None
        if number in self.log.checkpoints:
            return dict(self.log.checkpoints[number].actions(self.store, "metaData", "protocol"))
        entry = read_entry(self.store, number, positions_only=True)
        said = {"metaData": entry.metadata, "protocol": entry.protocol}
        return {kind: action for kind, action in said.items() if action is not None}


def _operation(entry: Entry) -> str:
    return str(entry.info.get("operation", "a commit"))


def _restored(entry: Entry) -> int | None:
    """The version that an entry brings back, where it says so."""
    ours = commit_info_of(entry.info)
    if ours.get("kind") == "rewind":
        return int(ours["to"])
    if entry.info.get("operation") != "RESTORE":
        return None
    version = (entry.info.get("operationParameters") or {}).get("version")
    return int(str(version)) if str(version).isdecimal() else None


def _is_wider(schema: str, other: str) -> bool:
    """Whether the columns of a schema hold all values of those of another one."""
    wide, narrow = (pa.schema(Schema.from_json(text).to_arrow()) for text in (schema, other))
    pairs = [(one, wide.field(one.name)) for one in narrow if one.name in wide.names]
    return all(wider(one.type, same).equals(same.type) for one, same in pairs)
