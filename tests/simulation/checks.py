"""What a table holds by its files alone: a small reader of Delta's log of its own, and other engines."""

from __future__ import annotations

import datetime as dt
import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable
from duckdb_extensions import import_extension

_ACTIONS = {"commitInfo", "protocol", "metaData", "add", "remove", "txn", "cdc", "domainMetadata"}


_NO_VECTOR = "@"
_APART = ("_rescued", "__sequence", "__deleted", "__ts_ms")
"""Columns that are compared as JSON, or that say of a change what `__op` says as well."""
_CASTS: Mapping[str, Callable[[str], Any]] = {
    "string": str,
    "long": int,
    "integer": int,
    "boolean": {"true": True, "false": False}.__getitem__,
    "decimal": Decimal,
    "date": dt.date.fromisoformat,
}
"""How the text of a partition value is read, by type."""


class Wrong(AssertionError):
    """What a check has found. `kind` stays the same while a case shrinks."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


@dataclass
class LogReader:
    """The log of one table, read entry by entry as the protocol has it, each entry once."""

    folder: Path
    version: int = -1
    files: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    transactions: dict[str, int] = field(default_factory=dict)
    infos: list[dict[str, Any]] = field(default_factory=list)
    """What the product says of each version, from the first on."""
    types: dict[str, str] = field(default_factory=dict)
    """The types of the columns that are a word in the log: those of all partition columns are."""
    is_mapped: bool = False
    """Whether its files have other names for the columns."""
    _rows: tuple[int, list[dict[str, Any]]] = (-1, [])
    _read: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    """The rows of files, which never change."""

    def rows(self) -> list[dict[str, Any]]:
        """All rows of the version that was read last: by file, or by delta-rs if files alone do not say."""
        if self._rows[0] != self.version:
            is_plain = not self.is_mapped and all(vector == _NO_VECTOR for _, vector in self.files)
            found = (
                [row for path in self.files for row in self._of(path)] if is_plain else rows_of(self.folder)
            )
            self._rows = self.version, found
        return self._rows[1]

    def _of(self, identity: tuple[str, str]) -> list[dict[str, Any]]:
        path, _ = identity
        if path not in self._read:
            values = {
                name: None if text is None else _CASTS[self.types[name].partition("(")[0]](text)
                for name, text in self.files[identity]["partitionValues"].items()
            }
            rows = pq.ParquetFile(self.folder / path).read(use_threads=False).to_pylist()
            self._read[path] = [row | values for row in rows]
        return self._read[path]

    def read(self) -> None:
        """Go on to the newest version; raises Wrong where an entry breaks the protocol."""
        log = self.folder / "_delta_log"
        names = [one.name for one in log.iterdir()] if log.is_dir() else []
        versions = sorted(int(name[:20]) for name in names if name.endswith(".json") and name[:20].isdigit())
        if versions and versions != list(range(versions[0], versions[-1] + 1)):
            raise Wrong("log", f"{self.folder.name} lacks versions between {versions[0]} and {versions[-1]}")
        for version in versions:
            if version > self.version:
                self._apply(version, (log / f"{version:020}.json").read_text())
        for (path, _), add in self.files.items():
            if not (self.folder / path).is_file():
                raise Wrong("lost file", f"{self.folder.name}: version {self.version} needs {path}")
            if (self.folder / path).stat().st_size != add["size"]:
                raise Wrong("lost file", f"{self.folder.name}: {path} has another size than its log says")

    def _apply(self, version: int, text: str) -> None:
        adds: list[dict[str, Any]] = []
        told = "{}"
        for line in text.splitlines():
            ((kind, action),) = json.loads(line).items()
            if kind not in _ACTIONS:
                raise Wrong("log", f"{self.folder.name}: version {version} has the action {kind}")
            if kind == "add":
                adds.append(action)
            elif kind == "remove":
                if self.files.pop(_identity(action), None) is None:
                    raise Wrong(
                        "log",
                        f"{self.folder.name}: version {version} removes {action['path']}, which is not there",
                    )
            elif kind == "metaData":
                fields = json.loads(action["schemaString"])["fields"]
                self.types = {one["name"]: one["type"] for one in fields if isinstance(one["type"], str)}
                self.is_mapped = "delta.columnMapping.mode" in action["configuration"]
            elif kind == "txn":
                self.transactions[action["appId"]] = action["version"]
            elif kind == "commitInfo":
                told = action.get("lakefeed", "{}")
        self.infos.append(json.loads(told))
        for add in adds:
            if any(path == _identity(add)[0] for path, _ in self.files):
                raise Wrong("log", f"{self.folder.name}: version {version} adds {add['path']} twice")
            self.files[_identity(add)] = add
        self.version = version

    def positions(self, prefix: str) -> dict[str, int]:
        """The next offset of each partition, by the transactions under a prefix."""
        return {
            name.removeprefix(prefix): at + 1
            for name, at in self.transactions.items()
            if name.startswith(prefix) and "#" not in name
        }


def _identity(action: Mapping[str, Any]) -> tuple[str, str]:
    vector = action.get("deletionVector") or {}
    return unquote(action["path"]), f"{vector.get('pathOrInlineDv', '')}@{vector.get('offset', '')}"


def rows_of(folder: Path) -> list[dict[str, Any]]:
    """All rows of a table, by delta-rs."""
    if not (folder / "_delta_log").is_dir():
        return []
    found: list[dict[str, Any]] = (
        pa.RecordBatchReader.from_stream(DeltaTable(str(folder)).scan()).read_all().to_pylist()
    )
    return found


def duckdb_rows(folder: Path) -> list[dict[str, Any]]:
    """All rows of a table, by DuckDB."""
    found = _duckdb().execute("SELECT * FROM delta_scan(?)", [str(folder)]).to_arrow_table()
    rows: list[dict[str, Any]] = found.to_pylist()
    return rows


@cache
def _duckdb() -> duckdb.DuckDBPyConnection:
    """One connection for all tables: to load the extension takes longer than to read them."""
    import_extension("delta")
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("LOAD delta")
    connection.execute("SET timezone = 'UTC'")
    return connection


def compare(kind: str, expected: Iterable[Mapping[str, Any]], found: Iterable[Mapping[str, Any]]) -> None:
    """Raise Wrong unless both have the same rows, in any order; nulls and missing columns are the same."""
    wanted, there = Counter(map(text_of, expected)), Counter(map(text_of, found))
    if wanted == there:
        return
    lines = [f"  missing {count} x {text}" for text, count in (wanted - there).items()]
    lines += [f"  unexpected {count} x {text}" for text, count in (there - wanted).items()]
    raise Wrong(kind, "\n".join(["the rows differ", *lines[:12]]))


def text_of(row: Mapping[str, Any]) -> str:
    """A row as text that is the same for the same values."""
    return _text({name: value for name, value in row.items() if name not in _APART}) + _rescued(row)


def _rescued(row: Mapping[str, Any]) -> str:
    found = row.get("_rescued")
    if found is None:
        return ""
    return " rescued " + _text(json.loads(found) if isinstance(found, str) else found)


def _text(value: Any) -> str:
    if isinstance(value, Mapping):
        parts = ((name, one) for name, one in sorted(value.items()) if one is not None)
        return "{" + ", ".join(f"{name}: {_text(one)}" for name, one in parts) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_text, value)) + "]"
    if hasattr(value, "as_tuple"):
        return f"{value.normalize():f}"
    if hasattr(value, "utcoffset"):
        return str(value.replace(tzinfo=None) if value.utcoffset() is None else value).replace("+00:00", "")
    return repr(value)
