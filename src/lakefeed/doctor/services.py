"""What a pipeline talks to: the Spark master, its own port, and its sources with their formats."""

from __future__ import annotations

import datetime as dt
import re
import socket
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from lakefeed.doctor.check_result import CheckResult
from lakefeed.engine.batch.plan import format_of, spans
from lakefeed.engine.spark.machines import refuse_unshared_disks
from lakefeed.engine.start_positions import lost_positions
from lakefeed.errors import DataLoss, LakefeedError, StreamsLost, TableError
from lakefeed.events import OffsetRange, Offsets
from lakefeed.formats import Format
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.connectors import Connector
from lakefeed.pipeline.http import port_state
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.table import Table
from lakefeed.sources import Allowance, Source, SourceClient, source_of
from lakefeed.sources.subscription import unfit_streams
from lakefeed.text import counted, without_name

_TIMEOUT = 5.0
_MOST_PARTITIONS = 5
_TOLERATED = dt.timedelta(minutes=1)


def examine(pipeline: Pipeline) -> Iterator[CheckResult]:
    """Everything that a pipeline connects to, except for the stores."""
    master = re.fullmatch(r"spark://([^:/]+):(\d+).*", pipeline.spark.master)
    if master:
        yield spark_master(master[1], int(master[2]))
    try:
        refuse_unshared_disks(pipeline, pipeline.spark.master)
    except LakefeedError as error:
        yield CheckResult.of("Spark master", error)
    if pipeline.http:
        yield port(pipeline.http.listen)
    for name in pipeline.inputs:
        fed = {
            table: (spec, [pipeline.inputs[one] for one in spec.from_])
            for table, spec in pipeline.tables_of(name).items()
        }
        found = list(source(pipeline.name, name, source_of(pipeline, name), fed))
        yield from found
        if not any(one.state == "fail" for one in found):
            yield from _lost(pipeline, name)


def spark_master(host: str, number: int) -> CheckResult:
    """Whether a standalone master takes connections."""
    try:
        socket.create_connection((host, number), _TIMEOUT).close()
    except OSError as error:
        text = f"{host}:{number} does not answer: {error.strerror or error}"
        return CheckResult("Spark master", "fail", text, "Start it, or correct `spark.master`")
    return CheckResult("Spark master", "ok", f"{host}:{number} answers")


def port(listen: str) -> CheckResult:
    """Whether the port of the status page is free, or taken by a run of Lakefeed."""
    free, text = port_state(listen, "/healthz", lambda answer: answer.status == 200)
    remedy = "" if free else "Set `http.listen` to a free port of this machine"
    return CheckResult("port", "ok" if free else "fail", text, remedy)


def source(
    pipeline: str,
    name: str,
    spec: Source,
    tables: Mapping[str, tuple[Table, Sequence[Connector]]] | None = None,
) -> Iterator[CheckResult]:
    """Whether a source answers, has what the file names, and lets its events be read.

    `tables` are those of the file that it feeds, with all that feeds them.
    """
    check = f"source {name}"
    is_told = False
    try:
        client = spec.client(pipeline, name)
        try:
            for one in client.findings():
                is_told |= one.state == "fail"
                if one.state == "skip":
                    yield _skips(check, one.stream or "", one.text, one.remedy)
                else:
                    yield CheckResult(check, one.state, one.text, one.remedy)
            yield from _keys(client, tables or {})
            ends = client.latest()
            read = _newest(spec, client, ends)
        finally:
            client.close()
    except LakefeedError as error:
        # A source that lacks something fails at it once more when it is read.
        if not is_told:
            yield CheckResult.of(check, error)
    else:
        if not is_told:
            events = "nothing to read yet" if read is None else "an event was read"
            yield CheckResult(check, "ok", f"{counted(len(ends), 'partition')}, {events}")
        if read is not None:
            yield from _future(check, read)
    yield from _format(name, spec)


def _keys(
    client: SourceClient, tables: Mapping[str, tuple[Table, Sequence[Connector]]]
) -> Iterator[CheckResult]:
    for name, (table, sources) in tables.items():
        try:
            unfit = unfit_streams(client, sources, name, table)
        except TableError as error:
            yield CheckResult.of(f"table {name}", error)
            continue
        for stream, problem in unfit.items():
            text, _, remedy = problem.partition("\n")
            yield _skips(f"table {name}", stream, text, remedy)


def _skips(check: str, stream: str, text: str, remedy: str) -> CheckResult:
    return CheckResult(check, "warn", f"skips {stream}: {without_name(stream, text)}", remedy)


def _lost(pipeline: Pipeline, source: str) -> Iterator[CheckResult]:
    """What tables cannot read on with, of a source that answers."""
    try:
        for name, error in lost_positions(Tables(pipeline), source):
            texts = error.streams.values() if isinstance(error, StreamsLost) else [str(error)]
            for text in texts:
                yield CheckResult.of(f"table {name}", DataLoss(text))
    except LakefeedError as error:
        yield CheckResult.of(f"source {source}", error)


def _newest(spec: Source, client: SourceClient, ends: Offsets) -> pa.RecordBatch | None:
    """Where the last event of a partition came from. To read one needs another right than to ask for ends."""
    if any(spec.describe_offset(end) is not None for end in ends.values()):
        return _first(spec, client, ends)
    filled = [(partition, end) for partition, end in ends.items() if end]
    # Retention may have emptied some of them; to ask about thousands would take long.
    for partition, end in filled[:_MOST_PARTITIONS]:
        try:
            if client.check({partition: end - 1}, {})[partition] == end - 1:
                for events in spec.read([OffsetRange(partition, end - 1, end)]):
                    return events.origin()
        except DataLoss:
            continue
    return None


def _first(spec: Source, client: SourceClient, ends: Offsets) -> pa.RecordBatch | None:
    """Where the first event came from, of a source that counts nothing back from its end."""
    start = client.start()
    if any(client.rows_between(start, ends).values()):
        end = client.next_end(start, ends, Allowance(1, 2**62))
        for split in client.splits(spans(start, end), 1):
            for events in spec.read(split):
                if len(events):
                    return events.origin()
    return None


def _future(check: str, origin: pa.RecordBatch) -> Iterator[CheckResult]:
    """An event that has not happened yet shows that a clock is wrong: the producer's, or this one."""
    now = dt.datetime.now(dt.UTC)
    moment = origin.column("timestamp").cast(pa.int64())[0].as_py()
    ahead = dt.timedelta(microseconds=(moment or 0) - int(now.timestamp() * 1_000_000))
    if ahead > _TOLERATED:
        text = f"the newest event is {ahead.total_seconds():,.0f} s in the future"
        yield CheckResult(check, "warn", text, "Set the clock of this machine, or of the producer, by NTP")


def _format(name: str, spec: Source) -> Iterator[CheckResult]:
    formats = {"format": format_of(spec)}
    if isinstance(spec.key_format, Format):
        formats["key"] = spec.key_format
    for option, format in formats.items():
        check = f"{option} of {name}"
        try:
            text = format.probe()
        except LakefeedError as error:
            yield CheckResult.of(check, error)
        else:
            if text:
                yield CheckResult(check, "ok", text)
