"""Asks all sources of a pipeline at once, and only for some seconds, for commands that change nothing."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field

from lakefeed.errors import LakefeedError
from lakefeed.events import Offsets
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources import SourceClient, source_of

PATIENCE = 4.0
"""Seconds that a source has for each answer; a run is more patient."""
_MOST_AT_ONCE = 32


@dataclass
class Asked:
    """The sources that answer, where they end, and why the others do not."""

    clients: dict[str, SourceClient] = field(default_factory=dict)
    ends: dict[str, Offsets] = field(default_factory=dict)
    troubles: dict[str, str | None] = field(default_factory=dict)
    """None where the source answers, else what it is, beginning with its name."""


@contextmanager
def asking(pipeline: Pipeline) -> Iterator[Asked]:
    """Ask every source for its ends; clients stay open as long as the block lasts."""
    asked = Asked()
    names = list(pipeline.inputs)
    with ExitStack() as opened:
        with ThreadPoolExecutor(min(len(names), _MOST_AT_ONCE)) as pool:
            answers = pool.map(lambda name: _ask(pipeline, name), names)
            for name, answer in zip(names, answers, strict=True):
                if isinstance(answer, LakefeedError):
                    asked.troubles[name] = named(name, str(answer))
                    continue
                asked.clients[name], asked.ends[name] = answer
                asked.troubles[name] = None
                opened.enter_context(closing(answer[0]))
        yield asked


def named(source: str, text: str) -> str:
    """A trouble that begins with the name of its source, once."""
    head = f"source {source}: "
    return text if text.startswith(head) else f"{head}{text}"


def _ask(pipeline: Pipeline, name: str) -> tuple[SourceClient, Offsets] | LakefeedError:
    try:
        client = source_of(pipeline, name).client(pipeline.name, name)
    except LakefeedError as error:
        return error
    client.patience = PATIENCE
    fed = pipeline.tables_of(name).values()
    client.takes = lambda stream: any(table.takes(stream) for table in fed)  # type: ignore[method-assign]
    try:
        return client, client.latest()
    except LakefeedError as error:
        client.close()
        return error
