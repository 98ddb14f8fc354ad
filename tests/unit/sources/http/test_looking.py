"""What is told of an HTTP source: findings before a run, metrics and a line on the page in one."""

from __future__ import annotations

import gc
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from lakefeed import Pipeline, PipelineFileError
from lakefeed.engine.run_events import SourceDescribed, SourceSeen
from lakefeed.engine.spark.machines import refuse_unshared_disks
from lakefeed.errors import Fenced, UsageError
from lakefeed.pipeline.secrets import masked
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.sources.http.client import HttpClient
from lakefeed.sources.http.findings import forgetful
from lakefeed.sources.http.receiver.metrics import ReceiverMetrics
from lakefeed.sources.http.receiver.server import Received, prompt
from lakefeed.sources.http.source import HttpSource
from lakefeed.watch.metrics import Metrics
from lakefeed.watch.state import RunState
from lakefeed.watch.web.page import StatusPage
from lakefeed.watch.web.server import Pages
from support.http_source import append, pipeline_of, port_of, post, received, shop

MOUNTS = """\
22 1 254:1 / / rw,relatime - ext4 /dev/vda1 rw
30 22 0:26 / /tmp rw - tmpfs tmpfs rw
31 22 254:1 /var/lib/kubelet/pods/ab/volumes/kubernetes.io~empty-dir/scratch /data rw - ext4 /dev/vda1 rw
32 22 0:30 / /app rw - overlay overlay rw
33 22 254:2 / /data/journal rw - ext4 /dev/vdb rw
"""


@pytest.mark.parametrize(
    ("folder", "told"),
    [
        ("/srv/journal", ""),
        ("/tmp/journal", "in memory (tmpfs)"),
        ("/tmporary", ""),
        ("/data/x", "in an emptyDir"),
        ("/data/journal/x", ""),
        ("/app/.lakefeed/journal", "inside of the container"),
    ],
)
def test_journal_that_does_not_survive_is_noticed(tmp_path: Path, folder: str, told: str) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(MOUNTS)

    assert forgetful(Path(folder), mounts).startswith(told)
    assert bool(forgetful(Path(folder), mounts)) == bool(told)


def source_of(folder: Path, options: str) -> HttpSource:
    found = Pipeline.from_file(shop(folder, options)).sources["api"]
    assert isinstance(found, HttpSource)
    return found


def test_port_that_is_taken_is_told_unless_by_a_run(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        source = source_of(tmp_path, "").model_copy(update={"listen": f"127.0.0.1:{port}"})
        taken = HttpClient(source, "api").findings()
    with received(tmp_path) as api:
        running = source.model_copy(update={"listen": f"127.0.0.1:{port_of(api)}"})
        alive = HttpClient(running, "api").findings()

    assert any(one.state == "fail" and "cannot be listened on" in one.text for one in taken)
    assert any(one.state == "ok" and "in use by a run that is alive" in one.text for one in alive)


def test_metrics_and_the_line_on_the_page(tmp_path: Path) -> None:
    with received(tmp_path) as api:
        post(api, "/orders", b'{"n":1}\n{"n":2}')
        post(api, "/nothing", b"{}")
        registry = CollectorRegistry()
        registry.register(ReceiverMetrics("shop", {"api": api}))
        lines = generate_latest(registry).decode().splitlines()
        said = api.describe()

    values = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if line[0] != "#"}
    at = '{pipeline="shop",source="api"}'
    assert values['lakefeed_http_requests_total{pipeline="shop",source="api",status="202"}'] == 1
    assert values['lakefeed_http_requests_total{pipeline="shop",source="api",status="404"}'] == 1
    assert (values[f"lakefeed_http_events_total{at}"], values[f"lakefeed_http_bytes_total{at}"]) == (2, 15)
    assert values[f"lakefeed_journal_bytes{at}"] > 100
    assert 0 <= values[f"lakefeed_journal_age_seconds{at}"] < 60
    assert values[f"lakefeed_journal_sync_seconds_count{at}"] >= 1
    assert said.startswith(f"listens on {api.address}, 2 requests (1 202, 1 404), journal ")


