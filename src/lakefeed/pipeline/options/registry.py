"""Where the schemas of payloads are registered, and how to log in there."""

from __future__ import annotations

from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from lakefeed.pipeline.options.paths import LocalPath
from lakefeed.pipeline.secrets import mask_urls
from lakefeed.pipeline.section import Section
from lakefeed.text import shown
from lakefeed.units import Duration


def _http_url(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"expected http://host:port or https://host:port, got {shown(mask_urls(url))}")
    if "@" in parts.netloc:
        raise ValueError("expected no user and password in the URL; set `user` and `password`")
    return url.rstrip("/")


class Registry(Section):
    """A schema registry, and how to log in to it."""

    url: Annotated[str, AfterValidator(_http_url)] = Field(
        description="The URL of the registry, with the path of its Confluent API if there is one.",
        examples=["http://localhost:8081"],
    )
    user: str | None = Field(default=None, description="The user, for basic authentication.")
    password: str | None = Field(
        default=None, description="The user's password.", examples=["${REGISTRY_PASSWORD}"]
    )
    token: str | None = Field(
        default=None,
        description="A bearer token, instead of `user` and `password`.",
        examples=["${REGISTRY_TOKEN}"],
    )
    ca: LocalPath | None = Field(
        default=None,
        description="A file with the CA certificates (PEM) that sign the registry's certificate. Left out: "
        "those of the system.",
    )
    certificate: LocalPath | None = Field(
        default=None, description="A file with a client certificate (PEM), if the registry requires one."
    )
    key: LocalPath | None = Field(
        default=None, description="The file of its private key (PEM), if that is not in `certificate`."
    )
    timeout: Duration = Field(default=10.0, description="How long one request may take.", examples=["10s"])

    @model_validator(mode="after")
    def _login_is_whole(self) -> Self:
        if (self.user is None) != (self.password is None):
            raise ValueError("user and password belong together; set both or none")
        if self.token is not None and self.user is not None:
            raise ValueError("token and user exclude each other; remove one of them")
        if self.key is not None and self.certificate is None:
            raise ValueError("key belongs to a `certificate`; set that, or remove key")
        if self.url.startswith("http:") and (self.ca or self.certificate):
            raise ValueError("ca and certificate have an effect only with https; the url has http")
        return self


def _by_url(value: Any) -> Any:
    return {"url": value} if isinstance(value, str) else value


RegistryField = Annotated[Registry, BeforeValidator(_by_url, json_schema_input_type=str | Registry)]
"""A mapping, or the URL alone: `registry: http://localhost:8081`."""
