"""The `storage` of a table as its two clients take it: delta-rs for the log, obstore for all files.

Both are made of one library of object stores and know the same names, in any case. What differs is told
apart here, once.
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from obstore.store import AzureStore, GCSStore, S3Store

from lakefeed.errors import TableError
from lakefeed.stores.location import Cloud, bucket_of, cloud_of, local_path

# The engine tries again by itself: a store that is away must not hold a worker for minutes.
_PATIENCE = {"retry_timeout": "30s"}

ALIASES = {
    "s3_endpoint": "aws_endpoint_url",
    "s3_region": "aws_region",
    "s3_allow_http": "allow_http",
    "azure_storage_key": "azure_storage_account_key",
    "account": "azure_storage_account_name",
}
"""Names that other tools have for the same options."""

_FOR_CLIENT = {
    "allow_http",
    "allow_invalid_certificates",
    "connect_timeout",
    "default_content_type",
    "http1_only",
    "http2_only",
    "http2_keep_alive_interval",
    "http2_keep_alive_timeout",
    "http2_keep_alive_while_idle",
    "pool_idle_timeout",
    "pool_max_idle_per_host",
    "proxy_url",
    "proxy_ca_certificate",
    "proxy_excludes",
    "randomize_addresses",
    "read_timeout",
    "root_certificate",
    "timeout",
    "user_agent",
}
_SWITCHES = {
    "allow_http",
    "allow_invalid_certificates",
    "http1_only",
    "http2_only",
    "randomize_addresses",
}
_ENDPOINTS = ("aws_endpoint_url", "aws_endpoint", "endpoint_url", "endpoint", "aws_endpoint_url_s3")
_LOCKING = "aws_s3_locking_provider"
_UNSAFE = "aws_s3_allow_unsafe_rename"
_PREFIX = re.compile(r"^(aws|google|azure(_storage)?)_")
_SPAN = re.compile(r"(\d+)\s*(ms|s|m|h)")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_STORES = {"s3": S3Store, "gcs": GCSStore, "azure": AzureStore}


def delta_options(path: str, storage: Mapping[str, str]) -> dict[str, str]:
    """The options with which delta-rs opens a table: the user's, and our patience with an object store."""
    if local_path(path) is not None:
        return normal(storage)
    given = normal(storage)
    # delta-rs has no lock tables any more, and would say so at each opening.
    given.pop(_LOCKING, None)
    # Only the pipeline file turns conditional commits off: delta-rs would also obey the environment.
    unsafe = {_UNSAFE: "false"} if cloud_of(path) == "s3" else {}
    return {**_PATIENCE, **unsafe, **given}


def normal(storage: Mapping[str, str]) -> dict[str, str]:
    """The same options under the names that both clients know."""
    found = {_name(name.lower()): value for name, value in storage.items()}
    if "path_style_access" in found:
        style = "false" if is_true(found.pop("path_style_access")) else "true"
        found.setdefault("aws_virtual_hosted_style_request", style)
    return found


def _name(name: str) -> str:
    # Not every cloud has these with its own prefix, but each has them without.
    plain = _PREFIX.sub("", name)
    return plain if plain in _FOR_CLIENT else ALIASES.get(name, name)


@dataclass(frozen=True)
class LockOptions:
    """How the lock table of a Delta table is reached. Empty keys are looked for as botocore does."""

    table: str
    region: str
    endpoint: str
    access_key_id: str
    secret_access_key: str
    session_token: str
    timeout: float
    connect_timeout: float
    proxy: str


