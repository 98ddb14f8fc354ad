"""Discovery: what of the files that are there the ledger does not know yet, found by comparing columns."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from shlex import quote

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.sources.files.known import FREE
from lakefeed.text import counted

_COMPARED = ("size", "modified", "etag", "state")
_IN_MEMORY = 250_000
"""Files of a look that are held in memory; more go to the disk."""
_AT_A_TIME = 100_000


@dataclass(frozen=True)
class ListedFiles:
    """Files that are there: those that nobody knows, and those that are not as they were found."""

    new: pa.Table
    changed: pa.Table
    known: pa.Table
    """The rows of the ledger for the changed ones, in the same order."""

    def where(self, mask: pa.ChunkedArray) -> ListedFiles:
        """With some of the changed files."""
        return replace(self, changed=self.changed.filter(mask), known=self.known.filter(mask))

    def refusal(self, file: str) -> str:
        """What is told of the changed ones where they are not allowed; `file` is the pipeline's."""
        path = self.changed["path"][0].as_py()
        more = self.changed.num_rows - 1
        others = f", and {counted(more, 'file')} more," if more else ""
        return (
            f"{path}{others} has changed since it was found: it had {_seen(self.known)}, and has "
            f"{_seen(self.changed)}.\n"
            "Set `on_change: reload` to replace the rows of such files by what they hold now, or `ignore` to "
            "keep what was read.\n"
            f"To replace those of this one: lakefeed files reload {file} {quote(path)} --yes"
        )


def compare(rows: pa.Table, listed: pa.Table) -> ListedFiles:
    """What is new or changed among files that are there, given the rows of a ledger for their paths."""
    # Of equal values Arrow finds the first, so the last one is put there: the last number of a path counts.
    rows = rows.take(pa.array(np.arange(rows.num_rows)[::-1]))
    at = pc.index_in(listed["path"], value_set=rows["path"].combine_chunks()).combine_chunks()
    known = {name: rows[name].combine_chunks().take(at) for name in _COMPARED}
    matched = pc.and_(at.is_valid(), pc.invert(pc.is_in(known["state"], value_set=pa.array(FREE))))
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


class FoundFiles:
    """Files of a look, in parts, oldest first. Where there are very many, they wait on the disk."""

    def __init__(self, parts: Iterable[pa.Table] = ()) -> None:
        self._batches: list[pa.RecordBatch] = []
        self._waiting = 0
        self._spilled: _Spilled | None = None
        self.left_out: tuple[str, ...] = ()
        """Folders whose files do not count, as it turned out."""
        for part in parts:
            self._add(part)

    def in_order(self) -> Iterator[pa.Table]:
        """All of them: by their time of modification, then by name. May be called again."""
        batches = [*(self._spilled.batches() if self._spilled else ()), *self._batches]
        if not batches:
            return
        times = np.concatenate([batch.column("modified").cast(pa.int64()).to_numpy() for batch in batches])
        edges = np.cumsum([0, *(batch.num_rows for batch in batches)])
        order = np.argsort(times, kind="stable")
        first = 0
        while first < len(order):
            end = min(len(order), first + _AT_A_TIME)
            # Files of one moment are sorted by their names, so they are in one part.
            end = int(np.searchsorted(times, times[order[end - 1]], side="right", sorter=order))
            yield self._counting(in_order(_taken(batches, edges, np.sort(order[first:end]))))
            first = end

    def _add(self, part: pa.Table) -> None:
        self._batches += part.combine_chunks().to_batches()
        self._waiting += part.num_rows
        if self._waiting > _IN_MEMORY:
            self._spilled = self._spilled or _Spilled(part.schema)
            self._spilled.write(self._batches)
            self._batches, self._waiting = [], 0

    def _counting(self, files: pa.Table) -> pa.Table:
        for folder in self.left_out:
            files = files.filter(pc.invert(pc.starts_with(files["path"], folder)))
        return files


class _Spilled:
    """Record batches in a file without a name, which goes with this object."""

    def __init__(self, schema: pa.Schema) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="lakefeed-files-")  # noqa: SIM115
        self._writer = pa.ipc.new_file(pa.PythonFile(self._file, "w"), schema)
        self._is_written = False

    def write(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Add some; not after `batches`."""
        for batch in batches:
            self._writer.write_batch(batch)

    def batches(self) -> list[pa.RecordBatch]:
        """All of them, as the disk has them."""
        if not self._is_written:
            self._writer.close()
            self._file.flush()
            self._is_written = True
        reader = pa.ipc.open_file(pa.memory_map(self._file.name))
        return [reader.get_batch(at) for at in range(reader.num_record_batches)]


def _taken(
    batches: Sequence[pa.RecordBatch], edges: npt.NDArray[np.int64], chosen: npt.NDArray[np.int64]
) -> pa.Table:
    """The rows at ascending places of batches, which begin at `edges`."""
    cuts = np.searchsorted(chosen, edges)
    parts = [
        batch.take(pa.array(chosen[first:end] - edge))
        for batch, edge, first, end in zip(batches, edges, cuts, cuts[1:], strict=False)
        if first < end
    ]
    return pa.Table.from_batches(parts)


def in_order(files: pa.Table) -> pa.Table:
    """Files as they are numbered: the oldest first, and those of one moment by their names."""
    return files.sort_by([("modified", "ascending"), ("path", "ascending")])


def is_settled(files: pa.Table, seconds: float) -> npt.NDArray[np.bool_]:
    """Which files have not changed for so long; one whose time lies in the future has to wait, too."""
    limit = int((time.time() - seconds) * 1_000_000)
    old_enough: npt.NDArray[np.bool_] = files["modified"].cast(pa.int64()).to_numpy() <= limit
    return old_enough


def _seen(files: pa.Table) -> str:
    """The size and the time of the first file."""
    return f"{files['size'][0].as_py():,} bytes of {files['modified'][0].as_py():%Y-%m-%d %H:%M:%S}"
