"""What a run tells about itself while it runs: events for whoever watches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class Committed:
    """A version of a table is in place."""

    table: str
    source: str
    version: int
    rows: int
    files: int
    size: int
    letters: int
    """Records of its ranges that the table has refused, without those that were dead letters already."""
    seconds: float
    retries: int
    small_files: int = 0
    newest: float | None = None
    """The time of a newest event among those that the commit adds, in seconds since 1970."""


@dataclass(frozen=True)
class BatchDone:
    """A batch of a source has been read, and has landed in the tables that could take it."""

    source: str
    read: int
    size: int
    seconds: float
    lag: int
    again: int = 0
    """Of the events read, those that an earlier batch of this run had read already."""

    @property
    def new(self) -> int:
        """Events that were read for the first time."""
        return self.read - self.again


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
class DeadLettersFound:
    """Dead letters of one table are in place."""

    table: str
    source: str
    counts: Mapping[tuple[str, str], int]
    """How many, by stage and code."""
    samples: tuple[DeadLetterSample, ...] = ()


@dataclass(frozen=True)
class Refusing:
    """A table refuses more of its events than one should leave alone; without `share`, no longer."""

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
class Counted:
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
class Upkept:
    """An operation of upkeep has changed a table."""

    table: str
    operation: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    seconds: float


class Watcher(Protocol):
    """Whoever wants to know. Called from several threads; must be quick and must not raise."""

    def starting(self) -> None:
        """Spark is started now, which takes seconds."""

    def started(self) -> None:
        """Spark runs, and the sources are asked now."""

    def committed(self, event: Committed) -> None:
        """A table has a new version."""

    def failed(self, table: str, source: str, text: str) -> None:
        """A commit did not land."""

    def lettered(self, event: DeadLettersFound) -> None:
        """Records of a table became dead letters."""

    def refusing(self, event: Refusing) -> None:
        """More than 5% of a table's recent events became dead letters, or no longer."""

    def inferred(self, table: str, lines: Sequence[str], events: int) -> None:
        """What was seen of every new column in so many events, and what was chosen for it."""

    def batch_done(self, event: BatchDone) -> None:
        """A batch is through."""

    def seen(self, source: str, ends: Mapping[str, int]) -> None:
        """A source has answered: so far does each of its partitions reach."""

    def reached(self, table: str, source: str, positions: Mapping[str, int]) -> None:
        """A table has read every event of a source before these positions."""

    def counted(self, event: Counted) -> None:
        """The files of a table were counted."""

    def trouble(self, source: str, text: str) -> None:
        """Something is being retried; an empty text says that it is over."""

    def delayed(self, table: str, source: str, text: str) -> None:
        """A table is retried while the others of its source go on; an empty text says that it is over."""

    def moved(self, table: str, source: str, text: str, apart: bool) -> None:
        """A table is fed `apart` from now on, by a flow of its own, or with the others again."""

    def stopped(self, what: str, text: str) -> None:
        """A source or a table has stopped for good while others go on."""

    def changed(self, table: str, text: str) -> None:
        """A table was created or its schema changed."""

    def upkept(self, event: Upkept) -> None:
        """A table was compacted, vacuumed or the like."""


class Quiet:
    """Watches without a word."""

    def starting(self) -> None:
        """Say nothing."""

    def started(self) -> None:
        """Say nothing."""

    def committed(self, event: Committed) -> None:
        """Say nothing."""

    def failed(self, table: str, source: str, text: str) -> None:
        """Say nothing."""

    def lettered(self, event: DeadLettersFound) -> None:
        """Say nothing."""

    def refusing(self, event: Refusing) -> None:
        """Say nothing."""

    def inferred(self, table: str, lines: Sequence[str], events: int) -> None:
        """Say nothing."""

    def batch_done(self, event: BatchDone) -> None:
        """Say nothing."""

    def seen(self, source: str, ends: Mapping[str, int]) -> None:
        """Say nothing."""

    def reached(self, table: str, source: str, positions: Mapping[str, int]) -> None:
        """Say nothing."""

    def counted(self, event: Counted) -> None:
        """Say nothing."""

    def trouble(self, source: str, text: str) -> None:
        """Say nothing."""

    def stopped(self, what: str, text: str) -> None:
        """Say nothing."""

    def changed(self, table: str, text: str) -> None:
        """Say nothing."""

    def upkept(self, event: Upkept) -> None:
        """Say nothing."""

    def delayed(self, table: str, source: str, text: str) -> None:
        """Say nothing."""

    def moved(self, table: str, source: str, text: str, apart: bool) -> None:
        """Say nothing."""
