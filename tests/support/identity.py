"""A machine with an identity: a door that hands out credentials which soon expire, and asks for them.

It speaks as the metadata services of Amazon, Google and Microsoft and as Amazon's STS do. All other requests
are passed on to a server of objects, if they bring credentials that were handed out and have not expired. It
is a process of its own: delta-rs waits for answers without letting other threads of its process run.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import ssl
import sys
import tempfile
import threading
import time
from datetime import UTC, datetime, timedelta
from http.server import ThreadingHTTPServer
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import urlopen

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import NameOID

from support.azurite import ACCOUNT, KEY
from support.door import Door, command_of, serve
from support.object_server import ObjectServer
from support.processes import free_port, spawn, tail, wait_until
from support.servers import Server

TOLD_SECONDS = 2
"""For how long credentials are said to be good."""
KEPT_SECONDS = 60
"""For how long they are taken: a slow machine is not to be refused what it has just got."""
STATE = "/-/state"


class Machine(Server):
    """The identity of one machine, and a store that only it may use."""

    def __init__(self, server: ObjectServer) -> None:
        port, secure = free_port(), free_port()
        self.address = f"http://127.0.0.1:{port}"
        self.sts = f"https://127.0.0.1:{secure}"
        """Amazon's STS, which clients ask by TLS only; its certificate is its own."""
        self._log = Path(tempfile.mkstemp(prefix="lakefeed-identity-")[1])
        command = [*command_of("support.identity", server.endpoint), str(port), str(secure)]
        self._process = spawn(command, stdout=self._log)
        wait_until(self._answers, 120, lambda: f"the door does not answer:\n{tail(self._log)}")

    def state(self) -> dict[str, Any]:
        """What was handed out, by whom it was asked for, and which of it the store was shown."""
        with urlopen(self.address + STATE, timeout=60) as answer:
            found: dict[str, Any] = json.loads(answer.read())
            return found

    def _answers(self) -> bool:
        assert self._process.poll() is None, tail(self._log)
        try:
            return self.state()["issued"] == []
        except OSError:
            return False


