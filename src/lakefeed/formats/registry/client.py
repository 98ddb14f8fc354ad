"""A client of schema registries that speak Confluent's API: schemas by their id, fetched once.

| what happens                          | what the client does                                      |
|---------------------------------------|-----------------------------------------------------------|
| the registry knows no such id (404)   | raises UnknownSchema: the payload becomes a dead letter   |
| it refuses the credentials (401, 403) | raises RegistryError: the source stops                    |
| it is away, too slow or broken (5xx)  | tries again, then raises RegistryUnavailable: it is paused |
"""

from __future__ import annotations

import base64
import json
import ssl
import time
import urllib.error
import urllib.request
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any
from urllib.parse import quote

from lakefeed.backoff import backoff
from lakefeed.errors import RegistryError, RegistryUnavailable
from lakefeed.pipeline.options.registry import Registry
from lakefeed.units import format_duration

_ATTEMPTS = 3
_FIRST_WAIT = 0.1
_LARGEST_ANSWER = 32 * 1024**2
_DEEPEST_REFERENCE = 32
_ASK_AGAIN_AFTER = 30.0
"""Seconds for which an id stays unknown: it may be registered yet, but not once for each payload."""
_MOST_UNKNOWN = 100_000


class UnknownSchema(Exception):
    """The registry holds no such schema; the text says which one."""


@dataclass(frozen=True)
class Reference:
    """A schema that another one uses under a name."""

    name: str
    schema: RegisteredSchema


@dataclass(frozen=True)
class RegisteredSchema:
    """A schema as the registry holds it."""

    kind: str
    """`AVRO`, `JSON` or `PROTOBUF`."""
    text: str
    references: tuple[Reference, ...] = ()


