"""The client of schema registries, against a server that answers as one does."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakefeed.columns.column_types import declared_schema
from lakefeed.errors import PipelineFileError, RegistryError, RegistryUnavailable
from lakefeed.formats.json.format import JsonFormat
from lakefeed.formats.registry.client import RegistryClient, UnknownSchema, client_of
from lakefeed.pipeline.loading.load import load
from lakefeed.pipeline.options.registry import Registry
from lakefeed.pipeline.secrets import Redactor, masked
from support.schema_server import SchemaServer, serving_schemas


@pytest.fixture
def server() -> Iterator[SchemaServer]:
    with serving_schemas() as found:
        yield found


def client(server: SchemaServer, **options: Any) -> RegistryClient:
    return RegistryClient(Registry(url=server.url, **options))


def test_a_schema_is_asked_for_once(server: SchemaServer) -> None:
    server.answers["/schemas/ids/7"] = (200, {"schema": '"long"'})
    found = client(server)

    schemas = [found.schema(7) for _ in range(3)]

    assert {(one.kind, one.text) for one in schemas} == {("AVRO", '"long"')}
    assert [path for path, _ in server.asked] == ["/schemas/ids/7"]


def test_every_use_of_one_registry_in_a_process_shares_what_was_asked(server: SchemaServer) -> None:
    server.answers["/schemas/ids/7"] = (200, {"schema": '"long"'})

    for _ in range(2):
        client_of(Registry(url=server.url)).schema(7)

    assert len(server.asked) == 1


def test_references_are_fetched_with_their_own(server: SchemaServer) -> None:
    references = [{"name": "shop.Price", "subject": "price/value", "version": 2}]
    deeper = [{"name": "shop.Unit", "subject": "unit", "version": 1}]
    server.answers = {
        "/schemas/ids/7": (200, {"schema": "a", "schemaType": "PROTOBUF", "references": references}),
        "/subjects/price%2Fvalue/versions/2": (200, {"schema": "b", "references": deeper}),
        "/subjects/unit/versions/1": (200, {"schema": "c"}),
    }

    schema = client(server).schema(7)

    assert schema.kind == "PROTOBUF"
    assert [one.name for one in schema.references] == ["shop.Price"]
    assert [one.schema.text for one in schema.references[0].schema.references] == ["c"]


def test_a_form_of_the_schema_can_be_asked_for(server: SchemaServer) -> None:
    server.answers["/schemas/ids/7?format=serialized"] = (200, {"schema": "AAAA", "schemaType": "PROTOBUF"})

    assert client(server).schema(7, "serialized").text == "AAAA"


def test_an_unknown_id_is_not_asked_for_again_at_once(server: SchemaServer) -> None:
    found = client(server)

    for _ in range(2):
        with pytest.raises(UnknownSchema, match="the registry has no schema 9"):
            found.schema(9)

    assert len(server.asked) == 1


@pytest.mark.parametrize("status", [401, 403])
def test_refused_credentials_stop_the_source_and_show_no_secret(server: SchemaServer, status: int) -> None:
    server.answers["/schemas/ids/7"] = (status, {})

    with pytest.raises(RegistryError) as error:
        client(server, user="kim", password="geheim").schema(7)

    assert not error.value.retryable
    assert str(error.value) == (
        f"the schema registry {server.url} refused to answer (HTTP {status}).\n"
        "Check `user` and `password` of `registry`."
    )
    assert len(server.asked) == 1


def test_basic_authentication_and_tokens_are_sent(server: SchemaServer) -> None:
    server.answers["/subjects"] = (200, [])

    client(server, user="kim", password="pa:ss").probe()
    client(server, token="abc").probe()

    assert [login for _, login in server.asked] == ["Basic a2ltOnBhOnNz", "Bearer abc"]


def test_a_registry_that_is_broken_for_a_moment_is_asked_again(server: SchemaServer) -> None:
    server.answers["/schemas/ids/7"] = [(503, {}), (500, {}), (200, {"schema": '"long"'})]

    assert client(server).schema(7).text == '"long"'


def test_a_registry_that_stays_broken_is_worth_a_later_try(server: SchemaServer) -> None:
    server.answers["/schemas/ids/7"] = (502, {})

    with pytest.raises(RegistryUnavailable) as error:
        client(server).schema(7)

    assert error.value.retryable
    assert str(error.value) == f"the schema registry {server.url} does not answer: HTTP 502"


def test_a_registry_that_is_down_is_worth_a_later_try() -> None:
    with serving_schemas() as server:
        pass

    with pytest.raises(RegistryUnavailable, match="does not answer: Connection refused"):
        client(server).schema(7)


def test_a_registry_that_is_slow_is_given_its_timeout(server: SchemaServer) -> None:
    done = threading.Event()
    server.before = lambda: done.wait(5)

    with pytest.raises(RegistryUnavailable, match="does not answer: no answer within 50ms"):
        client(server, timeout="50ms").schema(7)

    done.set()


@pytest.mark.parametrize("answer", [b"<html>", {"no": "schema"}, [1]])
def test_something_else_that_answers_is_no_registry(server: SchemaServer, answer: Any) -> None:
    server.answers["/schemas/ids/7"] = (200, answer)

    with pytest.raises(RegistryError, match="did not answer as a schema registry does") as error:
        client(server).schema(7)

    assert not error.value.retryable


def test_credentials_follow_no_redirect(server: SchemaServer) -> None:
    server.answers["/schemas/ids/7"] = (302, {})

    with pytest.raises(RegistryError, match="answered HTTP 302; expected 200 or 404"):
        client(server, user="kim", password="geheim").schema(7)

    assert [path for path, _ in server.asked] == ["/schemas/ids/7"]


def test_a_probe_says_that_the_path_is_wrong(server: SchemaServer) -> None:
    with pytest.raises(RegistryError, match="answered 404 to /subjects: no schema registry listens there"):
        client(server).probe()


def test_a_certificate_is_checked_against_the_given_file(tmp_path: Path) -> None:
    certificate, key = certified(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    context.load_verify_locations(certificate)
    context.verify_mode = ssl.CERT_REQUIRED

    with serving_schemas(tls=context) as server:
        server.answers["/subjects"] = (200, [])
        with pytest.raises(RegistryError, match="is not trusted: self-signed certificate") as error:
            client(server).probe()
        client(server, ca=str(certificate), certificate=str(certificate), key=str(key)).probe()
        with pytest.raises(RegistryUnavailable):
            client(server, ca=str(certificate)).probe()

    assert "Set `ca` of `registry`" in str(error.value)


def test_a_certificate_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(RegistryError, match="cannot be read: No such file or directory") as error:
        RegistryClient(Registry(url="https://here", ca=str(tmp_path / "ca.pem")))

    assert "ca.pem" in str(error.value)


def certified(folder: Path) -> tuple[Path, Path]:
    """A certificate for 127.0.0.1 that signed itself, and its key."""
    import datetime as dt
    import ipaddress

    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "registry")])
    now = dt.datetime.now(dt.UTC)
    made = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = made.serial_number(1).not_valid_before(now - dt.timedelta(days=1))
    made = made.not_valid_after(now + dt.timedelta(days=1))
    made = made.add_extension(
        x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
    )
    made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    (folder / "cert.pem").write_bytes(pem)
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *plain))
    return folder / "cert.pem", folder / "key.pem"


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"url": "localhost:8081"}, "expected http://host:port or https://host:port, got 'localhost:8081'"),
        ({"url": "http://a:b@c"}, "expected no user and password in the URL; set `user` and `password`"),
        ({"url": "http://c", "user": "a"}, "user and password belong together; set both or none"),
        (
            {"url": "http://c", "user": "a", "password": "b", "token": "c"},
            "token and user exclude each other; remove one of them",
        ),
        ({"url": "https://c", "key": "k.pem"}, "key belongs to a `certificate`; set that, or remove key"),
        (
            {"url": "http://c", "ca": "k.pem"},
            "ca and certificate have an effect only with https; the url has http",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, str], problem: str) -> None:
    with pytest.raises(PipelineFileError) as error:
        Registry(**options)  # type: ignore[arg-type]

    assert problem in str(error.value)


def test_secrets_of_a_registry_are_shown_to_nobody(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources:
  a:
    {type: kafka, brokers: here, topics: [a],
     format: {type: json, registry: {url: "https://r", user: kim, password: geheim-1, ca: ca.pem}}}
  b:
    {type: kafka, brokers: here, topics: [b],
     format: {type: json, registry: {url: "https://r", token: geheim-2}}}
tables:
  a: {path: lake/a, from: [a, b]}
"""
    )

    pipeline = load(file).pipeline

    assert "geheim" not in repr(pipeline) + str(masked(pipeline))
    assert Redactor.of(pipeline).redact("geheim-1 geheim-2") == "*** ***"
    registry = pipeline.sources["a"].format.registry  # type: ignore[attr-defined]
    assert registry.ca == str(tmp_path / "ca.pem")


