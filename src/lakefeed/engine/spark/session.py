"""The Spark session: one for each run, set up for short Python tasks."""

from __future__ import annotations

import logging
import os
import re
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lakefeed.engine.spark.java import require_java
from lakefeed.errors import JavaError, UsageError
from lakefeed.pipeline.secrets import is_secret_key

if TYPE_CHECKING:
    from pyspark import SparkConf
    from pyspark.sql import SparkSession

_log = logging.getLogger("lakefeed")
_CHECKPOINTS = "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"

# The JVM only plans and schedules, the work is Arrow's: quick compilation and a small collector start sooner.
QUICK_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

DRIVER_MEMORY = "1g"

# What `spark-submit` itself reads.
_FOR_THE_START = re.compile(
    r"spark\.(master|driver\.|submit\.|jars|files|archives|yarn\.|kubernetes\.|kerberos\.)"
)

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
    "spark.driver.memory": DRIVER_MEMORY,
}


@contextmanager
def spark_session(
    name: str, master: str, conf: Mapping[str, str], log: Path, starting: Callable[[], None] = lambda: None
) -> Iterator[SparkSession]:
    """The session that this program has already, else one of its own for as long as the run lasts.

    `starting` is called before one is started, which takes seconds.
    """
    _refuse_connect()
    require_java()
    found = existing_session()
    if found is not None:
        yield found
        return
    starting()
    with own_session(name, master, conf, log) as started:
        yield started


def _refuse_connect() -> None:
    """Raise UsageError for Spark Connect, whose sessions have no JVM in reach of this process."""
    connect = sys.modules.get("pyspark.sql.connect.session")
    if "SPARK_REMOTE" in os.environ:
        reason, remedy = "SPARK_REMOTE is set", "Unset it"
    elif connect is not None and connect.SparkSession.getActiveSession() is not None:
        reason, remedy = "this program has a session of Spark Connect", "Stop that session"
    else:
        return
    raise UsageError(
        f"{reason}, and Lakefeed does not run over Spark Connect: it plans batches in the driver's JVM.\n"
        f"{remedy} and name a master, such as `--master spark://host:7077` or `--master yarn`. On "
        "Databricks, use dedicated compute, not serverless."
    )


def _quiet_py4j() -> None:
    """Keep each command to the JVM out of the log of the program. A level that the program has set stays."""
    py4j = logging.getLogger("py4j")
    if py4j.level == logging.NOTSET:
        py4j.setLevel(logging.WARNING)


def existing_session() -> SparkSession | None:
    """The session that this program has already; looks without importing Spark where nobody has."""
    # Before the first question to the JVM, also where the run starts one.
    _quiet_py4j()
    if "pyspark.sql" not in sys.modules:
        return None
    from pyspark.sql import SparkSession

    # The active session is a matter of each thread; the one that Python has made is there for all.
    found = SparkSession.getActiveSession() or SparkSession._instantiatedSession
    return found if found is not None and found.sparkContext._jsc is not None else None


@contextmanager
def own_session(name: str, master: str, conf: Mapping[str, str], log: Path) -> Iterator[SparkSession]:
    """A JVM and a session in it.

    What Spark says goes to `log`: what matters to the user is told by Lakefeed.
    """
    java = require_java()
    from pyspark import SparkConf, SparkContext
    from pyspark.errors import PySparkRuntimeError
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    from lakefeed.engine.spark.cache import ClassArchive, slim_home

    home = slim_home()
    # Also of use to `local-cluster`, whose workers would leave their folders inside the installed pyspark.
    if home and master.startswith("local"):
        os.environ.setdefault("SPARK_HOME", home)
    archive = ClassArchive(java)
    log.parent.mkdir(parents=True, exist_ok=True)
    # Read by the JVM when it starts the process that plans a stream; the setting of the same name is not.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = SparkConf().setMaster(master).setAppName(f"lakefeed {name}")
    settings.setAll(list(_settings(master, conf, log, archive.options()).items()))
    with log.with_suffix(".err").open("wb") as errors:
        try:
            gateway = launch_gateway(_shown(settings), popen_kwargs={"stderr": errors, "stdout": errors})
        except PySparkRuntimeError as error:
            raise JavaError(
                f"Java did not start for Spark; what it said is in {errors.name}.\n"
                "Check `spark.conf` in the pipeline file and the memory of this machine."
            ) from error
    with _signals_kept():
        session = SparkSession(SparkContext(conf=settings, gateway=gateway))
    _mute_the_listener(session)
    _mute_the_queries()
    try:
        yield session
    finally:
        with suppress(Exception):
            session.stop()
        with suppress(Exception):
            gateway.shutdown()
            gateway.proc.stdin.close()
            archive.keep(gateway.proc)
        SparkContext._gateway = SparkContext._jvm = None


def has_ended(session: SparkSession) -> bool:
    """Whether the JVM that was started for the session is gone; nothing brings it back."""
    process: Any = getattr(session.sparkContext._gateway, "proc", None)
    return process is not None and process.poll() is not None


def _mute_the_queries() -> None:
    """Keep PySpark from printing each error of a query as JSON; it is raised as well, and told in words."""
    from pyspark.logger import PySparkLogger

    PySparkLogger.getLogger("SQLQueryContextLogger").disabled = True


def _mute_the_listener(session: SparkSession) -> None:
    """Keep the thread that counts for Spark from printing a traceback when its JVM dies."""
    listener: Any = getattr(session.sparkContext, "_accumulatorServer", None)
    if listener is not None:
        listener.handle_error = lambda *_: _log.debug("Spark's listener failed", exc_info=True)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Keep what the program does on Ctrl-C: Spark would cancel the running batch and raise instead."""
    before = signal.getsignal(signal.SIGINT)
    yield
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, before)


def _shown(settings: SparkConf) -> SparkConf:
    """The settings that stand on the JVM's command line, which everybody on the machine can read.

    Only what a JVM must know to start: all others reach it with the context.
    """
    shown = type(settings)(loadDefaults=False)
    needed = [(key, value) for key, value in settings.getAll() if _FOR_THE_START.match(key)]
    return shown.setAll([(key, value) for key, value in needed if not is_secret_key(key)])


def _settings(master: str, conf: Mapping[str, str], log: Path, archive: str) -> dict[str, str]:
    settings = dict(_DEFAULTS)
    if master.startswith("yarn"):
        # The temporary folder of a YARN container is longer than the path of a socket may be.
        settings["spark.python.unix.domain.socket.enabled"] = "false"
    if master.startswith("local"):
        settings |= {"spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    logging = files("lakefeed.engine.spark").joinpath("log4j2.properties")
    # In quotes, as a folder's name may hold a space.
    options = f'"-Dlog4j2.configurationFile={logging}" "-Dlakefeed.log={log}" {QUICK_JVM} {archive}'
    given = conf.get("spark.driver.extraJavaOptions", "")
    return {**settings, **conf, "spark.driver.extraJavaOptions": f"{options} {given}".strip()}
