"""How a ledger spells paths: relative to the folder of the pipeline file where `path` is, else absolute."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)
_UP = "../"


@dataclass(frozen=True)
class Spelling:
    """Paths of files in memory are absolute. A project that is moved has the same paths in its ledger."""

    folder: str = "/"
    """Where the pipeline file is."""
    base: str = "/"
    """The folder below which the source reads."""
    is_relative: bool = False
    """Whether new rows are spelled relative to the folder."""

    def resolved(self, rows: Rows) -> Rows:
        """Rows of a ledger with absolute paths."""
        paths = rows.column("path")
        relative = pc.invert(pc.match_substring_regex(paths, r"^(?:/|[A-Za-z][A-Za-z0-9+.\-]*://)"))
        if not pc.any(relative).as_py():
            return rows
        above, below = self.folder.rstrip("/"), paths
        found = pc.binary_join_element_wise(above, below, "/")
        while pc.any(climbing := pc.starts_with(below, _UP)).as_py():
            above = above.rpartition("/")[0]
            below = pc.if_else(climbing, pc.utf8_slice_codeunits(below, len(_UP)), below)
            found = pc.if_else(climbing, pc.binary_join_element_wise(above, below, "/"), found)
        return _with_paths(rows, pc.if_else(relative, found, paths))

    def stored(self, rows: Rows) -> Rows:
        """Rows as the ledger spells them; paths elsewhere stay absolute."""
        if not self.is_relative:
            return rows
        paths = rows.column("path")
        for folder, name in self._heads.items():
            inside = pc.starts_with(paths, folder)
            paths = pc.if_else(
                inside,
                pc.binary_join_element_wise(name, pc.utf8_slice_codeunits(paths, len(folder)), ""),
                paths,
            )
        return _with_paths(rows, paths)

    @cached_property
    def _heads(self) -> dict[str, str]:
        """What paths begin with, and what stands for it; a path that has become relative begins with none."""
        outside = os.path.relpath(self.base, self.folder)
        heads = {f"{self.folder.rstrip('/')}/": ""}
        if outside.startswith(".."):
            heads[f"{self.base.rstrip('/')}/"] = f"{outside}/"
        return heads


def _with_paths(rows: Rows, paths: pa.Array | pa.ChunkedArray) -> Rows:
    return rows.set_column(rows.schema.get_field_index("path"), rows.schema.field("path"), paths)
