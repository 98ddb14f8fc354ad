"""A checkpoint without the removals that nobody needs, for tables with deletion vectors.

Each time that rows of a file are marked, the file is removed with its old vector and added with the new one.
A checkpoint keeps removals for a week, so that no vacuum deletes what a reader or a time travel still needs.
A table of a hundred files that changes each second has sixty million of them after that week, and every
checkpoint and every reader pays for them. Nearly all of them protect nothing: the file itself is still in the
table, and its old vectors lie in a file that other removals name as well.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import unquote

import numpy as np
import numpy.typing as npt
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
_ROWS = 10_000
"""Actions of a checkpoint that are read at a time."""
Mask = npt.NDArray[np.bool_]


def write_lean_checkpoint(store: pafs.FileSystem, version: int, *, durable: bool = False) -> None:
    """Write the checkpoint of a version that has none, and point readers to it.

    delta-rs writes it in a copy of the log: whoever reads the table never meets a file that changes. A
    checkpoint of version 2 is not for this.
    """
    known = checkpoint_before(store, version)
    if known and known.version == version:
        # delta-rs would write neither it nor the hint, and readers find it without.
        return
    name = f"{LOG}/{version:020d}.checkpoint.parquet"
    with TemporaryDirectory(prefix="lakefeed-") as folder:
        log = Path(folder) / LOG
        _copy_log(store, Path(folder), known, version)
        before = _Before.of(log) if known and _is_single(known) else None
        DeltaTable(folder).create_checkpoint()
        made = pq.read_table(Path(folder) / name)
        if before and not before.is_alike(made):
            # Columns or properties have changed: delta-rs writes the actions of all files again.
            before.path.replace(before.trimmed)
            for path in (name, _HINT):
                (Path(folder) / path).unlink()
            DeltaTable(folder).create_checkpoint()
            made, before = pq.read_table(Path(folder) / name), None
        hint = orjson.loads((Path(folder) / _HINT).read_bytes())
        lean = without_needless_removals(made, before.kept_files() if before else None)
        content, rows = _written(lean, before)
    with suppress(FileExistsError):
        put_new(store, name, content, durable=durable)
    if (last_checkpoint(store) or -1) < version:
        files = (
            {"numOfAddFiles": rows - lean.num_rows + hint["numOfAddFiles"]} if "numOfAddFiles" in hint else {}
        )
        _point_to(store, {**hint, **files, "size": rows, "sizeInBytes": len(content)})


@dataclass
class _Before:
    """The checkpoint before, most of whose files have the same actions in the new one.

    delta-rs holds the actions of all files in memory. So it gets a checkpoint without the files that no entry
    since has named, and the actions of these are copied as they are.
    """

    path: Path
    trimmed: Path
    kept: list[Mask] = field(default_factory=list)
    """By batch: which rows are copied."""

    @classmethod
    def of(cls, log: Path) -> _Before:
        """Take those files out of the only checkpoint in this folder."""
        (path,) = log.glob("*.checkpoint*.parquet")
        before = cls(log / "before.parquet", path)
        path.replace(before.path)
        named = pa.array(sorted(_named_files(log)), pa.string())
        file = pq.ParquetFile(before.path)
        with pq.ParquetWriter(path, file.schema_arrow) as writer:
            for batch in file.iter_batches(_ROWS):
                add = batch.column("add")
                is_named = pc.is_in(_file_names(pc.struct_field(add, "path")), named)
                keep = pc.and_(add.is_valid(), pc.invert(is_named)).to_numpy(zero_copy_only=False)
                before.kept.append(keep)
                writer.write_batch(batch.filter(pa.array(~keep)))
        return before

    def batches(self, columns: list[str] | None = None) -> Iterator[pa.RecordBatch]:
        """The actions that are copied."""
        read = pq.ParquetFile(self.path).iter_batches(_ROWS, columns=columns)
        for batch, keep in zip(read, self.kept, strict=True):
            yield batch.filter(pa.array(keep))

    def is_alike(self, made: pa.Table) -> bool:
        """Whether the new checkpoint has the columns of this one, and its table the same columns."""
        file = pq.ParquetFile(self.path)
        own = (
            row
            for batch in file.iter_batches(_ROWS, columns=["metaData"])
            for row in batch.column("metaData").drop_null().to_pylist()
        )
        return bool(
            file.schema_arrow.equals(made.schema) and [*own] == made["metaData"].drop_null().to_pylist()
        )

    def kept_files(self) -> pa.StructArray:
        """The paths and deletion vectors of the files that are copied."""
        columns = ["add.path", *(f"add.deletionVector.{part}" for part in ("storageType", "pathOrInlineDv"))]
        parts = [batch.column("add") for batch in self.batches(columns)]
        return pa.chunked_array(parts).combine_chunks() if parts else pa.nulls(0, pa.struct([]))


def _is_single(checkpoint: Checkpoint) -> bool:
    """Whether all of a checkpoint is in one file; one of version 2 has other names."""
    return checkpoint.paths == (f"{LOG}/{checkpoint.version:020d}.checkpoint.parquet",)


def _named_files(log: Path) -> set[str]:
    """The names of all files that entries in this folder add or remove."""
    found = set[str]()
    for entry in log.glob("*.json"):
        for line in entry.read_bytes().splitlines():
            if line.startswith((b'{"add"', b'{"remove"')):
                (action,) = orjson.loads(line).values()
                found.add(unquote(action["path"]).rpartition("/")[2])
            elif b'"add"' in line or b'"remove"' in line:
                for kind, action in orjson.loads(line).items():
                    if kind in ("add", "remove"):
                        found.add(unquote(action["path"]).rpartition("/")[2])
    return found


def _file_names(paths: pa.Array) -> pa.Array:
    """The last parts of paths, as they are without their encoding."""
    names = pc.replace_substring_regex(paths, r"^.*/", "")
    if pc.any(pc.match_substring(names, "%")).as_py():
        names = pa.array([None if name is None else unquote(name) for name in names.to_pylist()], pa.string())
    return names


def _written(lean: pa.Table, before: _Before | None) -> tuple[bytes, int]:
    """A checkpoint of these actions and those that are copied, and how many there are."""
    buffer, rows = pa.BufferOutputStream(), lean.num_rows
    with pq.ParquetWriter(buffer, lean.schema) as writer:
        writer.write_table(lean)
        for batch in before.batches() if before else ():
            writer.write_batch(batch)
            rows += batch.num_rows
    return buffer.getvalue().to_pybytes(), rows


def without_needless_removals(actions: pa.Table, others: pa.StructArray | None = None) -> pa.Table:
    """The actions of a checkpoint, less the removals of which no vacuum needs to know.

    What the table still names, no vacuum deletes. Of all other files and vectors the last removal says until
    when they are kept, and that one stays. `others` are files of the table besides those of these actions.
    """
    adds, removes = (actions[kind].combine_chunks() for kind in ("add", "remove"))
    removed = np.flatnonzero(removes.is_valid())
    gone, live = removes.take(pa.array(removed)), adds.drop_null()
    times = pc.fill_null(pc.struct_field(gone, "deletionTimestamp"), 0).to_numpy()
    newest_first = np.argsort(-times, kind="stable")
    kept = np.zeros(len(removed), bool)
    for names in (_paths, _vector_files):
        still = names(live)
        if others is not None and len(others):
            still = pa.concat_arrays([still, names(others)])
        kept[_first_of_each(names(gone), newest_first, still)] = True
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
