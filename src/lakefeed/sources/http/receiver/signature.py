"""Signatures of webhooks: an HMAC-SHA256 over the bytes of the body as they came."""

from __future__ import annotations

import base64
import hashlib
import hmac
import time
from collections.abc import Callable

from lakefeed.sources.http.access import Hmac
from lakefeed.sources.http.receiver.body import Headers
from lakefeed.sources.http.receiver.refusal import Refusal

_TOLERANCE = 300.0
"""Seconds that a signed time may be off: an old request that was overheard must not be sent again."""

Signed = tuple[bytes, list[str]]
"""The bytes that are signed, and the signatures that the request has for them."""


def verify_signature(spec: Hmac, headers: Headers, body: bytes) -> None:
    """Raise Refusal unless one of the secrets has signed the body."""
    signed, given = _READERS[spec.preset](spec, headers, body)
    fitting = False
    for secret in spec.secret:
        digest = hmac.new(secret.encode(), signed, hashlib.sha256).digest()
        for one in given:
            # Compared to the end whatever came before, so that the time taken tells nothing.
            fitting |= hmac.compare_digest(_bytes(one), digest)
    if not fitting:
        raise Refusal(
            403,
            "the signature does not fit the body",
            "sign the exact bytes of the body with the shared secret",
        )


def _bytes(text: str) -> bytes:
    """The bytes of a signature in hexadecimal digits or base64; nothing fits what is neither."""
    try:
        return bytes.fromhex(text)
    except ValueError:
        pass
    try:
        return base64.b64decode(text, validate=True)
    except ValueError:
        return b""


def _header(headers: Headers, name: str) -> str:
    found = headers.get(name.lower().encode())
    if found is None:
        raise Refusal(
            401, f"the request has no {name}", "sign the body, and send the signature in that header"
        )
    return found.decode("latin-1").strip()


def _github(spec: Hmac, headers: Headers, body: bytes) -> Signed:
    return body, [_header(headers, "X-Hub-Signature-256").removeprefix("sha256=")]


def _stripe(spec: Hmac, headers: Headers, body: bytes) -> Signed:
    fields = [part.strip().partition("=") for part in _header(headers, "Stripe-Signature").split(",")]
    moment = next((value for name, _, value in fields if name == "t"), "")
    _refuse_old(moment)
    return f"{moment}.".encode() + body, [value for name, _, value in fields if name == "v1"]


def _slack(spec: Hmac, headers: Headers, body: bytes) -> Signed:
    moment = _header(headers, "X-Slack-Request-Timestamp")
    _refuse_old(moment)
    given = _header(headers, "X-Slack-Signature").removeprefix("v0=")
    return f"v0:{moment}:".encode() + body, [given]


def _generic(spec: Hmac, headers: Headers, body: bytes) -> Signed:
    return body, [_header(headers, spec.header or "X-Signature").removeprefix("sha256=")]


def _refuse_old(moment: str) -> None:
    if not moment.isascii() or not moment.isdigit() or abs(time.time() - int(moment[:15])) > _TOLERANCE:
        raise Refusal(
            403,
            "the signed time is missing or more than five minutes off",
            "sign when you send, and set the clocks by NTP",
        )


_READERS: dict[str, Callable[[Hmac, Headers, bytes], Signed]] = {
    "github": _github,
    "stripe": _stripe,
    "slack": _slack,
    "generic": _generic,
}
