"""The outcome of a batch, by which a flow decides how it goes on."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from lakefeed.errors import LakefeedError
from lakefeed.events import Offsets, PartRead
from lakefeed.handles.table_plan import StagedPosition, TableId


@dataclass
class Outcome:
    """What became of a batch: tables that must change first, and tables that failed."""

    proposals: dict[TableId, pa.Schema] = field(default_factory=dict)
    failures: dict[TableId, LakefeedError] = field(default_factory=dict)
    """The tables of a route fail together, unless each takes one stream."""
    start: Offsets = field(default_factory=dict)
    """Where the batch began, in every partition."""
    read: dict[str, int] = field(default_factory=dict)
    """Events read, by partition."""
    parts: dict[str, PartRead] = field(default_factory=dict)
    """What was read of each part of a source that keeps account of parts."""
    size: int = 0
    overfull: tuple[int, int] | None = None
    """Events and their bytes in a task that gave up as they are too large; nothing was committed then."""
    ends: Offsets = field(default_factory=dict)
    """Where the batch must end instead, by partition; nothing was committed then."""
    over: bool = False
    """Whether the run has ended between two batches, so that tables can change hands."""
    lacking: dict[TableId, frozenset[StagedPosition]] = field(default_factory=dict)
    """Tables that got nothing of the batch, as changes leave out what no row of theirs has; which."""
    returned: dict[TableId, pa.Schema | None] = field(default_factory=dict)
    """Of these tables, columns that a function of the user's has returned and nobody knows."""

    wider: dict[TableId, pa.Schema | None] = field(default_factory=dict)
    """Of these tables, columns in the types that they need."""

    @property
    def is_unfinished(self) -> bool:
        """Whether some or all tables got nothing of the batch, so that another run begins from the tables."""
        return bool(self.failures or self.proposals or self.overfull or self.ends or self.lacking)
