"""Hostile clients: raw bytes on the wire. Nothing crashes, nothing leaks, memory stays bounded."""

from __future__ import annotations

import gzip
import logging
import os
import re
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from lakefeed.sources.http.receiver import connection, server
from lakefeed.sources.http.receiver.server import Received
from lakefeed.sources.http.receiver.validation import Validator
from support.http_source import port_of, post, raw, received
from support.processes import wait_until


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Received]:
    with received(tmp_path_factory.mktemp("api"), "max_body: 1MB") as found:
        yield found


@pytest.fixture
def hasty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Received]:
    """A receiver that soon waits no longer: for tests that let it wait, and for no others."""
    monkeypatch.setattr(connection, "_HEADER_SECONDS", 0.5)
    with received(tmp_path, "body_timeout: 500ms, max_body: 1MB") as found:
        yield found
        monkeypatch.undo()
        assert_well(found)


@pytest.fixture(autouse=True)
def still_well(api: Received, caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """After whatever came, the next honest request is taken, nothing is held, and no error was logged."""
    yield
    assert_well(api)
    assert [record for record in caplog.records if record.levelno >= logging.ERROR] == []


def assert_well(api: Received) -> None:
    assert post(api, "/orders", {"n": 1})[0] == 202
    assert api.receiver is not None and api.receiver.figures.requests[500] == 0
    pressure = api.receiver.pressure
    wait_until(lambda: not pressure.in_flight, 120, lambda: f"{pressure.in_flight} bytes are held")


def events(api: Received) -> int:
    return sum(api.journal.contents().next.values())


def statuses(answer: bytes) -> list[int]:
    return [int(found) for found in re.findall(rb"HTTP/1\.1 (\d{3}) ", answer)]


HOST = b"Host: localhost\r\n"
POST = b"POST /orders HTTP/1.1\r\n" + HOST


@pytest.mark.parametrize(
    "request_bytes",
    [
        # Two ways to tell where the body ends: whoever is in front may have believed the other one.
        POST + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{}",
        POST + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}",
        POST + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
        POST + b"Content-Length: +2\r\n\r\n{}",
        POST + b"Content-Length: 2_0\r\n\r\n{}",
        POST + b"Content-Length: -1\r\n\r\n{}",
        POST + b"Content-Length: 99999999999999999999999\r\n\r\n{}",
        POST + b"Transfer-Encoding: xchunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked, identity\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
        POST + b"Content-Length : 2\r\n\r\n{}",
        POST + b"X: a\r\n Content-Length: 2\r\n\r\n{}",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
        POST + b"Transfer-Encoding: chunked\r\n\r\n-2\r\n{}\r\n0\r\n\r\n",
        POST + b"Content-Length: 2\x00\r\n\r\n{}",
        b"POST /orders\x00 HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n{}",
        b"POST /orders HTTP/9.9\r\n" + HOST + b"Content-Length: 2\r\n\r\n{}",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 tls on a plain port",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET http://localhost:99999999/ HTTP/1.1\r\n" + HOST + b"\r\n",
        os.urandom(500),
    ],
)
def test_what_is_no_clear_request_is_400_and_the_connection_ends(api: Received, request_bytes: bytes) -> None:
    before = events(api)

    answer = raw(api, request_bytes)

    assert statuses(answer)[:1] == [400], answer
    assert b"connection: close" in answer.lower()
    assert events(api) == before


@pytest.mark.parametrize(
    "path",
    [
        b"/../orders",
        b"//orders",
        b"/./orders",
        b"/orders/../clicks",
        b"/%2e%2e/orders",
        b"/orders%00",
        b"/orders%2f",
        b"/ORDERS",
        b"/orders;x",
        b"/%6frders%0d%0aX: y",
        b"/" + b"a" * 20_000,
        b"/..%5c..%5cetc%5cpasswd",
        b"/\xc3\xbc",
        b"*",
    ],
)
def test_no_path_but_that_of_a_stream_leads_anywhere(api: Received, path: bytes) -> None:
    before = events(api)

    answer = raw(
        api, b"POST " + path + b" HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}"
    )

    assert statuses(answer)[0] in (400, 404)
    assert b"X: y" not in answer.partition(b"\r\n\r\n")[0]
    assert events(api) == before


