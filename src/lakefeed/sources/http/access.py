"""Who may send events: tokens, signatures, certificates."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    StringConstraints,
    WithJsonSchema,
    model_validator,
)

from lakefeed.pipeline.options.paths import LocalPath
from lakefeed.pipeline.section import NAMES, Section, as_list

_SHORTEST = 8


def _long_enough(value: str) -> str:
    if len(value) < _SHORTEST:
        raise ValueError(f"expected at least {_SHORTEST} characters, got {len(value)}; choose a longer one")
    return value


TokenText = Annotated[str, AfterValidator(_long_enough), WithJsonSchema({"type": "string", "minLength": 8})]
SenderName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.\-]{1,100}$")]
Token = TokenText | dict[SenderName, TokenText]
"""One token, or several by the name of who has it."""


def _one_or_two(value: tuple[str, ...]) -> tuple[str, ...]:
    if not 1 <= len(value) <= 2:
        raise ValueError(f"expected one secret, or the new one and the old one, got {len(value)}")
    return value


Secrets = Annotated[tuple[TokenText, ...], BeforeValidator(as_list), AfterValidator(_one_or_two), NAMES]
"""One secret, or two while the old one is replaced."""


class Hmac(Section):
    """A signature over the bytes of the body, as webhooks have it."""

    preset: Literal["github", "stripe", "slack", "generic"] = Field(
        description="Whose signatures: `github` (`X-Hub-Signature-256`), `stripe` (`Stripe-Signature`), "
        "`slack` (`X-Slack-Signature`), or `generic` (HMAC-SHA256 of the body in `header`).",
        examples=["github"],
    )
    secret: Secrets = Field(
        description="The secret, or a list of the new one and the old one while it is replaced.",
        examples=["${WEBHOOK_SECRET}", ["${NEW_SECRET}", "${OLD_SECRET}"]],
    )
    header: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9\-]+$",
        description="With `generic`: the header that holds the signature, as hexadecimal digits or base64, "
        "with or without `sha256=` in front. Left out: `X-Signature`.",
        examples=["X-Shop-Signature"],
    )

    @model_validator(mode="after")
    def _header_is_for_generic(self) -> Self:
        if self.header is not None and self.preset != "generic":
            raise ValueError(f"header has an effect only with `preset: generic`; {self.preset} has its own")
        return self


class Tls(Section):
    """Certificate files, in PEM format."""

    certificate: LocalPath = Field(
        description="The certificate, followed by those that lead to the root.", examples=["tls/server.pem"]
    )
    key: LocalPath = Field(description="The private key of the certificate.", examples=["tls/server.key"])
    client_ca: LocalPath | None = Field(
        default=None,
        description="Certificates of authorities: only clients with a certificate that one of them has "
        "signed can connect. Left out: clients need none.",
        examples=["tls/clients.pem"],
    )
