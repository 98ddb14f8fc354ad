"""Driver processes that may be killed: each is a process of its own, all use the JVM of the tests.

Killing a driver with SIGKILL is as final as killing the command line, since whatever decides and commits is
in it, but the next one is there in a second: no JVM has to start. What a killed driver leaves behind in the
JVM, a query that asks for batches nobody will land, is ended before the next one starts.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from support.forks import ended, start

RUN_SECONDS = 240


@dataclass(frozen=True)
class Ended:
    """How a driver ended: its exit code (-9 for SIGKILL) and what it wrote to stderr."""

    code: int
    said: str


class Driver:
    """One running pipeline, as `lakefeed run` runs it but for the start of Spark."""

    def __init__(self, server: Any, file: Path, arguments: tuple[str, ...], env: Mapping[str, str]) -> None:
        self._server = server
        self._log = Path(tempfile.mkstemp(prefix="lakefeed-driver-")[1])
        self._process = start(
            _main,
            str(file),
            *arguments,
            env={
                "PYSPARK_GATEWAY_PORT": str(server.getListeningPort()),
                "PYSPARK_GATEWAY_SECRET": str(server.secret()),
                **env,
            },
            log=self._log,
        )

    @property
    def running(self) -> bool:
        return self._process.is_alive()

    @property
    def said(self) -> str:
        return self._log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def pause(self) -> None:
        """SIGSTOP."""
        self._signal(signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        self._signal(signal.SIGCONT)

    def terminate(self) -> None:
        """SIGTERM, as a service manager sends it."""
        self._process.terminate()

    def wait(self, timeout: float = RUN_SECONDS) -> Ended:
        """Wait for the end; a driver that does not end in time is killed and fails the test."""
        try:
            code = ended(self._process, timeout)
        except AssertionError as error:
            raise AssertionError(f"{error}:\n{self.said}") from None
        finally:
            self._server.shutdown()
        said = self.said
        self._log.unlink(missing_ok=True)
        return Ended(code, said)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process.pid is not None
        os.kill(self._process.pid, number)


class Drivers:
    """Starts drivers beside a session of the tests."""

    def __init__(self, spark: Any) -> None:
        self._spark = spark
        self._started: list[Driver] = []

    def start(
        self, file: Path, *overrides: str, once: bool = True, env: Mapping[str, str] | None = None
    ) -> Driver:
        self._started = [driver for driver in self._started if driver.running]
        if not self._started:
            self._end_what_is_left()
        jvm = self._spark.sparkContext._jvm
        # A gateway for each driver, as one gateway calls back only the last program that has asked for it.
        server = jvm.org.apache.spark.api.python.Py4JServer(jvm.org.apache.spark.SparkConf())
        server.start()
        self._started.append(Driver(server, file, (*(["--once"] if once else []), *overrides), env or {}))
        return self._started[-1]

    def run(self, file: Path, *overrides: str, kill_at: str = "") -> Ended:
        """Run until everything is read that is there now, or until the driver or a worker dies at a point."""
        return self.start(file, *overrides, env={"LAKEFEED_KILL_AT": kill_at} if kill_at else None).wait()

    def _end_what_is_left(self) -> None:
        queries = self._spark._jsparkSession.sharedState().activeStreamingQueries()
        for query in list(queries.values()):
            # One that ends meanwhile is none by now.
            if query is not None:
                query.stop()


def _main(file: str, *arguments: str) -> None:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    from lakefeed import LakefeedError, Pipeline
    from lakefeed.commands.run import run_pipeline

    gateway = launch_gateway()
    jvm = gateway.jvm
    jsc = jvm.org.apache.spark.api.java.JavaSparkContext.fromSparkContext(
        jvm.org.apache.spark.SparkContext.getOrCreate()
    )
    point = os.environ.get("LAKEFEED_KILL_AT")
    context = SparkContext(
        gateway=gateway,
        jsc=jsc,
        conf=SparkConf(_jvm=jvm, loadDefaults=False, _jconf=jsc.sc().conf()),
        environment={"LAKEFEED_KILL_AT": point} if point else None,
    )
    # Two instances of one pipeline call their queries the same, which one session does not take. A clone, as
    # a new session would look for data sources in workers that have met some, and take them for built in.
    found = SparkSession(context)
    session = SparkSession(context, found._jsparkSession.cloneSession())
    SparkSession._activeSession = SparkSession._instantiatedSession = session
    overrides = [argument for argument in arguments if argument != "--once"]
    try:
        run_pipeline(Pipeline.from_file(file, overrides), once="--once" in arguments)
    except LakefeedError as error:
        print(f"error: {error}", file=sys.stderr)
        code = error.exit_code
    else:
        code = 0
    # Without the end of the interpreter, which would stop the session that others still use.
    sys.stderr.flush()
    os._exit(code)
