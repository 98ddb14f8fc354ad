"""Whether sources still have every event that a table was made of, as a rebuild needs them."""

from __future__ import annotations

from contextlib import closing

from lakefeed.errors import DataLoss
from lakefeed.events import Offsets, identities
from lakefeed.handles.anew import gives_once
from lakefeed.handles.handle import TableHandle
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources import PARTITION, Source, SourceClient, source_of
from lakefeed.sources.delta.offset import DeltaOffset
from lakefeed.sources.subscription import taken
from lakefeed.tables.log.log import Log
from lakefeed.tables.positions import marks_of, positions_of
from lakefeed.tables.table import LakeTable
from lakefeed.tables.verify.verify import VerifiedLog, verify_log
from lakefeed.text import counted

_INSTEAD = {"postgres": "use `lakefeed snapshot`, which reads the tables of the database anew"}


def strict(source: Source) -> Source:
    """The source, as one that stops where events are lost, whatever its file says."""
    lenient = {"on_data_loss": "skip", "on_change": "ignore"}
    update = {name: "fail" for name, value in lenient.items() if getattr(source, name, "fail") == value}
    return source.model_copy(update=update) if update else source


def refuse_unreadable_again(pipeline: Pipeline, handle: TableHandle, table: LakeTable) -> None:
    """Raise DataLoss, which says what is missing, where a source no longer has events of a table."""
    log = Log.open(handle.store)
    assert log is not None and handle.spec is not None
    verified = verify_log(log)
    for name in handle.spec.from_:
        source = strict(source_of(pipeline, name))
        _refuse_kind(name, source)
        if held := taken(source, handle.spec, positions_of(table.transactions, pipeline.name, name)):
            with closing(source.client(pipeline.name, name)) as client:
                what = _missing(pipeline, name, source, client, table, (held, verified))
            if what:
                raise _lost(handle, name, what)


def _refuse_kind(name: str, source: Source) -> None:
    if why := gives_once(source):
        instead = _INSTEAD.get(source.type, "to make the table of other events, drop it and run the pipeline")
        raise DataLoss(
            f"source {name}: {why}, so the table cannot be rebuilt from it; nothing was changed.\n"
            f"{instead[0].upper()}{instead[1:]}."
        )


def _missing(
    pipeline: Pipeline,
    name: str,
    source: Source,
    client: SourceClient,
    at: LakeTable,
    known: tuple[Offsets, VerifiedLog],
) -> str:
    """What of the events between the beginning of a table and its position is gone; empty if nothing."""
    table, (held, verified) = at, known
    marks = marks_of(table.transactions, pipeline.name, name)
    now = identities(client.marks())
    anew = [one for one, mark in now.items() if marks.get(one, mark) != mark]
    if anew:
        return f"{anew[0]} was deleted and created again since the table was made"
    first = {
        partition: chain.first
        for partition in held
        if (chain := verified.chains.get(f"{pipeline.name}/{name}/{partition}"))
    }
    start = client.start()
    if source.reads_table():
        # Without the first entries of its log, the table may have begun with any version.
        begun = first.get(PARTITION, 0) if verified.first == 0 else 0
        skips = DeltaOffset.of(start[PARTITION]).past and start[PARTITION] > begun
        if skips or client.reread(start, [begun]) == "some":
            what = "its `start` leaves rows out" if skips else "rows were deleted or changed"
            return f"{what}, or the log of {source.reads_table()} is too short to tell"
        return ""
    for partition in held:
        begun = first.get(partition, 0) if verified.first == 0 else 0
        if partition not in start:
            return f"{partition} does not exist any more"
        # The numbers of files begin with one, and not with zero.
        all_files = source.type == "files" and verified.first and getattr(source, "start", None) == "all"
        if start[partition] > begun and not all_files:
            word = source.describe_offset(start[partition]) or f"offset {start[partition]}"
            return f"{partition} begins at {word}, and the table has read it from {_words(source, begun)}"
    if verified.first == 0:
        try:
            client.check(first, marks)
        except DataLoss as error:
            return str(error).splitlines()[0].removesuffix(".")
    begun_at = {partition: start[partition] for partition in held}
    waiting = client.outstanding(begun_at, held)
    if waiting is not None and waiting.gone:
        return f"{counted(waiting.gone, 'file')} that it has read {'is' if waiting.gone == 1 else 'are'} gone"
    if unread := client.unread_again(begun_at, held):
        return f"{counted(unread, 'file')} that it has read {'is' if unread == 1 else 'are'} another by now"
    return client.lost_between(begun_at, held) or ""


def _words(source: Source, at: int) -> str:
    return source.describe_offset(at) or f"offset {at}"


def _lost(handle: TableHandle, name: str, what: str) -> DataLoss:
    return DataLoss(
        f"table {handle.name}: source {name} no longer has all events it was made of: {what}; nothing "
        "was changed.\nTo make the table of the events that are left: "
        f"lakefeed table drop {handle.path} --yes, then run the pipeline."
    )
