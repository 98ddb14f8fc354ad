"""Data files of a table as they lie in its store: opened, or told by name when they are gone or damaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from shlex import quote

import pyarrow as pa
import pyarrow.fs as pafs

from lakefeed.errors import TableError
from lakefeed.stores import store_path
from lakefeed.text import counted


class MissingFile(TableError):
    """A file that the log names is not in the store."""


def open_data(store: pafs.FileSystem, path: str) -> pa.NativeFile:
    """Open a file of the table. Raises MissingFile."""
    try:
        return store.open_input_file(path)
    except FileNotFoundError:
        raise _missing(store, [path]) from None


def refuse_missing(store: pafs.FileSystem, paths: Iterable[str]) -> None:
    """Raise MissingFile when some of the files are not there; asks the store about each."""
    wanted = list(paths)
    infos = store.get_file_info(wanted) if wanted else []
    gone = [path for path, info in zip(wanted, infos, strict=True) if info.type != pafs.FileType.File]
    if gone:
        raise _missing(store, gone)


@contextmanager
def whole(store: pafs.FileSystem, path: str) -> Iterator[None]:
    """Turn what Arrow says about a damaged file into TableError."""
    try:
        yield
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        reason = (str(error).splitlines() or ["no reason given"])[0][:120]
        raise TableError(
            f"{store_path(store)}: {path} cannot be read: {reason}\n"
            "Bring it back from a backup, or restore the table to a version without it."
        ) from error


def _missing(store: pafs.FileSystem, gone: list[str]) -> MissingFile:
    place = store_path(store)
    more = f", and {counted(len(gone) - 1, 'file')} more" if len(gone) > 1 else ""
    return MissingFile(
        f"{place}: {gone[0]}{more}: the log names it, and it is not there. Nothing was changed.\n"
        "Bring it back from a backup, or go back to a version without it: "
        f"lakefeed table history {quote(place)}"
    )
