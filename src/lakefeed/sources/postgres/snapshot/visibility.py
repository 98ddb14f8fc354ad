"""Which transactions a snapshot has seen: what a chunk of rows already holds is no change any more."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lakefeed.sources.postgres.replication.pgoutput import Mask, Numbers


@dataclass(frozen=True)
class Visibility:
    """A snapshot as `pg_current_snapshot()` tells it: `xmin:xmax:xip,xip`."""

    xmin: int
    xmax: int
    open: tuple[int, ...]

    @classmethod
    def of(cls, text: str) -> Visibility:
        """Read it from its text."""
        xmin, xmax, listed = text.split(":")
        return cls(int(xmin), int(xmax), tuple(int(one) for one in listed.split(",") if one))

    def sees(self, xids: Numbers) -> Mask:
        """Which transactions were committed before the snapshot; ids as the stream has them, of 32 bits."""
        # The id that is nearest to xmax: transactions that are compared live at about the same time.
        distance = (xids - self.xmax) % (1 << 32)
        whole = self.xmax + np.where(distance >= 1 << 31, distance - (1 << 32), distance)
        still_open = np.isin(whole, np.array(self.open, np.int64))
        return (whole < self.xmin) | ((whole < self.xmax) & ~still_open)
