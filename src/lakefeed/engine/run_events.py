"""What happens in a run: small events, told to whoever watches.

A watcher is a function of an event. It is called from several threads, must be quick, and takes from the
events what it needs with `match`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from lakefeed.events import Offsets, Outstanding
from lakefeed.sources import dense_offsets
from lakefeed.text import counted

_log = logging.getLogger("lakefeed")

RowsBetween = Callable[[dict[str, int], dict[str, int]], dict[str, int]]


@dataclass(frozen=True)
class Starting:
    """Spark is being started, which takes seconds."""

    fetching: bool = False
    """Whether Delta for Spark is fetched first, once for each machine."""


@dataclass(frozen=True)
class Started:
    """Spark runs, and the sources are asked now."""


@dataclass(frozen=True)
class SourceSeen:
    """A source has said where each of its partitions ends."""

    source: str
    ends: Mapping[str, int]
    rows_between: RowsBetween = dense_offsets.rows_between
    """How many events wait in each partition between positions and ends: only the source knows."""
    outstanding: Callable[[Offsets, Offsets], Outstanding | None] = lambda position, ends: None
    """The files and bytes that wait between them, of a source of files."""
    remark: str = ""
    """What its owner should know though it is read, with what to do behind a line break."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    """Streams that are not read, with why, and what to do behind a line break."""
    stopped: Mapping[str, str] = field(default_factory=dict)
    """Streams that were read and cannot be read on, in the same words."""


@dataclass(frozen=True)
class SourceDescribed:
    """A source can say in a line what it does now, such as where it listens."""

    source: str
    describe: Callable[[], str]
    refuses: Callable[[], str] = lambda: ""
    """Why it takes no events at this moment, and in further lines what to do; empty while it takes them."""


@dataclass(frozen=True)
class SourceTrouble:
    """Something is being retried for a source; an empty text says that it is over."""

    source: str
    text: str
    waits: bool = False
    """Whether it lasts until somebody has decided something, and not until `give_up_after`."""


@dataclass(frozen=True)
class SourceStopped:
    """A source has stopped for good while others go on."""

    source: str
    text: str


@dataclass(frozen=True)
class CoresSeen:
    """The cores that Spark had when a batch was planned."""

    source: str
    cores: int
    executors: int
    """0 where tasks run in the driver's process."""


@dataclass(frozen=True)
class BatchDone:
    """A batch of a source has been read, and is committed to the tables that could take it."""

    source: str
    read: int
    size: int
    seconds: float
    lag: int
    again: int = 0
    """Of the events read, those that an earlier batch of this run had read already."""
    tasks: int = 1
    """Tasks that have read it."""

    @property
    def new(self) -> int:
        """Events that were read for the first time."""
        return self.read - self.again


@dataclass(frozen=True)
class Committed:
    """A table has a new version."""

    table: str
    source: str
    version: int
    rows: int
    files: int
    size: int
    dead_letters: int
    """Records of its ranges that the table has refused, without those that were dead letters already."""
    seconds: float
    retries: int
    small_files: int = 0
    filtered: int = 0
    """Events of its ranges that `where`, or a rule with `otherwise: drop`, has left out."""
    newest: float | None = None
    """The time of a newest event among those that the commit adds, in seconds since 1970."""
    replaces: bool = False
    """Whether it has removed all rows that were there before."""
    inputs: Mapping[str, int] = field(default_factory=dict)
    """The versions of other tables that a query has made it of."""
    stale: int = 0
    """Changes that were older than the row of their key, or rows whose key was there already."""


@dataclass(frozen=True)
class CommitFailed:
    """A commit failed, after all its retries."""

    table: str
    source: str
    text: str


@dataclass(frozen=True)
class DeadLetterSample:
    """One record among those that became dead letters."""

    partition: str
    offset: int
    stage: str
    code: str
    error: str
    payload: str = ""
    """The beginning of its bytes, as people read them."""


@dataclass(frozen=True)
class DeadLettersWritten:
    """Dead letters of one table are in the dead-letter table."""

    table: str
    source: str
    counts: Mapping[tuple[str, str], int]
    """How many, by stage and code."""
    samples: tuple[DeadLetterSample, ...] = ()


@dataclass(frozen=True)
class RowsShaped:
    """What a table has left out, and how its rows have met the rules of `expect`, with one commit.

    Of a route, which has no log of its own, with one batch.
    """

    table: str
    source: str
    filtered: int
    expectations: Mapping[str, Mapping[str, int]]
    """By rule: how many rows are `passed`, `warned`, `dropped` or `dead_letter`."""


