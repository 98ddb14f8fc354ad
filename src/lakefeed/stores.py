"""Stores: the disk or object store that holds a table, as one file system rooted at the table."""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow.fs as pafs
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.fs import DeltaStorageHandler

from lakefeed.errors import LakefeedError, StoreUnavailable, TableError

# The engine tries again by itself: a store that is away must not hold a worker for minutes.
_DEFAULTS = {"retry_timeout": "30s"}

_SYNCS = 8

_FULL = (StoreUnavailable, "no space left", "Free some space; the write is tried again.")
_FORBIDDEN = (TableError, "permission denied", "Give the user that runs Lakefeed the right to write there.")
_TOO_MANY_FILES = (
    StoreUnavailable,
    "too many open files",
    "Raise the limit of this user (`ulimit -n`); the write is tried again.",
)
_BY_NUMBER: dict[int, tuple[type[TableError], str, str]] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EMFILE: _TOO_MANY_FILES,
    errno.ENFILE: _TOO_MANY_FILES,
    errno.EROFS: (TableError, "the file system is read-only", "Make it writable, or choose another path."),
    errno.ENOTDIR: (TableError, "a part of this path is a file, not a directory", "Choose another path."),
}

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_MISSING = re.compile(r"NoSuchBucket|ContainerNotFound|FilesystemNotFound", re.I)
_REFUSED = re.compile(
    r"AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|AuthenticationFailed|AuthorizationFailure"
    r"|InvalidToken|40[13] (Forbidden|Unauthorized)|credentials|permission denied",
    re.I,
)
_DAMAGED = re.compile(
    r"Json error|found gap|Invalid Checkpoint|Parquet error|less than footer|No table metadata or protocol"
    r"|older than the existing snapshot"
)
_DATA_FILE = re.compile(
    r"(?:file|location) (\S+\.parquet)\b.*?"
    r"(?:not found|no such file|range was invalid|invalid parquet|footer|eof)",
    re.I | re.S,
)
# What the kernel of delta-rs says of a table that it cannot read or write, now or later.
_UNKNOWN_KIND = re.compile(
    r"Unsupported|Schema error|Max catalog version|Invalid protocol|Invalid column mapping|is not supported"
)
# What shows that a store, or the way to it, caused an error: that may pass.
_PASSING = re.compile(
    r"object ?store|generic (?!delta)\w+ error|http|sending request|time(d)? ?out|connect|reset|os error"
    r"|i/o error|unavailable|slow ?down|too many requests|no reason given",
    re.I,
)
_MISUSED = re.compile(
    r"unknown scheme|invalid (table|url|uri)|missing (region|account)|configuration"
    r"|generic delta kernel error",
    re.I,
)
# delta-rs ends some errors with the functions that it was in.
_BACKTRACE = re.compile(r"\d+: (<unknown>|\w+$)|at \S+:\d+:\d+$")
# delta-rs has no errno, but quotes the system's error in one of these two ways.
_NUMBER = re.compile(r"Os \{ code: (\d+)|\(os error (\d+)\)")


def delta_options(path: str, storage: Mapping[str, str]) -> dict[str, str]:
    """The options with which delta-rs opens a table: the user's, and our timeout for an object store."""
    return {**_DEFAULTS, **storage} if "://" in path and not path.startswith("file:") else dict(storage)


class _ObjectStore(DeltaStorageHandler):
    """delta-rs's own object stores, so that one set of storage options serves the log and the files."""

    def __init__(self, uri: str, storage: Mapping[str, str]) -> None:
        super().__init__(uri, {**_DEFAULTS, **storage})
        self.uri = uri


def open_store(path: str, storage: Mapping[str, str]) -> pafs.FileSystem:
    """A file system whose root is the table at `path`: a local path, `file://`, or an object store's URL.

    Nothing is created or asked for yet. Used on the driver and on workers; one store serves one thread.
    """
    local = _local_path(path)
    if local is not None:
        return pafs.SubTreeFileSystem(str(local), pafs.LocalFileSystem())
    with store_errors(path):
        return pafs.PyFileSystem(_ObjectStore(path, storage))


def local_folder(store: pafs.FileSystem) -> Path | None:
    """The directory that is a store's root; None for an object store."""
    local = isinstance(store, pafs.SubTreeFileSystem) and isinstance(store.base_fs, pafs.LocalFileSystem)
    return Path(store.base_path) if local else None


def store_path(store: pafs.FileSystem) -> str:
    """Where a store is, as a user would write it."""
    return str(store.handler.uri if isinstance(store, pafs.PyFileSystem) else store.base_path).rstrip("/")


