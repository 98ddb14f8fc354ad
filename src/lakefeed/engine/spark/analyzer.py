"""Who analyzes the SQL of a pipeline: the JVM of its session, or one that only knows Spark's classes."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from lakefeed.engine.spark.java import require_java
from lakefeed.engine.spark.session import QUICK_JVM, existing_session
from lakefeed.handles.shaping import Rules
from lakefeed.sql.projection import Projection

_lock = threading.Lock()
_bare: list[Any] = []
"""The gateway to the bare JVM of this process, which ends with the process."""


def analyze_here(
    input: pa.Schema, select: Sequence[str], where: str | None, expect: Rules, table: pa.Schema | None = None
) -> Projection:
    """Analyze in this process; without a session, a JVM is started when it is first asked."""
    from lakefeed.sql.analysis import analyze

    return analyze(bare_jvm(), input, select, where, expect, table)


def bare_jvm() -> Any:
    """A JVM with Spark's classes: that of the program's session, or one without a session."""
    session = existing_session()
    return bare_gateway().jvm if session is None else session._jvm


def bare_gateway() -> Any:
    """The gateway to a JVM of this process that has no session of the program's."""
    with _lock:
        if not _bare or _bare[0].proc.poll() is not None:
            _bare[:] = [_launched()]
        _raise_as_it_is(_bare[0])
        return _bare[0]


def _raise_as_it_is(gateway: Any) -> None:
    """Have the exceptions of a gateway raised without PySpark, which looks them up in the JVM of a session.

    A session that is started, now or later, has PySpark convert those of every gateway of the process.
    """
    from py4j import java_gateway, protocol

    converted = java_gateway.get_return_value
    if getattr(converted, "gateway", None) is gateway or converted is protocol.get_return_value:
        return

    def returned(answer: Any, client: Any, *names: Any) -> Any:
        convert = protocol.get_return_value if client is gateway._gateway_client else converted
        return convert(answer, client, *names)

    returned.gateway = gateway  # type: ignore[attr-defined]
    java_gateway.get_return_value = returned


def _launched() -> Any:
    java = require_java()
    from pyspark import SparkConf
    from pyspark.java_gateway import launch_gateway

    from lakefeed.engine.spark.cache import ClassArchive, slim_home

    if home := slim_home():
        os.environ.setdefault("SPARK_HOME", home)
    # Half of the time that it takes otherwise: 2.9 seconds of CPU for the first answer, not 5.3.
    options = f"{QUICK_JVM} {ClassArchive(java).found()}"
    conf = SparkConf(loadDefaults=False).set("spark.driver.extraJavaOptions", options)
    conf.set("spark.driver.memory", "512m").set("spark.master", "local[1]")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    return launch_gateway(conf, popen_kwargs=quiet)
