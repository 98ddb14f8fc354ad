"""The chain of one source partition in one table: the ranges that commits have read, link by link."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lakefeed.tables.verify.finding import Finding
from lakefeed.text import counted

Describe = Callable[[int], str | None]
"""An offset in words, where it is more than a number."""


@dataclass(frozen=True)
class Link:
    """How far the chain had come with one version."""

    version: int
    next: int
    read: int = 0
    letters: int = 0


@dataclass
class Chain:
    """The offsets of `partition` (named `source/partition`) that a table has read, from `first` on."""

    partition: str
    first: int
    links: list[Link] = field(default_factory=list)
    dead_lettered: tuple[int, int] | None = None
    """The last range with dead letters."""
    anew: bool = False
    """Whether offsets began anew at the source, so that the same offset stands for several events."""
    describe: Describe = lambda offset: None

    @classmethod
    def begun(cls, partition: str, version: int, at: int, describe: Describe = lambda offset: None) -> Chain:
        """A chain whose first offset is known, and which has read nothing."""
        return cls(partition, at, [Link(version, at)], describe=describe)

    def offset_words(self, at: int) -> str:
        """An offset as people read it."""
        return self.describe(at) or str(at)

    def range_words(self, start: int, end: int) -> str:
        """A range as people read it: `offsets 5 to 9`, or `the events from file 1 up to file 3`."""
        if self.describe(start) is None:
            return f"offsets {start} to {end - 1}"
        return f"the events from {self.offset_words(start)} up to {self.offset_words(end)}"

    @property
    def next(self) -> int:
        """The first offset that has not been read."""
        return self.links[-1].next

    @property
    def read(self) -> int:
        """Events read."""
        return self.links[-1].read

    @property
    def letters(self) -> int:
        """Dead letters among them."""
        return self.links[-1].letters

    def at(self, version: int) -> int | None:
        """The position at a version; None if there was none yet."""
        found = bisect_right(self.links, version, key=lambda link: link.version)
        return self.links[found - 1].next if found else None

    def read_range(
        self, version: int, span: Sequence[int], jump: Sequence[int] | None, *, shared: bool = False
    ) -> list[Finding]:
        """Add a range `[start, end, read, dead letters]`; returns what is wrong with it.

        With `shared`, there may be more events than offsets.

        `jump` are the offset that was wanted and the one from which reading went on, where the source had
        lost events: what lies between is no gap.
        """
        start, end, read, letters = span[:4]
        found = []
        expected = self.next
        if jump is not None and jump[0] == expected:
            expected = jump[1]
            self.anew |= jump[1] < jump[0]
        if start > expected:
            text = (
                f"{self.range_words(expected, start)} are missing: the next expected offset was "
                f"{self.offset_words(expected)}, the commit starts at {self.offset_words(start)}"
            )
            found.append(self._finding("gap", version, text, expected, start))
        elif start < expected:
            text = (
                f"{self.range_words(start, expected)} were read twice: the next expected offset was "
                f"{self.offset_words(expected)}"
            )
            found.append(self._finding("overlap", version, text, start, expected))
        if not 0 <= letters <= read or (read > end - start and not shared):
            text = (
                f"{self.range_words(start, end)} cannot be {counted(read, 'event')}, {letters} of them dead"
            )
            found.append(self._finding("count", version, text, start, end))
        self.links.append(Link(version, end, self.read + read, self.letters + letters))
        if letters:
            self.dead_lettered = (start, end)
        return found

    def set_position(self, version: int, at: int) -> list[Finding]:
        """Note a position that a version sets without a range; returns what is wrong with that."""
        before = self.next
        if at == before:
            return []
        self.links.append(Link(version, at, self.read, self.letters))
        what = (
            f"{self.range_words(before, at)} were never read"
            if at > before
            else f"{self.range_words(at, before)} are read again"
        )
        then, now = self.offset_words(before), self.offset_words(at)
        text = f"the position was set from {then} to {now} without reading: {what}"
        return [self._finding("reset", version, text, min(at, before), max(at, before))]

    def go_back(self, version: int, to_version: int, at: int) -> None:
        """Follow a rewind: what was read after `to_version` is no longer there."""
        kept = [link for link in self.links if link.version <= to_version]
        last = kept[-1] if kept else Link(to_version, at)
        self.links.append(Link(version, at, last.read, last.letters))
        if self.dead_lettered and self.dead_lettered[0] >= at:
            self.dead_lettered = None

    def missing_after_restore(self, version: int, to_version: int) -> list[Finding]:
        """What a restore that left the position where it was has taken away."""
        then = self.at(to_version)
        if then is None:
            then = self.first
        if then == self.next:
            return []
        text = (
            f"the table was restored to version {to_version} and the position left at "
            f"{self.offset_words(self.next)}: the rows of {self.range_words(then, self.next)} are missing"
        )
        return [self._finding("restore", version, text, then, self.next)]

    def told_loss(self, wanted: int, going_on: int) -> str:
        """What a jump over lost offsets, or back to others, was."""
        if going_on > wanted:
            return f"{self.range_words(wanted, going_on)} were gone at the source (`on_data_loss: skip`)"
        return (
            "the source started again from the beginning: the next expected offset was "
            f"{self.offset_words(wanted)}, reading continued at {self.offset_words(going_on)} "
            "(`on_data_loss: skip`, or read anew by `lakefeed snapshot`)"
        )

    def _finding(self, kind: str, version: int, text: str, start: int, end: int) -> Finding:
        return Finding(kind, f"{self.partition}: {text}", version, self.partition, start, end)