def test_pipelined_requests_are_answered_in_order_and_each_once(api: Received) -> None:
    before = events(api)
    one = POST + b'Content-Length: 7\r\n\r\n{"n":1}'
    last = POST + b"Content-Length: 2\r\nConnection: close\r\n\r\n{}"
    wrong = b"POST /none HTTP/1.1\r\n" + HOST + b"Content-Length: 2\r\n\r\n{}"

    answer = raw(api, one * 50 + wrong + one * 50 + last)

    assert statuses(answer) == [202] * 50 + [404] + [202] * 51
    assert events(api) == before + 101


def test_body_that_does_not_come_is_408_and_nothing_is_kept(hasty: Received) -> None:
    before = events(hasty)

    answer = raw(hasty, POST + b'Content-Length: 100\r\n\r\n{"n":')

    assert statuses(answer) == [408]
    assert b"did not arrive within 500ms (body_timeout)" in answer
    assert events(hasty) == before


def until_answered(client: socket.socket, piece: bytes, most: int, pause: float) -> tuple[bytes, int]:
    """Send a piece again and again until an answer comes; returns it, and how often the piece was sent."""
    client.settimeout(pause)
    for sent in range(1, most + 1):
        # A server that closes behind its answer refuses what comes then; the answer is still there.
        with suppress(BrokenPipeError, ConnectionResetError):
            client.sendall(piece)
        with suppress(TimeoutError):
            return client.recv(1000), sent
    return b"", most


def test_body_that_comes_drop_by_drop_is_408(hasty: Received) -> None:
    with socket.create_connection(("127.0.0.1", port_of(hasty)), timeout=10) as client:
        client.sendall(POST + b"Transfer-Encoding: chunked\r\n\r\n")
        answer, _ = until_answered(client, b"1\r\n \r\n", 1_000, pause=0.1)

    assert statuses(answer) == [408]


@pytest.mark.parametrize("beginning", [b"", b"POST /orders HT", POST + b"X-A: b\r\n"])
def test_headers_that_do_not_come_are_408(hasty: Received, beginning: bytes) -> None:
    assert statuses(raw(hasty, beginning)) == [408]


def test_headers_that_come_for_ever_are_431(api: Received) -> None:
    with socket.create_connection(("127.0.0.1", port_of(api)), timeout=60) as client:
        client.sendall(POST)
        answer, sent = until_answered(client, b"X-Filler: " + b"x" * 1000 + b"\r\n", 10_000, pause=0.01)

    assert sent < 1_000
    assert statuses(answer) == [431]


def test_one_endless_header_is_431(api: Received) -> None:
    assert 431 in statuses(raw(api, POST + b"X-Filler: " + b"x" * 300_000))


def test_trailers_behind_a_body_are_not_kept(api: Received) -> None:
    trailers = b"".join(b"X-%d: y\r\n" % number for number in range(5000))

    answer = raw(
        api,
        POST
        + b"Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\n{}\r\n0\r\n"
        + trailers
        + b"\r\n",
    )

    assert statuses(answer) == [202]


def test_endless_body_is_413_before_it_ends(api: Received) -> None:
    chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"

    answer = raw(api, POST + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 40)

    assert statuses(answer)[:1] in ([413], []), answer


GZIP = {"Content-Encoding": "gzip"}
NDJSON = {**GZIP, "Content-Type": "application/x-ndjson"}


