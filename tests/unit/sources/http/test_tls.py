"""TLS: certificates of the receiver, and of the clients that may connect."""

from __future__ import annotations

import http.client
import shutil
import ssl
import subprocess
from pathlib import Path

import pytest

from lakefeed.errors import UsageError
from lakefeed.sources.http.receiver.server import Received
from support.http_source import port_of, received

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl to make certificates")


def openssl(*given: str | Path) -> None:
    subprocess.run(["openssl", *map(str, given)], check=True, capture_output=True, timeout=120)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, and what it has signed for a server and for a client."""
    made = tmp_path_factory.mktemp("tls")
    curve = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    ca = ("-CA", made / "ca.pem", "-CAkey", made / "ca.key")
    openssl("req", "-x509", *curve, "-subj", "/CN=ca", "-keyout", made / "ca.key", "-out", made / "ca.pem")
    (made / "names").write_text("subjectAltName=IP:127.0.0.1\n")
    for name in ("server", "client"):
        openssl(
            "req",
            *curve,
            "-subj",
            f"/CN={name}",
            "-keyout",
            made / f"{name}.key",
            "-out",
            made / f"{name}.csr",
        )
        signed = made / f"{name}.pem"
        openssl(
            "x509",
            "-req",
            "-in",
            made / f"{name}.csr",
            *ca,
            "-CAcreateserial",
            "-extfile",
            made / "names",
            "-out",
            signed,
        )
    return made


def post_tls(api: Received, folder: Path, client: bool) -> int:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    if client:
        context.load_cert_chain(folder / "client.pem", folder / "client.key")
    connection = http.client.HTTPSConnection("127.0.0.1", port_of(api), timeout=60, context=context)
    try:
        connection.request("POST", "/orders", b"{}")
        return connection.getresponse().status
    finally:
        connection.close()


def test_events_over_tls(tmp_path: Path, folder: Path) -> None:
    tls = f"tls: {{certificate: {folder}/server.pem, key: {folder}/server.key}}"
    with received(tmp_path, tls) as api:
        assert api.address.startswith("https://")
        assert post_tls(api, folder, client=False) == 202


def test_only_clients_with_a_certificate_connect(tmp_path: Path, folder: Path) -> None:
    files = f"certificate: {folder}/server.pem, key: {folder}/server.key, client_ca: {folder}/ca.pem"
    with received(tmp_path, f"tls: {{{files}}}") as api:
        assert post_tls(api, folder, client=True) == 202
        with pytest.raises((ssl.SSLError, ConnectionError)):
            post_tls(api, folder, client=False)


def test_certificates_that_cannot_be_used_are_refused_before_anything_starts(
    tmp_path: Path, folder: Path
) -> None:
    for files in (
        f"{folder}/server.pem, key: {folder}/client.key",
        f"{folder}/missing.pem, key: {folder}/client.key",
    ):
        with (
            pytest.raises(UsageError, match=r"sources\.api\.tls: the certificates cannot be used"),
            received(tmp_path, f"tls: {{certificate: {files}}}"),
        ):
            pass
