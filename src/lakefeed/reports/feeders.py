"""Who feeds a table, and which events two of them have both read."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

from lakefeed.events import identities
from lakefeed.handles.handle import TableHandle
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources import source_of
from lakefeed.tables.positions import feeders_of, marks_of
from lakefeed.tables.verify.finding import Finding
from lakefeed.tables.verify.verify import VerifiedLog
from lakefeed.text import counted

Feeder = tuple[str, str]
"""The names of a pipeline and of its source."""


@dataclass(frozen=True)
class ReadTwice:
    """Offsets of one partition that two feeders have both read, from `start` up to and without `end`."""

    feeders: tuple[Feeder, Feeder]
    partition: str
    start: int
    end: int
    topic: str | None

    def __str__(self) -> str:
        """What is there twice, and by whom."""
        (pipeline, source), (other, other_source) = self.feeders
        who = (
            f"pipelines {pipeline} and {other}"
            if pipeline != other
            else f"sources {source} and {other_source} of pipeline {pipeline}"
        )
        what = f"topic {self.topic}" if self.topic else "the same events"
        return (
            f"{who} both feed the table from {what}: {counted(self.end - self.start, 'event')} of partition "
            f"{self.partition} there twice, offsets {self.start} to {self.end - 1}"
        )


def pipelines_of(proof: VerifiedLog) -> list[str]:
    """The names of all pipelines that have positions in a table."""
    return sorted({pipeline for pipeline, _ in feeders_of(proof.snapshot.transactions)})


def copied(pipeline: Pipeline, handle: TableHandle, proof: VerifiedLog) -> list[ReadTwice]:
    """What two pipelines have both read, or a source under its old and its new name.

    Two sources that the file itself lets feed the table are meant to. Topics that only share their name have
    other marks.
    """
    if handle.spec is None:
        return []
    transactions = proof.snapshot.transactions
    meant = {(pipeline.name, source) for source in handle.spec.from_}
    found = []
    for pair in combinations(sorted(feeders_of(transactions)), 2):
        if meant.issuperset(pair):
            continue
        ours = next((source for name, source in pair if (name, source) in meant), None)
        marks, others = (identities(marks_of(transactions, *feeder)) for feeder in pair)
        chains = [
            {
                name.split("/")[2]: chain
                for name, chain in proof.chains.items()
                if name.startswith("/".join(one) + "/")
            }
            for one in pair
        ]
        for partition in sorted(chains[0].keys() & chains[1].keys()):
            topic = source_of(pipeline, ours).stream_of(partition) if ours else None
            names = [topic] if topic and topic in marks else list(marks)
            start = max(each[partition].first for each in chains)
            end = min(each[partition].next for each in chains)
            if start < end and all(others.get(name, marks[name]) == marks[name] for name in names):
                found.append(ReadTwice(pair, partition, start, end, topic))
    return found


def told_of_copies(
    handle: TableHandle, version: int, copies: list[ReadTwice]
) -> tuple[list[Finding], list[str]]:
    """The findings, or the notes where the file says that the table may be shared."""
    assert handle.spec is not None
    if handle.spec.share:
        return [], [f"{one}, as `share: true` allows" for one in copies]
    return [Finding("duplicate", str(one), version, one.partition, one.start, one.end) for one in copies], []
