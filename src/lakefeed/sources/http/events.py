"""Events of one stream, out of frames of the journal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefeed.events import ORIGIN, Events

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Part:
    """Events that came with one request, and so share where they came from."""

    first: int
    payloads: Sequence[bytes | None]
    received: int | None
    """Microseconds since 1970; None for events that the journal has lost."""
    meta: Mapping[str, Any]


class HttpEvents(Events):
    """The events of some parts, in their order."""

    def __init__(self, stream: str, parts: Sequence[Part]) -> None:
        self._stream = stream
        self._parts = parts
        self._counts = np.fromiter((len(part.payloads) for part in parts), np.int64, len(parts))
        self.payloads = [payload for part in parts for payload in part.payloads]

    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        """The stream, its number, when it was received, who has sent it, and headers."""
        all_rows = np.arange(len(self.payloads), dtype=np.int64)
        chosen: Numbers = all_rows if rows is None else np.asarray(rows, dtype=np.int64)
        ends = np.cumsum(self._counts)
        which = np.searchsorted(ends, chosen, side="right")
        firsts = np.fromiter((part.first for part in self._parts), np.int64, len(self._parts))
        offsets = firsts[which] + chosen - (ends - self._counts)[which]
        count, parts = len(chosen), pa.array(which)
        times = pa.array([part.received for part in self._parts], pa.timestamp("us", "UTC"))
        keys = pa.array([_sender(part.meta) for part in self._parts], pa.binary())
        headers = pa.array([_headers(part.meta) for part in self._parts], ORIGIN.field("headers").type)
        columns = [
            pa.repeat(pa.scalar(self._stream), count),
            pa.repeat(pa.scalar(0, pa.int32()), count),
            pa.array(offsets),
            times.take(parts),
            keys.take(parts),
            headers.take(parts),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ORIGIN)

    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        """All are of one partition."""
        count = len(self.payloads) if rows is None else len(rows)
        return {self._stream: count} if count else {}


def _sender(meta: Mapping[str, Any]) -> bytes | None:
    sender = meta.get("sender")
    return sender.encode() if sender else None


def _headers(meta: Mapping[str, Any]) -> list[dict[str, Any]] | None:
    """Bytes were kept as the text of the same code points, as HTTP has it."""
    kept = meta.get("headers")
    return [{"key": name, "value": value.encode("latin-1")} for name, value in kept] if kept else None
