"""What the doctor says about a pipeline, without any service."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, Schema, TableFeatures
from typer.testing import CliRunner

from lakefeed import Pipeline, SourceUnavailable
from lakefeed.commands.app import app
from lakefeed.doctor import CheckResult, examine, services
from lakefeed.doctor.services import port, source, spark_master
from lakefeed.doctor.stores import store
from lakefeed.formats.json.format import JsonFormat
from lakefeed.sources.generate.source import GenerateSource
from support.processes import free_port


@pytest.fixture
def listening() -> Iterator[int]:
    """A port that is taken by somebody who does not speak HTTP."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def findings(pipeline: Pipeline) -> dict[str, list[CheckResult]]:
    found: dict[str, list[CheckResult]] = {}
    for finding in examine(pipeline):
        found.setdefault(finding.check, []).append(finding)
    return found


def everything_below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*"))


def test_sound_pipeline_is_ok_in_every_line_and_nothing_is_left_behind(
    pipeline_file: Callable[[str], Path], tmp_path: Path
) -> None:
    file = pipeline_file(
        """
        name: shop
        sources: {clicks: {type: generate, rows: 10, partitions: 3}}
        tables: {events: {path: deep/lake/events, from: clicks}}
        """
    )

    found = findings(Pipeline.from_file(file))

    assert {each.state for each in found["source clicks"] + found["table events"] + found["state"]} == {"ok"}
    assert [each.text for each in found["source clicks"]] == ["3 partitions, an event was read"]
    assert found["table events"][0].text == (
        f"{tmp_path}/deep/lake/events can be written, read, committed to and deleted from"
    )
    assert everything_below(tmp_path) == ["pipeline.yaml"]


def test_table_that_is_there_is_told_with_its_protocol_and_not_changed(
    pipeline_file: Callable[[str], Path], tmp_path: Path
) -> None:
    schema = Schema.from_arrow(pa.schema([("a", pa.int64())]))
    DeltaTable.create(str(tmp_path / "plain"), schema)
    DeltaTable.create(
        str(tmp_path / "expiring"),
        schema,
        configuration={"delta.setTransactionRetentionDuration": "interval 1 days"},
    )
    file = pipeline_file(
        """
        name: shop
        sources: {clicks: {type: generate, rows: 0}}
        tables:
          plain: {path: plain, from: clicks}
          expiring: {path: expiring, from: clicks}
          missing: {path: missing, from: clicks, create: false}
        """
    )
    before = everything_below(tmp_path)

    found = findings(Pipeline.from_file(file))

    assert found["source clicks"][0].text == "1 partition, nothing to read yet"
    assert found["table plain"][1] == CheckResult("table plain", "ok", "version 0, protocol 1/2")
    assert found["table expiring"][1].state == "fail"
    assert "positions would expire" in found["table expiring"][1].text
    assert found["table expiring"][1].remedy == "Unset the property, then start again."
    assert found["table missing"][1].text.endswith("missing and `create` is false")
    assert everything_below(tmp_path) == before


def test_table_with_a_constraint_fails_by_the_name_of_the_constraint(
    pipeline_file: Callable[[str], Path], tmp_path: Path
) -> None:
    table = DeltaTable.create(str(tmp_path / "t"), Schema.from_arrow(pa.schema([("a", pa.int64())])))
    table.alter.add_constraint({"positive": "a > 0"})
    table.alter.add_feature(TableFeatures.ChangeDataFeed, allow_protocol_versions_increase=True)
    file = pipeline_file(
        """
        name: shop
        sources: {clicks: {type: generate, rows: 0}}
        tables: {t: {path: t, from: clicks}}
        """
    )

    found = findings(Pipeline.from_file(file))["table t"][1]

    assert found.state == "fail"
    assert "the CHECK constraint positive (a > 0)" in found.text


