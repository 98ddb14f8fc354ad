"""Azurite, Microsoft's emulator of Azure's blobs, on loopback and in memory.

A listing of Azure begins at a name (`startFrom`); Azurite does not know the word and lists everything. The
door in front of it leaves out what comes before.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from email.utils import formatdate
from html import unescape
from urllib.parse import parse_qs, urlsplit
from urllib.request import Request, urlopen

from support.door import Door, command_of, serve
from support.object_server import ObjectServer
from support.programs import azurite

ACCOUNT = "devstoreaccount1"
# The key that every Azurite has, by its documentation.
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
API = "2021-08-06"


class AzuriteServer(ObjectServer):
    """The door; Azurite's blob service is `inner`."""

    scheme = "az"

    def __init__(self) -> None:
        self.inner = _Azurite()
        command = command_of("support.azurite", self.inner.endpoint)
        super().__init__(lambda port: [*command, str(port)], f"/{ACCOUNT}")

    def close(self) -> None:
        super().close()
        self.inner.close()

    def storage_through(self, endpoint: str) -> dict[str, str]:
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": f"{endpoint}/{ACCOUNT}",
            "AZURE_ALLOW_HTTP": "true",
        }

    def create_bucket(self, name: str) -> None:
        date = formatdate(usegmt=True)
        signed = (
            f"PUT{12 * chr(10)}x-ms-date:{date}\nx-ms-version:{API}\n"
            f"/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        )
        digest = hmac.new(base64.b64decode(KEY), signed.encode(), hashlib.sha256).digest()
        headers = {
            "x-ms-date": date,
            "x-ms-version": API,
            "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
            "Content-Length": "0",
        }
        url = f"{self.endpoint}/{ACCOUNT}/{name}?restype=container"
        with urlopen(Request(url, method="PUT", headers=headers), timeout=60):
            pass


class _Azurite(ObjectServer):
    def __init__(self) -> None:
        options = ["--inMemoryPersistence", "--skipApiVersionCheck", "--silent", "--disableTelemetry"]
        command = [*azurite(), "--blobHost", "127.0.0.1", *options, "--blobPort"]
        super().__init__(lambda port: [*command, str(port)], f"/{ACCOUNT}")


class _Door(Door):
    def take(self, body: bytes) -> None:
        query = parse_qs(urlsplit(self.path).query)
        status, content, headers = self.ask(self.command, self.path, body, dict(self.headers))
        if "startFrom" in query and status == 200:
            content = _BLOB.sub(lambda blob: _kept(blob, query["startFrom"][0]), content)
        self.answer(status, content, headers)


_BLOB = re.compile(rb"<Blob>.*?</Blob>", re.S)


def _kept(blob: re.Match[bytes], first: str) -> bytes:
    name = re.search(rb"<Name>(.*?)</Name>", blob[0])
    return blob[0] if name and unescape(name[1].decode()) >= first else b""


if __name__ == "__main__":
    serve(_Door)
