"""The receiver: a request becomes a batch of the journal, and is answered when the batch is durable."""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain
from typing import Any, TypeVar
from urllib.parse import parse_qs

import orjson

from lakefeed.sources.http.journal.frame import Batch, Payloads
from lakefeed.sources.http.journal.journal import Journal
from lakefeed.sources.http.journal.keys import Answered, name_of
from lakefeed.sources.http.receiver.admission import Admission
from lakefeed.sources.http.receiver.body import (
    ARRIVED,
    GONE,
    Body,
    Disconnected,
    Headers,
    Receive,
    announced,
    inflated,
)
from lakefeed.sources.http.receiver.figures import Figures
from lakefeed.sources.http.receiver.pressure import Held, Pressure, Rates
from lakefeed.sources.http.receiver.records import LARGE, MOST_NAMED, Records, records
from lakefeed.sources.http.receiver.refusal import Refusal, later
from lakefeed.sources.http.receiver.signature import verify_signature
from lakefeed.sources.http.receiver.validation import Validator, slices
from lakefeed.sources.http.receiver.waiting import PendingAppends, TableWaiters
from lakefeed.sources.http.source import HttpSource
from lakefeed.text import suggestion
from lakefeed.units import format_size

_log = logging.getLogger("lakefeed")
_LONGEST_KEY = 255
_AT_ONCE = 2
"""Large bodies that are taken apart, or slices of them that are validated, at the same time."""
_EXPANDS = 32
"""How many times larger a compressed body is thought to be, before it is decompressed."""
_NAMED_WITH_A_KEY = 10
"""Bad records that the answer to a request with an idempotency key names."""
_MOST_HEADER_BYTES = 32 * 1024
_GONE = 499
"""The status that is counted when a client has gone before its request was whole."""
_PREFLIGHT = {
    "Access-Control-Allow-Methods": "POST",
    "Access-Control-Allow-Headers": "Authorization, Content-Type, Content-Encoding, Idempotency-Key",
    "Access-Control-Max-Age": "600",
}

