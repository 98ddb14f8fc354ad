"""What a table has read of another, against the rows that the log of the other has for these versions."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import closing
from typing import TYPE_CHECKING

from lakefeed.errors import LakefeedError
from lakefeed.handles.handle import TableHandle
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources import source_of
from lakefeed.tables.verify.finding import Finding
from lakefeed.tables.verify.verify import VerifiedLog
from lakefeed.text import counted

if TYPE_CHECKING:
    from lakefeed.reports.verify import VerifiedPartition


def compare_with_sources(
    pipeline: Pipeline, handle: TableHandle, proof: VerifiedLog, partitions: Iterable[VerifiedPartition]
) -> tuple[list[Finding], list[str]]:
    """Findings where the numbers differ, and notes on where they were compared or could not be.

    Only a source that knows its rows to the row has something to compare. Writes offsets in words into
    the partitions.
    """
    findings: list[Finding] = []
    notes: list[str] = []
    uncounted: set[str] = set()
    for one in partitions:
        source, _, partition = one.partition.partition("/")
        known = handle.spec is not None and source in handle.spec.from_ and one.pipeline == pipeline.name
        if not known:
            continue
        spec = source_of(pipeline, source)
        one.first_place, one.next_place = spec.describe_offset(one.first), spec.describe_offset(one.next)
        if one.first_place is None or one.next <= one.first:
            continue
        try:
            with closing(spec.client(pipeline.name, source)) as client:
                found = client.rows_read({partition: one.first}, {partition: one.next})
                missed = client.rows_missed({partition: one.first}, {partition: one.next}, proof.created or 0)
        except LakefeedError:
            found = None
        where = f"{one.partition}: {one.first_place} up to {one.next_place}"
        if found is None:
            uncounted.add(source)
        elif found[partition] == one.read:
            notes.append(f"{where}: all {counted(one.read, 'row')} that {source} has there")
        elif missed[partition] and found[partition] - missed[partition] == one.read:
            gone = f"{counted(missed[partition], 'row')} of {source} had gone before the table was made"
            notes.append(f"{where}: all {counted(one.read, 'row')} that it could read; {gone}")
        else:
            text = f"{where}: {counted(one.read, 'row')} read, but {source} has {found[partition]:,} there"
            findings.append(Finding("count", text, proof.version, one.partition, one.first, one.next))
    notes += [f"{one} cannot count again what was read of it: not compared" for one in sorted(uncounted)]
    return findings, notes