def lock_options(path: str, storage: Mapping[str, str]) -> LockOptions | None:
    """The lock table that is asked for; None where the store itself keeps writers apart.

    Raises TableError for a provider of locks that nobody has.
    """
    found = _with_environment(storage)
    provider = found.get(_LOCKING, "")
    if cloud_of(path) != "s3" or not provider:
        return None
    if provider.lower() != "dynamodb":
        raise TableError(
            f"{path}: AWS_S3_LOCKING_PROVIDER is {provider}, and only dynamodb is known.\n"
            "Set it to dynamodb, or remove it, here and in the environment: S3 itself keeps writers apart."
        )
    own_keys = bool(found.get("aws_access_key_id_dynamodb"))
    return LockOptions(
        table=found.get("delta_dynamo_table_name") or "delta_log",
        region=_first(found, "aws_region_dynamodb", "aws_region", "region", "aws_default_region")
        or "us-east-1",
        endpoint=_first(found, "aws_endpoint_url_dynamodb", "aws_endpoint_url", "aws_endpoint"),
        # All three of one pair of keys, or none.
        **{
            name: found.get(f"aws_{name}_dynamodb" if own_keys else f"aws_{name}", "")
            for name in ("access_key_id", "secret_access_key", "session_token")
        },
        timeout=_duration(path, "timeout", found.get("timeout", "30s")).total_seconds(),
        connect_timeout=_duration(
            path, "connect_timeout", found.get("connect_timeout", "5s")
        ).total_seconds(),
        proxy=found.get("proxy_url", ""),
    )


def _first(found: Mapping[str, str], *names: str) -> str:
    return next((found[name] for name in names if found.get(name)), "")


def is_unsafe(path: str, storage: Mapping[str, str]) -> bool:
    """Whether `storage` asks for commits without protection against a second writer; a lock table protects.

    A variable of the environment does not count: other tools need it, and leave it there.
    """
    asked = normal(storage).get(_UNSAFE, "")
    return cloud_of(path) == "s3" and is_true(asked) and lock_options(path, storage) is None


def endpoint(path: str, storage: Mapping[str, str]) -> str:
    """The server that stands for Amazon's; empty for Amazon itself and for other clouds."""
    found = _with_environment(storage)
    named = (found[name] for name in _ENDPOINTS if found.get(name))
    return next(named, "") if cloud_of(path) == "s3" else ""


def _with_environment(storage: Mapping[str, str]) -> dict[str, str]:
    return {**{name.lower(): value for name, value in os.environ.items()}, **normal(storage)}


def is_true(value: str) -> bool:
    """Whether a switch is on, however it is written."""
    return value.strip().lower() in ("true", "1", "yes", "on", "y", "t")


def client_options(path: str, storage: Mapping[str, str]) -> dict[str, Any]:
    """What obstore is given to open a store, by its own names. What only delta-rs knows is left out."""
    config: dict[str, str] = {}
    client: dict[str, Any] = {}
    retry: dict[str, Any] = {}
    for name, value in delta_options(path, storage).items():
        if name in _FOR_CLIENT:
            client[name] = is_true(value) if name in _SWITCHES else value
        elif name == "max_retries":
            retry["max_retries"] = int(value)
        elif name == "retry_timeout":
            retry["retry_timeout"] = _duration(path, name, value)
        elif name.startswith("backoff_config."):
            key = name.removeprefix("backoff_config.")
            retry.setdefault("backoff", {})[key] = (
                float(value) if key == "base" else _duration(path, name, value)
            )
        elif _is_known(bucket_of(path).cloud, name):
            config[name] = value
    return {"config": config, "client_options": client or None, "retry_config": retry or None}


_KNOWN: dict[tuple[Cloud, str], bool] = {}


def _is_known(cloud: Cloud, name: str) -> bool:
    """Whether the client of a cloud has an option of this name; only the client itself knows all of them."""
    if (cloud, name) not in _KNOWN:
        try:
            _STORES[cloud]("probe", config={name: ""})
        except Exception as error:
            _KNOWN[cloud, name] = type(error).__name__ != "UnknownConfigurationKeyError"
        else:
            _KNOWN[cloud, name] = True
    return _KNOWN[cloud, name]


def _duration(path: str, name: str, value: str) -> dt.timedelta:
    spans = _SPAN.findall(value)
    if not spans or _SPAN.sub("", value).strip():
        raise TableError(
            f"{path}: cannot be opened: {name} is {value!r}\nWrite a duration such as 30s, 500ms or 2m."
        )
    return dt.timedelta(seconds=sum(int(number) * _SECONDS[unit] for number, unit in spans))
