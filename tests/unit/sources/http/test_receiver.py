"""The receiver: what is taken, what is refused and how, over real connections."""

from __future__ import annotations

import base64
import gzip
import hashlib
import hmac
import json
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakefeed import Pipeline
from lakefeed.engine.batch.payload_validator import PayloadValidator
from lakefeed.events import OffsetRange
from lakefeed.handles.tables import Tables
from lakefeed.sources.http.client import HttpClient
from lakefeed.sources.http.journal.keys import name_of
from lakefeed.sources.http.receiver.server import Received
from lakefeed.sources.http.source import HttpSource
from support.http_source import pipeline_of, post, raw, received, shop
from support.processes import wait_until


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Received]:
    with received(tmp_path_factory.mktemp("api"), "headers: [x-request-id]") as found:
        yield found


def journalled(folder: Path, stream: str = "orders") -> list[bytes | None]:
    source = pipeline_of(folder).sources["api"]
    assert isinstance(source, HttpSource)
    client = HttpClient(source, "api")
    tasks = client.splits([OffsetRange(stream, 0, client.latest()[stream])], 1)
    return [one for task in tasks for events in source.read(task) for one in events.payloads]


def origins(folder: Path) -> list[dict[str, Any]]:
    source = pipeline_of(folder).sources["api"]
    client = source.client("shop", "api")  # type: ignore[attr-defined]
    tasks = client.splits([OffsetRange("orders", 0, client.latest()["orders"])], 1)
    return [row for task in tasks for one in source.read(task) for row in one.origin().to_pylist()]  # type: ignore[attr-defined]


NESTED = b'{"n": 1.10, "a": [1, {"b": "],["}], "s": "x\\"},{"}'
ARRAY = b"[ " + NESTED + b',\n\n{"n": 12345678901234567890123}, {"k":1,"k":2} ]'


@pytest.mark.parametrize(
    ("body", "headers", "expected"),
    [
        (b'{"n": 1.10}', {}, [b'{"n": 1.10}']),
        (b' {"n":\n 1}\n', {}, [b'{"n":\n 1}']),
        (b"[]", {}, []),
        (
            ARRAY,
            {"Content-Type": "application/json; charset=UTF-8"},
            [
                NESTED,
                b'{"n": 12345678901234567890123}',
                b'{"k":1,"k":2}',
            ],
        ),
        (b'{"n":1}\r\n\r\n {"n":2}\n', {"Content-Type": "application/x-ndjson"}, [b'{"n":1}', b'{"n":2}']),
        (
            b'{"n":1}\n{"n":2}',
            {"Content-Type": "application/x-www-form-urlencoded"},
            [b'{"n":1}', b'{"n":2}'],
        ),
        (
            gzip.compress(b'[{"n":1},{"n":2}]', mtime=0),
            {"Content-Encoding": "gzip"},
            [b'{"n":1}', b'{"n":2}'],
        ),
        (pa.compress(b'{"n":1}', "zstd", asbytes=True), {"Content-Encoding": "zstd"}, [b'{"n":1}']),
    ],
)
def test_events_of_a_body_are_kept_byte_for_byte(
    tmp_path: Path, body: bytes, headers: dict[str, str], expected: list[bytes]
) -> None:
    with received(tmp_path) as api:
        status, told, _ = post(api, "/orders", body, headers)

    assert (status, told["accepted"], told["rejected"]) == (202, len(expected), [])
    assert told["position"] == (len(expected) - 1 if expected else None)
    assert journalled(tmp_path) == expected


def test_any_payload_is_one_event_where_the_format_is_not_json(tmp_path: Path) -> None:
    with received(tmp_path, "format: text") as api:
        post(api, "/orders", b"[1,\n2]", {"Content-Type": "text/csv"})
        empty = post(api, "/orders", b"")

    assert journalled(tmp_path) == [b"[1,\n2]"]
    assert empty[0] == 400


def test_bad_records_are_taken_and_named_in_the_answer(tmp_path: Path) -> None:
    with received(tmp_path) as api:
        lines = post(api, "/orders", b'{"n":1}\n{"n":\n7\n', {"Content-Type": "application/x-ndjson"})
        items = post(api, "/orders", b'[{"n":1}, null, "x"]')

    assert (lines[0], lines[1]["accepted"], lines[1]["position"]) == (202, 1, 2)
    assert [(one["index"], one["line"]) for one in lines[1]["rejected"]] == [(1, 2), (2, 3)]
    assert lines[1]["rejected"][1]["error"] == "expected a JSON object, got a number"
    assert [one["index"] for one in items[1]["rejected"]] == [1, 2]
    assert len(journalled(tmp_path)) == 6


