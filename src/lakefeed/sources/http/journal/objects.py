"""Segments of a journal as objects of a store, one for each write."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from lakefeed.errors import Fenced, SourceError, SourceUnavailable, TableError
from lakefeed.sources.http.journal.frame import Frame, frames
from lakefeed.sources.http.journal.segments import (
    KEYS,
    epoch_of,
    first_number,
    segment_name,
    segment_numbers,
)
from lakefeed.stores import (
    confirm_conditional,
    is_conditional,
    names_after,
    open_store,
    put_new,
    read_tagged,
    tag,
)

_EPOCH = "epoch-"
"""What the name of an epoch begins with; none is ever deleted, as a run of any age asks for the next one."""


class ObjectSegments:
    """Objects that are made whole or not at all. The run that began last owns the journal.

    A store has no lock that ends with its holder. So each run begins with the next epoch, an object that only
    one run can make, and looks at the segments after that. A write counts only if no newer epoch is there
    once the segment is: then a later run finds the segment, as it looks after it has made its epoch. A run
    that was paused meanwhile does not answer for what it writes, and the later run ignores it.

    A write without an answer may be there, or come later. The run does not delete it, as a later run may have
    read it. It goes on in a further epoch of its own, and so what came between counts for nothing: either
    a later run has seen it and this one gets no epoch, or no later run sees it.
    """

    grows = False
    """Whether a segment takes more than one write."""

    def __init__(self, path: str, storage: Mapping[str, str]) -> None:
        self._path = path
        self.first = 0
        self._epoch = 0
        self._lock = threading.Lock()
        self._mark = f"{time.time_ns()} {uuid.uuid4().hex}".encode()
        """What the epochs of this run hold; the time is for people who look."""
        self._keys_epoch = 0
        """The epoch whose keys this run has kept last."""
        self._store = open_store(path, storage)

    def __str__(self) -> str:
        return self._path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Begin the next epoch: from now on, no other run answers for a write. Raises SourceError."""
        if not is_conditional(self._store):
            raise SourceError(
                f"the journal {self._path} needs conditional writes: without them, two runs would overwrite "
                "each other's events.\nRemove AWS_S3_ALLOW_UNSAFE_RENAME from `storage` of the source, or "
                "set `journal` to a local folder."
            )
        try:
            with self._told():
                confirm_conditional(self._store)
        except TableError as error:
            raise SourceError(
                f"the journal {self._path}: the store ignores conditional writes (If-None-Match), so two "
                "runs would overwrite each other's events.\nSet `journal` to a local folder, or to a store "
                "that has them."
            ) from error
        with self._told():
            self._begin_epoch()
            self._shut_out_earlier_releases()
        yield

    def _begin_epoch(self) -> None:
        while True:
            names = [name.removeprefix(_EPOCH) for name in names_after(self._store, _EPOCH)]
            if self._take(max((int(name) for name in names if name.isdigit()), default=0) + 1):
                return

    def _take(self, epoch: int) -> bool:
        """Whether this run gets an epoch, now or with a request whose answer was lost."""
        try:
            put_new(self._store, _epoch_name(epoch), self._mark)
        except FileExistsError:
            if read_tagged(self._store, _epoch_name(epoch))[0] != self._mark:
                return False
        with self._lock:
            self._epoch = max(epoch, self._epoch)
            self.first = first_number(self._epoch)
        return True

    def _shut_out_earlier_releases(self) -> None:
        """Take the next number of a run of an earlier release, which knows no epochs and would go on.

        Such a run ends when another one has made the segment that is its next. This one has no events.
        """
        while (numbers := self.numbers()) and not epoch_of(numbers[-1]):
            with suppress(FileExistsError, FileNotFoundError):
                data = self.read(numbers[-1])
                opening = next(frames(data, checked=True), None)
                if isinstance(opening, Frame):
                    data = data[opening.start : opening.end]
                    put_new(self._store, segment_name(numbers[-1] + 1), data)
                return

    def confirm(self) -> None:
        """Raise Fenced where another run has begun a newer epoch."""
        while tag(self._store, _epoch_name(self._epoch + 1)) is not None:
            # It is one of this run, where the answer was lost.
            if not self._take(self._epoch + 1):
                raise self._other()

    def numbers(self) -> list[int]:
        """The segments that there are, in their order."""
        with self._told():
            return segment_numbers(names_after(self._store, ""))

    def read(self, number: int, start: int = 0, end: int | None = None) -> bytes:
        """Some bytes of a segment. Raises FileNotFoundError."""
        with self._told():
            data, _ = read_tagged(self._store, segment_name(number))
        return data[start:end]

    def append(self, number: int, at: int, parts: list[bytes]) -> None:
        """Make a segment. Raises OSError where that is in doubt, Fenced when another run has taken over."""
        data, name = b"".join(parts), segment_name(number)
        try:
            put_new(self._store, name, data)
        except FileExistsError:
            # It is of this request, which the client repeated; or of an earlier one, which comes late.
            if read_tagged(self._store, name)[0] != data:
                raise OSError("an earlier write came late") from None
        self.confirm()

    def cut(self, number: int, size: int) -> None:
        """See to it that a write without an answer counts for nothing: see the class. Raises Fenced."""
        if tag(self._store, segment_name(number)) is not None and not self._take(self._epoch + 1):
            raise self._other()

    def delete(self, number: int) -> None:
        """Let a segment go."""
        with suppress(FileNotFoundError):
            self._store.delete_file(segment_name(number))

    def save_keys(self, data: bytes) -> None:
        """Keep the keys under the name of the epoch: a run that was paused overwrites no others."""
        with self._store.open_output_stream(_keys_name(self._epoch)) as file:
            file.write(data)
        if self._keys_epoch != self._epoch:
            for name in self._keys_names()[:-1]:
                self._store.delete_file(name)
            self._keys_epoch = self._epoch

    def keys(self) -> bytes:
        """What the last run has kept that kept anything; nothing where none did."""
        with self._told():
            while names := self._keys_names():
                # A later run may delete them between two requests.
                with suppress(FileNotFoundError):
                    return read_tagged(self._store, names[-1])[0]
        return b""

    def _keys_names(self) -> list[str]:
        """The files of keys, that of an earlier release first, which knew no epochs."""
        return [name for name in names_after(self._store, KEYS[:-1]) if name.startswith(KEYS)]

    def _other(self) -> Fenced:
        return Fenced(
            f"another run has taken over the journal {self._path}.\nStop one of them, or give each a "
            "`journal` of its own."
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SourceUnavailable(f"the journal {self._path} does not answer: {error}") from error


def _epoch_name(epoch: int) -> str:
    return f"{_EPOCH}{epoch:012}"


def _keys_name(epoch: int) -> str:
    return f"{KEYS}-{epoch:012}"