class _Door(Door):
    issued: dict[str, float] = {}  # noqa: RUF012 (of the process)
    asked: list[str] = []  # noqa: RUF012
    shown: list[str] = []  # noqa: RUF012
    refused: list[str] = []  # noqa: RUF012
    lock = threading.Lock()

    def take(self, body: bytes) -> None:
        parts = urlsplit(self.path)
        query = parse_qs(parts.query) | parse_qs(body.decode(errors="replace") if self._is_form() else "")
        if parts.path == STATE:
            told = {"asked": self.asked, "shown": self.shown, "refused": self.refused}
            self.answer(200, json.dumps({"issued": list(self.issued), **told}).encode())
        elif parts.path == "/latest/api/token":
            self.answer(200, b"session", [("x-aws-ec2-metadata-token-ttl-seconds", "60")])
        elif parts.path == "/latest/meta-data/iam/security-credentials/":
            self.answer(200, b"the-role")
        elif parts.path == "/latest/meta-data/iam/security-credentials/the-role":
            self._json("instance", {"Code": "Success", "Type": "AWS-HMAC", **self._keys("instance")})
        elif parts.path == "/v1/credentials" and self.headers.get("Authorization") == "pod":
            self._json("container", self._keys("container"))
        elif query.get("Action") == ["AssumeRoleWithWebIdentity"]:
            self._sts(query["WebIdentityToken"][0])
        elif parts.path == "/metadata/identity/oauth2/token":
            self._json("azure", self._bearer("azure"))
        elif parts.path == "/the-tenant/oauth2/v2.0/token" and query.get("client_assertion") == ["pod"]:
            self._json("federated", self._bearer("federated"))
        elif parts.path.startswith("/computeMetadata/"):
            self._json("google", self._bearer("google"))
        else:
            self._guard(body)

    def _is_form(self) -> bool:
        return "urlencoded" in self.headers.get("Content-Type", "")

    def _issue(self, who: str) -> str:
        with self.lock:
            key = f"ISSUED{who.upper()}{len(self.issued):06d}"
            self.issued[key] = time.monotonic()
            self.asked.append(who)
            return key

    def _keys(self, who: str) -> dict[str, str]:
        key = self._issue(who)
        until = (datetime.now(UTC) + timedelta(seconds=TOLD_SECONDS)).strftime("%Y-%m-%dT%H:%M:%SZ")
        secrets = {"SecretAccessKey": f"secret-of-{key}", "Token": f"token-of-{key}"}
        return {"AccessKeyId": key, **secrets, "Expiration": until, "LastUpdated": until}

    def _bearer(self, who: str) -> dict[str, Any]:
        until = str(int(time.time()) + TOLD_SECONDS)
        times = {"expires_in": TOLD_SECONDS, "expires_on": until, "not_before": "0"}
        return {"access_token": self._issue(who), "token_type": "Bearer", "resource": "store", **times}

    def _json(self, who: str, told: dict[str, Any]) -> None:
        if who == "azure":
            told["expires_in"] = str(told["expires_in"])
        self.answer(200, json.dumps(told).encode(), [("Content-Type", "application/json")])

    def _sts(self, token: str) -> None:
        keys = self._keys(f"web{token}")
        fields = "".join(
            f"<{name}>{keys[key]}</{name}>"
            for name, key in (
                ("AccessKeyId", "AccessKeyId"),
                ("SecretAccessKey", "SecretAccessKey"),
                ("SessionToken", "Token"),
                ("Expiration", "Expiration"),
            )
        )
        self.answer(
            200,
            f'<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">'
            f"<AssumeRoleWithWebIdentityResult><AssumedRoleUser><Arn>arn</Arn><AssumedRoleId>id</AssumedRoleId>"
            f"</AssumedRoleUser><Credentials>{fields}</Credentials></AssumeRoleWithWebIdentityResult>"
            f"</AssumeRoleWithWebIdentityResponse>".encode(),
            [("Content-Type", "text/xml")],
        )

    def _guard(self, body: bytes) -> None:
        authorization = self.headers.get("Authorization", "")
        found = re.search(r"ISSUED\w+\d{6}", authorization)
        key = found[0] if found else authorization[:20]
        with self.lock:
            since = self.issued.get(key)
            good = since is not None and time.monotonic() - since < KEPT_SECONDS
            (self.shown if good else self.refused).append(key)
        if not good:
            text = f"<Error><Code>ExpiredToken</Code><Message>{key or 'none'}</Message></Error>"
            return self.answer(403, text.encode())
        headers = dict(self.headers)
        if authorization.startswith("Bearer"):
            # The emulators know no such tokens.
            headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
            if f"/{ACCOUNT}" in self.path:
                self.path += ("&" if "?" in self.path else "?") + shared_access_signature()
        self.answer(*self.ask(self.command, self.path, body, headers))


def shared_access_signature() -> str:
    """A signature by which Azurite lets everything be done for an hour."""
    until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    fields = {"sp": "rwdlac", "ss": "b", "srt": "sco", "se": until, "sv": "2021-08-06"}
    signed = f"{ACCOUNT}\n{fields['sp']}\n{fields['ss']}\n{fields['srt']}\n\n{until}\n\n\n{fields['sv']}\n\n"
    digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
    return urlencode({**fields, "sig": base64.b64encode(digest).decode()})


def _serve_by_tls(port: int) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), False)
        .sign(key, hashes.SHA256())
    )
    server = ThreadingHTTPServer(("127.0.0.1", port), _Door)
    server.daemon_threads = True
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.NamedTemporaryFile(suffix=".pem") as file:
        file.write(certificate.public_bytes(serialization.Encoding.PEM))
        plain = serialization.NoEncryption()
        form = serialization.PrivateFormat.TraditionalOpenSSL
        file.write(key.private_bytes(serialization.Encoding.PEM, form, plain))
        file.flush()
        context.load_cert_chain(file.name)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()


if __name__ == "__main__":
    _serve_by_tls(int(sys.argv.pop()))
    serve(_Door)
