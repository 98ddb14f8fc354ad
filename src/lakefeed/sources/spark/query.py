"""Spark's query of a source: reads batch after batch into the spool, beside the flows that feed tables.

There is one for each source and process, whatever number of flows read what it brings.
"""

from __future__ import annotations

import importlib.util
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.errors import SourceError, SourceUnavailable
from lakefeed.sources.spark.spool import Spool
from lakefeed.text import in_backticks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

    from lakefeed.sources.spark.source import SparkSource

_SETTINGS = {
    "spark.sql.session.timeZone": "UTC",
    # Timestamps of the older kind do not say that they are in UTC.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.parquet.compression.codec": "zstd",
    "mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
}
_LOOK = 0.05
_STOP_WITHIN = 10.0

_lock = threading.Lock()
_queries: dict[Path, SourceQuery] = {}
_sessions: dict[Path, SparkSession] = {}
"""Of the runs in this process, by the spools that they fill."""


@contextmanager
def filling(spools: Iterable[Path], session: SparkSession) -> Iterator[None]:
    """Let this session read into these spools meanwhile: a run does, and nobody who only looks."""
    folders = list(spools)
    with _lock:
        _sessions.update(dict.fromkeys(folders, session))
    try:
        yield
    finally:
        with _lock:
            for folder in folders:
                _sessions.pop(folder, None)


def query_of(source: SparkSource, whose: str, spool: Spool) -> SourceQuery | None:
    """The query of a source, not started yet; None where no run in this process fills its spool.

    Whoever takes it gives it back with `release`.
    """
    with _lock:
        session = _sessions.get(spool.folder)
        if session is None:
            return None
        found = _queries.get(spool.folder)
        if found is None:
            found = _queries[spool.folder] = SourceQuery(source, whose, spool, session)
        found.users += 1
        return found


class SourceQuery:
    """Reads one source into its spool."""

    def __init__(self, source: SparkSource, whose: str, spool: Spool, session: SparkSession) -> None:
        self.users = 0
        self._source, self._whose, self._session = source, whose, session
        self._spool = Spool(spool.folder)
        self._query: StreamingQuery | None = None
        self._stopping = threading.Event()
        self._starting = threading.Lock()
        self._draining = False
        self._taken = 0
        """The first batch that some table has not taken."""

    def follow(self) -> None:
        """Let Spark read on, now and later. Raises SourceUnavailable where it has stopped with an error."""
        self._start({"processingTime": f"{max(1, round(self._source.trigger * 1000))} milliseconds"})
        self._raise_failure()

    def drain(self) -> None:
        """Let Spark read what is there now, and wait until it has."""
        # Nobody takes batches before it has ended.
        self._draining = True
        query = self._start({"availableNow": True})
        while query.isActive and not self._stopping.wait(_LOOK):
            pass
        self._raise_failure()

    def taken(self, number: int) -> None:
        """Every table has the batches before this one."""
        self._taken = max(self._taken, number)

    def release(self) -> None:
        """Stop with the last who uses it."""
        with _lock:
            self.users -= 1
            if self.users:
                return
        self._leave()
        self._stopping.set()
        query = self._query
        if query is None:
            return
        with suppress(Exception):
            # Stopped in the middle of a batch, Spark would interrupt the thread that writes it.
            until = time.monotonic() + _STOP_WITHIN
            while query.isActive and query.status["isTriggerActive"] and time.monotonic() < until:
                time.sleep(_LOOK)
            query.stop()

    def _leave(self) -> None:
        """Whoever comes next begins a new one."""
        with _lock:
            if _queries.get(self._spool.folder) is self:
                del _queries[self._spool.folder]

    def _start(self, trigger: dict[str, Any]) -> StreamingQuery:
        with self._starting:
            if self._query is None:
                self._spool.look()
                frame = self._frame(self._new_session())
                writer = frame.writeStream.foreachBatch(self._keep).trigger(**trigger)
                self._query = writer.option("checkpointLocation", str(self._spool.checkpoint)).start()
            return self._query

    def _new_session(self) -> SparkSession:
        """A session in the same JVM whose settings nobody else sees."""
        session = self._session.newSession()
        for key, value in _SETTINGS.items():
            session.conf.set(key, value)
        if self._source.python:
            for data_source in _data_sources(Path(self._source.python)):
                session.dataSource.register(data_source)
        return session

    def _frame(self, session: SparkSession) -> DataFrame:
        reader = session.readStream.format(self._source.format).options(**self._source.options)
        try:
            frame = (reader.schema(self._source.columns) if self._source.columns else reader).load()
        except Exception as error:
            raise SourceError(f"{self._whose}: Spark cannot read it: {_first_line(error)}") from error
        return self._with_texts(frame)

    def _with_texts(self, frame: DataFrame) -> DataFrame:
        """Variants as their JSON, as no other reader of Parquet knows them."""
        from pyspark.sql import functions
        from pyspark.sql.types import VariantType

        columns = []
        for field in frame.schema:
            # Quoted, as a name may have dots.
            column = functions.col(in_backticks(field.name))
            if isinstance(field.dataType, VariantType):
                column = functions.to_json(column).alias(field.name)
            elif "variant" in field.dataType.json():
                raise SourceError(
                    f"{self._whose}: column {field.name} has a variant inside of another type, which is not "
                    "read.\nMake it a column of its own, or a text, where the table is written."
                )
            columns.append(column)
        return frame.select(columns)

    def _keep(self, frame: DataFrame, number: int) -> None:
        """Called by Spark with each batch, in a thread of its own."""
        while not self._draining and self._spool.size(self._taken) > self._source.buffer:
            if self._stopping.is_set():
                break
            self._stopping.wait(_LOOK)
        self._spool.drop_known(self._taken)
        self._spool.put(number, lambda folder: frame.write.mode("overwrite").parquet(folder))
        self._spool.look()

    def _raise_failure(self) -> None:
        query = self._query
        if query is None or query.isActive or self._stopping.is_set():
            return
        if (error := query.exception()) is not None:
            # Started anew by the next run of the flow, from its checkpoint.
            self._leave()
            failed = f"{self._whose}: Spark's query has failed: {_first_line(error)}"
            raise SourceUnavailable(failed) from error


def _data_sources(file: Path) -> list[type[Any]]:
    """The data sources that a Python file defines, which travel to workers with their code."""
    from pyspark import cloudpickle
    from pyspark.sql.datasource import DataSource

    try:
        found = importlib.util.spec_from_file_location(f"lakefeed_source_{file.stem}", file)
        assert found is not None and found.loader is not None
        module = importlib.util.module_from_spec(found)
        sys.modules[found.name] = module
        found.loader.exec_module(module)
    except Exception as error:
        raise SourceError(f"{file} cannot be imported: {type(error).__name__}: {error}") from error
    cloudpickle.register_pickle_by_value(module)
    classes = [one for one in vars(module).values() if isinstance(one, type) and issubclass(one, DataSource)]
    own = [one for one in classes if one.__module__ == module.__name__]
    if not own:
        raise SourceError(f"{file} defines no data source: a subclass of pyspark.sql.datasource.DataSource.")
    return own


def _first_line(error: BaseException) -> str:
    """What Spark says, without where Python has called it."""
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if not line.startswith("An error occurred while calling")]
    return (told or [type(error).__name__])[0][:300]
