"""Two runs with one journal in a store: the later one takes over, the earlier one answers 503."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakefeed import Pipeline
from lakefeed.engine.inline import InlineFlow, run_inline
from lakefeed.engine.run_events import unwatched
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.supervisor import Supervisor
from lakefeed.errors import Fenced
from lakefeed.handles.tables import Tables
from lakefeed.reports.verify import verify
from lakefeed.run import _outlasting
from lakefeed.sources.http.journal import journal as journal_module
from lakefeed.sources.http.receiver.server import receiving
from support.forks import run_and_kill
from support.http_source import post
from support.ledger import table_ids
from support.processes import free_port, spawn, tail, wait_until
from support.s3 import S3Server


def written(folder: Path, s3: S3Server, bucket: str, port: int, state: str, **table: Any) -> Path:
    """The pipeline of one pod: its port and its state are its own, the journal and the tables are not."""
    source = {"type": "http", "listen": f"127.0.0.1:{port}", "streams": ["orders"]}
    source |= {"journal": f"s3://{bucket}/journal", "storage": s3.storage}
    orders = {"path": str(folder / "orders"), "from": "api", "schema": {"event_id": "long"}, **table}
    pipeline = {"name": "shop", "sources": {"api": source}, "tables": {"orders": orders}}
    pipeline |= {"flush": {"interval": "200ms"}, "state": state, "spark": {"master": "local[1]"}}
    # A run that was overtaken keeps its port open for twice as long.
    pipeline["stop_timeout"] = "10m"
    file = folder / f"{state}.yaml"
    file.write_text(yaml.safe_dump(pipeline))
    return file


class Sender:
    """Sends one event after the other to the first port that takes it, as a load balancer would."""

    def __init__(self, ports: list[int]) -> None:
        self._ports = ports
        self.taken: dict[int, list[tuple[float, int]]] = {port: [] for port in ports}
        """When each port has answered 202, and for which event."""
        self.refused: dict[int, list[tuple[float, str]]] = {port: [] for port in ports}
        self._stop = threading.Event()

    @contextmanager
    def sending(self) -> Iterator[None]:
        thread = threading.Thread(target=self._send)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join(120)

    def wait_for(self, port: int, more: int, run: subprocess.Popen[bytes], log: Path) -> None:
        """Until so many more events were taken at a port."""
        wanted = len(self.taken[port]) + more
        wait_until(lambda: len(self.taken[port]) >= wanted or run.poll() is not None, 180, lambda: tail(log))
        assert run.poll() is None, tail(log)

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set():
            for port in self._ports:
                number += 1
                with suppress(OSError, http.client.HTTPException):
                    status, told, _ = post(port, "/orders", json.dumps({"event_id": number}).encode())
                    if status == 202:
                        self.taken[port].append((time.monotonic(), number))
                        break
                    self.refused[port].append((time.monotonic(), told["error"]))
            time.sleep(0.02)


def test_rolling_update_loses_nothing_and_the_new_run_answers_within_seconds(
    s3: S3Server, tmp_path: Path
) -> None:
    s3.create_bucket("http-rolling-update")
    ports, logs = [free_port(), free_port()], [tmp_path / "old.log", tmp_path / "new.log"]
    files = [
        written(tmp_path, s3, "http-rolling-update", port, state)
        for port, state in zip(ports, ("old", "new"), strict=True)
    ]
    runs: list[subprocess.Popen[bytes]] = []
    sender = Sender(ports)

    def begin() -> None:
        at = len(runs)
        runs.append(spawn([sys.executable, "-m", "lakefeed", "run", str(files[at])], stdout=logs[at]))

    try:
        with sender.sending():
            begin()
            sender.wait_for(ports[0], 30, runs[0], logs[0])
            begin()
            sender.wait_for(ports[1], 20, runs[1], logs[1])
            is_old_alive = runs[0].poll() is None
            runs[0].send_signal(signal.SIGTERM)
            ended = runs[0].wait(120)
            sender.wait_for(ports[1], 20, runs[1], logs[1])
        runs[1].send_signal(signal.SIGTERM)
        assert runs[1].wait(120) == 0, tail(logs[1])
    finally:
        for run in runs:
            run.kill()
            run.wait(120)
    run_inline(Pipeline.from_file(files[1]))

    acknowledged = [number for port in ports for _, number in sender.taken[port]]
    found = table_ids(tmp_path / "orders")
    assert set(acknowledged) <= set(found) and len(found) == len(set(found))
    assert verify(Pipeline.from_file(files[1])).sound
    assert (is_old_alive, ended) == (True, 0), tail(logs[0])
    assert "This one stops" not in logs[1].read_text()
    assert any("another run has taken over" in error for _, error in sender.refused[ports[0]])
    assert sender.taken[ports[1]][0][0] - sender.taken[ports[0]][-1][0] < 60


def test_fenced_run_whose_tables_have_stopped_ends(s3: S3Server, tmp_path: Path) -> None:
    s3.create_bucket("http-stopped")
    strict = {"evolve": {"type_change": "fail"}, "from": "api"}
    file = written(tmp_path, s3, "http-stopped", 0, "old", **strict)
    pipeline, ended = Pipeline.from_file(file), []
    tables = Tables(pipeline)
    with receiving(pipeline, {}, listen=True) as received:
        api, stop = received["api"], threading.Event()
        flow = InlineFlow(tables, "api", LocalTasks(), tmp_path / "checkpoints", unwatched, once=False)

        def supervise() -> None:
            try:
                Supervisor(pipeline, [flow], unwatched, stop, {"api": api.journal.confirm}).run()
            except Exception as error:
                ended.append(error)

        thread = threading.Thread(target=supervise)
        thread.start()
        post(api, "/orders", {"event_id": "x"})
        wait_until(lambda: bool(flow.failures), 120, lambda: "the table goes on")
        goes_on = post(api, "/orders", {"event_id": 1})[0]
        s3.client.put_object(Bucket="http-stopped", Key="journal/epoch-000000000002", Body=b"another")
        thread.join(120)
        refused = post(api, "/orders", {"event_id": 2})

    assert (goes_on, refused[0], thread.is_alive()) == (202, 503, False)
    assert isinstance(flow.failures["orders"], Exception) and flow.failures["orders"].reported
    assert [type(error) for error in ended] == [Fenced]


@pytest.mark.parametrize("overtaken", ["api", "orders"])
def test_last_batch_of_the_old_run_does_not_end_the_new_one(
    s3: S3Server, tmp_path: Path, overtaken: str
) -> None:
    s3.create_bucket(f"http-last-batch-{overtaken}")
    file = written(tmp_path, s3, f"http-last-batch-{overtaken}", 0, "new")
    document = yaml.safe_load(file.read_text())
    copied = {"path": str(tmp_path / "copies"), "from": "orders", "schema": {"event_id": "long"}}
    document["tables"]["copies"] = copied
    file.write_text(yaml.safe_dump(document))
    pipeline = Pipeline.from_file(file)
    tables, stop = Tables(pipeline), threading.Event()

    class Overtaken(LocalTasks):
        """The old run, a process of its own, commits what the first batch reads, before the new one does."""

        is_overtaken = False

        def run(self, *given: Any, **named: Any) -> Any:
            if not self.is_overtaken:
                assert run_and_kill(file) == 0
                self.is_overtaken = True
            return super().run(*given, **named)

    class Later(LocalTasks):
        """The table behind the one that is overtaken: the old run commits to it first as well."""

        def run(self, *given: Any, **named: Any) -> Any:
            wait_until(lambda: tasks.is_overtaken, 120, lambda: "the old run has not ended")
            return super().run(*given, **named)

    with receiving(pipeline, {}, listen=True) as received, ThreadPoolExecutor(1) as pool:
        tasks = Overtaken()
        others: dict[str, LocalTasks] = {"api": LocalTasks(), "orders": Later()}
        by_input = {**others, overtaken: tasks}
        flows = [
            InlineFlow(tables, name, by_input[name], tmp_path / "checkpoints", unwatched, once=False)
            for name in pipeline.inputs
        ]
        run = pool.submit(Supervisor(pipeline, flows, unwatched, stop).run)
        try:
            post(received["api"], "/orders", [{"event_id": 1}, {"event_id": 2}])
            wait_until(lambda: tasks.is_overtaken or run.done(), 120, lambda: "no batch")
            post(received["api"], "/orders", {"event_id": 3})
            copies = tmp_path / "copies"
            wait_until(lambda: 3 in table_ids(copies) or run.done(), 120, lambda: str(table_ids(copies)))
        finally:
            stop.set()
        run.result(120)

    assert [sorted(table_ids(tmp_path / name)) for name in ("orders", "copies")] == [[1, 2, 3]] * 2
    assert verify(pipeline).sound


def test_run_that_was_paused_says_that_another_one_has_taken_over(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_LOOK_AROUND", 60.0)
    s3.create_bucket("http-paused-run")
    pipeline = Pipeline.from_file(written(tmp_path, s3, "http-paused-run", 0, "old"))
    with receiving(pipeline, {}, listen=True) as received:
        post(received["api"], "/orders", {"event_id": 1})
        s3.client.put_object(Bucket="http-paused-run", Key="journal/epoch-000000000002", Body=b"another")
        # The other run has read more than this one knows of.
        client = pipeline.sources["api"].client("shop", "api")

        with pytest.raises(Fenced, match="another run has taken over"):
            client.check({"orders": 2}, client.marks())


def test_fenced_run_answers_503_for_a_while_or_until_it_is_stopped(s3: S3Server, tmp_path: Path) -> None:
    s3.create_bucket("http-outlasting")
    pipeline = Pipeline.from_file(written(tmp_path, s3, "http-outlasting", 0, "old"))
    stop, error = (
        threading.Event(),
        Fenced("another run has taken over the journal s3://j.\nStop one of them."),
    )
    with receiving(pipeline, {}, listen=True) as received, ThreadPoolExecutor(1) as pool:
        s3.client.put_object(Bucket="http-outlasting", Key="journal/epoch-000000000002", Body=b"another")
        with pytest.raises(Fenced), _outlasting(received, stop, 0.01):
            raise error
        with _outlasting(received, stop, 120):
            answer = pool.submit(post, received["api"], "/orders", {"event_id": 1})
            answer.add_done_callback(lambda _: stop.set())
            raise error
        refuses = received["api"].refuses()

    assert answer.result()[0] == 503
    said, remedy = refuses.split("\n")
    assert said == "another run has taken over the journal s3://http-outlasting/journal; requests get 503."
    assert remedy.startswith("This run ends soon.")
