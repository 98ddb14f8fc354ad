"""The session of a run: which settings it has, and which sessions are refused."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lakefeed import UsageError
from lakefeed.engine.spark.session import _settings, spark_session


def begin() -> None:
    with spark_session("shop", "local[1]", {}, Path("spark.log")):
        pass


def test_spark_connect_by_variable_is_refused_before_java_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_REMOTE", "sc://localhost:15002")
    monkeypatch.setenv("JAVA_HOME", "/nowhere")

    with pytest.raises(UsageError) as error:
        begin()

    assert str(error.value) == (
        "SPARK_REMOTE is set, and Lakefeed does not run over Spark Connect: it plans batches in the driver's "
        "JVM.\nUnset it and name a master, such as `--master spark://host:7077` or `--master yarn`. On "
        "Databricks, use dedicated compute, not serverless."
    )


def test_a_program_with_a_session_of_spark_connect_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = SimpleNamespace(SparkSession=SimpleNamespace(getActiveSession=lambda: object()))
    monkeypatch.setitem(sys.modules, "pyspark.sql.connect.session", remote)

    with pytest.raises(UsageError, match="has a session of Spark Connect"):
        begin()


@pytest.mark.parametrize(("master", "expected"), [("yarn", "false"), ("spark://m:7077", "true")])
def test_python_workers_on_yarn_use_no_unix_sockets(master: str, expected: str) -> None:
    assert _settings(master, {}, Path("spark.log"), "")["spark.python.unix.domain.socket.enabled"] == expected


def test_a_setting_of_the_file_wins() -> None:
    given = {"spark.python.unix.domain.socket.enabled": "true"}

    assert _settings("yarn", given, Path("spark.log"), "").items() >= given.items()
