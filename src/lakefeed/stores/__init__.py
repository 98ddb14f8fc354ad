"""Stores: the disk or object store that holds a table, as one file system rooted at the table."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import TypeVar, cast

import pyarrow.fs as pafs

from lakefeed.stores import disk
from lakefeed.stores.conditional import refuse_unconditional, says_conditional
from lakefeed.stores.disk import sync
from lakefeed.stores.failures import store_errors
from lakefeed.stores.location import cloud_of, local_path
from lakefeed.stores.lock_table import LockTable
from lakefeed.stores.locked import finish, finish_newest, put_locked
from lakefeed.stores.objects import Listed, ObjectFiles, StoreError
from lakefeed.stores.options import delta_options, is_unsafe

UNSAFE = (
    "commits are not protected against a second writer (AWS_S3_ALLOW_UNSAFE_RENAME): this pipeline must be "
    "the only one that writes to the table, table commands included; upkeep beside the stream is off"
)
"""What the owner of a table must know who has asked for it."""

_AT_ONCE = 16
"""Requests to an object store that run in parallel."""
Item = TypeVar("Item")
Result = TypeVar("Result")

_ABSOLUTE = re.compile(r"([a-z][a-z0-9+.-]*://[^/]+)/(.+)", re.IGNORECASE | re.DOTALL)

__all__ = [
    "UNSAFE",
    "StoreError",
    "confirm_conditional",
    "delete_files",
    "delta_options",
    "finish_commit",
    "finish_newest_commit",
    "forget_commits",
    "found_objects",
    "is_conditional",
    "is_locked",
    "is_overwritable",
    "is_unsafe",
    "listed_objects",
    "local_folder",
    "located",
    "made_conditionally",
    "names_after",
    "open_store",
    "paged_objects",
    "parallel_map",
    "put_entry",
    "put_new",
    "read_tagged",
    "store_errors",
    "store_path",
    "sync",
    "tag",
]


def open_store(path: str, storage: Mapping[str, str]) -> pafs.FileSystem:
    """A file system whose root is the table at `path`: a local path, `file://`, or an object store's URL.

    Nothing is created or asked for yet. Used on the driver and on workers; one store serves one thread.
    """
    local = local_path(path)
    if local is not None:
        return pafs.SubTreeFileSystem(str(local), pafs.LocalFileSystem())
    with store_errors(path):
        return pafs.PyFileSystem(ObjectFiles(path, storage))


def local_folder(store: pafs.FileSystem) -> Path | None:
    """The directory that is a store's root; None for an object store."""
    local = isinstance(store, pafs.SubTreeFileSystem) and isinstance(store.base_fs, pafs.LocalFileSystem)
    return Path(store.base_path) if local else None


def located(store: pafs.FileSystem, path: str) -> tuple[pafs.FileSystem, str]:
    """Where a file lies that the log of a table names: within the table, or anywhere, as in a shallow clone.

    Another bucket is opened with the options of the table's own. The path has its `%20` decoded already.
    """
    if path.startswith(("/", "file:/")):
        return pafs.LocalFileSystem(), "/" + path.removeprefix("file:").lstrip("/")
    if not (found := _ABSOLUTE.fullmatch(path)):
        return store, path
    if local_folder(store) is not None:
        return open_store(found[1], {}), found[2]
    with store_errors(path):
        return pafs.PyFileSystem(_objects(store).beside(found[1])), found[2]


def store_path(store: pafs.FileSystem) -> str:
    """Where a store is, as a user would write it."""
    return str(store.handler.uri if isinstance(store, pafs.PyFileSystem) else store.base_path).rstrip("/")


def is_conditional(store: pafs.FileSystem) -> bool:
    """Whether `put_new` may be used for what others write too.

    On a disk it may, and in a store unless its options say otherwise: then delta-rs commits, unprotected.
    """
    return local_folder(store) is not None or not _objects(store).unsafe


def confirm_conditional(store: pafs.FileSystem) -> None:
    """Raise TableError where a store does not keep two writers apart, unless it is said that it need not."""
    if local_folder(store) is None and is_conditional(store):
        refuse_unconditional(_objects(store))


def put_new(store: pafs.FileSystem, path: str, content: bytes, *, durable: bool = False) -> Hashable | None:
    """Make a file that nobody has made, whole or not at all: of many writers, one succeeds. Returns its tag.

    Raises FileExistsError where there is one. On an object store, that one may be of this very call: when an
    answer is lost, the request is repeated. A `durable` file on a disk outlives a power cut.
    """
    folder = local_folder(store)
    if folder is None:
        return _objects(store).put_new(path, content)
    disk.put_new(folder / path, content, durable=durable)
    return disk.tag(folder / path)


