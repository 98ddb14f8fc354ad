"""Tables that several pipelines feed: none may by mistake write a second copy of events that are there.

A position goes by the names of pipeline and source. Whoever changes one of them starts anew, and each event
that the table holds would come again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakefeed.errors import TableError
from lakefeed.events import identities
from lakefeed.handles.handle import TableHandle
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources import source_of
from lakefeed.tables.positions import feeders_of, marks_of


def refuse_second_copy(
    pipeline: Pipeline, source: str, handle: TableHandle, partitions: Iterable[str], marks: Mapping[str, int]
) -> None:
    """Raise TableError where a table holds events of these partitions that others have written.

    For a table that has no position of the source yet. Marks tell topics apart that only share a name.
    """
    assert handle.spec is not None
    if not handle.exists or handle.spec.share:
        return
    transactions, spec = dict(handle.table.transactions), source_of(pipeline, source)
    marks = identities(marks)
    for (other, fed_by), positions in sorted(feeders_of(transactions).items()):
        if other == pipeline.name and fed_by in handle.spec.from_:
            continue
        known = identities(marks_of(transactions, other, fed_by))
        for partition in sorted(positions.keys() & set(partitions)):
            stream = spec.stream_of(partition)
            names = [stream] if stream and stream in marks else list(marks)
            if all(known.get(name, marks[name]) == marks[name] for name in names):
                raise _second_copy(pipeline.name, source, handle, (other, fed_by), stream)


def _second_copy(
    pipeline: str, source: str, handle: TableHandle, other: tuple[str, str], stream: str | None
) -> TableError:
    renamed, kind = other[0] != pipeline, "pipeline" if other[0] != pipeline else "source"
    theirs, ours = (other[0], pipeline) if renamed else (other[1], source)
    events = f"events of topic '{stream}'" if stream else "events"
    back = f"set `name: {theirs}` again" if renamed else f"name it `{theirs}` again"
    return TableError(
        f"table {handle.name}: {handle.path} holds {events} that {kind} '{theirs}' has written; "
        f"{kind} '{ours}' would write them a second time.\n"
        f"If '{theirs}' was renamed, {back}: positions belong to the name. If both must feed the table, set "
        "`share: true` on it;\nfor a second copy of the events choose another path."
    )
