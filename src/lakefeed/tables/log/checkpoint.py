"""Checkpoints of a log: one file, several parts, or of version 2 with sidecars; read action by action."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import orjson
import pyarrow.fs as pafs
import pyarrow.parquet as pq

from lakefeed.stores import parallel_map
from lakefeed.tables.log.entry import LOG, read_entry
from lakefeed.tables.log.parsed_stats import PARSED, instants, lacks_text, stats_text

_NAME = re.compile(r"(\d{20})\.checkpoint(?:\.\d+\.(\d+)|\.[0-9a-fA-F-]{36})?\.(?:parquet|json)")
_IN_SIDECARS = {"add", "remove"}
_ADD = ("path", "partitionValues", "size", "modificationTime", "stats", "deletionVector")
_COLUMNS = {
    "add": [f"add.{name}" for name in _ADD],
    "remove": ["remove.path", "remove.deletionTimestamp", "remove.deletionVector"],
    "sidecar": ["sidecar.path"],
}
"""What of an action is read from Parquet files; of others all is."""


@dataclass(frozen=True)
class Checkpoint:
    """All files of one checkpoint, without its sidecars."""

    version: int
    paths: tuple[str, ...]

    def actions(self, store: pafs.FileSystem, *kinds: str) -> Iterator[tuple[str, dict[str, Any]]]:
        """The actions of these kinds. No sidecar is opened unless files are wanted, which only they hold."""
        files = tuple(_IN_SIDECARS.intersection(kinds))
        sidecars = []
        for path in self.paths:
            for kind, action in _read(store, path, (*kinds, "sidecar") if files else kinds):
                if kind == "sidecar":
                    sidecars.append(_sidecar(action))
                else:
                    yield kind, action
        for path in sidecars:
            yield from _read(store, path, files)

    def sidecars(self, store: pafs.FileSystem) -> list[str]:
        """The files that hold what one of version 2 says of the table's files; none for others."""
        return [_sidecar(action) for path in self.paths for _, action in _read(store, path, ["sidecar"])]


def checkpoints(names: Iterable[str]) -> dict[int, Checkpoint]:
    """The checkpoints among the files of a log, by version. One that lacks a part is none."""
    groups: dict[tuple[int, str], list[str]] = {}
    wanted = {}
    # In this order the plainest of several of one version comes last, and counts: a single Parquet file.
    for name in sorted(names):
        if found := _NAME.fullmatch(name):
            group = int(found[1]), f"{found[2]} parts" if found[2] else name
            groups.setdefault(group, []).append(f"{LOG}/{name}")
            wanted[group] = int(found[2] or 1)
    whole = [
        (version, paths) for (version, kind), paths in groups.items() if len(paths) == wanted[version, kind]
    ]
    return {version: Checkpoint(version, tuple(paths)) for version, paths in whole}


def last_checkpoint(store: pafs.FileSystem) -> int | None:
    """The version of the newest checkpoint, as `_last_checkpoint` has it; None without that file."""
    try:
        with store.open_input_stream(f"{LOG}/_last_checkpoint") as stream:
            return int(orjson.loads(stream.read())["version"])
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None


def read_transactions(store: pafs.FileSystem, version: int) -> dict[str, int]:
    """The last transaction version by application id, as of one version of the table; no file is looked at.

    delta-rs returns one application id at a time and needs up to some milliseconds for each; a topic with
    many partitions has many ids, and some are not known in advance.
    """
    found: dict[str, int] = {}
    checkpoint = checkpoint_before(store, version)
    for _, action in checkpoint.actions(store, "txn") if checkpoint else ():
        found[action["appId"]] = action["version"]
    versions = range(checkpoint.version + 1 if checkpoint else 0, version + 1)
    for entry in parallel_map(store, lambda at: read_entry(store, at, positions_only=True), versions):
        found.update(entry.transactions)
    return found


def checkpoint_before(store: pafs.FileSystem, version: int) -> Checkpoint | None:
    """The newest checkpoint of this version or one before it; None where there is none."""
    hint = last_checkpoint(store)
    if hint is not None and hint <= version:
        # Without listing a log of many thousand entries.
        single = f"{LOG}/{hint:020d}.checkpoint.parquet"
        if store.get_file_info(single).type == pafs.FileType.File:
            return Checkpoint(hint, (single,))
    names = (info.base_name for info in store.get_file_info(pafs.FileSelector(LOG)))
    found = checkpoints(names)
    return max(
        (one for one in found.values() if one.version <= version), key=lambda one: one.version, default=None
    )


def _sidecar(action: Mapping[str, Any]) -> str:
    # All lie in one folder, however their path is written.
    return f"{LOG}/_sidecars/{unquote(action['path']).rpartition('/')[2]}"


def _read(store: pafs.FileSystem, path: str, kinds: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    wanted = list(kinds)
    if path.endswith(".json"):
        heads = tuple(f'{{"{kind}"'.encode() for kind in wanted)
        with store.open_input_stream(path) as stream:
            content = stream.read()
        for line in content.splitlines():
            if line.startswith(heads):
                yield next(iter(orjson.loads(line).items()))
        return
    columns = [column for kind in wanted for column in _COLUMNS.get(kind, [kind])]
    with store.open_input_file(path) as stream:
        file = pq.ParquetFile(stream, coerce_int96_timestamp_unit="us")
        parsed = "add" in wanted and lacks_text(file)
        utc = instants(file) if parsed else ()
        for batch in file.iter_batches(columns=[*columns, PARSED] if parsed else columns):
            for kind in batch.schema.names:
                # Maps as dictionaries take ten times as long, which only the one with properties is worth.
                maps = "lossy" if kind == "metaData" else None
                for action in batch.column(kind).drop_null().to_pylist(maps_as_pydicts=maps):
                    if (stats := action.pop("stats_parsed", None)) and not action.get("stats"):
                        action["stats"] = stats_text(stats, utc)
                    yield kind, action