def test_reject_refuses_the_whole_request_and_names_the_records(tmp_path: Path) -> None:
    with received(tmp_path, "on_bad: reject") as api:
        status, told, _ = post(api, "/orders", b'[{"n":1}, null]')

    assert status == 400
    assert told["error"] == "1 of 2 records cannot be taken; nothing of the request was"
    assert told["rejected"] == [{"index": 1, "error": "expected a JSON object, got null"}]
    assert journalled(tmp_path) == []


def test_reject_knows_what_the_declared_columns_of_tables_would_refuse(tmp_path: Path) -> None:
    table = "schema: {id: long not null, price: 'decimal(10,2)'}, evolve: {new_column: dead_letter}"
    with received(tmp_path, "on_bad: reject", table) as api:
        bad = b'[{"id": 1, "price": 1.5}, {"price": 2}, {"id": "x"}, {"id": 4, "colour": "red"}]'
        status, told, _ = post(api, "/orders", bad)
        good = post(api, "/orders", b'[{"id": 1, "price": 1.50}]')

    assert status == 400
    assert [one["index"] for one in told["rejected"]] == [1, 2, 3]
    assert told["rejected"][1]["error"].startswith("id: expected long")
    assert (good[0], journalled(tmp_path)) == (202, [b'{"id": 1, "price": 1.50}'])


@pytest.mark.parametrize("looks", [False, True])
@pytest.mark.parametrize(
    ("rule", "refused"), [("add", [1]), ("ignore", [1]), ("rescue", [1]), ("dead_letter", [1, 4])]
)
def test_reject_asks_nothing_of_columns_that_were_inferred(
    tmp_path: Path, rule: str, refused: list[int], looks: bool
) -> None:
    """The table has been looked at before the port opens, or has not, as after a restart."""
    meta = pa.array([{"a": 1, "seen": 1}])
    write_deltalake(tmp_path / "orders", pa.table({"id": [1], "count": [1], "meta": meta}))
    table = f"schema: {{id: long, meta: 'struct<a: long>'}}, evolve: {{new_column: {rule}}}"
    tables = Tables(Pipeline.from_file(shop(tmp_path, "on_bad: reject", table)))
    if looks:
        tables.handles["orders"].look()
    events = [
        b'{"id": 1, "count": 1.5}',
        b'{"id": "x", "count": 1}',
        b'{"id": 2, "count": "many"}',
        b'{"id": 3, "meta": {"a": 1, "seen": 2.5}}',
        b'{"id": 4, "colour": "red"}',
    ]

    found = PayloadValidator(tables, "api")("orders", events)

    assert sorted(found) == refused


def test_reject_asks_nothing_of_a_table_without_declared_columns(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "orders", pa.table({"id": [1]}))
    tables = Tables(Pipeline.from_file(shop(tmp_path, "on_bad: reject")))
    tables.handles["orders"].look()

    assert PayloadValidator(tables, "api")("orders", [b'{"id": 1.5}', b'{"id": "x"}']) == {}


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "error"),
    [
        ("/orders", b'{"n":', {}, 400, "the body is not JSON"),
        ("/orders", b"", {}, 400, "the body is empty"),
        ("/orders", b"\xff\xfe{}", {}, 400, "the body is not JSON"),
        ("/orders", b"[" * 5000, {}, 400, "the body is not JSON"),
        ("/orders", b"{}", {"Content-Encoding": "gzip"}, 400, "the body is not gzip"),
        ("/orders", b"{}", {"Content-Encoding": "br"}, 415, "content encoding br is not taken"),
        ("/orders", b"{}", {"Content-Type": "text/csv"}, 415, "content type text/csv is not taken"),
        ("/orders", b"{}", {"Content-Type": "application/json; charset=utf-16"}, 415, "charset utf-16"),
        ("/ordesr", b"{}", {}, 404, "did you mean 'orders'?"),
        ("/orders/", b"{}", {}, 404, "there is no stream"),
        ("/orders?wait=rows", b"{}", {}, 400, "the query of the request is not known"),
        ("/orders", b"{}", {"Idempotency-Key": "x" * 300}, 400, "1 to 255 printable characters"),
        (
            "/orders",
            b"{}",
            {"Origin": "https://evil.example"},
            403,
            "web pages of https://evil.example may not",
        ),
        ("/orders", b"{}", {"Host": "evil.example"}, 403, "this host is not served"),
        ("/orders", b"{}", {"X-Filler": "x" * 40_000}, 431, "the headers are larger"),
    ],
)
def test_refusals_say_what_is_wrong_and_what_to_do(
    api: Received, path: str, body: bytes, headers: dict[str, str], status: int, error: str
) -> None:
    found, told, _ = post(api, path, body, headers)

    assert (found, error in told["error"], bool(told["fix"])) == (status, True, True), told


