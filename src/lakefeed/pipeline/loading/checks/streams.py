"""Whether the streams that a table takes are streams of its sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from lakefeed.text import listed, suggestion

if TYPE_CHECKING:
    from lakefeed.pipeline.loading.outline import TableOutline
    from lakefeed.pipeline.secrets import Path

KnownStreams = Mapping[str, tuple[str, ...] | None]
"""The streams of each source of a table; None where only the source itself knows them."""


def stream_problems(table: TableOutline, sources: KnownStreams) -> Iterator[tuple[Path, str]]:
    """Names and patterns that no stream has, and sources that the table takes nothing of."""
    given = [key for key in ("streams", "exclude") if getattr(table, key)]
    if not given:
        return
    known = [stream for streams in sources.values() for stream in streams or ()]
    clear = None not in sources.values()
    bare = [source for source, streams in sources.items() if streams == ()]
    for source in bare:
        for key in given:
            yield (key,), f"source '{source}' has no streams; leave `{key}` out"
    if bare or not clear:
        return
    lost = False
    for key in given:
        for at, one in enumerate(getattr(table, key)):
            if not any(fnmatchcase(stream, one) for stream in known):
                lost = True
                owner = (
                    f"source '{next(iter(sources))}'" if len(sources) == 1 else f"sources {listed(sources)}"
                )
                yield (key, at), f"no stream of {owner} is called '{one}'{suggestion(one, known)}"
    for source, streams in sources.items():
        if not lost and not any(table.takes(stream) for stream in streams or ()):
            message = f"takes nothing of source '{source}', whose streams are {listed(streams or ())}"
            yield (given[0],), f"{message}; add one, or remove the source from `from`"
