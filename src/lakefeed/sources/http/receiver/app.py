"""The receiver: a request becomes a batch of the journal, and is answered when the batch is durable."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable
from itertools import chain
from typing import Any
from urllib.parse import parse_qs

import orjson

from lakefeed.sources.http.journal.frame import Batch, Payloads
from lakefeed.sources.http.journal.journal import Journal
from lakefeed.sources.http.journal.keys import Answered, name_of
from lakefeed.sources.http.receiver.admission import Admission
from lakefeed.sources.http.receiver.body import (
    ARRIVED,
    Body,
    Disconnected,
    Headers,
    Receive,
    announced,
    inflated,
)
from lakefeed.sources.http.receiver.figures import Figures
from lakefeed.sources.http.receiver.pressure import Held, Pressure, Rates
from lakefeed.sources.http.receiver.records import Records, records
from lakefeed.sources.http.receiver.refusal import Refusal, later
from lakefeed.sources.http.receiver.signature import verify_signature
from lakefeed.sources.http.receiver.waiting import PendingAppends, TableWaiters
from lakefeed.sources.http.source import HttpSource
from lakefeed.text import suggestion

_log = logging.getLogger("lakefeed")
_LONGEST_KEY = 255
_LARGE = 256 * 1024
"""Bytes from which on a body is taken apart beside the loop, so that others need not wait for it."""
_MOST_HEADER_BYTES = 32 * 1024
_GONE = 499
"""The status that is counted when a client has gone before its request was whole."""
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Content-Encoding, Idempotency-Key",
    "Access-Control-Max-Age": "600",
}

Send = Callable[[Any], Awaitable[None]]
Validator = Callable[[str, list[bytes]], dict[int, str]]
"""What of some payloads of a stream no table would take, by index."""


class Receiver:
    """A plain ASGI application. Everything here runs in the thread of its loop."""

    def __init__(
        self, source: HttpSource, journal: Journal, waiters: TableWaiters, validator: Validator | None = None
    ) -> None:
        self.figures = Figures()
        self.pressure = Pressure(source.max_in_flight, source.quota, lambda: journal.size)
        self._source = source
        self._journal = journal
        self._validator = validator
        self._kept = [(name, name.encode()) for name in source.headers]
        self._admission = Admission(source)
        self._rates = Rates(source.max_rate)
        self._pending = PendingAppends(journal)
        self._waiters = waiters
        self._under_way: dict[str, asyncio.Future[None]] = {}
        self._tried_at = 0.0
        journal.watch_sync = self.figures.add_sync

    async def __call__(self, scope: Any, receive: Receive, send: Send) -> None:
        """Answer a request; whatever goes wrong has a status and a reason."""
        if scope["type"] != "http":
            return
        headers: Headers = dict(scope["headers"])
        body = Body(headers, receive, scope["extensions"][ARRIVED])
        try:
            try:
                status, told, more = await self._answer(scope, headers, body)
            except Refusal as refusal:
                status, told, more = refusal.status, refusal.body, refusal.headers
                if refusal.closes or not await body.drop():
                    more["Connection"] = "close"
        except Disconnected:
            self.figures.requests[_GONE] += 1
            return
        except Exception:
            _log.exception("a request to the HTTP source could not be answered")
            status, more = 500, {"Connection": "close"}
            told = orjson.dumps({"error": "this is a bug of Lakefeed", "fix": "the log of the run says more"})
        self.figures.requests[status] += 1
        await self._send(send, headers, status, told, more)

    async def _answer(self, scope: Any, headers: Headers, body: Body) -> tuple[int, bytes, dict[str, str]]:
        method, path = scope["method"], scope["path"]
        if method == "OPTIONS" and self._admission.allowed_origin(headers):
            return 204, b"", _PREFLIGHT
        if path == "/":
            if method not in ("GET", "HEAD"):
                raise _wrong_method(method, "GET, HEAD")
            return self._state(method)
        _refuse_large_headers(scope["headers"])
        sender = self._admission.sender(headers)
        stream = self._stream(path)
        if method != "POST":
            raise _wrong_method(method, "POST")
        self._rates.check(sender)
        if self._journal.trouble:
            self._probe()
        with Held(self.pressure) as held:
            return await self._post(stream, sender, _query(scope), headers, body, held)

    def _state(self, method: str) -> tuple[int, bytes, dict[str, str]]:
        """For probes: whether a request would be taken now."""
        try:
            self.pressure.check(0)
            full = bool(self._journal.trouble)
        except Refusal:
            full = True
        told = b'{"status":"full"}' if full else b'{"status":"ok"}'
        return 503 if full else 200, b"" if method == "HEAD" else told, {}

    def _probe(self) -> None:
        """Refuse while the disk is full; one request a second is let through, to see whether it still is."""
        now = time.monotonic()
        if now - self._tried_at < 1.0:
            raise later(5, f"the journal cannot be written: {self._journal.trouble}", "send it again later")
        self._tried_at = now

    def _stream(self, path: str) -> str:
        stream = path[1:]
        if stream not in self._source.streams:
            near = suggestion(stream[:100], self._source.streams)
            raise Refusal(404, f"there is no stream {stream[:100]!r}{near}", "POST to the path of a stream")
        return stream

    async def _post(
        self, stream: str, sender: str | None, wait: bool, headers: Headers, body: Body, held: Held
    ) -> tuple[int, bytes, dict[str, str]]:
        source = self._source
        self.pressure.check(announced(headers, source.max_body))
        raw = await body.read(source.max_body, source.body_timeout, held.take)
        self.figures.bytes += len(raw)
        if source.hmac:
            verify_signature(source.hmac, headers, raw)
        taken = self._taken_apart(stream, raw, headers)
        if len(raw) < _LARGE and b"content-encoding" not in headers:
            found = taken()
        else:
            found = await asyncio.get_running_loop().run_in_executor(None, taken)
            held.take(len(found.payloads.data))
        self._rates.count(sender, len(found.payloads))
        if found.bad and source.on_bad == "reject":
            raise Refusal(
                400,
                f"{found.bad} of {len(found.payloads)} records cannot be taken; nothing of the request was",
                "correct the records that `rejected` names, and send all of them again",
                rejected=found.rejected,
            )
        key = _key(headers)
        if key is None:
            answered, replayed = await self._append(stream, sender, headers, found, None, ""), False
        else:
            digest = hashlib.blake2b(raw, digest_size=16).hexdigest()
            answered, replayed = await self._once(stream, sender, headers, found, key, digest)
        more = {"Idempotent-Replayed": "true"} if replayed else {}
        return await self._told(stream, answered, wait, more)

    def _taken_apart(self, stream: str, raw: bytes, headers: Headers) -> Callable[[], Records]:
        def taken() -> Records:
            source = self._source
            body = inflated(raw, headers.get(b"content-encoding", b"").decode("latin-1"), source.max_body)
            if not source.takes_json:
                if not body:
                    raise Refusal(400, "the body is empty", "send the payload of one event as the body")
                return Records(Payloads.of((body,)))
            found = records(body, headers.get(b"content-type", b"").decode("latin-1"))
            if self._validator is not None and not found.bad:
                for index, error in self._validator(stream, found.payloads.each()).items():
                    found.reject(index, error)
            return found

        return taken

    async def _once(
        self, stream: str, sender: str | None, headers: Headers, found: Records, key: str, digest: str
    ) -> tuple[Answered, bool]:
        """Append unless a request with the same key is in the journal, or on its way there."""
        name = name_of(sender, stream, key)
        while (first := self._under_way.get(name)) is not None:
            await asyncio.wait([first])
        if (known := self._journal.keys.get(name)) is not None:
            if known.digest != digest:
                raise Refusal(
                    422,
                    "this Idempotency-Key was used with another body",
                    "choose a new key for each new request, and the same key only to repeat one",
                )
            return known, True
        under_way = self._under_way[name] = asyncio.get_running_loop().create_future()
        try:
            return await self._append(stream, sender, headers, found, key, digest), False
        finally:
            del self._under_way[name]
            under_way.set_result(None)

    async def _append(
        self,
        stream: str,
        sender: str | None,
        headers: Headers,
        found: Records,
        key: str | None,
        digest: str,
    ) -> Answered:
        received = time.time_ns() // 1_000
        meta: dict[str, Any] = {}
        if sender:
            meta["sender"] = sender
        if self._kept and (
            kept := [(name, headers[raw].decode("latin-1")) for name, raw in self._kept if raw in headers]
        ):
            meta["headers"] = kept
        if key is not None:
            meta |= {"key": key, "digest": digest, "rejected": found.rejected, "bad": found.bad}
        if not found.payloads and key is None:
            return Answered("", 0, 0, [], received, 0)
        append = await self._pending.append(Batch.of(stream, found.payloads, received, meta))
        if append.error is not None or append.first is None:
            raise later(5, f"the journal cannot be written: {append.error}", "send it again later")
        self.figures.events += len(found.payloads)
        return Answered(digest, append.first, len(found.payloads), found.rejected, received, found.bad)

    async def _told(
        self, stream: str, answered: Answered, wait: bool, more: dict[str, str]
    ) -> tuple[int, bytes, dict[str, str]]:
        position = answered.first + answered.count - 1 if answered.count else None
        body = orjson.dumps(
            {
                "accepted": answered.count - answered.bad,
                "rejected": answered.rejected,
                "position": position,
            }
        )
        if not wait:
            return 202, body, more
        if position is None or await self._waiters.wait(stream, position, self._source.wait_timeout):
            return 201, body, more
        told = {
            "error": "the tables do not have the events yet; they are durable, and will be in the tables "
            "once",
            "fix": "do not send them again; look at the status page",
        }
        return 504, orjson.dumps(told | orjson.loads(body)), more

    async def _send(
        self, send: Send, headers: Headers, status: int, body: bytes, more: dict[str, str]
    ) -> None:
        told = [
            (b"content-type", b"application/json"),
            (b"content-length", str(len(body)).encode()),
            *((name.lower().encode(), value.encode("latin-1", "replace")) for name, value in more.items()),
        ]
        if b"origin" in headers and (allowed := self._admission.allowed_origin(headers)):
            told += [(b"access-control-allow-origin", allowed.encode("latin-1")), (b"vary", b"origin")]
        await send({"type": "http.response.start", "status": status, "headers": told})
        await send({"type": "http.response.body", "body": body})


def _query(scope: Any) -> bool:
    """Whether the answer is to wait for the tables. Raises Refusal for what nobody knows."""
    if not scope["query_string"]:
        return False
    try:
        asked = parse_qs(scope["query_string"].decode("ascii"), keep_blank_values=True, max_num_fields=10)
    except ValueError:
        asked = {"?": []}
    if asked == {"wait": ["table"]}:
        return True
    raise Refusal(400, "the query of the request is not known", "leave it out, or send ?wait=table")


def _key(headers: Headers) -> str | None:
    value = headers.get(b"idempotency-key")
    if value is None:
        return None
    key = value.decode("latin-1").strip()
    if not key or len(key) > _LONGEST_KEY or not key.isprintable():
        raise Refusal(
            400,
            f"an Idempotency-Key has 1 to {_LONGEST_KEY} printable characters",
            "send a UUID, for example",
        )
    return key


def _refuse_large_headers(headers: list[tuple[bytes, bytes]]) -> None:
    if sum(map(len, chain.from_iterable(headers))) > _MOST_HEADER_BYTES:
        raise Refusal(431, "the headers are larger than 32KB", "send smaller headers", closes=True)


def _wrong_method(method: str, allowed: str) -> Refusal:
    return Refusal(405, f"{method} is not served here", f"use {allowed}", headers={"Allow": allowed})
