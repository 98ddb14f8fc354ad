"""Records of files, read by a worker: each file checked before and after, small ones many together."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence

import numpy as np

from lakefeed.errors import SourceError, SourceUnavailable
from lakefeed.events import Events, OffsetRange, Refused
from lakefeed.sources.files.piece import FoundFile, Piece
from lakefeed.sources.files.reading.events import FileEvents
from lakefeed.sources.files.reading.lines import FileOffsets
from lakefeed.sources.files.reading.opening import FileOpener, Unreadable
from lakefeed.sources.files.reading.parquet import parquet_rows
from lakefeed.sources.files.reading.records import records
from lakefeed.sources.files.source import FilesSource
from lakefeed.sources.source_errors import source_errors
from lakefeed.stores import StoreError, store_errors

_TOGETHER_RECORDS = 50_000
_TOGETHER_BYTES = 16 * 2**20
_TRIES = 3
_PAUSE = 0.2
"""How often a file that cannot be read is tried, and seconds in between: it may have come this moment."""
_ARCHIVED = re.compile("InvalidObjectState|BlobArchived")
"""What S3 and Azure say of an object whose storage class nobody can read from."""
_RESTORE = (
    "the storage class of the file does not let it be read. Restore it, then type: lakefeed files retry"
)


def read(source: FilesSource, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
    """Yield every record of the pieces that the ranges carry."""
    opener = FileOpener(source.scope.base, source.storage)
    buffer = _RecordBuffer()
    with source_errors(), store_errors(source.path):
        for span in ranges:
            for given in span.payload or ():
                yield from _piece(opener, source, Piece.of_payload(given), buffer)
        yield from buffer.taken()


def _piece(opener: FileOpener, source: FilesSource, piece: Piece, buffer: _RecordBuffer) -> Iterator[Events]:
    """The records of one piece; for those that cannot be read, one refusal."""
    file, offset = piece.file, piece.first
    try:
        if file.changed:
            raise Unreadable("file_changed", "the file has changed since it was found, and is not read again")
        _settled(opener, piece)
        if source.has_columns:
            yield from buffer.taken()
            for events in _rows(opener, piece):
                yield events
                offset += len(events)
        else:
            for payloads, offsets in records(opener, source, piece):
                yield from buffer.add(file, payloads, offsets)
                offset = int(offsets[-1]) + 1 if len(offsets) else offset
    except PermissionError:
        raise SourceError(
            f"{file.path}: permission denied.\nGive the user that runs Lakefeed the right to read it."
        ) from None
    except (FileNotFoundError, StoreError, Unreadable) as error:
        if isinstance(error, StoreError):
            if not _ARCHIVED.search(str(error)):
                raise
            if piece.first:
                # Told once, by who reads the beginning.
                return
            error = Unreadable("file_archived", _RESTORE)
        elif isinstance(error, FileNotFoundError):
            opener.confirm_folder(file)
            if offset or not piece.is_whole:
                raise _removed(file) from None
            error = Unreadable("file_gone", "the file was removed before it was read")
        elif not file.changed:
            _confirm_unchanged(opener, file)
        yield from buffer.taken()
        yield _refusal(file, offset, error)
        return
    _confirm_unchanged(opener, file)


def _confirm_unchanged(opener: FileOpener, file: FoundFile) -> None:
    """Raise SourceUnavailable where what was read may not be all of one content."""
    try:
        opener.check(file)
    except FileNotFoundError:
        raise _removed(file) from None


def _removed(file: FoundFile) -> SourceUnavailable:
    """Fails the batch: other tasks may have read rows of the file. The next plan gives it to one task."""
    return SourceUnavailable(f"{file.path} was removed while it was read; the batch is planned again")


def _rows(opener: FileOpener, piece: Piece) -> Iterator[Events]:
    with opener.open(piece.file.path) as stream:
        before = 0
        for columns, offsets in parquet_rows(stream, piece):
            yield FileEvents([piece.file], [columns.num_rows], offsets, columns=columns, before=before)
            before += columns.nbytes


def _settled(opener: FileOpener, piece: Piece) -> None:
    """Look at a file again when it is opened. Raises what it says for the third time."""
    for attempt in range(_TRIES):
        try:
            return opener.check(piece.file)
        except FileNotFoundError:
            if attempt == _TRIES - 1:
                raise
            time.sleep(_PAUSE)


def _refusal(file: FoundFile, offset: int, error: Unreadable) -> FileEvents:
    """A file, or the rest of one, that becomes a dead letter."""
    text = f"{file.path}: {error}" if not offset else f"{file.path}, from place {offset:,} on: {error}"
    refused = [Refused(0, "decode", error.code, text)]
    return FileEvents([file], [1], np.array([offset], np.int64), refused=refused)


class _RecordBuffer:
    """Records of one file after the other, until they are enough to be decoded together."""

    def __init__(self) -> None:
        self._files: list[FoundFile] = []
        self._counts: list[int] = []
        self._payloads: list[bytes | None] = []
        self._offsets: list[FileOffsets] = []
        self._bytes = 0
        self._current: FoundFile | None = None
        self._before = 0
        """Bytes of the last file that have been handed over."""

    def add(self, file: FoundFile, payloads: list[bytes], offsets: FileOffsets) -> Iterator[Events]:
        """Take records of a file, and yield those that are enough."""
        if file is not self._current:
            self._current, self._before = file, 0
        for at in range(0, len(payloads), _TOGETHER_RECORDS):
            some = payloads[at : at + _TOGETHER_RECORDS]
            self._files.append(file)
            self._counts.append(len(some))
            self._payloads += some
            self._offsets.append(offsets[at : at + _TOGETHER_RECORDS])
            self._bytes += sum(map(len, some))
            if len(self._payloads) >= _TOGETHER_RECORDS or self._bytes >= _TOGETHER_BYTES:
                handed_over = self._bytes
                yield from self.taken()
                self._before += handed_over

    def taken(self) -> Iterator[Events]:
        """Yield what is there."""
        if self._payloads:
            offsets = np.concatenate(self._offsets)
            yield FileEvents(self._files, self._counts, offsets, payloads=self._payloads, before=self._before)
        self._files, self._counts, self._payloads, self._offsets, self._bytes = [], [], [], [], 0
