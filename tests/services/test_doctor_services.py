"""The doctor and real services: a broker, and a store that speaks S3."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import orjson

from conftest import TopicFactory
from lakefeed import Pipeline
from lakefeed.doctor import CheckResult, examine
from lakefeed.doctor.stores import store
from support.kafka import Broker
from support.s3 import S3Server


def test_broker_and_store_that_are_well_are_ok_and_nothing_is_left_behind(
    broker: Broker, topic: TopicFactory, s3: S3Server, pipeline_file: Callable[[str], Path]
) -> None:
    s3.create_bucket("doctor")
    full, empty = topic(partitions=2), topic()
    broker.produce(full, [b'{"a": 1}'] * 3)
    file = pipeline_file(
        f"""
        name: shop
        sources:
          full: {{type: kafka, brokers: "{broker.address}", topics: [{full}], format: json}}
          empty: {{type: kafka, brokers: "{broker.address}", topics: [{empty}], format: json}}
          gone: {{type: kafka, brokers: "{broker.address}", topics: [{full}x], format: json}}
        tables:
          clicks: {{path: "s3://doctor/clicks", from: [full, empty, gone]}}
        dead_letters: {{path: "s3://nowhere/letters"}}
        storage: {orjson.dumps({**s3.storage, "max_retries": "0"}).decode()}
        """
    )

    found: dict[str, list[CheckResult]] = {}
    for finding in examine(Pipeline.from_file(file)):
        found.setdefault(finding.check, []).append(finding)

    assert found["source full"] == [CheckResult("source full", "ok", "2 partitions, an event was read")]
    assert found["source empty"] == [CheckResult("source empty", "ok", "1 partition, nothing to read yet")]
    (gone,) = found["source gone"]
    assert gone.state == "fail"
    assert f"topic '{full}x' does not exist on {broker.address}. Did you mean '{full}'?" in gone.text
    assert gone.remedy == "Create the topic or correct `topics`, then start again."
    assert found["table clicks"] == [
        CheckResult(
            "table clicks", "ok", "s3://doctor/clicks can be written, read, committed to and deleted from"
        )
    ]
    assert found["dead letters"][0] == CheckResult(
        "dead letters",
        "fail",
        "s3://nowhere/letters: the bucket or container does not exist",
        "Create it, or correct the path.",
    )
    assert s3.keys("doctor") == []


# In a process of its own: while delta-rs waits for a store, it may keep Python from running.
CARELESS = """
import sys
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

class Forward(BaseHTTPRequestHandler):
    def forward(self):
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        kept = {name: value for name, value in self.headers.items() if name.lower() != "if-none-match"}
        connection = HTTPConnection(sys.argv[1], timeout=30)
        connection.request(self.command, self.path, body, kept)
        answer = connection.getresponse()
        content = answer.read()
        self.send_response_only(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("connection", "transfer-encoding"):
                self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = forward

    def log_message(self, *_):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Forward)
print(server.server_port, flush=True)
server.serve_forever()
"""


@contextmanager
def careless(endpoint: str) -> Iterator[str]:
    """A store in front of another that has never heard of conditional writes."""
    command = [sys.executable, "-c", CARELESS, endpoint.removeprefix("http://")]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            yield f"http://127.0.0.1:{server.stdout.readline().strip()}"
        finally:
            server.kill()


def test_store_that_takes_two_commits_of_one_version_fails(s3: S3Server) -> None:
    s3.create_bucket("careless")

    with careless(s3.endpoint) as endpoint:
        storage = {**s3.storage, "AWS_ENDPOINT_URL": endpoint}
        (found,) = store("table clicks", "s3://careless/clicks", storage)

    assert found.state == "fail"
    assert "ignores conditional writes (If-None-Match)" in found.text
    assert found.remedy.startswith("Use a store that supports them.")
    assert s3.keys("careless") == []
