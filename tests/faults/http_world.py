"""An HTTP source under load whose process is killed: clients that remember every answer, and the ledger."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lakefeed import Pipeline
from lakefeed.engine.inline import InlineFlow
from lakefeed.engine.run_events import RunEvent, TableReached
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.supervisor import Supervisor
from lakefeed.handles.tables import Tables
from lakefeed.reports.verify import verify
from lakefeed.run import run
from lakefeed.sources.http.receiver.server import receiving
from support.ledger import assert_each_once, dead_letters, table_ids
from support.processes import free_port

FILE = """\
name: shop
sources:
  api: {{type: http, listen: "127.0.0.1:{port}", streams: [orders, clicks], journal: {journal}, quota: 200KB}}
tables:
  rows: {{path: rows, from: api, schema: {{event_id: long not null}}}}
flush: {{interval: 100ms, rows: 500}}
stop_timeout: 20s
"""
SERVE = "import sys; from faults.http_world import serve; serve(sys.argv[1])"
PATIENCE = 300.0
"""Seconds after which something will not happen any more, on a machine that is as busy as can be."""


def serve(file: str) -> None:
    """Receive and write, as a run does, but with its tasks in this process; SIGTERM ends it."""
    pipeline, stop = Pipeline.from_file(Path(file)), threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    tables = Tables(pipeline)
    with receiving(pipeline, {}, listen=True) as received:

        def watch(event: RunEvent) -> None:
            if isinstance(event, TableReached):
                received[event.source].waiters.reach(event.table, event.positions)

        state = Path(file).parent / "checkpoints"
        flows = [InlineFlow(tables, name, LocalTasks(), state, watch, once=False) for name in pipeline.inputs]
        Supervisor(pipeline, [*flows], watch, stop).run()


class HttpWorld:
    """A pipeline with an HTTP source, and what was sent to it."""

    def __init__(self, folder: Path, journal: Path | None = None) -> None:
        self.folder = folder
        self.journal = journal or folder / "journal"
        self.port = free_port()
        self.file = folder / "shop.yaml"
        self.file.write_text(FILE.format(port=self.port, journal=self.journal))
        self.acknowledged: set[int] = set()
        self.sent = 0
        self.refused = 0
        """Answers with 503."""
        self._lock = threading.Lock()

    @contextmanager
    def running(self, *command: str) -> Iterator[subprocess.Popen[bytes]]:
        """The process that receives; killed at the end if it is still there."""
        asked = command or (sys.executable, "-c", SERVE)
        with (self.folder / "run.log").open("ab") as log:
            process = subprocess.Popen([*asked, str(self.file)], stdout=log, stderr=log, env=_environment())
        try:
            self._await(process)
            yield process
        finally:
            process.kill()
            process.wait(120)

    def _await(self, process: subprocess.Popen[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert process.poll() is None, (self.folder / "run.log").read_text()
                time.sleep(0.05)
        raise AssertionError("nobody listens")

    @contextmanager
    def load(self, clients: int = 4) -> Iterator[None]:
        """Clients that send one request after the other, each until it is answered with 2xx."""
        stop = threading.Event()
        threads = [threading.Thread(target=self._send, args=(stop, seed)) for seed in range(clients)]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            stop.set()
            for thread in threads:
                thread.join(PATIENCE)

    def _send(self, stop: threading.Event, seed: int) -> None:
        chance = random.Random(seed)
        while not stop.is_set():
            ids = self._take(chance.choice([1, 1, 5, 100]))
            lines = [json.dumps({"event_id": one, "filler": "x" * 30}) for one in ids]
            # One in twenty is a dead letter, which keeps its bytes.
            body = "\n".join(
                line[:-1] if one % 20 == 7 else line for one, line in zip(ids, lines, strict=True)
            )
            headers = {"Idempotency-Key": f"k-{ids[0]}", "Content-Type": "application/x-ndjson"}
            path = chance.choice(["/orders", "/clicks"])
            # A journal may be full for as long as it takes to start Spark.
            while not self._answered(path, body.encode(), headers):
                if stop.is_set():
                    return
                time.sleep(0.02)
            with self._lock:
                self.acknowledged.update(ids)

    def _take(self, count: int) -> range:
        with self._lock:
            self.sent += count
            return range(self.sent - count, self.sent)

    def _answered(self, path: str, body: bytes, headers: dict[str, str]) -> bool:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=10)
        try:
            connection.request("POST", path, body, headers)
            status = connection.getresponse().status
            self.refused += status == 503
            assert status in (202, 503), status
            return status == 202
        except (OSError, http.client.HTTPException):
            return False
        finally:
            connection.close()

    def tear(self, chance: random.Random) -> None:
        """What a power cut may leave behind the last write: a part of one that nobody was told of."""
        last = max(self.journal.glob("*.segment"))
        frame = last.read_bytes()[:200]
        with last.open("ab") as file:
            file.write(chance.choice([frame[: chance.randrange(1, 200)], bytes(300), chance.randbytes(100)]))

    def end_at_random(self, chance: random.Random, times: int, note: Callable[[str], None]) -> None:
        """End the receiver again and again, in one way or another, some of the runs on Spark; then check."""
        command = (sys.executable, "-m", "lakefeed", "run")
        with self.load():
            for _ in range(times):
                how = chance.choice([signal.SIGKILL, signal.SIGKILL, signal.SIGTERM])
                with self.running(*(command if chance.random() < 0.3 else ())) as process:
                    self.wait_for(len(self.acknowledged) + 300)
                    time.sleep(chance.random() * 3)
                    process.send_signal(how)
                    process.wait(PATIENCE)
                note("kill of a receiver" if how is signal.SIGKILL else "stop of a receiver")
                if chance.random() < 0.5:
                    self.tear(chance)
                    note("torn tail of a journal")
            with self.running():
                self.wait_for(len(self.acknowledged) + 300)
        self.drain(drained_by_spark)
        self.check()

    def wait_for(self, count: int) -> None:
        """Until so many events were acknowledged."""
        deadline = time.monotonic() + PATIENCE
        while len(self.acknowledged) < count and time.monotonic() < deadline:
            time.sleep(0.01)
        assert len(self.acknowledged) >= count, (self.folder / "run.log").read_text()

    def wait_for_commit(self, process: subprocess.Popen[bytes]) -> None:
        """Until the table has one more version."""
        log = self.folder / "rows" / "_delta_log"
        before = len(list(log.glob("*.json")))
        deadline = time.monotonic() + PATIENCE
        while len(list(log.glob("*.json"))) == before and time.monotonic() < deadline:
            assert process.poll() is None, (self.folder / "run.log").read_text()
            time.sleep(0.05)
        assert len(list(log.glob("*.json"))) > before, (self.folder / "run.log").read_text()

    def drain(self, once: Callable[[Pipeline], None]) -> None:
        """Write what the journal still has."""
        once(Pipeline.from_file(self.file))

    def check(self) -> None:
        """Every acknowledged event is there once; of the others, none is there twice."""
        rows = table_ids(self.folder / "rows")
        letters = [
            json.loads(one["payload"] + b"}")["event_id"]
            for one in dead_letters(self.folder / "shop_dead_letters")
        ]
        landed = {*rows, *letters}
        assert_each_once(self.acknowledged | (landed & set(range(self.sent))), rows, letters)
        assert verify(Pipeline.from_file(self.file)).sound


def drained_by_spark(pipeline: Pipeline) -> None:
    """A run of the command line that ends by itself."""
    run(pipeline, once=True)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
