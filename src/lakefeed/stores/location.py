"""Where a table lies: a directory of this machine, or a prefix in a bucket of one of the clouds."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal
from urllib.parse import unquote, urlsplit

from lakefeed.errors import TableError

Cloud = Literal["s3", "gcs", "azure"]

_CLOUDS: dict[str, Cloud] = {
    "s3": "s3",
    "s3a": "s3",
    "gs": "gcs",
    "az": "azure",
    "adl": "azure",
    "abfs": "azure",
    "abfss": "azure",
}
SCHEMES = tuple(_CLOUDS)
"""The schemes of object stores."""


@dataclass(frozen=True)
class Bucket:
    """A prefix in a bucket, or in a container of an account."""

    cloud: Cloud
    name: str
    prefix: str
    account: str | None = None
    """The account that the URL of a container names itself: `abfss://container@account.dfs...`."""


def local_path(path: str) -> Path | None:
    """The directory of a local path or a `file://` URL; None for an object store."""
    scheme, rest = urlsplit(path).scheme, urlsplit(path).path
    if scheme == "file":
        return Path(unquote(rest))
    return None if "://" in path else Path(path).absolute()


def cloud_of(path: str) -> Cloud | None:
    """The cloud whose store a URL is in; None for a path of this machine, or a scheme that nobody serves."""
    return _CLOUDS.get(path.partition("://")[0].lower()) if "://" in path else None


def bucket_of(path: str) -> Bucket:
    """The bucket and prefix of an object store's URL. Raises TableError for a scheme that nobody serves."""
    scheme, _, rest = path.partition("://")
    cloud = cloud_of(path)
    host, _, prefix = rest.partition("/")
    if cloud is None or not host:
        expected = ", ".join(f"{known}://" for known in SCHEMES)
        raise TableError(
            f"{path}: cannot be opened: {scheme}:// is no store\nUse a local path, or one of {expected}."
        )
    if "#" in rest or "?" in rest:
        # delta-rs takes the URL up to there, which is another table.
        raise TableError(f"{path}: cannot be opened: the URL has # or ?\nChoose a path without them.")
    name, at, server = host.partition("@")
    account = server.partition(".")[0] if at and cloud == "azure" else None
    return Bucket(cloud, name if account else host, unquote(prefix.strip("/")), account)