def put_entry(store: pafs.FileSystem, path: str, content: bytes, *, durable: bool = False) -> Hashable | None:
    """Make an entry of a Delta log, as `put_new`, through the lock table where one is asked for."""
    lock = _lock(store)
    if lock is not None:
        return put_locked(_objects(store), lock, path, content)
    confirm_conditional(store)
    return put_new(store, path, content, durable=durable)


def is_locked(store: pafs.FileSystem) -> bool:
    """Whether writers of a log keep apart by a lock table: then delta-rs, which has none, must not commit."""
    return _lock(store) is not None


def is_overwritable(store: pafs.FileSystem) -> bool:
    """Whether a writer that makes no conditional requests, such as Spark's Delta, overwrites entries here."""
    return cloud_of(store_path(store)) == "s3" and not is_locked(store)


def made_conditionally(store: pafs.FileSystem, path: str) -> bool:
    """Whether a file in an object store says that a conditional request made it. One request."""
    return says_conditional(_objects(store), path)


def finish_commit(store: pafs.FileSystem, path: str) -> bool:
    """Put an entry in place that a writer has committed in the lock table only; whether there was one."""
    lock = _lock(store)
    return lock is not None and finish(_objects(store), lock, path)


def finish_newest_commit(store: pafs.FileSystem, log: str) -> None:
    """The same for the newest entry, whichever it is, of the log in this folder."""
    lock = _lock(store)
    if lock is not None:
        finish_newest(_objects(store), lock, log)


def forget_commits(store: pafs.FileSystem) -> None:
    """Delete what a lock table holds of a table that is no more."""
    lock = _lock(store)
    if lock is not None:
        lock.forget()


def tag(store: pafs.FileSystem, path: str) -> Hashable | None:
    """By which a file differs from any other that was there; None where there is none. One request."""
    folder = local_folder(store)
    return _objects(store).tag(path) if folder is None else disk.tag(folder / path)


def listed_objects(store: pafs.FileSystem, after: str | None = None) -> Iterator[Listed]:
    """Every object of a store, or only those whose paths sort behind one."""
    return _objects(store).listed() if after is None else _objects(store).listed_after(after)


def paged_objects(store: pafs.FileSystem) -> Iterator[Listed]:
    """Every object of a store, page by page: none but those of one page are in memory."""
    return _objects(store).paged()


def found_objects(store: pafs.FileSystem, paths: Sequence[str]) -> list[Listed]:
    """Those of the objects at some paths that are there. One request for each."""
    return _objects(store).found(paths)


def read_tagged(store: pafs.FileSystem, path: str) -> tuple[bytes, Hashable | None]:
    """All of a file, and the tag that it had. One request. Raises FileNotFoundError where there is none."""
    folder = local_folder(store)
    if folder is None:
        return _objects(store).get(path)
    # Before it is read: what replaces it meanwhile is noticed then.
    found = disk.tag(folder / path)
    return (folder / path).read_bytes(), found


def names_after(store: pafs.FileSystem, path: str) -> list[str]:
    """The names of the files behind a path in its directory, in order; a store lists no others."""
    folder = local_folder(store)
    if folder is None:
        return _objects(store).names_after(path)
    last = (folder / path).name
    return sorted(found.name for found in (folder / path).parent.iterdir() if found.name > last)


def parallel_map(
    store: pafs.FileSystem, function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """The result of `function` for each item, in order; requests to an object store run in parallel.

    Works a few items ahead of the caller, so that results do not pile up in memory. A disk answers faster
    than a thread starts: there it is a plain `map`.
    """
    if local_folder(store) is not None:
        yield from map(function, items)
        return
    pending: deque[Future[Result]] = deque()
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="store") as pool:
        try:
            for item in items:
                pending.append(pool.submit(function, item))
                if len(pending) >= 2 * _AT_ONCE:
                    yield pending.popleft().result()
            while pending:
                yield pending.popleft().result()
        finally:
            for future in pending:
                future.cancel()


def delete_files(
    store: pafs.FileSystem, paths: Iterable[str], on_file: Callable[[], None] = lambda: None
) -> None:
    """Delete files, whether or not they exist, and call `on_file` after each. It may raise to stop early."""

    def delete(path: str) -> None:
        with suppress(FileNotFoundError):
            store.delete_file(path)

    for _ in parallel_map(store, delete, paths):
        on_file()


def drop_files(store: pafs.FileSystem, paths: Iterable[str]) -> None:
    """Delete files that nothing refers to; what cannot be deleted stays for vacuum."""

    def drop(path: str) -> None:
        with suppress(Exception):
            store.delete_file(path)

    for _ in parallel_map(store, drop, paths):
        pass


def _lock(store: pafs.FileSystem) -> LockTable | None:
    return None if local_folder(store) is not None else _objects(store).lock


def _objects(store: pafs.FileSystem) -> ObjectFiles:
    return cast(ObjectFiles, store.handler)