def test_page_shows_what_a_source_says_of_itself(tmp_path: Path) -> None:
    pipeline = Pipeline.from_file(shop(tmp_path))
    state = RunState(pipeline)
    state.watch(SourceDescribed("api", lambda: "listens on http://127.0.0.1:8090, 7 requests (7 202)"))

    page = StatusPage(pipeline, "1").whole(state.view(), "nonce")

    assert "source api listens on http://127.0.0.1:8090, 7 requests (7 202)" in page


def test_probe_says_when_requests_would_not_be_taken(tmp_path: Path) -> None:
    with received(tmp_path, "quota: 8KB, max_body: 4KB") as api:
        while append_directly(api.journal) < 8192:
            pass

        assert post(api, "/", None, method="GET")[:2] == (503, {"status": "full"})


def append_directly(journal: object) -> int:
    settled = journal.settled  # type: ignore[attr-defined]
    append(journal, "orders", [b"x" * 900])  # type: ignore[arg-type]
    journal.settled = settled  # type: ignore[attr-defined]
    return int(journal.size)  # type: ignore[attr-defined]


def test_plan_and_status_look_at_the_journal_while_it_is_written(tmp_path: Path) -> None:
    with received(tmp_path) as api:
        post(api, "/orders", b'{"n":1}\n{"n":2}')
        pipeline = pipeline_of(tmp_path)
        planned = {table.name: table for table in plan_run(pipeline).tables}
        told = {table.name: table for table in status(pipeline).tables}

    assert (planned["orders"].lag, planned["orders"].sampled, planned["clicks"].lag) == (2, 2, 0)
    assert told["orders"].version is None


def test_plan_before_the_first_run_makes_no_journal(tmp_path: Path) -> None:
    file = shop(tmp_path)

    planned = plan_run(Pipeline.from_file(file))

    assert [table.lag for table in planned.tables] == [0, 0]
    assert not (tmp_path / ".lakefeed" / "journal").exists()


def test_second_receiver_is_refused(tmp_path: Path) -> None:
    with received(tmp_path), pytest.raises(Fenced, match="in use by another run"), received(tmp_path):
        pass


def test_local_journal_is_refused_on_a_cluster(tmp_path: Path) -> None:
    pipeline = Pipeline.from_file(shop(tmp_path))

    with pytest.raises(
        UsageError, match=r"source api: the journal .* is a local path, and spark://m:7077 runs"
    ):
        refuse_unshared_disks(pipeline, "spark://m:7077")


def test_tokens_by_name_are_masked(tmp_path: Path) -> None:
    options = (
        "token: {one: secret-one, two: secret-two}, hmac: {preset: github, secret: [secret-a, secret-b]}"
    )
    pipeline = Pipeline.from_file(shop(tmp_path, options))

    assert "secret-" not in str(masked(pipeline)) + repr(pipeline)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("listen: '0.0.0.0:1'", "everybody who can connect to 0.0.0.0:1 could send events; set `token`"),
        ("listen: 8090", "expected"),
        ("headers: [Authorization]", "'authorization' may hold a secret and is never kept"),
        ("headers: [X-Api-Key]", "may hold a secret"),
        ("hmac: {preset: github, secret: long-secret, header: X}", "header has an effect only with"),
        ("hmac: {preset: github, secret: [a1234567, b1234567, c1234567]}", "expected one secret, or"),
        ("token: short", "at least 8 characters"),
        ("max_body: 100MB", "max_body is larger than max_in_flight"),
        ("on_bad: reject, format: text", "`on_bad: reject` looks into plain JSON only"),
        ("on_bad: reject, format: {type: json, decompress: gzip}", "`on_bad: reject` looks into plain JSON"),
        ("journal: orders/x", "shares its folder with table 'orders'; choose another one"),
        ("colour: red", "colour"),
    ],
)
def test_mistakes_in_the_file_are_named(tmp_path: Path, options: str, message: str) -> None:
    listen = "" if "listen" in options else ', listen: "127.0.0.1:0"'
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{api: {{type: http, streams: [orders]{listen}, {options}}}}}
tables: {{orders: {{path: orders, from: api}}}}
"""
    )

    with pytest.raises(PipelineFileError) as refused:
        Pipeline.from_file(file)
    assert message in str(refused.value)


def test_streams_that_no_table_takes_and_journals_of_two_sources_are_named(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources:
  one: {type: http, streams: [orders, clicks, views]}
  two: {type: http, streams: [a/b]}
  three: {type: http, streams: [all]}
tables:
  orders: {path: orders, from: one, streams: [orders, "cl*"]}
  rest: {path: rest, from: [two, three]}
"""
    )

    with pytest.raises(PipelineFileError) as refused:
        Pipeline.from_file(file)
    told = str(refused.value)
    assert "sources.one.streams.2: no table takes 'views'; add it to `streams` of a table" in told
    assert "sources.three.journal: source 'one' has it too; give each a journal of its own" in told
    assert "sources.two.streams.0" in told