def test_json_in_frames_is_json_if_its_schema_is(server: SchemaServer) -> None:
    server.answers = {
        "/schemas/ids/1": (200, {"schema": "{}", "schemaType": "JSON"}),
        "/schemas/ids/2": (200, {"schema": '"long"'}),
    }
    form = JsonFormat(registry=Registry(url=server.url))
    frame = b"\0\0\0\0"
    payloads = [
        frame + b'\x01{"a": 1}',
        b'{"a": 2}',
        frame + b'\x02{"a": 3}',
        None,
        frame + b'\x03{"a": 4}',
        b"\0\0",
        b"",
        frame + b"\x01{",
        frame + b'\x01{"a": 5}',
    ]

    decoded = form.decoder(declared_schema({"a": "long"})).decode(payloads)

    assert decoded.rows.to_pylist() == [{"a": 1}, {"a": 5}]
    assert [(one.index, one.code, one.error) for one in decoded.refused] == [
        (1, "bad_framing", "expected a zero byte first, got 0x7b"),
        (2, "bad_schema", "expected JSON, but schema 2 of the registry is AVRO"),
        (3, "null_payload", "the event has no payload"),
        (4, "unknown_schema", "the registry has no schema 3"),
        (5, "bad_framing", "expected 5 bytes before the content, got 2 in all"),
        (6, "bad_framing", "expected a zero byte and the number of a schema, got an empty payload"),
        (7, "bad_json", decoded.refused[-1].error),
    ]


def test_a_registry_that_is_away_makes_no_dead_letters() -> None:
    with serving_schemas() as server:
        pass
    form = JsonFormat(registry=Registry(url=server.url))

    with pytest.raises(RegistryUnavailable):
        form.decoder(declared_schema({"a": "long"})).decode([b"\0\0\0\0\x01{}"])


def test_a_format_probes_its_registry(server: SchemaServer) -> None:
    server.answers["/subjects"] = (200, [])

    assert (
        JsonFormat(registry=Registry(url=server.url)).probe() == f"the schema registry {server.url} answers"
    )
    assert JsonFormat().probe() is None
