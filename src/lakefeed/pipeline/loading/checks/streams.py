"""Whether the streams that a table takes are streams of its sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING

from lakefeed.text import listed, suggestion

if TYPE_CHECKING:
    from lakefeed.pipeline.secrets import Path

KnownStreams = Mapping[str, tuple[str, ...] | None]
"""The streams of each source of a table; None where only the source itself knows them."""


def stream_problems(wanted: tuple[str, ...], sources: KnownStreams) -> Iterator[tuple[Path, str]]:
    """Names and patterns that no stream has, and sources that the table takes nothing of."""
    if not wanted:
        return
    known = [stream for streams in sources.values() for stream in streams or ()]
    clear = None not in sources.values()
    bare = [source for source, streams in sources.items() if streams == ()]
    for source in bare:
        yield ("streams",), f"source '{source}' has no streams; leave `streams` out"
    if bare or not clear:
        return
    lost = [at for at, one in enumerate(wanted) if not any(fnmatchcase(stream, one) for stream in known)]
    for at in lost:
        owner = f"source '{next(iter(sources))}'" if len(sources) == 1 else f"sources {listed(sources)}"
        yield ("streams", at), f"no stream of {owner} is called '{wanted[at]}'{suggestion(wanted[at], known)}"
    for source, streams in sources.items():
        if not lost and not any(fnmatchcase(stream, one) for stream in streams or () for one in wanted):
            message = f"takes nothing of source '{source}', whose streams are {listed(streams or ())}"
            yield ("streams",), f"{message}; add one, or remove the source from `from`"
