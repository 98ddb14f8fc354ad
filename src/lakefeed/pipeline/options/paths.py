"""Paths of tables: local paths and object stores, brought to one spelling."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated
from urllib.parse import unquote, urlsplit

from pydantic import AfterValidator, ValidationInfo

from lakefeed.text import shown

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.\-]*)://")
_EXPECTED = "expected a local path, file:///path, s3://bucket/path, gs://bucket/path or az://container/path"
# What one cloud is called in several ways is one table.
_SPELLINGS = {"s3": "s3", "s3a": "s3", "gs": "gs", "az": "az", "adl": "az", "abfs": "az", "abfss": "az"}
_AZURE_HOST = re.compile(r"([\w-]+)@([a-z0-9]+)\.(?:dfs|blob)\.(core\.windows\.net)", re.I)


@dataclass(frozen=True)
class FileContext:
    """The context of a validation whose values come from a file; relative paths start at its directory."""

    directory: Path


def location(text: str, directory: Path | None = None) -> str:
    """The one spelling of a table's path: a local path without `..`, or a URL such as `s3://bucket/key`.

    A relative path is made absolute if a directory is given. ValueError for anything else.
    """
    scheme = _SCHEME.match(text)
    if not text.strip() or "\0" in text or not text.strip("/"):
        raise ValueError(f"{_EXPECTED}, got {shown(text)}")
    if scheme is None:
        return os.path.normpath(directory / text if directory else text)
    if scheme[1].lower() == "file":
        return _local(text)
    if scheme[1].lower() in _SPELLINGS:
        return _object_store(_SPELLINGS[scheme[1].lower()], text)
    raise ValueError(f"{_EXPECTED}, got one of {scheme[1]}://")


def _local(text: str) -> str:
    parts = urlsplit(text)
    if parts.netloc not in ("", "localhost") or not parts.path.startswith("/"):
        raise ValueError(f"{_EXPECTED}, got {shown(text)}; file:// needs three slashes and an absolute path")
    return os.path.normpath(unquote(text.split("://", 1)[1].removeprefix(parts.netloc)))


def _object_store(scheme: str, text: str) -> str:
    bucket, _, key = text.split("://", 1)[1].partition("/")
    expected = f"{scheme}://{'container' if scheme == 'az' else 'bucket'}/path"
    if scheme == "az" and (named := _AZURE_HOST.fullmatch(bucket)):
        # A container and its account, as Azure itself writes them.
        scheme, bucket = "abfss", f"{named[1]}@{named[2]}.dfs.{named[3]}".lower()
    elif "@" in bucket or ":" in bucket:
        raise ValueError(f"expected {expected}; credentials and endpoints belong in `storage`")
    steps = [step for step in key.split("/") if step]
    if not bucket or not steps or {".", ".."} & set(steps) or re.search(r"[#?]", key):
        raise ValueError(f"expected {expected} without '.', '..', '#' and '?', got {shown(text)}")
    return f"{scheme}://{bucket}/{'/'.join(steps)}"


def is_inside(inner: str, outer: str) -> bool:
    """Whether a location is the same as another one or lies below it."""
    one, other = _comparable(inner), _comparable(outer)
    return one == other or one.startswith(other.rstrip("/") + "/")


def same_location(one: str, other: str) -> bool:
    """Whether two paths are the same location."""
    return _comparable(one) == _comparable(other)


def _comparable(path: str) -> str:
    # Two names of one directory are one table, hence links are followed.
    return path if _SCHEME.match(path) else os.path.realpath(path)


def sibling(path: str, name: str) -> str:
    """The location of that name in the same directory or prefix."""
    parent, _, _ = path.rpartition("/")
    return f"{parent}/{name}" if parent else f"/{name}" if path.startswith("/") else name


def _located(text: str, info: ValidationInfo) -> str:
    return location(text, info.context.directory if isinstance(info.context, FileContext) else None)


def _local_path(text: str, info: ValidationInfo) -> str:
    if _SCHEME.match(text) or not text.strip():
        raise ValueError(f"expected a local path, got {shown(text)}")
    return location(text, info.context.directory if isinstance(info.context, FileContext) else None)


Location = Annotated[str, AfterValidator(_located)]
"""The path of a table, in its one spelling."""

LocalPath = Annotated[str, AfterValidator(_local_path)]
"""A path on this machine; relative ones are relative to the file."""