@dataclass(frozen=True)
class RefusingMany:
    """More than 5% of a table's recent events became dead letters; without `share`, no longer."""

    table: str
    source: str
    share: str = ""
    """`6,000 of the last 50,000 events (12.0%) became dead letters`."""
    reason: str = ""
    advice: str = ""

    @property
    def text(self) -> str:
        """What to tell, in a line or two; empty when it is over."""
        told = f"{self.share}, {self.reason}" if self.share else ""
        return f"{told}\n{self.advice}" if self.advice else told


@dataclass(frozen=True)
class AllRefused:
    """All events of the first batch for a table without rows became dead letters."""

    table: str
    source: str
    events: int
    reason: str

    @property
    def text(self) -> str:
        """What to report, in a line."""
        return f"its first batch of {counted(self.events, 'event')} became dead letters, {self.reason}"


@dataclass(frozen=True)
class SequencesFell:
    """Changes of a database are older than those before, and rows stay as they are; empty when it is over."""

    table: str
    source: str
    text: str


@dataclass(frozen=True)
class TableReached:
    """A table has every event of a source before these positions."""

    table: str
    source: str
    positions: Mapping[str, int]


@dataclass(frozen=True)
class TableDelayed:
    """A table is retried while the others of its source go on; an empty text says that it is over."""

    table: str
    source: str
    text: str


@dataclass(frozen=True)
class TableMoved:
    """A table is fed `apart` from now on, by a flow of its own, or with the others again."""

    table: str
    source: str
    text: str
    apart: bool


@dataclass(frozen=True)
class TableStopped:
    """A table has stopped for good while others go on."""

    table: str
    text: str


@dataclass(frozen=True)
class SchemaInferred:
    """What was seen of every new column in so many events, and what was chosen for it."""

    table: str
    lines: Sequence[str]
    events: int


@dataclass(frozen=True)
class TableChanged:
    """A table was created, or its schema has changed."""

    table: str
    text: str


@dataclass(frozen=True)
class CopyOutdated:
    """A table is not the copy of its stream until a command was run; the text says why and which."""

    table: str
    source: str
    text: str


@dataclass(frozen=True)
class Refreshed:
    """A query has replaced the rows of its table."""

    table: str
    version: int
    rows: int
    seconds: float
    inputs: Mapping[str, int]
    """The versions that the query has read, by table."""


@dataclass(frozen=True)
class RefreshFailed:
    """A query has failed, and is tried again after its `refresh`; its table keeps its rows."""

    table: str
    text: str


@dataclass(frozen=True)
class InputsSeen:
    """What the tables that a query reads have got since its last refresh."""

    table: str
    inputs: Mapping[str, int] = field(default_factory=dict)
    """The versions that the rows were made of, by table; empty before the first refresh."""
    behind_by: Mapping[str, int] = field(default_factory=dict)
    """How many versions with other rows each has got since."""
    missing: tuple[str, ...] = ()
    """Tables that the query waits for, as they do not exist yet."""


@dataclass(frozen=True)
class FilesCounted:
    """What a table holds, counted in the snapshot that the run has of it."""

    table: str
    version: int
    rows: int
    files: int
    small_files: int
    size: int
    last_commit: float | None = None
    """Seconds since 1970; None when the log does not tell."""
    columns: tuple[tuple[str, str], ...] = ()
    """The names of its columns, each with its type as text."""
    partition_by: tuple[str, ...] = ()
    partitions: int = 0
    """How many different values the files have in the columns that the table is partitioned by."""


@dataclass(frozen=True)
class UnappliedCounted:
    """How many changes of the rows of a copy are dead letters, counted in the table of dead letters."""

    table: str
    changes: int


@dataclass(frozen=True)
class UpkeepDone:
    """An operation of upkeep has changed a table."""

    table: str
    operation: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    seconds: float


RunEvent = (
    Starting
    | Started
    | SourceSeen
    | SourceDescribed
    | SourceTrouble
    | SourceStopped
    | CoresSeen
    | BatchDone
    | Committed
    | CommitFailed
    | DeadLettersWritten
    | RowsShaped
    | RefusingMany
    | AllRefused
    | SequencesFell
    | TableReached
    | TableDelayed
    | TableMoved
    | TableStopped
    | SchemaInferred
    | TableChanged
    | CopyOutdated
    | Refreshed
    | RefreshFailed
    | InputsSeen
    | FilesCounted
    | UnappliedCounted
    | UpkeepDone
)
Watcher = Callable[[RunEvent], None]


def unwatched(event: RunEvent) -> None:
    """Watch without a word."""


def all_of(*watchers: Watcher) -> Watcher:
    """A watcher that tells each of these, in their order. One that fails is a bug, but must not end a run."""

    def watch(event: RunEvent) -> None:
        for one in watchers:
            try:
                one(event)
            except Exception:
                _log.exception("%r failed at %r", one, event)

    return watch
