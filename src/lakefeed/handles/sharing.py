"""Tables that several pipelines feed: none may by mistake write a second copy of events that are there.

A position goes by the names of pipeline and source. Whoever changes one of them starts anew, and each event
that the table holds would come again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lakefeed.errors import TableError
from lakefeed.events import Offsets, identities
from lakefeed.handles.handle import TableHandle
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources import source_of
from lakefeed.tables.positions import feeders_of, ingest_id, marks_of


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


def refuse_ingested(
    pipeline: Pipeline, source: str, handle: TableHandle, partitions: Iterable[str], own: Offsets
) -> None:
    """Raise TableError where kafka-delta-ingest has come further than a table without an `app_id` knows.

    Its names do not tell the topic: a table with several is not refused for what one of them has passed.
    """
    assert handle.spec is not None
    if not handle.exists or handle.spec.share or handle.spec.app_id:
        return
    spec, passed = source_of(pipeline, source), dict[int, int]()
    if spec.type != "kafka":
        return
    for partition in partitions:
        number = spec.number_of(partition)
        passed[number] = max(passed.get(number, 0), own.get(partition, 0))
    for name, last in sorted(dict(handle.table.transactions).items()):
        app_id, _, digits = name.rpartition("-")
        if not app_id or "/" in name or not digits.isdecimal() or name != ingest_id(app_id, int(digits)):
            continue
        if last + 1 > passed.get(int(digits), last + 1):
            raise TableError(
                f"table {handle.name}: {handle.path} holds offsets of kafka-delta-ingest as `{app_id}`, up "
                f"to {last} of partition {digits}; without them, its events would be written a second time.\n"
                f"Set `app_id: {app_id}` on the table, to go on from there. If these are offsets of another "
                "topic, set `share: true` on it."
            )


def refuse_seek_ahead(pipeline: Pipeline, source: str, handle: TableHandle, held: Offsets) -> None:
    """Raise TableError where `start` would skip events of a table with an `app_id`.

    For a table that has positions, as kafka-delta-ingest has it: those at `start` or beyond it hold.
    """
    assert handle.spec is not None and handle.spec.app_id is not None
    spec = source_of(pipeline, source)
    start = getattr(spec, "start", None)
    behind = [
        f"{ingest_id(handle.spec.app_id, int(number))}:stored={held[partition] - 1}/seek={at - 1}"
        for stream, numbers in (start.items() if isinstance(start, dict) else ())
        for number, at in numbers.items()
        if isinstance(at, int) and held.get(partition := spec.partition_of(stream, int(number)), at) < at
    ]
    if behind:
        raise TableError(
            f"table {handle.name}: {handle.path} has not read what `start` would skip: {', '.join(behind)}.\n"
            "Remove these offsets, to go on from what the table holds; to leave events out, choose another "
            "`app_id` and another `name`."
        )


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
