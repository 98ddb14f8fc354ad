"""What a run has done, as plain values: what `Pipeline.run` returns and what callbacks are given."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from lakefeed.figures import readable_seconds
from lakefeed.text import counted


@dataclass(frozen=True)
class Commit:
    """One version of a table, with the rows of one batch of a source; `on_commit` is called with it."""

    table: str
    source: str
    version: int
    rows: int
    files: int
    bytes: int
    dead_letters: int
    """Records of the batch that the table refused, without those that were dead letters already."""
    seconds: float
    """How long the commit took."""


@dataclass(frozen=True)
class TableResult:
    """What a run did to one table."""

    name: str
    path: str
    rows: int = 0
    """Rows that were committed."""
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    """Records that the table refused in this run, by the code of the reason."""
    commits: int = 0
    first_version: int | None = None
    """The first version that the run made; None if it made none."""
    version: int | None = None
    """The newest version that the run made; None if it made none."""
    seconds: float = 0.0
    """How long its commits took, all together."""

    def __str__(self) -> str:
        """One line."""
        if self.version is None or self.first_version is None:
            versions = "no new version"
        elif self.version == self.first_version:
            versions = f"version {self.version}"
        else:
            versions = f"versions {self.first_version} to {self.version}"
        often = sorted(self.dead_letters.items(), key=lambda one: -one[1])
        why = f" ({', '.join(f'{code} {many:,}' for code, many in often)})" if often else ""
        letters = counted(sum(self.dead_letters.values()), "new dead letter")
        commits = counted(self.commits, "commit")
        took = f"{commits} in {readable_seconds(self.seconds)}" if self.commits else commits
        return f"{self.name}: {counted(self.rows, 'row')}, {versions}, {took}, {letters}{why}"


@dataclass(frozen=True, repr=False)
class RunResult:
    """What a run did: to each table by name, and how long it took."""

    pipeline: str
    tables: Mapping[str, TableResult]
    seconds: float

    @property
    def rows(self) -> int:
        """Rows that were committed, over all tables."""
        return sum(one.rows for one in self.tables.values())

    @property
    def dead_letters(self) -> dict[str, int]:
        """Records that were refused, over all tables, by the code of the reason, the most frequent first."""
        found = Counter[str]()
        for one in self.tables.values():
            found.update(one.dead_letters)
        return dict(found.most_common())

    @property
    def commits(self) -> int:
        """Versions that were made with rows or positions, over all tables."""
        return sum(one.commits for one in self.tables.values())

    def __repr__(self) -> str:
        """A line for the run, and one for each table."""
        letters = counted(sum(self.dead_letters.values()), "new dead letter")
        head = f"{self.pipeline}: {counted(self.rows, 'row')}, {letters} in {readable_seconds(self.seconds)}"
        return "\n".join([head, *(f"  {table}" for table in self.tables.values())])
