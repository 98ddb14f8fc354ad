"""Streaming sources of Spark feed tables: `rate`, files, and a data source of the user's own."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import LakefeedError, Pipeline, SourceError
from lakefeed.engine.inline import run_inline
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from support.drivers import Drivers
from support.processes import wait_until

pytestmark = pytest.mark.usefixtures("spark")

FEEDS = """\
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition


class Numbers(DataSource):
    @classmethod
    def name(cls):
        return "numbers"

    def schema(self):
        return "id long, name string, at timestamp"

    def streamReader(self, schema):
        return NumbersReader(self.options["file"])


class Piece(InputPartition):
    def __init__(self, first, end):
        self.first, self.end = first, end


class NumbersReader(DataSourceStreamReader):
    def __init__(self, file):
        self.file = file

    def initialOffset(self):
        return {"at": 0}

    def latestOffset(self):
        with open(self.file) as file:
            return {"at": int(file.read())}

    def partitions(self, start, end):
        return [Piece(start["at"], end["at"])]

    def read(self, piece):
        import datetime

        for number in range(piece.first, piece.end):
            yield number, f"number {number}", datetime.datetime(2026, 11, 1, tzinfo=datetime.timezone.utc)
"""


def write(folder: Path, source: str, table: str = "") -> Path:
    (folder / "feeds.py").write_text(FEEDS)
    file = folder / "feed.yaml"
    file.write_text(
        f"""\
name: feed
sources: {{made: {{type: spark, {source}, trigger: 100ms}}}}
tables: {{rows: {{path: rows, from: made{table}}}}}
flush: {{interval: 200ms}}
"""
    )
    return file


def column(folder: Path, name: str) -> list[Any]:
    return sorted(DeltaTable(folder / "rows").to_pyarrow_table().column(name).to_pylist())


def test_rows_of_rate_are_in_the_table_once_each_over_two_runs(tmp_path: Path) -> None:
    file = write(tmp_path, "format: rate, options: {rowsPerSecond: '200'}", ", where: value % 2 = 0")
    for _ in range(2):
        before = len(column(tmp_path, "value")) if (tmp_path / "rows").exists() else 0
        with Pipeline.from_file(file).start() as run:
            wait_until(lambda: run.result.rows > 200 or not run.running, 120, lambda: repr(run))
            run.stop()
            run.wait()
        assert len(column(tmp_path, "value")) > before

    values = column(tmp_path, "value")
    assert values == list(range(0, values[-1] + 1, 2))
    assert verify(Pipeline.from_file(file)).sound


def test_looking_in_a_program_that_has_a_session_lets_spark_read_nothing(tmp_path: Path, spark: Any) -> None:
    looked_at = Pipeline.from_file(write(tmp_path, "format: rate"))

    status(looked_at)
    plan_run(looked_at)
    run_inline(looked_at)

    assert not spark.streams.active
    assert not (tmp_path / ".lakefeed" / "spark").exists()


def test_a_folder_of_files_is_drained_with_once(tmp_path: Path) -> None:
    (tmp_path / "drops").mkdir()
    file = write(tmp_path, f"format: json, columns: 'id LONG', options: {{path: {tmp_path}/drops}}")
    for number in range(3):
        (tmp_path / "drops" / f"{number}.json").write_text(json.dumps({"id": number}) + "\n")
        if number != 1:
            Pipeline.from_file(file).run(once=True)

    assert column(tmp_path, "id") == [0, 1, 2]


def test_a_data_source_of_ones_own_survives_kills_of_driver_and_worker(tmp_path: Path, spark: Any) -> None:
    options = f"format: numbers, python: feeds.py, options: {{file: {tmp_path}/count}}"
    table = ", mode: upsert, keys: id, select: ['id', 'name', 'at', 'id % 10 AS last']"
    file = write(tmp_path, options, table)
    drivers = Drivers(spark)

    codes = []
    for count, point in [(300, "files_written:1"), (600, "table_committed:1"), (900, "")]:
        (tmp_path / "count").write_text(str(count))
        codes.append(drivers.run(file, kill_at=point).code)

    assert codes == [-signal.SIGKILL, -signal.SIGKILL, 0]
    assert column(tmp_path, "id") == list(range(900))
    assert verify(Pipeline.from_file(file)).sound


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("format: nothing", r"source made: Spark cannot read it: .*DATA_SOURCE_NOT_FOUND"),
        ("format: numbers, python: feed.yaml", r"feed.yaml cannot be imported"),
    ],
)
def test_what_spark_cannot_read_stops_the_source_in_words(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(LakefeedError, match=message) as told:
        Pipeline.from_file(write(tmp_path, source)).run(once=True)

    assert isinstance(told.value, SourceError)
