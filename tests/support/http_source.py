"""A receiver that listens, without a pipeline around it; and clients for it."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from lakefeed import Pipeline
from lakefeed.engine.batch.payload_validator import PayloadValidator
from lakefeed.handles.tables import Tables
from lakefeed.sources.http.journal.disk import DiskSegments
from lakefeed.sources.http.journal.frame import Batch, Payloads
from lakefeed.sources.http.journal.journal import Append, Journal, writing
from lakefeed.sources.http.journal.keys import Keys
from lakefeed.sources.http.receiver.server import Received, receiving

FILE = """\
name: shop
sources: {{api: {{type: http, listen: "127.0.0.1:0", streams: [orders, clicks]{options}}}}}
tables:
  orders: {{path: orders, from: api, streams: orders{table}}}
  clicks: {{path: clicks, from: api, streams: clicks{table}}}
"""


def shop(folder: Path, options: str = "", table: str = "") -> Path:
    """A pipeline with an HTTP source of two streams."""
    file = folder / "shop.yaml"
    file.write_text(FILE.format(options=options and f", {options}", table=table and f", {table}"))
    return file


def pipeline_of(folder: Path) -> Pipeline:
    """The pipeline that `shop` has written there."""
    return Pipeline.from_file(folder / "shop.yaml")


@contextmanager
def received(folder: Path, options: str = "", table: str = "") -> Iterator[Received]:
    """The receiver of such a pipeline, as a run has it."""
    pipeline = Pipeline.from_file(shop(folder, options, table))
    validators = {"api": PayloadValidator(Tables(pipeline), "api")} if "reject" in options else {}
    with receiving(pipeline, validators, listen=True) as found:
        yield found["api"]


@contextmanager
def journal_of(folder: Path, quota: int = 10**9, owner: str = "shop/items") -> Iterator[Journal]:
    """A journal that this process writes, without a receiver."""
    keys = Keys(3600.0, 1000)
    with writing(str(folder), DiskSegments(str(folder)), keys, owner, quota, skip_damaged=False) as journal:
        yield journal


def append(journal: Journal, stream: str, payloads: list[bytes], **meta: Any) -> Append:
    """Append one request, and wait until it is durable."""
    made, done = (
        Append(Batch.of(stream, Payloads.of(payloads), time.time_ns() // 1000, meta)),
        threading.Event(),
    )
    # A journal in trouble also settles writes that no request waits for.
    journal.settled = lambda group: done.set() if made in group else None
    journal.append(made)
    assert done.wait(120)
    return made


def port_of(api: Received) -> int:
    """Where it listens."""
    return int(api.address.rpartition(":")[2])


def post(
    api: Received | int, path: str, body: Any, headers: dict[str, str] | None = None, method: str = "POST"
) -> tuple[int, dict[str, Any], dict[str, str]]:
    """Send one request; returns the status, the answer and its headers."""
    port = api if isinstance(api, int) else port_of(api)
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
    try:
        connection.request(method, path, data, headers or {})
        answer = connection.getresponse()
        told = answer.read()
        found = {name.lower(): value for name, value in answer.getheaders()}
        return answer.status, json.loads(told) if told else {}, found
    finally:
        connection.close()


def raw(api: Received, data: bytes, seconds: float = 60.0) -> bytes:
    """Send bytes as they are; returns all that comes until the other side closes, or is silent."""
    with socket.create_connection(("127.0.0.1", port_of(api)), timeout=seconds) as connection:
        found = b""
        # A server that has answered already may close before it has read everything; the answer is there.
        with suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(data)
        try:
            while piece := connection.recv(65536):
                found += piece
        except (TimeoutError, ConnectionResetError):
            pass
        return found
