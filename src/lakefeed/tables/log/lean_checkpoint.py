"""A checkpoint without the removals that nobody needs, for tables with deletion vectors.

Each time that rows of a file are marked, the file is removed with its old vector and added with the new one.
A checkpoint keeps removals for a week, so that no vacuum deletes what a reader or a time travel still needs.
A table of a hundred files that changes each second has sixty million of them after that week, and every
checkpoint and every reader pays for them. Nearly all of them protect nothing: the file itself is still in the
table, and its old vectors lie in a file that other removals name as well.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs
import pyarrow.parquet as pq
from deltalake import DeltaTable

from lakefeed.stores import local_folder, put_new
from lakefeed.tables.log.checkpoint import Checkpoint, checkpoint_before, last_checkpoint
from lakefeed.tables.log.entry import LOG, entry_name

_HINT = f"{LOG}/_last_checkpoint"
_AT_ONCE = 8


def write_lean_checkpoint(store: pafs.FileSystem, version: int, *, durable: bool = False) -> None:
    """Write the checkpoint of a version that has none, and point readers to it.

    delta-rs writes it in a copy of the log: whoever reads the table never meets a file that changes. A
    checkpoint of version 2 is not for this.
    """
    known = checkpoint_before(store, version)
    if known and known.version == version:
        # delta-rs would write neither it nor the hint, and readers find it without.
        return
    with TemporaryDirectory(prefix="lakefeed-") as folder:
        _copy_log(store, Path(folder), known, version)
        DeltaTable(folder).create_checkpoint()
        name = f"{LOG}/{version:020d}.checkpoint.parquet"
        lean = without_needless_removals(pq.read_table(Path(folder) / name))
        hint = orjson.loads((Path(folder) / _HINT).read_bytes())
    buffer = pa.BufferOutputStream()
    pq.write_table(lean, buffer)
    content = buffer.getvalue().to_pybytes()
    with suppress(FileExistsError):
        put_new(store, name, content, durable=durable)
    if (last_checkpoint(store) or -1) < version:
        _point_to(store, {**hint, "size": lean.num_rows, "sizeInBytes": len(content)})


def without_needless_removals(actions: pa.Table) -> pa.Table:
    """The actions of a checkpoint, less the removals of which no vacuum needs to know.

    What the table still names, no vacuum deletes. Of all other files and vectors the last removal says until
    when they are kept, and that one stays.
    """
    adds, removes = (actions[kind].combine_chunks() for kind in ("add", "remove"))
    removed = np.flatnonzero(removes.is_valid())
    gone, live = removes.take(pa.array(removed)), adds.drop_null()
    times = pc.fill_null(pc.struct_field(gone, "deletionTimestamp"), 0).to_numpy()
    newest_first = np.argsort(-times, kind="stable")
    kept = np.zeros(len(removed), bool)
    for names in (_paths, _vector_files):
        kept[_first_of_each(names(gone), newest_first, names(live))] = True
    needed = np.ones(actions.num_rows, bool)
    needed[removed[~kept]] = False
    return actions.filter(pa.array(needed))


def _first_of_each(names: pa.Array, order: np.ndarray[Any, Any], live: pa.Array) -> np.ndarray[Any, Any]:
    """Where each name stands first in this order; not those that are null or live."""
    ordered = names.take(pa.array(order))
    of_use = pc.and_(ordered.is_valid(), pc.invert(pc.is_in(ordered, live.drop_null())))
    places = np.flatnonzero(of_use)
    codes = ordered.filter(of_use).dictionary_encode().indices.to_numpy()
    return order[places[np.unique(codes, return_index=True)[1]]]


def _paths(files: pa.StructArray) -> pa.Array:
    return pc.struct_field(files, "path")


def _vector_files(files: pa.StructArray) -> pa.Array:
    """The file that holds the vector of each, as the log names it; null where there is none."""
    kind, name = (
        pc.struct_field(files, ["deletionVector", part]) for part in ("storageType", "pathOrInlineDv")
    )
    return pc.if_else(pc.equal(kind, "i"), None, name)


def _copy_log(store: pafs.FileSystem, folder: Path, known: Checkpoint | None, version: int) -> None:
    """Copy a checkpoint, and the entries behind it up to a version."""
    first = known.version + 1 if known else 0
    paths = [*(known.paths if known else ()), *map(entry_name, range(first, version + 1))]
    (folder / LOG).mkdir()

    def copy(path: str) -> None:
        with store.open_input_stream(path) as stream:
            (folder / path).write_bytes(stream.read())

    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        for _ in pool.map(copy, paths):
            pass


def _point_to(store: pafs.FileSystem, hint: dict[str, Any]) -> None:
    """Say which checkpoint is the newest; whole or not at all, as others read it meanwhile."""
    content, folder = orjson.dumps(hint), local_folder(store)
    if folder is None:
        with store.open_output_stream(_HINT) as stream:
            stream.write(content)
        return
    part = folder / LOG / f"_last_checkpoint_{os.getpid()}.tmp"
    part.write_bytes(content)
    part.replace(folder / _HINT)