def test_bombs_are_413_and_take_no_memory(api: Received) -> None:
    packer = zlib.compressobj(9, wbits=31)
    bomb = b"".join(packer.compress(bytes(2**20)) for _ in range(200)) + packer.flush()
    assert len(bomb) < 2**20
    process = psutil.Process()
    before = process.memory_info().rss

    with ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(post, api, "/orders", bomb, {"Content-Encoding": "gzip"}) for _ in range(16)]
        answers = {one.result(120)[0] for one in sent}

    assert answers <= {413, 503}
    assert process.memory_info().rss - before < 150 * 2**20


REJECT = "on_bad: reject"
FIELDS = ", ".join(f"c{at}: string" for at in range(200))
WIDE = f"schema: {{id: long, {FIELDS}}}"
LISTS = f"schema: {{id: long, a: 'array<struct<{FIELDS}>>'}}"
NAMES = b"".join(b"{%s}\n" % b",".join(b'"k%d_%d":1' % (row, at) for at in range(40)) for row in range(1_500))

LONG = b'{"a":[' + b"1," * 150_000 + b"1]}\n"


@pytest.mark.parametrize(
    ("body", "status", "options", "table"),
    [
        (b"0\n" * 5_000_000, 413, "", ""),
        (b"[" + b"0," * 4_000_000 + b"0]", 413, "", ""),
        (b"[" + b"{}," * 3_000_000 + b"{}]", 413, "", ""),
        (b"[" + b'{"a":{"b":1}},' * 700_000 + b"{}]", 413, "", ""),
        (b'{"a":[' + b'{"a":1},' * 1_000_000 + b"{}]}", 413, "", ""),
        (b'{"a":"x"}\n' * 200_000, 202, "", ""),
        (b"[" + b",".join([b'{"id":1,"text":"%s"}' % (b"x" * 180)] * 40_000) + b"]", 202, "", ""),
        (LONG * 12, 202, "", ""),
        (b"[" + b",".join([LONG.strip()] * 12) + b"]", 202, "", ""),
        (b"{}\n" * 60_000, 202, REJECT, WIDE),
        (b'{"id":"x"}\n' * 400_000, 400, REJECT, WIDE),
        (b'{"a":[' + b"{}," * 100_000 + b"{}]}", 413, REJECT, LISTS),
        (b'{"id":"x","c1":[' + b"1," * 300_000 + b"1]}", 400, REJECT, WIDE),
        (NAMES, 202, REJECT, "schema: {id: long}, evolve: {new_column: ignore}"),
    ],
)
def test_small_request_that_becomes_many_records_takes_no_memory(
    tmp_path: Path, body: bytes, status: int, options: str, table: str
) -> None:
    packed, process = gzip.compress(body), psutil.Process()

    with received(tmp_path, options, table) as api, ThreadPoolExecutor(1) as pool:
        most = before = process.memory_info().rss
        sent = pool.submit(post, api, "/orders", packed, NDJSON if body[:1] == b"0" else GZIP)
        while not sent.done():
            most = max(most, process.memory_info().rss)
            time.sleep(0.005)

    assert sent.result()[0] == status
    assert most - before < 100 * 2**20


class Held:
    """A validator whose large request does not come to its end before others were answered."""

    def __init__(self, validator: Validator, payload: bytes, count: int) -> None:
        self._validator, self._payload, self._left = validator, payload, count
        self.has_begun, self.goes_on, self.was_late = threading.Event(), threading.Event(), False
        self.columns = validator.columns

    def __call__(self, stream: str, payloads: list[bytes]) -> dict[int, str]:
        if payloads[0] == self._payload:
            self.has_begun.set()
            self._left -= len(payloads)
            if not self._left:
                self.was_late = not self.goes_on.wait(60)
        return self._validator(stream, payloads)


def test_large_request_that_is_validated_keeps_no_other_from_its_answer(tmp_path: Path) -> None:
    with received(tmp_path, REJECT, WIDE) as api, ThreadPoolExecutor(1) as pool:
        assert api.receiver is not None and api.receiver._validator is not None
        api.receiver._validator = held = Held(api.receiver._validator, b"{}", 50_000)
        large = pool.submit(post, api, "/orders", gzip.compress(b"{}\n" * 50_000), NDJSON)
        assert held.has_begun.wait(120)
        small, lines = [post(api, "/orders", body) for body in (b'{"id": 1}', b'{"id": 1}\n' * 3_000)]
        is_under_way = not large.done()
        held.goes_on.set()

    assert (small[0], lines[0], is_under_way, large.result()[0]) == (202, 202, True, 202)
    assert not held.was_late