def test_broker_that_is_away_fails_in_the_words_of_a_run(
    pipeline_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefeed.sources.SourceClient.patience", 1.0)
    file = pipeline_file(
        """
        name: shop
        sources: {clicks: {type: kafka, brokers: "127.0.0.1:9", topics: [clicks], format: json}}
        tables: {events: {path: events, from: clicks}}
        """
    )

    (found,) = findings(Pipeline.from_file(file))["source clicks"]

    assert found.state == "fail"
    assert found.text.startswith("127.0.0.1:9 does not answer: ")


def test_path_below_a_file_fails_with_the_remedy(
    pipeline_file: Callable[[str], Path], tmp_path: Path
) -> None:
    (tmp_path / "lake").write_text("a file")
    file = pipeline_file(
        """
        name: shop
        sources: {clicks: {type: generate, rows: 0}}
        tables: {events: {path: lake/events, from: clicks}}
        """
    )

    found = findings(Pipeline.from_file(file))["table events"][0]

    assert (found.state, found.remedy) == ("fail", "Choose another path.")
    assert "a part of this path is a file, not a directory" in found.text
    assert everything_below(tmp_path) == ["lake", "pipeline.yaml"]


def test_port_that_is_taken_fails_unless_a_run_answers_there(listening: int) -> None:
    class Alive(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if self.path == "/healthz" else 404)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    # Not a port that the kernel gives to somebody else once it is free again.
    with HTTPServer(("127.0.0.1", free_port()), Alive) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        answered = port(f"127.0.0.1:{server.server_port}")
        server.shutdown()

    assert (answered.state, answered.text.partition(" is ")[2]) == ("ok", "in use by a run that is alive")
    assert port(f"127.0.0.1:{server.server_port}").state == "ok"
    assert port(f"127.0.0.1:{listening}") == CheckResult(
        "port",
        "fail",
        f"127.0.0.1:{listening} cannot be listened on: Address already in use",
        "Set `http.listen` to a free port of this machine",
    )


def test_port_of_an_ipv6_address_is_looked_at_as_such() -> None:
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as taken:
            number = taken.getsockname()[1]
            found = port(f"[::1]:{number}")
    except OSError:
        pytest.skip("this machine has no IPv6")

    assert found.text == f"[::1]:{number} cannot be listened on: Address already in use"
    assert port(f"[::1]:{number}").state == "ok"


def test_listen_of_the_pipeline_is_looked_at(listening: int, pipeline_file: Callable[[str], Path]) -> None:
    file = pipeline_file(
        """
        name: shop
        sources: {clicks: {type: generate, rows: 0}}
        tables: {events: {path: events, from: clicks}}
        """
    )
    pipeline = Pipeline.from_file(file)
    object.__setattr__(pipeline, "http", SimpleNamespace(listen=f"127.0.0.1:{listening}"))

    (found,) = findings(pipeline)["port"]

    assert found.state == "fail"


def test_local_paths_on_a_cluster_fail_unless_the_disk_is_shared(
    pipeline_file: Callable[[str], Path],
) -> None:
    text = """
        name: shop
        sources: {clicks: {type: generate, rows: 0}}
        tables: {t: {path: t, from: clicks}}
        spark: {master: "k8s://127.0.0.1:9", shared_disk: SHARED}
        """

    alone = list(services.examine(Pipeline.from_file(pipeline_file(text.replace("SHARED", "false")))))
    shared = list(services.examine(Pipeline.from_file(pipeline_file(text.replace("SHARED", "true")))))

    (found,) = [finding for finding in alone if finding.check == "Spark master"]
    assert (found.state, "is a local path, and k8s://127.0.0.1:9 runs tasks" in found.text) == ("fail", True)
    assert [finding for finding in shared if finding.check == "Spark master"] == []


def test_spark_master_that_does_not_answer_fails(listening: int) -> None:
    assert spark_master("127.0.0.1", listening).state == "ok"
    assert spark_master("127.0.0.1", 9) == CheckResult(
        "Spark master",
        "fail",
        "127.0.0.1:9 does not answer: Connection refused",
        "Start it, or correct `spark.master`",
    )


class RegistryFormat(JsonFormat):
    """A format that depends on a service."""

    def probe(self) -> str | None:
        raise SourceUnavailable("registry http://localhost:8081 does not answer\nStart it.")


def test_format_that_depends_on_a_service_is_asked() -> None:
    found = list(source("shop", "clicks", GenerateSource(rows=0, format=RegistryFormat())))

    assert found[1] == CheckResult(
        "format of clicks", "fail", "registry http://localhost:8081 does not answer", "Start it."
    )


def test_event_from_the_future_shows_that_a_clock_is_wrong() -> None:
    rows = 10 * 86_400 * 365 * 30

    found = list(source("shop", "clicks", GenerateSource(rows=rows)))

    assert found[1].state == "warn"
    assert "s in the future" in found[1].text
    assert "by NTP" in found[1].remedy


def test_store_with_another_time_is_a_warning(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = time.time
    monkeypatch.setattr("lakefeed.doctor.stores.time", SimpleNamespace(time=lambda: now() - 3600))

    written, clock = store("table clicks", str(tmp_path / "clicks"), {})

    assert written.state == "ok"
    assert (clock.state, clock.text) == ("warn", "the clock of the store is 3,600 s ahead of this machine's")


def test_no_secret_is_shown(
    pipeline_file: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefeed.sources.SourceClient.patience", 1.0)
    monkeypatch.setenv("CANARY", "canary-secret")
    file = pipeline_file(
        """
        name: shop
        sources:
          clicks:
            type: kafka
            brokers: 127.0.0.1:9
            topics: [clicks]
            format: json
            options: {broker.address.family: "${CANARY}"}
        tables: {events: {path: "s3://lake/canary-secret", from: clicks}}
        storage:
          AWS_ENDPOINT_URL: "http://127.0.0.1:9"
          AWS_ALLOW_HTTP: "true"
          AWS_REGION: us-east-1
          AWS_ACCESS_KEY_ID: ${CANARY}
          AWS_SECRET_ACCESS_KEY: ${CANARY}
          max_retries: "0"
        """
    )

    told, as_json = (CliRunner().invoke(app, ["doctor", str(file), *more]) for more in ([], ["--json"]))

    assert (told.exit_code, as_json.exit_code) == (3, 3)
    assert "the client refuses its options" in told.output
    assert "s3://lake/***: the store does not answer" in told.output
    assert "canary-secret" not in told.output + as_json.output
