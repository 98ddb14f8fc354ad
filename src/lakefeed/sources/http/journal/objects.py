"""Segments of a journal as objects of a store, one for each write."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from lakefeed.errors import Fenced, SourceError, SourceUnavailable, TableError
from lakefeed.sources.http.journal.segments import KEYS, segment_name, segment_numbers
from lakefeed.stores import (
    confirm_conditional,
    is_conditional,
    names_after,
    open_store,
    put_new,
    read_tagged,
)


class ObjectSegments:
    """Objects that are made whole or not at all, each by one writer: a second one is noticed at its next.

    Nobody holds a lock here. A number that another run has taken means that it writes this journal as well.
    """

    grows = False
    """Whether a segment takes more than one write."""

    def __init__(self, path: str, storage: Mapping[str, str]) -> None:
        self._path = path
        self._store = open_store(path, storage)
        self._unsure: set[bytes] = set()
        """Digests of what was sent without an answer: it may be there, or come later."""

    def __str__(self) -> str:
        return self._path

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Nothing to hold; but the store must keep two writers apart. Raises SourceError."""
        if not is_conditional(self._store):
            raise SourceError(
                f"the journal {self._path} needs conditional writes: without them, two runs would overwrite "
                "each other's events.\nRemove AWS_S3_ALLOW_UNSAFE_RENAME from `storage` of the source and "
                "from the environment, or set `journal` to a local folder."
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
        yield

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
        """Make a segment. Raises OSError, or Fenced when another run has made it."""
        data = b"".join(parts)
        try:
            self._make(number, data)
        except OSError:
            self._unsure.add(_digest(data))
            raise
        self._unsure.clear()

    def _make(self, number: int, data: bytes) -> None:
        with suppress(FileExistsError):
            put_new(self._store, segment_name(number), data)
            return
        if read_tagged(self._store, segment_name(number))[0] == data:
            # Its answer was lost, and the request repeated.
            return
        self.cut(number, 0)
        try:
            put_new(self._store, segment_name(number), data)
        except FileExistsError:
            raise self._other() from None

    def cut(self, number: int, size: int) -> None:
        """Take back a segment of ours that nobody was told of as done; never one of somebody else."""
        with suppress(FileNotFoundError):
            data, _ = read_tagged(self._store, segment_name(number))
            if _digest(data) not in self._unsure:
                raise self._other()
            self._store.delete_file(segment_name(number))

    def delete(self, number: int) -> None:
        """Let a segment go."""
        with suppress(FileNotFoundError):
            self._store.delete_file(segment_name(number))

    def save_keys(self, data: bytes) -> None:
        """Replace what is kept of segments that are about to go, in one step."""
        with self._store.open_output_stream(KEYS) as file:
            file.write(data)

    def keys(self) -> bytes:
        """What `save_keys` has kept; nothing if it was never called."""
        with suppress(FileNotFoundError), self._told():
            return read_tagged(self._store, KEYS)[0]
        return b""

    def _other(self) -> Fenced:
        return Fenced(
            f"another run writes the journal {self._path}.\nStop one of them, or give each a `journal` of "
            "its own."
        )

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError:
            raise
        except OSError as error:
            raise SourceUnavailable(f"the journal {self._path} does not answer: {error}") from error


def _digest(data: bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()
