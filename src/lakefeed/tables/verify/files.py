"""The files of a table that is verified: each is there, as large as the log says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.listing import file_sizes
from lakefeed.tables.log.log import Log
from lakefeed.tables.verify.finding import Finding
from lakefeed.text import counted

if TYPE_CHECKING:
    from lakefeed.tables.verify.verify import VerifiedLog

_MOST_NAMED = 20
"""So many missing files are named one by one."""


def check_files(log: Log, verified: VerifiedLog) -> None:
    """Every file of the newest version is there, as large as the log says."""
    sizes = file_sizes(log.store)
    absent, other = [], []
    elsewhere = 0
    for file in verified.snapshot.files.values():
        if "://" in file.path or file.path.startswith("/"):
            elsewhere += 1
        elif file.path not in sizes:
            absent.append(file)
        elif sizes[file.path] != file.size:
            other.append(file)
    verified.missing = {file.path for file in absent} | _without_vectors(verified, sizes)
    for file in absent[:_MOST_NAMED]:
        rows = "" if file.rows is None else f" with {counted(file.rows, 'row')}"
        verified.findings.append(Finding("file", f"{file.path}{rows} is missing", verified.version))
    for file in other[:_MOST_NAMED]:
        text = f"{file.path} has {sizes[file.path]:,} bytes, the log says {file.size:,}"
        verified.findings.append(Finding("file", text, verified.version))
    more = sum(max(0, len(found) - _MOST_NAMED) for found in (absent, other))
    if more:
        verified.findings.append(Finding("file", f"and {counted(more, 'file')} more", verified.version))
    if elsewhere:
        verified.complete = False
        verified.unchecked.append(
            f"{counted(elsewhere, 'file')} lie outside of the table and were not looked at"
        )


def _without_vectors(verified: VerifiedLog, sizes: Mapping[str, int]) -> set[str]:
    """Files whose deleted rows are not known, as the file of their deletion vector is missing."""
    lacking: dict[str, list[DataFile]] = {}
    for file in verified.snapshot.files.values():
        path = file.vector.path if file.vector else None
        if path and not path.startswith("/") and "://" not in path and path not in sizes:
            lacking.setdefault(path, []).append(file)
    for path, files in list(lacking.items())[:_MOST_NAMED]:
        deleted = counted(sum(file.deleted for file in files), "row")
        text = f"{path} is missing, which says that {deleted} of {counted(len(files), 'file')} are deleted"
        verified.findings.append(Finding("file", text, verified.version))
    return {file.path for files in lacking.values() for file in files}
