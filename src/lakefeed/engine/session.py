"""The Spark session: one for each run, set up for short Python tasks."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.engine.java import require_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

_DEFAULTS = {
    # Workers start as `python3` from PATH otherwise, which breaks virtual environments.
    "spark.pyspark.python": sys.executable,
    "spark.pyspark.driver.python": sys.executable,
    # Loopback TCP has a 40 ms delayed-ACK stall in every Python task.
    "spark.python.unix.domain.socket.enabled": "true",
    # The default manager forks `readlink` and `chmod` for every checkpoint file on a local disk.
    "spark.sql.streaming.checkpointFileManagerClass": _CHECKPOINTS,
    "spark.sql.streaming.minBatchesToRetain": "2",
    "spark.sql.streaming.noDataMicroBatches.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.adaptive.enabled": "false",
    # The page of Spark listens on every address; `spark: {conf: {spark.ui.enabled: "true"}}` turns it on.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "1g",
}


@contextmanager
def spark_session(name: str, master: str, conf: Mapping[str, str], log: Path) -> Iterator[SparkSession]:
    """The session that this program has already, else one of its own for as long as the run lasts."""
    from pyspark.sql import SparkSession

    found = SparkSession.getActiveSession()
    if found is not None:
        yield found
        return
    started = start_session(name, master, conf, log)
    try:
        yield started
    finally:
        with suppress(Exception):
            started.stop()


def start_session(name: str, master: str, conf: Mapping[str, str], log: Path) -> SparkSession:
    """Start Spark. What it says goes to the file `log`: what matters to the user is told by Lakefeed."""
    require_java()
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    log.parent.mkdir(parents=True, exist_ok=True)
    # Read by the JVM when it starts the process that plans a stream; the setting of the same name is not.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = SparkConf().setMaster(master).setAppName(f"lakefeed {name}")
    settings.setAll(list(_settings(master, conf, log).items()))
    with log.with_suffix(".err").open("ab") as errors:
        gateway = launch_gateway(settings, popen_kwargs={"stderr": errors, "stdout": errors})
    return SparkSession(SparkContext(conf=settings, gateway=gateway))


def _settings(master: str, conf: Mapping[str, str], log: Path) -> dict[str, str]:
    settings = dict(_DEFAULTS)
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    logging = files("lakefeed.engine").joinpath("log4j2.properties")
    options = f"-Dlog4j2.configurationFile={logging} -Dlakefeed.log={log}"
    given = conf.get("spark.driver.extraJavaOptions", "")
    return {**settings, **conf, "spark.driver.extraJavaOptions": f"{options} {given}".strip()}
