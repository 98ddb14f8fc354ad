"""What a run tells about itself while it runs: events for whoever watches."""

from __future__ import annotations

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
    seconds: float
    retries: int


@dataclass(frozen=True)
class BatchDone:
    """A batch of a source has landed in all its tables."""

    source: str
    read: int
    size: int
    seconds: float
    lag: int


@dataclass(frozen=True)
class Upkept:
    """A step of upkeep is done: the files and bytes that it took away, and those in their place."""

    table: str
    operation: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    seconds: float


class Watcher(Protocol):
    """Whoever wants to know. Called from several threads; must be quick and must not raise."""

    def committed(self, event: Committed) -> None:
        """A table has a new version."""

    def batch_done(self, event: BatchDone) -> None:
        """A batch is through."""

    def lag(self, source: str, records: int) -> None:
        """So many events wait at a source."""

    def trouble(self, source: str, text: str) -> None:
        """Something is being retried; an empty text says that it is over."""

    def stopped(self, what: str, text: str) -> None:
        """A source or a table has stopped for good while others go on."""

    def changed(self, table: str, text: str) -> None:
        """A table was created or its schema changed."""

    def upkept(self, event: Upkept) -> None:
        """A step of upkeep is done."""


class Quiet:
    """Watches without a word."""

    def committed(self, event: Committed) -> None:
        """Say nothing."""

    def batch_done(self, event: BatchDone) -> None:
        """Say nothing."""

    def lag(self, source: str, records: int) -> None:
        """Say nothing."""

    def trouble(self, source: str, text: str) -> None:
        """Say nothing."""

    def stopped(self, what: str, text: str) -> None:
        """Say nothing."""

    def changed(self, table: str, text: str) -> None:
        """Say nothing."""

    def upkept(self, event: Upkept) -> None:
        """Say nothing."""
