"""Where a running pipeline can be looked at, and when it counts as ready."""

from __future__ import annotations

import errno
import ipaddress
import os
import re
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from lakefeed.errors import UsageError
from lakefeed.pipeline.section import Section
from lakefeed.text import shown

if TYPE_CHECKING:
    from http.client import HTTPResponse

_ADDRESS = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9._-]+):(?P<port>\d{1,5})")


def split_address(text: str) -> tuple[str, int]:
    """Host and port of `127.0.0.1:8088` or `[::1]:8088`; ValueError for anything else."""
    match = _ADDRESS.fullmatch(text.strip())
    if match is None or int(match["port"]) > 65_535:
        raise ValueError(f"expected an address such as 127.0.0.1:8088 or 0.0.0.0:8088, got {shown(text)}")
    return match["host"].strip("[]"), int(match["port"])


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach the host."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def bound_socket(listen: str, key: str, backlog: int = 128) -> socket.socket:
    """A socket that listens on an address; UsageError, which names the key of the file, if it cannot."""
    host, port = split_address(listen)
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(backlog)
        return found
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise UsageError(
                f"{key}: another program listens on {listen} already.\n"
                f"Stop it, or choose another address: --set {key}.listen=127.0.0.1:0 takes a free port."
            ) from error
        raise UsageError(
            f"{key}: cannot listen on {listen}: {error.strerror or error}.\n"
            f"Set `{key}.listen` to an address of this machine, such as 127.0.0.1:8088."
        ) from error


def port_state(listen: str, path: str, is_run: Callable[[HTTPResponse], bool]) -> tuple[bool, str]:
    """Whether a run may have an address, and why: it is free, or a run that is alive has it already.

    By what it answers to `path`, `is_run` tells a run from other programs.
    """
    host, port = split_address(listen)
    try:
        socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET).close()
        return True, f"{listen} is free"
    except OSError as error:
        if _answers(host, port, path, is_run):
            return True, f"{listen} is in use by a run that is alive"
        reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error
        return False, f"{listen} cannot be listened on: {reason}"


def _answers(host: str, port: int, path: str, is_run: Callable[[HTTPResponse], bool]) -> bool:
    from http.client import HTTPConnection, HTTPException

    connection = HTTPConnection(host, port, timeout=1)
    try:
        connection.request("GET", path, headers={"Host": "localhost"})
        return is_run(connection.getresponse())
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def _checked(text: str) -> str:
    split_address(text)
    return text.strip()


def _no_number(value: object) -> object:
    # For a port alone, the message would be that text is expected, and not that a host is missing.
    if isinstance(value, int) and not isinstance(value, bool):
        split_address(str(value))
    return value


class Http(Section):
    """The page of a running pipeline, its metrics and its health."""

    listen: Annotated[str, BeforeValidator(_no_number), AfterValidator(_checked)] = Field(
        default="127.0.0.1:8088",
        description="The address to listen on. With port 0 the system chooses a free port, and the log "
        "names it.",
        examples=["127.0.0.1:8088", "0.0.0.0:8088"],
    )
    token: str | None = Field(
        default=None,
        min_length=8,
        description="A request for anything except `/healthz` must have this token: `Authorization: Bearer "
        "...`, or `?token=...` once in a browser. Left out: everybody who can connect to the "
        "address has access.",
        examples=["${LAKEFEED_TOKEN}"],
    )


class Ready(Section):
    """When `/readyz` returns 503, in addition to failures."""

    max_lag: int | None = Field(
        default=None,
        gt=0,
        description="The pipeline is not ready while the lag of a source is higher than this. A table that "
        "catches up in a separate flow does not count. Left out: no limit.",
        examples=[1_000_000],
    )
