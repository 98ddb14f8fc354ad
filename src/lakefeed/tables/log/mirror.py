"""Operations of delta-rs on a table that it must not commit to: it works on a copy, its entry is put here.

delta-rs has no lock tables. So its log is copied to this machine, with the files that the operation reads;
what it makes there is uploaded, and its entry goes through the lock table as all others do.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import orjson
import pyarrow.fs as pafs
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from lakefeed.stores import names_after, store_path
from lakefeed.tables.log.data_file import DataFile, stored_paths
from lakefeed.tables.log.entry import LOG, entry_name
from lakefeed.tables.log.log import Log
from lakefeed.tables.log.write import write_entry

if TYPE_CHECKING:
    from lakefeed.tables.table import LakeTable

Action = dict[str, Any]
Files = Callable[[], Iterable[DataFile]]
"""Finds the files of a table that an operation reads; asked only where they are needed."""


def create_mirrored(
    store: pafs.FileSystem, make: Callable[[str], object], amend: Callable[[list[Action]], object] = len
) -> None:
    """Let delta-rs make a table in a folder here, and put its first entry into the store once it is amended.

    Raises FileExistsError where there is one.
    """
    if Log.open(store) is not None:
        # Its first entry may have been cleaned away.
        raise FileExistsError(entry_name(0))
    with _folder() as folder:
        make(str(folder))
        actions = _entry(store, folder, 0)
        amend(actions)
        store.create_dir(LOG)
        write_entry(store, 0, actions)


def alter_mirrored(
    table: LakeTable,
    alter: Callable[[DeltaTable], object],
    reads: Iterable[DataFile],
    since: int,
) -> None:
    """Let delta-rs change the version that the table is at, and put its entry behind that.

    Raises CommitFailedError, with nothing left behind, when another writer was faster.
    """
    with _folder() as folder:
        _copy_log(table.store, folder, since, table.version)
        copied = stored_paths(reads)
        for path in copied:
            _download(table.store, path, folder)
        delta = DeltaTable(str(folder))
        delta.load_as_version(table.version)
        alter(delta)
        if not (folder / entry_name(table.next_version)).exists():
            # There was nothing to change.
            return
        actions = _entry(table.store, folder, table.next_version)
        made = [path for path in _named(actions) if path not in copied and (folder / path).exists()]
        for path in made:
            _upload(folder, path, table.store)
        if (refused := table.put(actions)) is not None:
            for path in made:
                with suppress(OSError):
                    table.store.delete_file(path)
            raise CommitFailedError(str(refused))


@contextmanager
def _folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="lakefeed-") as folder:
        yield Path(folder)


def _copy_log(store: pafs.FileSystem, folder: Path, since: int, until: int) -> None:
    """Copy the log from the newest checkpoint on that `since` may be read from; nothing behind `until`."""
    log = Log.open(store)
    checkpoints = log.checkpoints if log else {}
    first = max((at for at in checkpoints if at <= since), default=0)
    for name in names_after(store, f"{LOG}/{first:020d}"):
        number = name.partition(".")[0]
        if number.isdecimal() and int(number) <= until:
            _download(store, f"{LOG}/{name}", folder)
    for version, checkpoint in checkpoints.items():
        if first <= version <= until:
            for path in checkpoint.sidecars(store):
                _download(store, path, folder)


def _download(store: pafs.FileSystem, path: str, folder: Path) -> None:
    target = folder / path
    target.parent.mkdir(parents=True, exist_ok=True)
    with store.open_input_stream(path) as stream, target.open("wb") as file:
        shutil.copyfileobj(stream, file)


def _upload(folder: Path, path: str, store: pafs.FileSystem) -> None:
    with (folder / path).open("rb") as file, store.open_output_stream(path) as stream:
        shutil.copyfileobj(file, stream, 4 * 2**20)


def _entry(store: pafs.FileSystem, folder: Path, version: int) -> list[Action]:
    """What delta-rs has written, with the path of the table in it and not that of its copy."""
    lines = (folder / entry_name(version)).read_bytes().splitlines()
    actions: list[Action] = [orjson.loads(line) for line in lines if line.strip()]
    for action in actions:
        told = action.get("commitInfo", {}).get("operationParameters", {})
        if "location" in told:
            told["location"] = store_path(store)
    return actions


def _named(actions: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """The files that an entry adds, as they lie on the disk; a restored one is in the store already."""
    for action in actions:
        for kind in ("add", "cdc"):
            if kind in action:
                yield unquote(action[kind]["path"])
