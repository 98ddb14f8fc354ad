"""Files that look like those of another folder that were read: one name below it, and one size."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.errors import LakefeedError
from lakefeed.sources.files.alike import alike, names_below
from lakefeed.sources.files.known import FREE, GONE, Numbers
from lakefeed.sources.files.piece import FoundFile, found_files
from lakefeed.sources.files.reading.opening import FileOpener
from lakefeed.tables.write.keyed.tombstones.key_hashes import Hashes, key_hashes
from lakefeed.text import counted

if TYPE_CHECKING:
    from lakefeed.sources.files.discovery import FoundFiles
    from lakefeed.sources.files.ledger import Ledger

_MD5 = "^[0-9a-fA-F]{32}$"
"""Etags that are a hash of the content. Those of objects in several parts, and of other stores, are not."""
_SECOND = 1_000_000
_CHUNK = 8 * 2**20
_log = logging.getLogger("lakefeed")


class FilesElsewhere:
    """The files of a ledger that are not below the folder that its source reads, by name and size.

    Twelve bytes of each; none while the folder stays where it is.
    """

    def __init__(self, base: str) -> None:
        self._base = base
        self._parts: list[tuple[Hashes, Numbers]] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Learn what rows of the ledger say; their paths are absolute."""
        paths = rows.column("path")
        inside = pc.or_(pc.starts_with(paths, f"{self._base.rstrip('/')}/"), pc.equal(paths, self._base))
        outside = rows.filter(pc.invert(inside))
        if outside.num_rows:
            self._parts.append((_hashes(outside), outside.column("number").to_numpy()))

    def __bool__(self) -> bool:
        return bool(self._parts)

    def numbers_like(self, files: pa.Table) -> Numbers:
        """The numbers of files with the name and the size of one of these, whatever their folder."""
        wanted = _hashes(files)
        found = [numbers[np.isin(hashes, wanted)] for hashes, numbers in self._parts]
        return np.unique(np.concatenate([np.zeros(0, np.int64), *found]))


@dataclass(frozen=True)
class MovedFiles:
    """Rows of a ledger, and the files that look like them now, in the same order."""

    then: pa.Table
    now: pa.Table
    is_sure: npt.NDArray[np.bool_]
    """Where nothing else can be meant: the old file is the same, or gone, with a time of its own."""

    @classmethod
    def of(cls, rows: pa.Table, files: pa.Table, base: str) -> MovedFiles:
        """Pair rows of a ledger with new files below a folder."""
        free = pc.is_in(rows["state"], value_set=pa.array([*FREE, *GONE]))
        rows = rows.filter(pc.invert(free)).combine_chunks()
        ours, theirs = alike(
            names_below(base, _array(files["path"])),
            _array(files["size"]),
            _array(rows["path"]),
            _array(rows["size"]),
        )
        now, then = files.take(pa.array(ours)), rows.take(pa.array(theirs))
        same = ~_is_other_content(then, now)
        then, now = then.filter(pa.array(same)), now.filter(pa.array(same))
        others = rows.take(pa.array(np.setdiff1d(np.arange(rows.num_rows), theirs)))
        return cls(then, now, _is_sure(then, now, others))

    def taken(self, at: npt.NDArray[np.int64]) -> MovedFiles:
        """Those at some places."""
        rows = pa.array(at)
        return MovedFiles(self.then.take(rows), self.now.take(rows), self.is_sure[at])

    def by_content(
        self, opener: FileOpener, storage: Mapping[str, str]
    ) -> tuple[MovedFiles | None, MovedFiles | None]:
        """Those that may be what was read, and those that are not: the file that was read has other bytes.

        Where the file that was read is no longer at its old path, nothing can be compared.
        """
        pairs = zip(found_files(self.then), found_files(self.now), self.is_sure.tolist(), strict=True)
        openers: dict[str, FileOpener] = {}
        other = np.array(
            [not is_sure and _differs(then, now, openers, opener, storage) for then, now, is_sure in pairs],
            np.bool_,
        )
        parts = (self.taken(np.flatnonzero(mask)) for mask in (~other, other))
        same, others = (part if len(part) else None for part in parts)
        return same, others

    @property
    def doubtful(self) -> MovedFiles:
        """Those that may be others."""
        return self.taken(np.flatnonzero(~self.is_sure))

    def as_they_are(self) -> pa.Table:
        """The rows of the ledger with the paths, times and etags of now."""
        rows = self.then
        for name in ("path", "modified", "etag"):
            rows = rows.set_column(rows.schema.get_field_index(name), rows.schema.field(name), self.now[name])
        return rows

    def __len__(self) -> int:
        return int(self.then.num_rows)

    def __str__(self) -> str:
        """`2 files such as /new/a.json have the name and size of files that are known ... /old/a.json`."""
        count, one = len(self), len(self) == 1
        some = (
            self.now["path"][0].as_py() if one else f"{counted(count, 'file')} such as {self.now['path'][0]}"
        )
        which = "a file that is known as" if one else "files that are known under another path, such as"
        return f"{some} {'has' if one else 'have'} the name and size of {which} {self.then['path'][0]}"


