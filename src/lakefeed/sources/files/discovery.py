"""Discovery: what of the files that are there the ledger does not know yet, found by comparing columns."""

from __future__ import annotations

import time
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.sources.files.ledger import FORGOTTEN, TAKEN_AWAY
from lakefeed.text import counted

_FREE = pa.array([FORGOTTEN, *TAKEN_AWAY])
"""States in which a path means nothing any more: what comes there is another file."""


@dataclass(frozen=True)
class News:
    """Files that are there: those that nobody knows, and those that are not as they were found."""

    new: pa.Table
    changed: pa.Table
    known: pa.Table
    """The rows of the ledger for the changed ones, in the same order."""

    def refusal(self) -> str:
        """What is told of the changed ones where they are not allowed."""
        path = self.changed["path"][0].as_py()
        more = self.changed.num_rows - 1
        others = f", and {counted(more, 'file')} more," if more else ""
        return (
            f"{path}{others} has changed since it was found: it had {_seen(self.known)}, and has "
            f"{_seen(self.changed)}.\n"
            "Set `on_change: reload` to read such a file again as a new one, or `ignore` to keep what was "
            f"read.\nTo read only this one again: lakefeed files forget FILE {path}"
        )


class Known:
    """What a ledger knows by path. Made once for each state of the ledger, as that takes a while."""

    def __init__(self, rows: pa.Table) -> None:
        # Of a path that was read more than once, the last number counts, whatever became of it.
        last = rows.group_by("path").aggregate([("number", "max")])["number_max"]
        rows = rows.filter(pc.is_in(rows["number"], value_set=last))
        self._rows = rows.filter(pc.invert(pc.is_in(rows["state"], value_set=_FREE))).combine_chunks()
        self._paths = self._rows["path"].combine_chunks()

    def compare(self, listed: pa.Table) -> News:
        """What is new or changed among files that are there."""
        at = pc.index_in(listed["path"], value_set=self._paths).combine_chunks()
        matched = at.is_valid()
        # Only what is compared is looked up, as almost all files are as they were.
        known = {name: self._rows[name].combine_chunks().take(at) for name in ("size", "modified", "etag")}
        same_size = pc.equal(listed["size"], known["size"])
        same_time = pc.equal(listed["modified"], known["modified"])
        both = pc.and_(listed["etag"].is_valid(), known["etag"].is_valid())
        # A store that has an etag tells by it; the time of a file may change without its content.
        same_etag = pc.fill_null(pc.equal(listed["etag"], known["etag"]), False)
        same = pc.and_(same_size, pc.if_else(both, same_etag, same_time))
        changed = pc.and_(matched, pc.invert(pc.fill_null(same, False)))
        return News(
            listed.filter(pc.invert(matched)),
            listed.filter(changed),
            self._rows.take(at.filter(changed.combine_chunks())),
        )


def in_order(files: pa.Table) -> pa.Table:
    """Files as they are numbered: the oldest first, and those of one moment by their names."""
    return files.sort_by([("modified", "ascending"), ("path", "ascending")])


def settled(files: pa.Table, seconds: float) -> pa.Table:
    """Files that have not changed for so long; one whose time lies in the future has to wait, too."""
    limit = int((time.time() - seconds) * 1_000_000)
    return files.filter(pc.less_equal(files["modified"].cast(pa.int64()), limit))


def _seen(files: pa.Table) -> str:
    """The size and the time of the first file."""
    return f"{files['size'][0].as_py():,} bytes of {files['modified'][0].as_py():%Y-%m-%d %H:%M:%S}"
