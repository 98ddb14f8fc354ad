"""The stores of a pipeline's tables, tested with a table of our own that is deleted again."""

from __future__ import annotations

import datetime as dt
import shutil
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefeed.doctor.check_result import CheckResult
from lakefeed.doctor.machine import LEAST_SPACE, nearest_directory
from lakefeed.errors import LakefeedError
from lakefeed.figures import readable_size
from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.stores import UNSAFE, forget_commits, is_unsafe, open_store, store_errors
from lakefeed.tables.detail.spark_writers import spark_beside
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change

_COLUMNS = pa.schema([("probe", pa.int64())])
_TIMEOUT = {"retry_timeout": "5s"}
"""The doctor reports soon that a store is away; a run waits longer."""
_RACES = 3
_RETRIES = 3
_TOLERATED_SKEW = 60.0


def examine(pipeline: Pipeline) -> Iterator[CheckResult]:
    """Every table's store, then the table itself if there is one."""
    try:
        tables = Tables(pipeline)
    except LakefeedError as error:
        yield CheckResult.of("stores", error)
        return
    for handle in (*tables.handles.values(), *tables.routes.values(), tables.dead_letters):
        check = "dead letters" if handle is tables.dead_letters else f"table {handle.name}"
        found = list(store(check, handle.path, handle.storage))
        yield from found
        if not any(each.state == "fail" for each in found):
            yield from protocol(check, handle)


def store(check: str, path: str, storage: Mapping[str, str]) -> Iterator[CheckResult]:
    """Write, read, let two commits race, and delete, all inside the path of the table."""
    # Names that begin with an underscore are no data of the table, whoever reads it.
    probe = f"{path.rstrip('/')}/_lakefeed_probe_{uuid4().hex}"
    options = storage if "://" not in path else {**_TIMEOUT, **storage}
    try:
        with _removed(path, probe, options), store_errors(path):
            skew = _write_and_read(probe, options)
            apart = is_unsafe(path, storage) or _keeps_commits_apart(probe, options)
    except LakefeedError as error:
        yield CheckResult.of(check, type(error)(str(error).replace(probe, path)))
        return
    if not apart:
        text = (
            f"{path}: the store accepts two commits of the same version, so two writers could overwrite "
            f"each other"
        )
        yield CheckResult(check, "fail", text, "Use a store that supports conditional writes (If-None-Match)")
    else:
        yield CheckResult(check, "ok", f"{path} can be written, read, committed to and deleted from")
    if is_unsafe(path, storage):
        yield CheckResult(check, "warn", f"{path}: {UNSAFE}", "Use a store with conditional writes")
    if abs(skew) > _TOLERATED_SKEW:
        order = "ahead of" if skew > 0 else "behind"
        text = f"the clock of the store is {abs(skew):,.0f} s {order} this machine's"
        yield CheckResult(
            check,
            "warn",
            text,
            "Set the clock of this machine by NTP: S3 refuses requests when the clocks differ too much",
        )
    yield from _room(check, path)


def protocol(check: str, handle: TableHandle) -> Iterator[CheckResult]:
    """Whether the table is one that Lakefeed may write to."""
    try:
        table = LakeTable.open(handle.name, handle.path, handle.storage, handle.store)
    except LakefeedError as error:
        yield CheckResult.of(check, error)
        return
    if table is None:
        if handle.spec is not None and not handle.spec.create:
            text = f"there is no Delta table at {handle.path} and `create` is false"
            yield CheckResult(check, "fail", text, "Create the table, correct `path`, or set `create: true`")
        return
    asked = table.delta.protocol()
    text = f"version {table.version}, protocol {asked.min_reader_version}/{asked.min_writer_version}"
    yield CheckResult(check, "ok", text)
    if (spark := spark_beside(table)) is not None:
        what, _, remedy = spark.partition(": ")
        yield CheckResult(check, "warn", f"{handle.path}: {what}", remedy[0].upper() + remedy[1:])


@contextmanager
def _removed(path: str, probe: str, storage: Mapping[str, str]) -> Iterator[None]:
    """Delete everything that lies under the probe at the end, and the directories that it brought."""
    local = None if "://" in path else Path(path)
    missing = [each for each in (local, *local.parents) if not each.exists()] if local else []
    try:
        yield
    finally:
        if local is None:
            objects = open_store(probe, storage)
            _delete_objects(objects)
            with suppress(LakefeedError):
                forget_commits(objects)
        else:
            shutil.rmtree(probe, ignore_errors=True)
            for each in missing:
                # Not if somebody has put something else there meanwhile.
                with suppress(OSError):
                    each.rmdir()


def _delete_objects(objects: pafs.FileSystem) -> None:
    """Delete what is there; a store that cannot be written has nothing of ours."""
    with suppress(Exception):
        for found in objects.get_file_info(pafs.FileSelector("", recursive=True, allow_not_found=True)):
            if found.type == pafs.FileType.File:
                objects.delete_file(found.path)


def _write_and_read(probe: str, storage: Mapping[str, str]) -> float:
    """Write a data file as a task does and read it; returns the seconds that the store's clock is ahead."""
    files = open_store(probe, storage)
    began = time.time()
    writer = TableWriter(files, FileTarget(_COLUMNS))
    writer.write(pa.record_batch([pa.array([1])], schema=_COLUMNS))
    (written,) = writer.close()
    ended = time.time()
    assert pq.ParquetFile(files.open_input_file(written.path)).read().num_rows == 1
    modified: dt.datetime = files.get_file_info(written.path).mtime
    files.delete_file(written.path)
    # Object stores give whole seconds.
    moment = modified.timestamp()
    return moment - ended if moment > ended else min(0.0, moment + 1 - began)


def _keeps_commits_apart(probe: str, storage: Mapping[str, str]) -> bool:
    """Whether two commits at the same moment become two versions.

    Without conditional writes the later commit overwrites the earlier one, and neither fails. A writer looks
    for new versions before it commits, so only a race shows this.
    """
    objects = open_store(probe, storage)
    LakeTable.create(
        "probe",
        probe,
        storage,
        objects,
        schema=_COLUMNS,
        partition_by=(),
        properties={},
        transactions={},
        commit_info={},
    )
    for _ in range(_RACES):
        racers = [_opened(probe, storage) for _ in range(2)]
        before = racers[0].version
        start = threading.Barrier(len(racers))
        with ThreadPoolExecutor(len(racers)) as pool:
            list(pool.map(_commit, racers, ("probe/one", "probe/other"), [start] * len(racers)))
        if _opened(probe, storage).version != before + len(racers):
            return False
    return True


def _opened(probe: str, storage: Mapping[str, str]) -> LakeTable:
    table = LakeTable.open("probe", probe, storage, open_store(probe, storage))
    assert table is not None
    return table


def _commit(table: LakeTable, name: str, start: threading.Barrier) -> None:
    start.wait()
    append(table, Change((), {name: 1}, {}, {"kind": "probe"}), retries=_RETRIES)


def _room(check: str, path: str) -> Iterator[CheckResult]:
    if "://" in path:
        return
    free = shutil.disk_usage(nearest_directory(Path(path))).free
    if free < LEAST_SPACE:
        yield CheckResult(
            check, "warn", f"{readable_size(free)} free on the disk of {path}", "Free some space"
        )
