"""Spark with Delta's own jars in a process of its own, that changes and reads tables until it is closed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from support.jars import delta_jars

ANSWER_SECONDS = 240
STOP_SECONDS = 60


class DeltaSpark:
    """One JVM for many tables: `sql` changes them, `read` gives every row of one as Spark sees it.

    `settings` and `jars` are Spark's, beside those that Delta needs.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, jars: Sequence[Path] = ()) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lakefeed-delta-spark-")
        self._log = Path(self._folder.name) / "spark.log"
        tests = Path(__file__).resolve().parents[1]
        asked = {"spark.jars": ",".join(map(str, [*delta_jars(), *jars])), **(settings or {})}
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "support.delta_spark", json.dumps(asked)],
                # A folder of its own: Spark leaves warehouses and scratch files where it runs.
                cwd=self._folder.name,
                env={**os.environ, "PYTHONPATH": str(tests), "PYSPARK_PYTHON": sys.executable, "TZ": "UTC"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def sql(self, *statements: str) -> None:
        """Run statements one after the other; `delta.`/path`` names a table."""
        for statement in statements:
            self._ask({"sql": statement})

    def read(self, path: str | Path) -> pa.Table:
        """Every row of a Delta table, in no order; timestamps in UTC."""
        return self.answer(path)

    def answer(self, path: str | Path, **options: str) -> pa.Table:
        """What Spark reads of a table with these options; with `stream`, what its streaming source brings."""
        out = Path(self._folder.name) / "rows.arrow"
        place = str(path) if "://" in str(path) else str(Path(path).absolute())
        self._ask({"read": place, "out": str(out), **options})
        with pa.ipc.open_file(out) as reader:
            return reader.read_all()

    def close(self) -> None:
        """End Spark, which ends when nobody asks any more."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._folder.cleanup()

    def __enter__(self) -> DeltaSpark:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _ask(self, question: dict[str, str]) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        # Killing it ends the wait for an answer, whatever Spark hangs in.
        timer = threading.Timer(ANSWER_SECONDS, self._process.kill)
        timer.start()
        try:
            self._process.stdin.write(json.dumps(question) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            timer.cancel()
        assert answer, f"Spark ended at {question}:\n{self._log.read_text(errors='replace')[-3000:]}"
        failure = json.loads(answer)["error"]
        assert failure is None, f"Spark refused {question}:\n{failure}"


def _answer(spark: Any, question: dict[str, str]) -> pa.Table:
    options = {key: value for key, value in question.items() if key not in ("read", "out", "stream")}
    if "stream" not in question:
        return spark.read.format("delta").options(**options).load(question["read"]).toArrow()
    frame = spark.readStream.format("delta").options(**options).load(question["read"])
    name = f"answer_{uuid.uuid4().hex}"
    query = frame.writeStream.format("memory").queryName(name).trigger(availableNow=True).start()
    query.awaitTermination()
    return spark.table(name).toArrow()


def _serve() -> None:
    # Imported here: the tests' own process must not load Spark.
    from pyspark.sql import SparkSession

    settings = {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.ui.showConsoleProgress": "false",
        # It lives for seconds: what the best compiler would bring, it would cost many times over.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        **json.loads(sys.argv[1]),
    }
    answers = os.fdopen(os.dup(1), "w")
    # Java prints to standard output too.
    os.dup2(2, 1)
    builder = SparkSession.builder
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    for line in sys.stdin:
        question, failure = json.loads(line), None
        try:
            if "sql" in question:
                spark.sql(question["sql"]).collect()
            else:
                table = _answer(spark, question)
                with pa.OSFile(question["out"], "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                    writer.write_table(table)
        except Exception as error:
            failure = str(error)[:3000]
        print(json.dumps({"error": failure}), file=answers, flush=True)
    spark.stop()


if __name__ == "__main__":
    _serve()
