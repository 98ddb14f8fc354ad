"""Features of Delta tables that are read here; a table with any other is left to Spark's own reader."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow.fs as pafs

from lakefeed.errors import TableError
from lakefeed.stores import store_path
from lakefeed.text import listed

_NEWEST = 3
_READ = frozenset(
    {
        "columnMapping",
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
    }
)


def refuse_unreadable(store: pafs.FileSystem, version: int, protocol: Mapping[str, Any] | None) -> None:
    """Raise TableError for a protocol that asks more of a reader than is known here, by its name."""
    if protocol is None:
        return
    asked = {str(name).removesuffix("-preview"): str(name) for name in protocol.get("readerFeatures") or ()}
    unknown = sorted(name for key, name in asked.items() if key not in _READ)
    if int(protocol.get("minReaderVersion") or 1) > _NEWEST:
        unknown.append(f"protocol version {protocol['minReaderVersion']}")
    if unknown:
        path = store_path(store)
        raise TableError(
            f"{path}: version {version} of the table asks its readers for {listed(unknown)}, which only "
            "Spark's Delta knows.\nLet Spark read it, as another source: "
            f"{{type: spark, format: delta, options: {{path: {path}}}}}"
        )
