"""Receivers of a pipeline: each listens in a thread of its own, for the length of a run."""

from __future__ import annotations

import gc
import logging
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from typing import Any

import uvicorn

from lakefeed.errors import UsageError
from lakefeed.figures import readable_size
from lakefeed.pipeline.http import bound_socket, split_address
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources.http.journal.journal import Journal, writing
from lakefeed.sources.http.journal.keys import Keys
from lakefeed.sources.http.journal.segments import segments_at
from lakefeed.sources.http.receiver.app import Receiver
from lakefeed.sources.http.receiver.connection import Connection
from lakefeed.sources.http.receiver.validation import Validator
from lakefeed.sources.http.receiver.waiting import TableWaiters
from lakefeed.sources.http.source import HttpSource
from lakefeed.text import counted

_BACKLOG = 1024
_KEEP_ALIVE = 30
_STOP_SECONDS = 5.0
_SWITCH_SECONDS = 0.0005
"""How long another thread may keep the interpreter; Python's 5 ms, several times on the way of a request,
are most of what an answer may take."""
_log = logging.getLogger("lakefeed")


@dataclass(frozen=True)
class Received:
    """A source with what it has open."""

    name: str
    journal: Journal
    waiters: TableWaiters
    receiver: Receiver | None = None
    address: str = ""
    """Where it listens; empty where it does not."""

    def describe(self) -> str:
        """What it does now, in a line."""
        journal = f"journal {readable_size(self.journal.size)}"
        if self.receiver is None:
            return journal
        counts = self.receiver.figures.requests
        told = ", ".join(f"{count:,} {status}" for status, count in sorted(counts.items()))
        requests = f"{counted(counts.total(), 'request')} ({told})" if told else "no requests yet"
        trouble = f", cannot be written: {self.journal.trouble}" if self.journal.trouble else ""
        return f"listens on {self.address}, {requests}, {journal}{trouble}"

    def refuses(self) -> str:
        """Why every request gets 503 now, and what to do; empty while requests are taken."""
        if self.receiver is None:
            return ""
        if self.journal.is_fenced:
            return (
                f"{self.journal.trouble}; requests get 503.\n"
                "This run ends soon. Nothing is lost: the other one has all that was answered for."
            )
        if self.journal.trouble:
            return (
                f"the journal {self.journal} cannot be written: {self.journal.trouble}; requests get 503.\n"
                "Free some space, or repair what it says. Nothing is lost: it is tried again each second."
            )
        if self.receiver.pressure.is_journal_full():
            return (
                f"the journal {self.journal} is full ({readable_size(self.journal.size)}); requests get "
                "503.\n"
                "See why the tables do not catch up, or set `quota` of the source higher. Nothing is lost."
            )
        return ""


@contextmanager
def receiving(
    pipeline: Pipeline,
    validators: Mapping[str, Validator],
    *,
    listen: bool,
    confirm: Callable[[str], None] = lambda name: None,
    names: Collection[str] | None = None,
) -> Iterator[dict[str, Received]]:
    """Open the journal of every HTTP source, and listen unless the run only drains what is there.

    With `names`, only of these sources.
    `confirm` is called with the name of a source before it takes events, which must not get numbers that
    tables have passed. Where the journal is not the one that its tables know, it raises, or with
    `on_data_loss: skip` the journal goes on behind them.
    """
    with ExitStack() as opened:
        found = {}
        for name, source in pipeline.sources.items():
            if not isinstance(source, HttpSource) or (names is not None and name not in names):
                continue
            # A run that cannot listen must not take a journal over from one that can.
            bound = _bound(opened, name, source) if listen else None
            journal = opened.enter_context(_journal(pipeline, name, source))
            found[name] = Received(name, journal, TableWaiters(_takers(pipeline, name, source)))
            if bound is not None:
                confirm(name)
                listening = _listening(source, found[name], validators.get(name), bound)
                found[name] = opened.enter_context(listening)
        yield found


@contextmanager
def prompt() -> Iterator[None]:
    """For the length of a run, once all is loaded: what is alive now is left out of every search for garbage.

    Such a search stops all threads, and with Spark, Arrow and pydantic loaded it takes some 50 ms.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)


def _journal(pipeline: Pipeline, name: str, source: HttpSource) -> Any:
    keys = Keys(source.idempotency.window, source.idempotency.keys)
    segments = segments_at(source.journal, source.storage)
    skip = source.on_data_loss == "skip"
    owner, fed = f"{pipeline.name}/{name}", pipeline.tables_of(name).values()
    return writing(
        source.journal,
        segments,
        keys,
        owner,
        source.quota,
        skip_damaged=skip,
        takes=lambda stream: any(table.takes(stream) for table in fed),
    )


def _takers(pipeline: Pipeline, name: str, source: HttpSource) -> dict[str, list[str]]:
    fed = pipeline.tables_of(name)
    return {stream: [one for one, table in fed.items() if table.takes(stream)] for stream in source.streams}


def _bound(opened: ExitStack, name: str, source: HttpSource) -> socket.socket:
    """The port of a source, with certificates that can be used. Raises UsageError."""
    _config(name, source, _nothing)
    return opened.enter_context(closing(bound_socket(source.listen, f"sources.{name}", _BACKLOG)))


async def _nothing(scope: Any, receive: Any, send: Any) -> None:
    """An application that answers no request."""


@contextmanager
def _listening(
    source: HttpSource, opening: Received, validator: Validator | None, bound: socket.socket
) -> Iterator[Received]:
    name, (host, _) = opening.name, split_address(source.listen)
    receiver = Receiver(source, opening.journal, opening.waiters, validator)
    server = uvicorn.Server(_config(name, source, receiver))
    thread = threading.Thread(target=server.run, args=([bound],), name=f"receive {name}", daemon=True)
    thread.start()
    scheme, port = "https" if source.tls else "http", bound.getsockname()[1]
    address = f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"
    _log.info("source %s: POST events to %s/%s", name, address, "|".join(source.streams))
    try:
        yield replace(opening, receiver=receiver, address=address)
    finally:
        server.should_exit = True
        thread.join(_STOP_SECONDS)
        receiver.close()


def _config(name: str, source: HttpSource, receiver: Any) -> uvicorn.Config:
    secured: dict[str, Any] = {}
    if tls := source.tls:
        secured = {"ssl_certfile": tls.certificate, "ssl_keyfile": tls.key}
        if tls.client_ca:
            secured |= {"ssl_ca_certs": tls.client_ca, "ssl_cert_reqs": ssl.CERT_REQUIRED}
    config = uvicorn.Config(
        receiver,
        http=Connection,
        ws="none",
        loop="uvloop",
        lifespan="off",
        access_log=False,
        server_header=False,
        # It would believe whoever names another client, and cost each request some time.
        proxy_headers=False,
        date_header=False,
        log_level="critical",
        timeout_keep_alive=_KEEP_ALIVE,
        timeout_graceful_shutdown=2,
        **secured,
    )
    try:
        config.load()
    except (OSError, ssl.SSLError) as error:
        raise UsageError(
            f"sources.{name}.tls: the certificates cannot be used: {error.strerror or error}.\n"
            "Check `certificate`, `key` and `client_ca`: PEM files that belong together."
        ) from error
    return config
