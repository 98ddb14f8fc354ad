"""The tables of a route, found where they lie: their directories are the only list of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow.fs as pafs

from lakefeed.pipeline.options.route import Key, Route
from lakefeed.stores import open_store, store_errors


def keys_in(route: Route, storage: Mapping[str, str]) -> list[Key]:
    """The values of all Delta tables at paths of the route, in order."""
    store = open_store(route.base, dict(storage))
    with store_errors(route.base):
        keys = [route.key_of(f"{route.base}/{path}") for path in _tables(store, "", route.depth)]
    return sorted(key for key in keys if key is not None)


def _tables(store: pafs.FileSystem, directory: str, depth: int) -> Iterator[str]:
    """The tables so many levels below a directory."""
    for found in store.get_file_info(pafs.FileSelector(directory, allow_not_found=True)):
        if found.type != pafs.FileType.Directory:
            continue
        path = found.path.strip("/")
        if depth > 1:
            yield from _tables(store, path, depth - 1)
        elif store.get_file_info(f"{path}/_delta_log").type == pafs.FileType.Directory:
            yield path
