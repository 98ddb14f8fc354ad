"""Discovery: what of the files that are there the ledger does not know yet, found by comparing columns."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.sources.files.ledger import FORGOTTEN, TAKEN_AWAY
from lakefeed.text import counted

_FREE = pa.array([FORGOTTEN, *TAKEN_AWAY])
"""States in which a path means nothing any more: what comes there is another file."""
_COMPARED = ("size", "modified", "etag", "state")
_AT_A_TIME = 250_000
_FEW = 4
"""So many times fewer files than are known are few: the known ones are then looked up among them."""


@dataclass(frozen=True)
class ListedFiles:
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


def compare(rows: pa.Table, listed: pa.Table) -> ListedFiles:
    """What is new or changed among files that are there, given the rows of a ledger in their order."""
    if listed.num_rows < rows.num_rows // _FEW:
        rows = rows.filter(pc.is_in(rows["path"], value_set=listed["path"].combine_chunks()))
    at = _last_indexes(rows["path"], listed["path"])
    # Only what is compared is looked up, as almost all files are as they were.
    known = {name: rows[name].combine_chunks().take(at) for name in _COMPARED}
    matched = pc.and_(at.is_valid(), pc.invert(pc.is_in(known["state"], value_set=_FREE)))
    same_size = pc.equal(listed["size"], known["size"])
    same_time = pc.equal(listed["modified"], known["modified"])
    both = pc.and_(listed["etag"].is_valid(), known["etag"].is_valid())
    # A store that has an etag tells by it; the time of a file may change without its content.
    same_etag = pc.fill_null(pc.equal(listed["etag"], known["etag"]), False)
    same = pc.and_(same_size, pc.if_else(both, same_etag, same_time))
    changed = pc.and_(matched, pc.invert(pc.fill_null(same, False)))
    return ListedFiles(
        listed.filter(pc.invert(matched)),
        listed.filter(changed),
        rows.take(at.filter(changed.combine_chunks())),
    )


def _last_indexes(known: pa.ChunkedArray, paths: pa.ChunkedArray) -> pa.Array:
    """The index of each path among known ones; null where it is none of them.

    Of a path that was read more than once, the last number counts, whatever became of it. Arrow hashes what
    it looks in; in parts, that takes a quarter of the memory for a million paths, and about as long.
    """
    indexes = np.full(len(paths), -1)
    for first in range(0, len(known), _AT_A_TIME):
        part = known.slice(first, _AT_A_TIME).combine_chunks()
        # Of equal values Arrow finds the first, so the last one is put there.
        turned = part.take(pa.array(np.arange(len(part))[::-1]))
        found = pc.fill_null(pc.index_in(paths, value_set=turned), -1).to_numpy()
        np.copyto(indexes, first + len(part) - 1 - found, where=found >= 0)
    return pa.array(indexes, mask=indexes < 0)


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