def test_request_whose_client_has_gone_is_not_validated_to_its_end(tmp_path: Path) -> None:
    body, threads = gzip.compress(b"{}\n" * 400_000), threads_of_receivers()
    head = (
        POST + b"Content-Encoding: gzip\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n"
    )

    with received(tmp_path, REJECT, WIDE) as api:
        assert api.receiver is not None
        figures, pressure = api.receiver.figures, api.receiver.pressure
        with socket.create_connection(("127.0.0.1", port_of(api)), timeout=60) as client:
            client.sendall(head % len(body) + body)
            wait_until(lambda: pressure.in_flight > 0, 120, lambda: "it has not begun")
        wait_until(lambda: figures.requests[499] == 1, 120, lambda: str(figures.requests))
        kept = events(api), pressure.in_flight
    wait_until(lambda: threads_of_receivers() <= threads, 120, lambda: str(threads_of_receivers()))

    assert kept == (0, 0)


def threads_of_receivers() -> set[threading.Thread]:
    return {one for one in threading.enumerate() if one.name.startswith("receive_")}


def test_body_that_ends_in_the_middle_of_gzip_is_400(api: Received) -> None:
    cut = gzip.compress(b'{"n": 1}' * 100)[:-10]

    status, told, _ = post(api, "/orders", cut, {"Content-Encoding": "gzip"})

    assert (status, "cut off" in told["error"]) == (400, True)


def test_client_that_goes_away_leaves_nothing(api: Received) -> None:
    before = events(api)
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", port_of(api)), timeout=60) as client:
            client.sendall(POST + b'Content-Length: 1000\r\n\r\n{"n":')

    time.sleep(0.2)
    assert events(api) == before


def test_too_many_bytes_at_once_are_503_and_soon_taken_again(tmp_path: Path) -> None:
    body = b'{"n":"' + b"x" * 600_000 + b'"}'
    with received(tmp_path, "max_body: 1MB, max_in_flight: 2MB") as crowded:
        gate = threading.Event()
        write = crowded.journal._segments.append
        crowded.journal._segments.append = lambda *given: (gate.wait(120), write(*given))
        with ThreadPoolExecutor(8) as pool:
            sent = [pool.submit(post, crowded, "/orders", body) for _ in range(8)]
            wait_until(lambda: any(one.done() for one in sent), 60, lambda: "nothing is refused")
            gate.set()
            answers = [one.result(120) for one in sent]
        after = post(crowded, "/orders", body)

    refused = [answer for answer in answers if answer[0] == 503]
    assert {answer[0] for answer in answers} == {202, 503}
    assert "max_in_flight" in refused[0][1]["error"] and refused[0][2]["retry-after"] == "1"
    assert after[0] == 202


def test_many_idle_connections_do_not_shut_others_out(api: Received) -> None:
    idle = [socket.create_connection(("127.0.0.1", port_of(api)), timeout=60) for _ in range(300)]
    try:
        assert post(api, "/orders", {"n": 1})[0] == 202
    finally:
        for one in idle:
            one.close()


def test_answers_do_not_tell_what_software_or_token_there_is(tmp_path: Path) -> None:
    with received(tmp_path, "token: a-secret-token") as closed:
        answer = raw(
            closed,
            POST
            + b"Authorization: Bearer a-secret-tokem\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}",
        )

    assert statuses(answer) == [403]
    assert not any(word in answer.lower() for word in (b"a-secret", b"uvicorn", b"python", b"server:"))