def sync(paths: Collection[Path]) -> None:
    """Wait until the content of files, or the names in directories, would outlive a power cut."""
    if len(paths) == 1:
        return _sync(next(iter(paths)))
    # Side by side: the disk then writes its journal once for many of them.
    with ThreadPoolExecutor(max_workers=_SYNCS) as pool:
        for _ in pool.map(_sync, paths):
            pass
        return None


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        # Some file systems on the network cannot, and need not, do that with a directory.
        if error.errno != errno.EINVAL or not path.is_dir():
            raise
    finally:
        os.close(handle)


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Turn what a disk or an object store raises into TableError or StoreUnavailable, with what to do.

    A refused commit passes as it is: only the caller knows what it means. But one that delta-rs will never
    make, as the table has a feature that it does not know, is none that may be tried again.
    """
    try:
        yield
    except LakefeedError:
        raise
    except CommitFailedError as error:
        if "Unsupported table features" in str(error):
            raise _table_error(path, error) from error
        raise
    except (OSError, DeltaError) as error:
        raise _table_error(path, error) from error


def _local_path(path: str) -> Path | None:
    scheme, rest = urlsplit(path).scheme, urlsplit(path).path
    if scheme == "file":
        return Path(unquote(rest))
    return None if "://" in path else Path(path).absolute()


def _table_error(path: str, error: Exception) -> TableError:
    text = _ANSI.sub("", str(error))
    if found := _BY_NUMBER.get(_number(error, text)):
        kind, what, remedy = found
    elif (file := _DATA_FILE.search(text)) and "_delta_log" not in file[1] and not _MISSING.search(text):
        kind, what = TableError, f"a file of the table is missing or damaged: {file[1].rpartition('/')[2]}"
        remedy = "Bring it back from a backup, or restore the table to a version without it."
    elif _MISSING.search(text) or "404 Not Found" in text:
        kind, what = TableError, "the bucket or container does not exist"
        remedy = "Create it, or correct the path."
    elif _REFUSED.search(text):
        kind, what = TableError, f"the store refused access: {_gist(text)}"
        remedy = "Check the credentials in `storage` and their permissions."
    elif _UNKNOWN_KIND.search(text):
        kind, what = TableError, f"delta-rs does not support this table: {_kernel(text)}"
        remedy = "Choose another path, or remove the unsupported feature with the engine that set it."
    elif _DAMAGED.search(text):
        kind, what = TableError, f"the log of the table is damaged: {_damage(text)}"
        remedy = (
            "Nothing was written. Bring the file back from a backup.\n"
            "A broken checkpoint may be deleted, with _last_checkpoint, if the log has all versions since 0."
        )
    elif _MISUSED.search(text):
        kind, what, remedy = TableError, f"cannot be opened: {_gist(text)}", "Check the path and `storage`."
    elif isinstance(error, DeltaError) and not _PASSING.search(text):
        kind, what = TableError, f"delta-rs cannot do this with the table: {_kernel(text)}"
        remedy = "Look at `lakefeed table detail`, then start again."
    else:
        kind, what = StoreUnavailable, f"the store does not answer: {_gist(text)}"
        remedy = "The write is tried again; check that the store can be reached."
    return kind(f"{path}: {what}\n{remedy}")


def _damage(text: str) -> str:
    """What is wrong with a log, without the internals of the library that found it."""
    if "found gap" in text:
        present = sorted({int(number) for number in re.findall(r"filename: \"(\d+)\.json\"", text)})
        return f"entries are missing between versions {present[0]} and {present[-1]}" if present else "a gap"
    return _kernel(text)


def _kernel(text: str) -> str:
    """The first line of a chain of errors of the kernel, which says what it is about."""
    return re.sub(r"^(Kernel error: |Generic delta kernel error: |Unsupported: )+", "", text.splitlines()[0])[
        :200
    ]


def _number(error: Exception, text: str) -> int:
    quoted = _NUMBER.search(text)
    return getattr(error, "errno", None) or (int(quoted[1] or quoted[2]) if quoted else 0)


def _gist(text: str) -> str:
    """The innermost cause that a chain of errors names; it is what tells one failure from another."""
    lines = [line.strip(" ↳\t") for line in text.splitlines() if line.strip(" ↳\t")]
    lines = [line for line in lines if not _BACKTRACE.match(line)]
    code = re.search(r"<Code>(\w+)</Code>\s*<Message>([^<]*)", text)
    # A line about retries and their limits ends in what went wrong.
    last = lines[-1].split("  - ")[-1] if lines else "no reason given"
    return f"{code[1]}: {code[2]}" if code else last[:200]
