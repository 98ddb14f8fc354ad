"""What a new snapshot would become: some of its rows, sent through the pipeline without writing anything."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from lakefeed.events import OffsetRange
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reports.plan.plan import plan_run
from lakefeed.sources import source_of


def refused_lines(pipeline: Pipeline, source: str, streams: Collection[str]) -> Iterator[str]:
    """For each table that takes one of the streams: how many sampled rows would not be rows of it.

    The source of `pipeline` is one that reads these streams again.
    """
    spec = source_of(pipeline, source)
    for table in plan_run(pipeline).tables:
        resumed = table.resumes.get(source, {})
        read = [name for name in resumed if spec.stream_of(name) in streams]
        # Each stream that is read again begins with a truncation.
        spans = [OffsetRange(name, resumed[name].next, resumed[name].end) for name in read]
        sampled = table.sampled - sum(map(spec.replaces_rows, spans))
        if table.refused:
            yield f"  {table.name}: would stop: {table.refused}"
        elif read and sampled > 0:
            reasons = ", ".join(sorted(table.sampled_dead_letters))
            refused = sum(table.sampled_dead_letters.values())
            why = f" ({reasons})" if reasons else ""
            share = f"{refused:,} of {sampled:,} sampled rows"
            left_out = f", and {table.sampled_filtered:,} would be left out" if table.sampled_filtered else ""
            yield f"  {table.name}: {share} would become dead letters{why}{left_out}"
