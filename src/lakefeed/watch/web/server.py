"""What a running pipeline serves: the page, its metrics, its health, its status."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import orjson
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from lakefeed import __version__
from lakefeed.pipeline.http import bound_socket, is_loopback, split_address
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.watch.health import concerns, reasons, remarks
from lakefeed.watch.metrics import CONTENT_TYPE, Metrics
from lakefeed.watch.state import RunState
from lakefeed.watch.view import DeadLetterView
from lakefeed.watch.web.guard import Guard
from lakefeed.watch.web.page import StatusPage
from lakefeed.watch.web.ranges import span_of
from lakefeed.watch.web.status import status_of

_STOP_SECONDS = 5.0
_log = logging.getLogger("lakefeed")


class Pages:
    """The responses, each from the state of the run: nothing here reads a table or asks a source."""

    def __init__(self, pipeline: Pipeline, state: RunState, metrics: Metrics) -> None:
        self._pipeline = pipeline
        self._state = state
        self._metrics = metrics
        self._status_page = StatusPage(pipeline, __version__)

    def routes(self) -> list[Route]:
        """Every path that is served."""
        return [
            Route("/", self._page),
            Route("/live", self._live),
            Route("/metrics", self._scrape),
            Route("/healthz", self._healthz),
            Route("/readyz", self._readyz),
            Route("/api/status", self._status),
        ]

    async def _page(self, request: Request) -> Response:
        view = self._state.view(span_of(request.query_params.get("range", "")))
        return HTMLResponse(self._status_page.whole(view, request.scope["nonce"]))

    async def _live(self, request: Request) -> Response:
        asked = request.query_params
        view = self._state.view(span_of(asked.get("range", "")))
        return HTMLResponse(self._status_page.live(view, asked.getlist("open")))

    async def _scrape(self, request: Request) -> Response:
        return Response(self._metrics.text(), headers={"Content-Type": CONTENT_TYPE})

    async def _healthz(self, request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _readyz(self, request: Request) -> Response:
        view = self._state.view()
        found = reasons(view, self._pipeline)
        lines = [*(found or ["ready"]), *remarks(view), ""]
        return PlainTextResponse("\n".join(lines), 503 if found else 200)

    async def _status(self, request: Request) -> Response:
        view = self._state.view()
        run = {
            "seconds": view.now - view.began,
            "ready": not reasons(view, self._pipeline),
            "concerns": [asdict(one) for one in concerns(view, self._pipeline)],
            "rows_per_second": {one.name: one.rate for one in view.tables},
            "recent_dead_letters": [_without_payload(one) for one in view.recent_dead_letters],
        }
        answer = asdict(status_of(view)) | {"run": run}
        return Response(orjson.dumps(answer, option=orjson.OPT_INDENT_2), media_type="application/json")


def _without_payload(dead_letter: DeadLetterView) -> dict[str, Any]:
    """Payloads are for people on the page: what programs fetch may be kept anywhere."""
    return {key: value for key, value in asdict(dead_letter).items() if key != "payload"}


@contextmanager
def serving(pipeline: Pipeline, state: RunState, metrics: Metrics) -> Iterator[str]:
    """Serve in a thread of its own until the block ends; gives the address of the page.

    Raises UsageError before anything else is started when the address cannot be had.
    """
    assert pipeline.http is not None
    host, _ = split_address(pipeline.http.listen)
    bound = bound_socket(pipeline.http.listen, "http")
    port = bound.getsockname()[1]
    app = Guard(Starlette(routes=Pages(pipeline, state, metrics).routes()), host, port, pipeline.http.token)
    server = uvicorn.Server(
        uvicorn.Config(
            app,
            http="h11",
            ws="none",
            loop="asyncio",
            lifespan="off",
            access_log=False,
            server_header=False,
            log_level="critical",
            timeout_graceful_shutdown=1,
        )
    )
    thread = threading.Thread(target=server.run, args=([bound],), name="http", daemon=True)
    thread.start()
    shown = f"http://{f'[{host}]' if ':' in host else host}:{port}/"
    if not is_loopback(host) and pipeline.http.token is None:
        _log.warning("everyone who can connect to %s can see this pipeline; set http.token", shown)
    try:
        yield shown
    finally:
        server.should_exit = True
        thread.join(_STOP_SECONDS)
        bound.close()
