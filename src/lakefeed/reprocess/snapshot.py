"""Snapshot: tables of a Postgres source are read anew, and their rows replace those that were read before."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing

from lakefeed.errors import UsageError
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources.postgres.client import PostgresClient
from lakefeed.sources.postgres.source import PostgresSource
from lakefeed.text import did_you_mean, listed


def reading_anew(pipeline: Pipeline, source: str, streams: Sequence[str]) -> tuple[Pipeline, list[str]]:
    """The pipeline whose next run reads these tables anew, all where none is named; and which they are."""
    spec = pipeline.sources.get(source)
    if not isinstance(spec, PostgresSource):
        known = [name for name, one in pipeline.sources.items() if isinstance(one, PostgresSource)]
        near = did_you_mean(source, known)
        raise UsageError(
            f"there is no Postgres source '{source}' in the file; there are {listed(known)}{near}"
        )
    if spec.snapshot == "never":
        raise UsageError(f"source {source} has `snapshot: never`; --set sources.{source}.snapshot=initial")
    with closing(PostgresClient(spec, pipeline.name, source)) as client:
        there, now = client.streams(), client.now()
    wanted = list(streams) or there
    for one in wanted:
        if one not in there:
            raise UsageError(f"source {source} has no table '{one}'{did_you_mean(one, there)}")
    again = spec.reading_anew(wanted, now)
    return pipeline.model_copy(update={"sources": {**pipeline.sources, source: again}}), wanted