def moved_files(ledger: Ledger, files: FoundFiles, base: str) -> MovedFiles | None:
    """The files of a look that look like some of a ledger elsewhere; None where there are none."""
    found: list[MovedFiles] = []
    for part in files.in_order():
        part = part.filter(pa.array(~ledger.known.has_path(part)))
        numbers = ledger.elsewhere.numbers_like(part)
        if len(numbers):
            rows = ledger.rows_of(numbers)
            rows = rows.filter(pa.array(~ledger.known.superseded(rows)))
            found.append(MovedFiles.of(rows, part, base))
    if not any(map(len, found)):
        return None
    then, now = pa.concat_tables([one.then for one in found]), pa.concat_tables([one.now for one in found])
    together = MovedFiles(then, now, np.concatenate([one.is_sure for one in found]))
    # A number that two parts of the look have met is the first one's.
    return together.taken(np.unique(then["number"].to_numpy(), return_index=True)[1])


def _is_sure(then: pa.Table, now: pa.Table, others: pa.Table) -> npt.NDArray[np.bool_]:
    """Whether each file of now must be the one of then; `others` are further files of then."""
    plain = pc.and_(then["etag"].is_null(), now["etag"].is_null()).to_numpy()
    times = then["modified"].cast(pa.int64())
    # Programs that set a time, and file systems that round it, give files of other content the same one.
    exact = pc.not_equal(pc.multiply(pc.divide(times, _SECOND), _SECOND), times)
    same_time = pc.and_(exact, pc.equal(then["modified"], now["modified"])).to_numpy()
    same_time &= ~np.isin(_hashes(then, "modified"), _hashes(others, "modified"))
    found = [_is_same(*pair) for pair in zip(then["path"].to_pylist(), now["path"].to_pylist(), strict=True)]
    same, gone = (np.array([one is wanted for one in found], np.bool_) for wanted in (True, None))
    sure: npt.NDArray[np.bool_] = plain & (same | (gone & same_time))
    return sure


def _is_same(then: str, now: str) -> bool | None:
    """Whether a path is another name of a file; None where no file is there any more."""
    if "://" in then:
        return False
    try:
        return Path(then).samefile(now)
    except FileNotFoundError:
        return None
    except OSError:
        return False


def _differs(
    then: FoundFile,
    now: FoundFile,
    openers: dict[str, FileOpener],
    opener: FileOpener,
    storage: Mapping[str, str],
) -> bool:
    """Whether a file that was read is where it was, with other bytes than one of now."""
    if then.etag is not None and then.etag == now.etag:
        return False
    root = "/".join(then.path.split("/")[:3]) if "://" in then.path else "/"
    try:
        if root not in openers:
            openers[root] = FileOpener(root, storage)
        if not openers[root].holds(then):
            return False
        with openers[root].open(then.path) as old, opener.open(now.path) as new:
            while part := old.read(_CHUNK):
                if part != new.read(_CHUNK):
                    return True
    except (OSError, LakefeedError) as error:
        # What cannot be read cannot be compared.
        _log.debug("%s: %s", then.path, error)
    return False


def _is_other_content(then: pa.Table, now: pa.Table) -> npt.NDArray[np.bool_]:
    """Whether both have an etag that is a hash of the content, and another one."""
    hashed = [pc.fill_null(pc.match_substring_regex(one["etag"], _MD5), False) for one in (then, now)]
    other = pc.fill_null(pc.not_equal(then["etag"], now["etag"]), False)
    found: npt.NDArray[np.bool_] = pc.and_(pc.and_(*hashed), other).to_numpy()
    return found


def _hashes(files: pa.Table | pa.RecordBatch, *more: str) -> Hashes:
    """64 bits of the name without its folder, of the size, and of more columns."""
    names = pc.replace_substring_regex(files.column("path"), r"^.*/", "")
    columns = {"name": names, **{name: files.column(name) for name in ("size", *more)}}
    return key_hashes(pa.table(columns), list(columns))


def _array(column: pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks()
