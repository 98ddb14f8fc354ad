"""What a disk does in its own way: new files by a link, and data that outlives a power cut."""

from __future__ import annotations

import errno
import os
import uuid
from collections.abc import Collection, Hashable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

_SYNCS = 8


def sync(paths: Collection[Path]) -> None:
    """Wait until the content of files, or the names in directories, would outlive a power cut."""
    if len(paths) == 1:
        return _sync(next(iter(paths)))
    # Side by side: the disk then writes its journal once for many of them.
    with ThreadPoolExecutor(max_workers=_SYNCS) as pool:
        for _ in pool.map(_sync, paths):
            pass
        return None


def put_new(path: Path, content: bytes, *, durable: bool = False) -> None:
    """Put a file in place, whole or not at all. Raises FileExistsError where there is one already.

    A `durable` one outlives a power cut: it is on the disk before it has its name, and its name before this
    returns.
    """
    part = path.with_name(f"_commit_{uuid.uuid4()}.json.tmp")
    try:
        part.write_bytes(content)
        if durable:
            sync([part])
        try:
            # Unlike a rename, a link never replaces what is there.
            os.link(part, path)
        except FileExistsError:
            # A disk on the network may have done it, lost its own reply, and tried again.
            if part.stat().st_nlink < 2:
                raise
        if durable:
            sync([part.parent])
    finally:
        with suppress(OSError):
            part.unlink()


def tag(path: Path) -> Hashable | None:
    """By which a file differs from another of the same name; None where there is none."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


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
