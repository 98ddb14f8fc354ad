"""Who may ask: by token, under which name, from which web page."""

from __future__ import annotations

import hmac
from functools import lru_cache
from urllib.parse import urlsplit

from lakefeed.pipeline.http import is_loopback, split_address
from lakefeed.sources.http.receiver.body import Headers
from lakefeed.sources.http.receiver.refusal import Refusal
from lakefeed.sources.http.source import HttpSource

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


class Admission:
    """Decides by the headers of a request, before anything of its body is read."""

    def __init__(self, source: HttpSource) -> None:
        self._tokens = [(name, token.encode()) for name, token in source.tokens.items()]
        self._origins = frozenset(source.allow_origins)
        host, _ = split_address(source.listen)
        closed = source.token or source.hmac or (source.tls and source.tls.client_ca)
        # A web page may let its own name point to this machine: where nobody signs, only our names count.
        self._names = {*_LOOPBACK_NAMES, host.lower()} if is_loopback(host) and not closed else None

    def sender(self, headers: Headers) -> str | None:
        """The name of who has sent a request; None where nobody has one. Raises Refusal."""
        if self._names is not None and _host(headers.get(b"host", b"")) not in self._names:
            raise Refusal(403, "this host is not served", "ask under the name localhost or 127.0.0.1")
        origin = headers.get(b"origin")
        if origin is not None and self.allowed_origin(headers) is None:
            raise Refusal(
                403,
                f"web pages of {origin.decode('latin-1')[:200]} may not send events here",
                "add the origin to `allow_origins` of the source",
            )
        return self._by_token(headers) if self._tokens else None

    def allowed_origin(self, headers: Headers) -> str | None:
        """The origin of a web page that may send events; None for any other."""
        origin = headers.get(b"origin", b"").decode("latin-1")
        if "*" in self._origins:
            return "*"
        return origin if origin in self._origins else None

    def _by_token(self, headers: Headers) -> str | None:
        kind, _, given = headers.get(b"authorization", b"").partition(b" ")
        given = given.strip()
        if kind.lower() != b"bearer" or not given:
            raise Refusal(
                401,
                "the request has no token",
                "send the header Authorization: Bearer with the token",
                headers={"WWW-Authenticate": "Bearer"},
            )
        fitting: str | None = None
        for name, token in self._tokens:
            # All of them are compared, so that the time taken does not tell which one is near.
            if hmac.compare_digest(given, token):
                fitting = name
        if fitting is None:
            raise Refusal(
                403, "the token is not known", "check the token, and that it is one of `token` of the source"
            )
        return fitting or None


@lru_cache(maxsize=64)
def _host(given: bytes) -> str:
    try:
        return (urlsplit(f"//{given.decode('latin-1')}").hostname or "").lower()
    except ValueError:
        return ""