class RegistryClient:
    """Asks one registry. Lives on a worker, used by one thread at a time."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._schemas: dict[tuple[int, str | None], RegisteredSchema] = {}
        self._unknown: dict[int, float] = {}
        self._opener = _opener(registry)

    def schema(self, number: int, form: str | None = None) -> RegisteredSchema:
        """The schema of this id, and those that it refers to; asked for once, as ids never change.

        `form` is what the registry is to respond with, such as `serialized` for Protobuf. Raises
        UnknownSchema, RegistryError or RegistryUnavailable.
        """
        found = self._schemas.get((number, form))
        if found is None:
            found = self._schemas[number, form] = self._fetched(number, form)
        return found

    def probe(self) -> None:
        """Ask for something that every registry has. Raises RegistryError or RegistryUnavailable."""
        try:
            self._get("/subjects")
        except UnknownSchema:
            raise RegistryError(
                f"{self._registry.url} answered 404 to /subjects: no schema registry listens there.\n"
                "Check `registry`; some registries have a path for this API, such as /apis/ccompat/v7."
            ) from None

    def _fetched(self, number: int, form: str | None) -> RegisteredSchema:
        if time.monotonic() - self._unknown.get(number, -_ASK_AGAIN_AFTER) < _ASK_AGAIN_AFTER:
            raise UnknownSchema(f"the registry has no schema {number}")
        try:
            return self._read(self._get(f"/schemas/ids/{number}", form), form, 0)
        except UnknownSchema:
            if len(self._unknown) >= _MOST_UNKNOWN:
                self._unknown.clear()
            self._unknown[number] = time.monotonic()
            raise UnknownSchema(f"the registry has no schema {number}") from None

    def _read(self, answer: Any, form: str | None, depth: int) -> RegisteredSchema:
        try:
            kind, text = str(answer.get("schemaType") or "AVRO"), str(answer["schema"])
            wanted = [
                (str(each["name"]), each["subject"], each["version"])
                for each in answer.get("references") or ()
            ]
        except (AttributeError, KeyError, TypeError):
            raise self._not_a_registry() from None
        if depth > _DEEPEST_REFERENCE:
            raise UnknownSchema(f"its references are more than {_DEEPEST_REFERENCE} levels deep")
        references = []
        for name, subject, version in wanted:
            found = self._get(f"/subjects/{quote(str(subject), '')}/versions/{version}", form)
            references.append(Reference(name, self._read(found, form, depth + 1)))
        return RegisteredSchema(kind.upper(), text, tuple(references))

    def _get(self, path: str, form: str | None = None) -> Any:
        """The response to a request, which is tried again while the registry is away."""
        path += f"?format={quote(form)}" if form else ""
        for attempt in range(_ATTEMPTS):
            try:
                return self._asked(path)
            except RegistryUnavailable:
                if attempt == _ATTEMPTS - 1:
                    raise
                time.sleep(backoff(attempt + 1, _FIRST_WAIT))
        raise AssertionError("the last attempt raises")

    def _asked(self, path: str) -> Any:
        try:
            url = f"{self._registry.url}{path}"
            request = urllib.request.Request(url, headers=_headers(self._registry))
            with self._opener.open(request, timeout=self._registry.timeout) as answer:
                content = answer.read(_LARGEST_ANSWER)
        except urllib.error.HTTPError as error:
            with error:
                raise self._refused(error.code) from None
        except (OSError, HTTPException) as error:
            raise self._failed(error) from None
        try:
            return json.loads(content)
        except ValueError:
            raise self._not_a_registry() from None

    def _refused(self, status: int) -> Exception:
        if status == 404:
            return UnknownSchema("not found")
        if status in (401, 403):
            given = "`token`" if self._registry.token else "`user` and `password`"
            return RegistryError(
                f"the schema registry {self._registry.url} refused to answer (HTTP {status}).\n"
                f"Check {given} of `registry`."
            )
        if status >= 500 or status in (408, 429):
            return self._away(f"HTTP {status}")
        return RegistryError(
            f"the schema registry {self._registry.url} answered HTTP {status}; expected 200 or 404.\n"
            "Check the `url` of `registry`."
        )

    def _failed(self, error: Exception) -> Exception:
        reason = getattr(error, "reason", error)
        if isinstance(reason, TimeoutError):
            return self._away(f"no answer within {format_duration(self._registry.timeout)}")
        if isinstance(reason, ssl.SSLCertVerificationError):
            return RegistryError(
                f"the certificate of the schema registry {self._registry.url} is not trusted: "
                f"{reason.verify_message}.\nSet `ca` of `registry` to a file with the one that signed it."
            )
        return self._away(str(getattr(reason, "strerror", None) or reason))

    def _away(self, why: str) -> RegistryUnavailable:
        return RegistryUnavailable(f"the schema registry {self._registry.url} does not answer: {why}")

    def _not_a_registry(self) -> RegistryError:
        return RegistryError(
            f"{self._registry.url} did not answer as a schema registry does.\nCheck the `url` of `registry`."
        )


_CLIENTS: dict[Registry, RegistryClient] = {}


def client_of(registry: Registry) -> RegistryClient:
    """The client of a registry in this process; it remembers every schema for good."""
    if registry not in _CLIENTS:
        _CLIENTS[registry] = RegistryClient(registry)
    return _CLIENTS[registry]


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Follows nothing: a redirect would take the credentials somewhere else."""

    def redirect_request(self, *_: Any) -> None:
        """Say no, so that the status counts as the answer."""


def _opener(registry: Registry) -> urllib.request.OpenerDirector:
    if registry.url.startswith("http:"):
        return urllib.request.build_opener(_NoRedirect())
    try:
        context = ssl.create_default_context(cafile=registry.ca)
        if registry.certificate:
            context.load_cert_chain(registry.certificate, registry.key)
    except OSError as error:
        files = " and ".join(filter(None, (registry.ca, registry.certificate, registry.key)))
        raise RegistryError(
            f"the certificates of `registry` cannot be read: {error.strerror or error}.\n"
            f"Expected PEM in {files}."
        ) from None
    return urllib.request.build_opener(_NoRedirect(), urllib.request.HTTPSHandler(context=context))


def _headers(registry: Registry) -> dict[str, str]:
    headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
    if registry.token is not None:
        headers["Authorization"] = f"Bearer {registry.token}"
    elif registry.user is not None:
        login = f"{registry.user}:{registry.password}".encode()
        headers["Authorization"] = f"Basic {base64.b64encode(login).decode()}"
    return headers