Send = Callable[[Any], Awaitable[None]]
_Result = TypeVar("_Result")


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
        self._pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="receive")
        journal.watch_sync = self.figures.add_sync

    def close(self) -> None:
        """End the threads, once no more requests come."""
        self._pool.shutdown(wait=False, cancel_futures=True)

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
        await self._send(send, headers, status, b"" if scope["method"] == "HEAD" else told, more)

    async def _answer(self, scope: Any, headers: Headers, body: Body) -> tuple[int, bytes, dict[str, str]]:
        method, path = scope["method"], scope["path"]
        if method == "OPTIONS" and self._admission.allowed_origin(headers):
            return 204, b"", _PREFLIGHT
        if path == "/":
            if method not in ("GET", "HEAD"):
                raise _wrong_method(method, "GET, HEAD")
            return self._state()
        _refuse_large_headers(scope["headers"])
        sender = self._admission.sender(headers)
        stream = self._stream(path)
        if method != "POST":
            raise _wrong_method(method, "POST")
        self._rates.check(sender)
        if self._journal.trouble:
            self._probe()
        wait = _query(scope)
        with Held(self.pressure) as held:
            answered, more = await self._post(stream, sender, headers, body, held, scope["extensions"][GONE])
        # Nothing of the body is held while a request waits for the tables.
        return await self._told(stream, answered, wait, more)

    def _state(self) -> tuple[int, bytes, dict[str, str]]:
        """For probes: whether a request would be taken now."""
        try:
            self.pressure.check(0)
            full = bool(self._journal.trouble)
        except Refusal:
            full = True
        told = b'{"status":"full"}' if full else b'{"status":"ok"}'
        return 503 if full else 200, told, {}

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
        self,
        stream: str,
        sender: str | None,
        headers: Headers,
        body: Body,
        held: Held,
        is_gone: Callable[[], bool],
    ) -> tuple[Answered, dict[str, str]]:
        source = self._source
        self.pressure.check(announced(headers, source.max_body))
        raw = await body.read(source.max_body, source.body_timeout, held.take)
        self.figures.bytes += len(raw)
        if source.hmac:
            verify_signature(source.hmac, headers, raw)
        taken = partial(self._records, raw, headers, held)
        if len(raw) < LARGE and b"content-encoding" not in headers:
            found = taken()
        else:
            found = await self._in_pool(taken)
        # What taking the body apart has cost is free again.
        held.keep(len(raw) + found.payloads.size)
        if self._validator is not None and not found.bad:
            await self._validate(self._validator, stream, found, held, is_gone)
        self._rates.count(sender, len(found.payloads))
        if found.bad and source.on_bad == "reject":
            count = f"at least {found.bad}" if found.is_cut else f"{found.bad} of {len(found.payloads)}"
            raise Refusal(
                400,
                f"{count} records cannot be taken; nothing of the request was",
                "correct the records that `rejected` names, and send all of them again",
                rejected=found.rejected,
            )
        key = _key(headers)
        if key is None:
            return await self._append(stream, sender, headers, found, None, ""), {}
        answered, replayed = await self._once(stream, sender, headers, found, key, found.digest)
        return answered, {"Idempotent-Replayed": "true"} if replayed else {}

    def _records(self, raw: bytes, headers: Headers, held: Held) -> Records:
        """The events of a body. Called from any thread."""
        source = self._source
        body = self._inflated(raw, headers, held)
        if source.takes_json:
            kind = headers.get(b"content-type", b"").decode("latin-1")
            found = records(body, kind, partial(self._charge, held), strict=source.on_bad == "reject")
        elif body:
            found = Records(Payloads.of((body,)))
        else:
            raise Refusal(400, "the body is empty", "send the payload of one event as the body")
        if b"idempotency-key" in headers:
            # Of what was compressed: a client that compresses it again sends other bytes.
            found.digest = hashlib.blake2b(body, digest_size=16).hexdigest()
            if source.on_bad != "reject":
                # The answer is remembered as long as the key.
                del found.rejected[_NAMED_WITH_A_KEY:]
        return found

    async def _validate(
        self, validator: Validator, stream: str, found: Records, held: Held, is_gone: Callable[[], bool]
    ) -> None:
        """Reject what the tables would refuse, until an answer can name no more records."""
        for part in slices(found.payloads, validator.columns(stream)):
            self._charge(held, part.cost)
            validate = partial(validator, stream, part.payloads)
            refused = validate() if part.cost < LARGE else await self._in_pool(validate)
            held.give_back(part.cost)
            for index, error in refused.items():
                found.reject(part.first + index, error)
            if found.bad >= MOST_NAMED:
                found.is_cut = part.first + len(part.payloads) < len(found.payloads)
                return
            if is_gone():
                raise Disconnected

    def _charge(self, held: Held, count: int) -> None:
        """Hold some more memory for one request, or with a negative number less."""
        if count <= 0:
            held.give_back(-count)
            return
        if held.size + count > self._source.max_in_flight:
            raise Refusal(
                413,
                f"to take the body apart needs more than {format_size(self._source.max_in_flight)} of memory "
                "(max_in_flight)",
                "send fewer events in a request, or set max_in_flight of the source higher",
            )
        held.take(count)

    async def _in_pool(self, work: Callable[[], _Result]) -> _Result:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def _inflated(self, raw: bytes, headers: Headers, held: Held) -> bytes:
        """The body as it was before its sender compressed it, which counts before it is made."""
        limit, encoding = self._source.max_body, headers.get(b"content-encoding", b"").decode("latin-1")
        if not encoding:
            return raw
        for expected in sorted({min(limit, _EXPANDS * len(raw) + LARGE), limit}):
            held.take(expected)
            try:
                body = inflated(raw, encoding, expected)
            except Refusal as refusal:
                held.give_back(expected)
                if refusal.status != 413 or expected == limit:
                    raise
            else:
                held.give_back(expected - len(body))
                return body
        raise AssertionError("the last limit is that of the source")

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
            return Answered("", 0, 0, b"[]", received, 0)
        append = await self._pending.append(Batch.of(stream, found.payloads, received, meta))
        if append.error is not None or append.first is None:
            raise later(5, f"the journal cannot be written: {append.error}", "send it again later")
        self.figures.events += len(found.payloads)
        rejected = orjson.dumps(found.rejected)
        return Answered(digest, append.first, len(found.payloads), rejected, received, found.bad)

    async def _told(
        self, stream: str, answered: Answered, wait: bool, more: dict[str, str]
    ) -> tuple[int, bytes, dict[str, str]]:
        position = answered.first + answered.count - 1 if answered.count else None
        told: dict[str, Any] = {
            "accepted": answered.count - answered.bad,
            "rejected": orjson.Fragment(answered.rejected),
            "position": position,
        }
        if not wait:
            return 202, orjson.dumps(told), more
        reached = position is None or await self._waiters.wait(stream, position, self._source.wait_timeout)
        if stopped := self._waiters.stopped(stream):
            told["stopped"] = stopped
        if reached:
            return 201, orjson.dumps(told), more
        late = "the tables do not have the events yet; they are durable, and will be in the tables once"
        if stopped:
            late = f"{late}: {', '.join(stopped)} {'has' if len(stopped) == 1 else 'have'} stopped"
        fix = "do not send them again; look at the status page"
        return 504, orjson.dumps({"error": late, "fix": fix, **told}), more

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
