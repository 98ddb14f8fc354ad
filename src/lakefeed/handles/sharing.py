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
from lakefeed.sources import Source, source_of
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
    for (other, fed_by), positions in other_feeders(pipeline, handle):
        known = marks_of(transactions, other, fed_by)
        for partition in sorted(positions.keys() & set(partitions)):
            if is_same_stream(spec, partition, marks, known):
                raise _second_copy(pipeline.name, spec, source, handle, (other, fed_by), partition)


def other_feeders(pipeline: Pipeline, handle: TableHandle) -> list[tuple[tuple[str, str], Offsets]]:
    """The pipelines and sources with a position in an open table that the file does not let feed it."""
    assert handle.spec is not None
    meant = {(pipeline.name, source) for source in handle.spec.from_}
    feeders = feeders_of(dict(handle.table.transactions))
    return sorted((one, positions) for one, positions in feeders.items() if one not in meant)


def is_same_stream(
    source: Source | None, partition: str, marks: Mapping[str, int], others: Mapping[str, int]
) -> bool:
    """Whether a partition has the same events under two names of a source, as far as the marks of both tell.

    Marks that only one of the two has tell nothing.
    """
    known = identities(marks)
    if source is not None and source.event_marks is not None:
        known = {name: mark for name, mark in known.items() if name in source.event_marks}
    stream, shift = (source.stream_of(partition), source.event_mark_shift) if source else (None, 0)
    names = [stream] if stream and stream in known else list(known)
    return all(others.get(name, known[name]) >> shift == known[name] >> shift for name in names)


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
    pipeline: str, spec: Source, source: str, handle: TableHandle, other: tuple[str, str], partition: str
) -> TableError:
    stream = spec.stream_of(partition)
    # Without a mark that tells, they may be other events.
    would = "may" if spec.event_marks == () else "would"
    renamed, kind = other[0] != pipeline, "pipeline" if other[0] != pipeline else "source"
    theirs, ours = (other[0], pipeline) if renamed else (other[1], source)
    events = f"events of topic '{stream}'" if stream else "events"
    back = f"set `name: {theirs}` again" if renamed else f"name it `{theirs}` again"
    return TableError(
        f"table {handle.name}: {handle.path} holds {events} that {kind} '{theirs}' has written; "
        f"{kind} '{ours}' {would} write them a second time.\n"
        f"If '{theirs}' was renamed, {back}: positions belong to the name. If both must feed the table, set "
        "`share: true` on it;\nfor a second copy of the events choose another path."
    )
