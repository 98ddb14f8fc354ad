"""Which files of which sources a command is about."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass
from fnmatch import fnmatch

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import TIMESTAMP
from lakefeed.errors import UsageError
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources import source_of
from lakefeed.sources.files.source import FilesSource
from lakefeed.text import listed


@dataclass(frozen=True)
class FileFilter:
    """Which files are meant; what is None does not matter. A name may have wild cards."""

    state: str | None = None
    name: str | None = None
    since: dt.datetime | None = None
    until: dt.datetime | None = None

    def chosen(self, rows: pa.Table) -> pa.Table:
        """Those of the rows of a ledger that are meant; times are those at which a file was found."""
        if self.state:
            rows = rows.filter(pc.equal(rows["state"], self.state))
        if self.since:
            rows = rows.filter(pc.greater_equal(rows["discovered_at"], pa.scalar(self.since, TIMESTAMP)))
        if self.until:
            rows = rows.filter(pc.less(rows["discovered_at"], pa.scalar(self.until, TIMESTAMP)))
        if self.name:
            meant = [_is_named(path, self.name) for path in rows["path"].to_pylist()]
            rows = rows.filter(pa.array(meant, pa.bool_()))
        return rows


def ledgers(pipeline: Pipeline, source: str | None) -> dict[str, FilesSource]:
    """The sources of files, or the one that is named. Raises UsageError where there is none."""
    every = {
        name: spec for name in pipeline.sources if isinstance(spec := source_of(pipeline, name), FilesSource)
    }
    if source is not None and source not in every:
        raise UsageError(f"--source: '{source}' is no source of files; there are {listed(every)}")
    if not every:
        raise UsageError("the pipeline has no source with `type: files`")
    return every if source is None else {source: every[source]}


def _is_named(path: str, name: str) -> bool:
    """Whether a name means a path: the whole of it, or its end from some folder on."""
    end = name.removeprefix("./")
    if "/" not in end:
        return fnmatch(path.rpartition("/")[2], end)
    return path == name or fnmatch(path, name) or fnmatch(path, f"*/{end}")
