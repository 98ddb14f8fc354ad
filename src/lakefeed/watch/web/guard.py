"""The guard in front of everything that is served: who may ask, for what, and under which name."""

from __future__ import annotations

import hashlib
import hmac
import logging
import secrets
from urllib.parse import parse_qs, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from lakefeed.pipeline.http import is_loopback
from lakefeed.watch.web.page import sign_in

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_log = logging.getLogger("lakefeed")


class Guard:
    """Lets through only GET, only under a name of this machine where only it may ask, only with the token.

    The browser gets a cookie that is made from the token and a key of this run, never the token itself.
    """

    def __init__(self, app: ASGIApp, host: str, port: int, token: str | None) -> None:
        self._app = app
        self._names = {*_LOOPBACK_NAMES, host.lower()} if is_loopback(host) else None
        self._token = token
        # Cookies do not know ports: each run on a machine needs a name of its own.
        self._cookie = f"lakefeed_{port}"
        self._pass = hmac.new(secrets.token_bytes(32), (token or "").encode(), hashlib.sha256).hexdigest()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, or pass on to what is guarded."""
        if scope["type"] != "http":
            return
        nonce = scope["nonce"] = secrets.token_urlsafe(16)
        request = Request(scope)
        refusal, given = self._judge(request)
        guarded = self._with_headers(send, nonce, given)
        try:
            await (refusal or self._app)(scope, receive, guarded)
        except Exception:
            _log.exception("%s could not be served", request.url.path)
            await PlainTextResponse("this is a bug; the log says more\n", 500)(scope, receive, guarded)

    def _judge(self, request: Request) -> tuple[Response | None, bool]:
        """The refusal, if there is one, and whether the token was given in the address."""
        if request.method not in ("GET", "HEAD"):
            return PlainTextResponse("only GET\n", 405, {"Allow": "GET, HEAD"}), False
        if self._names is not None and _host_of(request) not in self._names:
            # A page from elsewhere may have let its own name point to this machine.
            return PlainTextResponse("ask under the name localhost or 127.0.0.1\n", 403), False
        if self._token is None or request.url.path == "/healthz":
            return None, False
        given = parse_qs(request.url.query).get("token", [""])[-1]
        if given and self._is_token(given):
            return None, True
        if self._is_token(_bearer(request)) or hmac.compare_digest(
            request.cookies.get(self._cookie, "").encode(), self._pass.encode()
        ):
            return None, False
        if request.url.path == "/":
            return HTMLResponse(sign_in(request.scope["nonce"], bool(given)), 401), False
        return PlainTextResponse("needs `Authorization: Bearer` with http.token\n", 401, _CHALLENGE), False

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), (self._token or "").encode())

    def _with_headers(self, send: Send, nonce: str, given: bool) -> Send:
        async def sending(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(_headers(nonce))
                if given:
                    # Not a redirect: a strict cookie is not sent along one that began on another site.
                    kept = f"{self._cookie}={self._pass}; Path=/; HttpOnly; SameSite=Strict"
                    headers.append("Set-Cookie", kept)
            await send(message)

        return sending


_CHALLENGE = {"WWW-Authenticate": "Bearer"}


def _headers(nonce: str) -> dict[str, str]:
    policy = (
        f"default-src 'none'; script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'; connect-src 'self'; "
        "img-src data:; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    )
    return {
        "Content-Security-Policy": policy,
        "Cache-Control": "no-store",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
        "X-Frame-Options": "DENY",
    }


def _host_of(request: Request) -> str:
    try:
        return (urlsplit(f"//{request.headers.get('host', '')}").hostname or "").lower()
    except ValueError:
        return ""


def _bearer(request: Request) -> str:
    kind, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if kind.lower() == "bearer" else ""
