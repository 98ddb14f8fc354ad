"""Who feeds a table, and which events two of them have both read."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import combinations

from lakefeed.events import OffsetRange
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.sharing import is_same_stream
from lakefeed.pipeline.options.changes import KEYED
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources import Source, source_of
from lakefeed.tables.positions import feeders_of, marks_of
from lakefeed.tables.verify.chain import Chain
from lakefeed.tables.verify.finding import Finding
from lakefeed.tables.verify.verify import VerifiedLog
from lakefeed.text import counted

Feeder = tuple[str, str]
"""The names of a pipeline and of its source."""


@dataclass(frozen=True)
class ReadTwice:
    """Offsets of one partition that two feeders have both read, from `start` up to and without `end`."""

    feeders: tuple[Feeder, Feeder]
    """The one that has fed the table first comes first."""
    partition: str
    start: int
    end: int
    what: str
    """The events in words."""
    before: int | None = None
    """The last version of the table before the second feeder; None where the log no longer has it."""
    is_sure: bool = True
    """False where both have read something, and whether it was the same is not known."""
    is_change: bool = False
    """Whether the events are changes of the rows of a database."""

    def __str__(self) -> str:
        """What is there twice, and by whom."""
        (pipeline, source), (other, other_source) = self.feeders
        who = (
            f"pipelines {pipeline} and {other}"
            if pipeline != other
            else f"sources {source} and {other_source} of pipeline {pipeline}"
        )
        return f"{who} both feed the table{self.what}"

    def remedy(self, pipeline: Pipeline, table: str) -> str:
        """What takes the second copy out again; empty where no version without it is left."""
        if self.before is None:
            return ""
        (owner, source), (other, _) = self.feeders
        steps = "stop the run"
        if owner != pipeline.name:
            steps += f", set `name: {owner}` again"
        elif other != owner:
            steps = f"stop pipeline '{other}' and this one"
        elif source not in pipeline.inputs:
            steps += f", name the source `{source}` again"
        return (
            f".\nTo take the second copy out, {steps}, and type: lakefeed rewind "
            f"{pipeline.file_argument} --table {table} --to-version {self.before} --yes\n"
            "If both are meant to feed the table, set `share: true` on it."
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
    meant = {(pipeline.name, source) for source in handle.spec.from_}
    pairs = combinations(sorted(feeders_of(proof.snapshot.transactions)), 2)
    found = [
        one for pair in pairs if not meant.issuperset(pair) for one in _of_pair(pipeline, meant, proof, pair)
    ]
    if handle.spec.mode not in KEYED:
        return found
    # A change of a database that comes again finds the row of its key.
    return [one for one in found if not one.is_change]


def _of_pair(
    pipeline: Pipeline, meant: set[Feeder], proof: VerifiedLog, pair: tuple[Feeder, Feeder]
) -> Iterator[ReadTwice]:
    chains = {one: _chains_of(proof, one) for one in pair}
    # The feeder that this file names is asked what its partitions are, else the marks alone tell.
    ours, theirs = pair if pair[0] in meant else pair[::-1]
    spec = source_of(pipeline, ours[1]) if ours in meant else None
    marks, others = (marks_of(proof.snapshot.transactions, *one) for one in (ours, theirs))
    for partition in sorted(chains[ours].keys() & chains[theirs].keys()):
        own, other = chains[ours][partition], chains[theirs][partition]
        first, second = sorted(pair, key=lambda one: chains[one][partition].links[0].version)
        begun = chains[second][partition].links[0].version
        before = begun - 1 if begun > proof.first else None
        read = ReadTwice(
            (first, second), partition, max(own.first, other.first), min(own.next, other.next), "", before
        )
        if spec is not None and spec.event_marks == ():
            spans = (
                OffsetRange(partition, own.first, own.next),
                OffsetRange(partition, other.first, other.next),
            )
            shared = spec.shared_with(ours, theirs, others, spans)
            if shared is None and own.read and other.read:
                yield replace(read, what="; whether from the same events cannot be told", is_sure=False)
            elif shared is not None and shared.count:
                yield replace(read, what=f" from {shared.words}")
        elif read.start < read.end and is_same_stream(spec, partition, marks, others):
            is_change = spec is not None and spec.unbounded
            yield replace(read, what=_same_offsets(spec, own, read), is_change=is_change)


def _same_offsets(spec: Source | None, chain: Chain, read: ReadTwice) -> str:
    """The events of a range of offsets that both have read, in words."""
    stream = spec.stream_of(read.partition) if spec else None
    kind = "table" if spec is not None and spec.unbounded else "topic"
    source = f"{kind} {stream}" if stream else "the same events"
    if chain.describe(read.start) is not None:
        return f" from {source}: {chain.range_words(read.start, read.end)} there twice"
    count, offsets = counted(read.end - read.start, "event"), f"offsets {read.start} to {read.end - 1}"
    return f" from {source}: {count} of partition {read.partition} there twice, {offsets}"


def _chains_of(proof: VerifiedLog, feeder: Feeder) -> dict[str, Chain]:
    head = "/".join(feeder) + "/"
    return {name.split("/")[2]: chain for name, chain in proof.chains.items() if name.startswith(head)}


def told_of_copies(
    handle: TableHandle, version: int, copies: list[ReadTwice], pipeline: Pipeline
) -> tuple[list[Finding], list[str]]:
    """The findings, or the notes where the file says that the table may be shared."""
    assert handle.spec is not None
    if handle.spec.share:
        return [], [f"{one}, as `share: true` allows" for one in copies if one.is_sure]
    sure = [one for one in copies if one.is_sure]
    # One command takes out all partitions of two feeders: it follows the last of them.
    last = {one.feeders: one for one in sure}
    findings = []
    for one in sure:
        text = f"{one}{one.remedy(pipeline, handle.name) if last[one.feeders] is one else ''}"
        findings.append(Finding("duplicate", text, version, one.partition, one.start, one.end))
    return findings, [str(one) for one in copies if not one.is_sure]