def test_other_methods_and_probes(api: Received) -> None:
    assert post(api, "/", None, method="GET")[:2] == (200, {"status": "ok"})
    got, told, headers = post(api, "/orders", None, method="GET")
    assert (got, headers["allow"], told["fix"]) == (405, "POST", "use POST")
    assert post(api, "/", b"{}")[0] == 405
    assert post(api, "/orders", None, method="OPTIONS", headers={"Origin": "https://a.example"})[0] == 403


def test_body_is_limited_as_it_is_sent_and_as_it_is_inflated(tmp_path: Path) -> None:
    large = b'{"n":"' + b"x" * 20_000 + b'"}'
    with received(tmp_path, "max_body: 10KB") as api:
        plain = post(api, "/orders", large)
        packed = post(api, "/orders", gzip.compress(large), {"Content-Encoding": "gzip"})
        bomb = pa.compress(b" " * 50_000_000, "zstd", asbytes=True)
        exploding = post(api, "/orders", bomb, {"Content-Encoding": "zstd"})

    assert {plain[0], packed[0], exploding[0]} == {413}
    assert "more than 10KB (max_body), counted when decompressed" in packed[1]["error"]


def test_token_by_name_becomes_the_key_and_never_a_header(tmp_path: Path) -> None:
    options = "token: {shop: secret-of-shop, app: secret-of-app}, headers: [x-request-id]"
    with received(tmp_path, options) as api:
        missing = post(api, "/orders", b"{}")
        wrong = post(api, "/orders", b"{}", {"Authorization": "Bearer secret-of-nobody"})
        given = {"Authorization": "Bearer secret-of-app", "X-Request-Id": "r1", "Cookie": "c"}
        taken = post(api, "/orders", b"{}", given)

    assert (missing[0], missing[2]["www-authenticate"], wrong[0], taken[0]) == (401, "Bearer", 403, 202)
    (origin,) = origins(tmp_path)
    assert (origin["key"], origin["headers"]) == (b"app", [{"key": "x-request-id", "value": b"r1"}])
    assert b"secret-of" not in (tmp_path / ".lakefeed/journal/000000000000.segment").read_bytes()


def sign(secret: str, data: bytes) -> str:
    return hmac.new(secret.encode(), data, hashlib.sha256).hexdigest()


def signed(preset: str, secret: str, body: bytes, now: int) -> dict[str, str]:
    match preset:
        case "github":
            return {"X-Hub-Signature-256": f"sha256={sign(secret, body)}"}
        case "stripe":
            return {"Stripe-Signature": f"t={now},v1={'0' * 64},v1={sign(secret, b'%d.' % now + body)}"}
        case "slack":
            text = sign(secret, b"v0:%d:" % now + body)
            return {"X-Slack-Request-Timestamp": str(now), "X-Slack-Signature": f"v0={text}"}
        case _:
            return {"X-Signature": base64.b64encode(bytes.fromhex(sign(secret, body))).decode()}


@pytest.mark.parametrize("preset", ["github", "stripe", "slack", "generic"])
def test_signatures_of_webhooks_with_two_secrets(tmp_path: Path, preset: str) -> None:
    body, now = b'{"n": 1}', int(time.time())
    with received(tmp_path, f"hmac: {{preset: {preset}, secret: [new-secret, old-secret]}}") as api:
        statuses = [
            post(api, "/orders", sent, signed(preset, secret, body, moment))[0]
            for sent, secret, moment in [
                (body, "new-secret", now),
                (body, "old-secret", now),
                (body, "bad-secret", now),
                (body + b" ", "new-secret", now),
                (body, "new-secret", now - 1000),
            ]
        ]
        unsigned = post(api, "/orders", body)

    aged = 403 if preset in ("stripe", "slack") else 202
    assert statuses == [202, 202, 403, 403, aged]
    assert unsigned[0] == 401


