"""Idempotency keys: what was answered to a request, for when it comes again."""

from __future__ import annotations

import threading
import time
import zlib
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

_FORGET_EVERY = 1_000


@dataclass(frozen=True, slots=True)
class Answered:
    """What a request with a key has brought."""

    digest: str
    """Of the body: the same key with another body is a mistake of the sender."""
    first: int
    count: int
    rejected: bytes
    """The bad records that the answer names, as JSON: there are many answers in memory."""
    received: int
    """Microseconds since 1970."""
    bad: int = 0
    """How many records were bad; only the first of them are named."""


class Keys:
    """The keys of the last requests, within a window by time and by count.

    They are a part of the journal: each key is in the frame of its events, so both are there or none.
    """

    def __init__(self, window: float, most: int) -> None:
        self._window = window
        self._most = most
        self._known: OrderedDict[str, Answered] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._known)

    def get(self, name: str) -> Answered | None:
        """What was answered under a name; None if nothing was, or too long ago."""
        found = self._known.get(name)
        return found if found and found.received >= self._oldest() else None

    def note(self, stream: str, meta: Mapping[str, Any], first: int, count: int, received: int) -> None:
        """Take note of a request that is in the journal; one without a key is none of ours."""
        if "key" in meta:
            name = name_of(meta.get("sender"), stream, meta["key"])
            rejected = orjson.dumps(meta["rejected"])
            self._add(name, Answered(meta["digest"], first, count, rejected, received, meta["bad"]))

    def _add(self, name: str, answered: Answered) -> None:
        with self._lock:
            self._known[name] = answered
            self._known.move_to_end(name)
            if len(self._known) > self._most or len(self._known) % _FORGET_EVERY == 0:
                self._forget()

    def _forget(self) -> None:
        oldest = self._oldest()
        while self._known:
            name, answered = next(iter(self._known.items()))
            if len(self._known) <= self._most and answered.received >= oldest:
                return
            del self._known[name]

    def _oldest(self) -> int:
        return int((time.time() - self._window) * 1_000_000)

    def dump(self) -> bytes:
        """All keys as bytes with a checksum."""
        with self._lock:
            self._forget()
            rows = [
                (name, one.digest, one.first, one.count, orjson.Fragment(one.rejected), one.received, one.bad)
                for name, one in self._known.items()
            ]
        data = orjson.dumps(rows)
        return zlib.crc32(data).to_bytes(4, "little") + data

    def load(self, data: bytes) -> bool:
        """Add what `dump` has returned as older than all that is known; whether it was whole."""
        if len(data) < 4 or zlib.crc32(data[4:]) != int.from_bytes(data[:4], "little"):
            return not data
        newer, self._known = self._known, OrderedDict()
        for name, digest, first, count, rejected, *rest in orjson.loads(data[4:]):
            self._add(name, Answered(digest, first, count, orjson.dumps(rejected), *rest))
        for name, known in newer.items():
            self._add(name, known)
        return True


def name_of(sender: str | None, stream: str, key: str) -> str:
    """Under which name a key is kept: two senders may choose the same one."""
    return f"{sender or ''}\n{stream}\n{key}"