def test_idle_connection_is_closed_and_one_that_is_used_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_KEEP_ALIVE", 3)
    one = POST + b'Content-Length: 7\r\n\r\n{"n":1}'

    with (
        received(tmp_path) as idle,
        socket.create_connection(("127.0.0.1", port_of(idle)), timeout=60) as client,
    ):
        answers = []
        for _ in range(4):
            client.sendall(one)
            answers += statuses(client.recv(1000))
            time.sleep(1.0)
        rest = client.recv(1000)

    assert answers == [202] * 4
    assert rest == b""


@pytest.mark.parametrize("protocol", [b"h2c", b"websocket", b"anything"])
def test_body_behind_a_request_to_change_the_protocol_is_no_request(api: Received, protocol: bytes) -> None:
    before = events(api)
    inner = POST + b'Content-Length: 7\r\n\r\n{"n":1}'
    outer = POST + b"Connection: Upgrade\r\nUpgrade: " + protocol + b"\r\nContent-Length: %d\r\n\r\n"

    with socket.create_connection(("127.0.0.1", port_of(api)), timeout=60) as client:
        client.sendall(outer % len(inner))
        answer = client.recv(1000)
        with suppress(OSError):
            client.sendall(inner)
            answer += client.recv(1000)

    assert statuses(answer) == [400]
    assert b"without Upgrade" in answer and b"connection: close" in answer
    assert events(api) == before


def plain(body: bytes, headers: bytes = b"") -> bytes:
    return POST + headers + b"Connection: close\r\nContent-Length: %d\r\n\r\n" % len(body) + body


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (plain(b"{}", b"Content-Encoding: gzip\r\n"), 400),
        (plain(b"{}", b"Content-Encoding: zstd\r\n"), 400),
        (plain(gzip.compress(b"{}"), b"Content-Encoding: zstd\r\n"), 400),
        (plain(b"{}", b"Content-Encoding: br\r\n"), 415),
        (plain(gzip.compress(gzip.compress(b"{}")), b"Content-Encoding: gzip, gzip\r\n"), 415),
        (plain('{"n":1}'.encode("utf-16"), b"Content-Type: application/json; charset=utf-16\r\n"), 415),
        (plain(b"{}", b"Content-Type: application/xml\r\n"), 415),
        (plain('{"n":1}'.encode("utf-16")), 400),
        (plain(b'{"n":"\xff"}'), 400),
        (plain(b'{"n":"\xed\xa0\x80"}'), 400),
        (plain(b'{"n":"\\ud800"}'), 400),
        (plain(b'\xef\xbb\xbf{"n":1}'), 400),
        (plain(b'{"n":1}\x00'), 400),
        (plain(b"[" * 200_000), 400),
        (plain(b'{"a":' * 100_000 + b"1" + b"}" * 100_000), 400),
    ],
)
def test_body_that_is_not_what_it_says_is_refused(api: Received, request_bytes: bytes, status: int) -> None:
    before = events(api)

    answer = raw(api, request_bytes)

    assert statuses(answer) == [status], answer
    assert b'"fix":' in answer
    assert events(api) == before


def test_zstd_bomb_is_413(api: Received) -> None:
    bomb = pa.compress(bytes(100 * 2**20), "zstd", asbytes=True)

    answer = raw(api, plain(bomb, b"Content-Encoding: zstd\r\n"))

    assert len(bomb) < 2**20
    assert statuses(answer) == [413]


def test_chunk_whose_extension_never_ends_is_cut_off_in_time(hasty: Received) -> None:
    before = events(hasty)

    answer = raw(hasty, POST + b"Transfer-Encoding: chunked\r\n\r\n2;" + b"x" * 500_000)

    assert statuses(answer)[0] in (400, 408), answer
    assert events(hasty) == before


def test_second_request_whose_headers_do_not_come_is_408(hasty: Received) -> None:
    answer = raw(hasty, POST + b"Content-Length: 2\r\n\r\n{}" + b"POST /orders HT")

    assert statuses(answer) == [202, 408]