def test_origins_that_are_allowed_may_send_from_a_browser(tmp_path: Path) -> None:
    origin = {"Origin": "https://shop.example"}
    with received(tmp_path, "allow_origins: ['https://shop.example']") as api:
        asked = post(api, "/orders", None, origin, method="OPTIONS")
        sent = post(api, "/orders", b"{}", origin)
        other = post(api, "/orders", b"{}", {"Origin": "https://evil.example"})

    assert (asked[0], sent[0], other[0]) == (204, 202, 403)
    assert (
        asked[2]["access-control-allow-origin"] == sent[2]["access-control-allow-origin"] == origin["Origin"]
    )
    assert "access-control-allow-origin" not in other[2]


def test_repeated_key_gets_the_first_answer_also_after_a_restart(tmp_path: Path) -> None:
    key = {"Idempotency-Key": "k-1"}
    with received(tmp_path) as api:
        first = post(api, "/orders", b'[{"n":1},2]', key)
        again = post(api, "/orders", b'[{"n":1},2]', key)
        other = post(api, "/orders", b'[{"n":1},3]', key)
    with received(tmp_path) as api:
        restarted = post(api, "/orders", b'[{"n":1},2]', key)

    assert first[0] == again[0] == restarted[0] == 202
    assert first[1] == again[1] == restarted[1]
    assert "idempotent-replayed" not in first[2]
    assert again[2]["idempotent-replayed"] == restarted[2]["idempotent-replayed"] == "true"
    assert (other[0], "used with another body" in other[1]["error"]) == (422, True)
    assert len(journalled(tmp_path)) == 2


def test_repeated_key_gets_the_first_answer_though_its_body_was_compressed_again(tmp_path: Path) -> None:
    headers = {"Idempotency-Key": "k-1", "Content-Encoding": "gzip"}
    # The time in the head of gzip is that of the compression.
    bodies = [gzip.compress(b'[{"n":1},{"n":2}]', mtime=time) for time in (1, 2)]

    with received(tmp_path) as api:
        first, again = (post(api, "/orders", body, headers) for body in bodies)
        plain = post(api, "/orders", b'[{"n":1},{"n":2}]', {"Idempotency-Key": "k-1"})

    assert bodies[0] != bodies[1]
    assert first[0] == again[0] == plain[0] == 202
    assert again[2]["idempotent-replayed"] == plain[2]["idempotent-replayed"] == "true"
    assert len(journalled(tmp_path)) == 2


def test_answers_that_are_remembered_name_few_bad_records_and_take_little_memory(tmp_path: Path) -> None:
    body = json.dumps([*range(500), {"n": 1}]).encode()
    with received(tmp_path) as api:
        first = post(api, "/orders", body, {"Idempotency-Key": "k-1"})
        again = post(api, "/orders", body, {"Idempotency-Key": "k-1"})
        other = post(api, "/orders", body)
    with received(tmp_path) as api:
        restarted = post(api, "/orders", body, {"Idempotency-Key": "k-1"})
        known = api.journal.keys.get(name_of(None, "orders", "k-1"))

    assert first[1] == again[1] == restarted[1]
    assert (first[1]["accepted"], len(first[1]["rejected"]), len(other[1]["rejected"])) == (1, 10, 100)
    assert known is not None and len(known.rejected) < 1000


def test_retry_that_comes_while_the_first_is_under_way_waits_for_it(tmp_path: Path) -> None:
    with received(tmp_path) as api, ThreadPoolExecutor(8) as pool:
        gate = threading.Event()
        write = api.journal._segments.append
        api.journal._segments.append = lambda *given: (gate.wait(120), write(*given))
        sent = [pool.submit(post, api, "/orders", {"n": 1}, {"Idempotency-Key": "k"}) for _ in range(8)]
        time.sleep(0.2)
        gate.set()
        answers = [one.result(120) for one in sent]

    assert {answer[0] for answer in answers} == {202}
    assert sum("idempotent-replayed" in answer[2] for answer in answers) == 7
    assert len(journalled(tmp_path)) == 1