def ready(pipeline: Pipeline, state: RunState) -> tuple[int, str]:
    """What `/readyz` answers."""
    with TestClient(Starlette(routes=Pages(pipeline, state, Metrics(state)).routes())) as client:
        answer = client.get("/readyz")
    return answer.status_code, answer.text


@pytest.fixture
def seen(tmp_path: Path) -> Iterator[tuple[Received, Callable[[], tuple[int, str]]]]:
    """A receiver, and what `/readyz` answers beside it."""
    with received(tmp_path, "quota: 8KB, max_body: 4KB") as api:
        pipeline = pipeline_of(tmp_path)
        state = RunState(pipeline)
        state.watch(SourceDescribed("api", api.describe, api.refuses))
        state.watch(SourceSeen("api", {"orders": 0, "clicks": 0}))
        yield api, lambda: ready(pipeline, state)


def test_run_is_not_ready_while_its_journal_is_full_and_ready_when_tables_have_caught_up(
    seen: tuple[Received, Callable[[], tuple[int, str]]],
) -> None:
    api, asked = seen
    before = asked()
    while append_directly(api.journal) < 8192:
        pass
    full = asked()
    api.journal.acknowledge({"orders": 100})
    deadline = time.monotonic() + 120
    while (after := asked())[0] != 200 and time.monotonic() < deadline:
        time.sleep(0.1)

    assert before == (200, "ready\n")
    assert full[0] == 503
    assert full[1].startswith(f"source api: the journal {api.journal} is full (")
    assert after == (200, "ready\n")


def test_run_is_not_ready_while_the_disk_is_full_and_ready_again_although_nobody_sends(
    seen: tuple[Received, Callable[[], tuple[int, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, asked = seen

    def full(*given: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        refused = post(api, "/orders", {"n": 1})[0]
        during = asked()
        time.sleep(1.5)
        still = asked()
    deadline = time.monotonic() + 120
    while (after := asked())[0] != 200 and time.monotonic() < deadline:
        time.sleep(0.1)
    taken = post(api, "/orders", {"n": 2})

    expected = f"source api: the journal {api.journal} cannot be written: No space left on device"
    assert (refused, during[0], still[0]) == (503, 503, 503)
    assert during[1].startswith(expected)
    assert after == (200, "ready\n")
    assert (taken[0], taken[1]["position"]) == (202, 0)


def test_threads_give_way_sooner_and_loaded_modules_are_not_searched_for_garbage() -> None:
    before = sys.getswitchinterval()

    with prompt():
        inside, frozen = sys.getswitchinterval(), gc.get_freeze_count()

    assert inside < 0.001 < before
    assert frozen > 1_000
    assert (sys.getswitchinterval(), gc.get_freeze_count()) == (before, 0)
