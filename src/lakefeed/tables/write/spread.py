"""Work on many files of a table: in threads of this process, or wherever the engine has more cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

import pyarrow.fs as pafs

T = TypeVar("T")
R = TypeVar("R")

AT_ONCE = max(2, min(4, os.cpu_count() or 1))
"""Threads that work on files at once; each holds a part of one in memory."""


class Spread(Protocol):
    """Does the same work on many items, each for itself; returns what came of each, or what it raised.

    The work gets the store of the table. It and the items may be pickled, and go to other machines; so what
    it raises is returned, for the caller to clean up what others have done.
    """

    def __call__(
        self, store: pafs.FileSystem, work: Callable[[pafs.FileSystem, T], R], items: Sequence[T], size: int
    ) -> list[R | Exception]:
        """`size` is how many bytes are read, all items together."""
        ...


def in_threads(
    store: pafs.FileSystem, work: Callable[[pafs.FileSystem, T], R], items: Sequence[T], size: int
) -> list[R | Exception]:
    """All work here, whatever its size."""

    def tried(item: T) -> R | Exception:
        try:
            return work(store, item)
        except Exception as error:
            return error

    if len(items) < 2:
        return [*map(tried, items)]
    with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="files") as pool:
        return list(pool.map(tried, items))


def good(results: Sequence[R | Exception]) -> list[R]:
    """What came of all work; raises the first error, if there was one."""
    for one in results:
        if isinstance(one, Exception):
            raise one
    return [one for one in results if not isinstance(one, Exception)]