def test_key_of_one_sender_is_none_of_another(tmp_path: Path) -> None:
    with received(tmp_path, "token: {one: secret-one, two: secret-two}") as api:
        for name in ("one", "two"):
            headers = {"Idempotency-Key": "k", "Authorization": f"Bearer secret-{name}"}
            assert "idempotent-replayed" not in post(api, "/orders", {"n": name}, headers)[2]


def test_sender_beyond_its_rate_is_told_when_to_come_again(tmp_path: Path) -> None:
    options = "max_rate: 1, token: {one: secret-one, two: secret-two}"
    with received(tmp_path, options) as api:
        one, two = ({"Authorization": f"Bearer secret-{name}"} for name in ("one", "two"))
        first = post(api, "/orders", b"{}\n" * 100, one)
        second = post(api, "/orders", b"{}", one)
        other = post(api, "/orders", b"{}", two)

    assert (first[0], second[0], other[0]) == (202, 429, 202)
    assert 30 <= int(second[2]["retry-after"]) <= 99


def test_full_journal_is_503_until_tables_have_caught_up(tmp_path: Path) -> None:
    with received(tmp_path, "quota: 20KB") as api:
        answers = [post(api, "/orders", b'{"n":"%s"}' % (b"x" * 1000)) for _ in range(25)]
        taken = [answer for answer in answers if answer[0] == 202]
        small = post(api, "/orders", b"{}")
        api.journal.acknowledge({"orders": len(taken)})
        deadline = time.monotonic() + 120
        while (after := post(api, "/orders", b"{}"))[0] == 503 and time.monotonic() < deadline:
            time.sleep(0.05)

    assert 10 < len(taken) < 20
    assert {answer[0] for answer in answers[len(taken) :]} == {503}
    assert "the journal is full: it holds 20KB (quota)" in answers[-1][1]["error"]
    assert (answers[-1][2]["retry-after"], small[0], after[0]) == ("10", 503, 202)


def test_wait_for_the_table_is_201_or_504_and_durable_in_both(tmp_path: Path) -> None:
    with received(tmp_path, "wait_timeout: 500ms") as api:
        late = post(api, "/orders?wait=table", b"{}")
    with received(tmp_path) as api, ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(post, api, "/orders?wait=table", b"{}")
        wait_until(lambda: len(api.waiters._waiting) == 1, 120, lambda: "it does not wait")
        api.waiters.reach("orders", {"orders": 2})
        held = waiting.result(120)

    assert (late[0], late[1]["position"], "they are durable" in late[1]["error"]) == (504, 0, True)
    assert (held[0], held[1]) == (201, {"accepted": 1, "rejected": [], "position": 1})
    assert len(journalled(tmp_path)) == 2


def test_form_of_a_webhook_is_refused_with_what_to_set(api: Received) -> None:
    form = {"Content-Type": "application/x-www-form-urlencoded"}

    status, told, _ = post(api, "/orders", b"payload=%7B%22action%22%3A%22opened%22%7D", form)

    assert (status, told["fix"]) == (415, "set the content type of the webhook to application/json")


@pytest.mark.parametrize(
    ("path", "more"),
    [
        *(("/", "Connection: close"), ("/orders", "Connection: close"), ("/nothing", "Connection: close")),
        ("/", "Connection: Upgrade\r\nUpgrade: websocket"),
        ("/", "Connection: close\r\nX-Filler: " + "x" * 70_000),
        ("/", "Content-Length: nothing"),
    ],
)
def test_answer_to_head_has_no_body(api: Received, path: str, more: str) -> None:
    request = f"HEAD {path} HTTP/1.1\r\nHost: localhost\r\n{more}\r\n\r\n".encode()

    head, _, body = raw(api, request).partition(b"\r\n\r\n")

    assert head.startswith(b"HTTP/1.1 ") and body == b""


def test_answers_are_json_that_names_a_status_for_each_request(api: Received) -> None:
    before = dict(api.receiver.figures.requests) if api.receiver else {}
    post(api, "/orders", {"n": 1})
    post(api, "/nothing", {"n": 1})

    assert api.receiver is not None
    counted = api.receiver.figures.requests
    assert (counted[202] - before.get(202, 0), counted[404] - before.get(404, 0)) == (1, 1)
    assert json.dumps(api.receiver.figures.syncs)
