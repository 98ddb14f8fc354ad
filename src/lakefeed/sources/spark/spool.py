"""The batches that Spark has read of a source, in files beside its checkpoint, until every table has them.

A batch is there when its list of files is, and that is written last and at once. Spark may run a batch again
that it had not noted as done: what is there already stays as it is.
"""

from __future__ import annotations

import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

import orjson
import pyarrow.parquet as pq

from lakefeed.errors import SourceError
from lakefeed.sources.delta.offset import DeltaOffset
from lakefeed.sources.delta.piece import Piece, cut_out
from lakefeed.stores.disk import put_new

_DIGITS = 12


def batch_start(number: int) -> DeltaOffset:
    """Before the first row of a batch."""
    return DeltaOffset(True, number)


def words(offset: int) -> str:
    """`batch 12, row 500`."""
    at = DeltaOffset.of(offset)
    return f"batch {at.version}" + (f", row {at.row:,}" if at.row else "")


@dataclass(frozen=True)
class SpooledBatch:
    """One batch of Spark's, as tasks read it."""

    number: int
    pieces: tuple[Piece, ...]
    written: float
    """When it was read, in seconds since 1970."""

    @property
    def rows(self) -> int:
        """All of them."""
        return sum(piece.rows for piece in self.pieces)

    @property
    def size(self) -> int:
        """Bytes of its files."""
        return sum(piece.size for piece in self.pieces)


class Spool:
    """What is kept of one source. Written by one process, looked at by any."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.checkpoint = folder / "checkpoint"
        self.batches: dict[int, SpooledBatch] = {}
        """Those that are there, oldest first."""
        self._id: str | None = None

    @property
    def query_id(self) -> str | None:
        """The id of Spark's query, which its checkpoint keeps; None where there is none yet."""
        if self._id is None:
            try:
                self._id = str(orjson.loads((self.checkpoint / "metadata").read_bytes())["id"])
            except FileNotFoundError:
                return None
            except (ValueError, KeyError, TypeError) as error:
                raise SourceError(
                    f"{self.checkpoint}/metadata is damaged, and Spark would not go on with it.\n"
                    "Bring the checkpoint back from a backup."
                ) from error
        return self._id

    def begin(self) -> None:
        """Give the query its id before Spark does, so that tables know it from their first commit on."""
        if self.query_id is None:
            self.checkpoint.mkdir(parents=True, exist_ok=True)
            put_new(self.checkpoint / "metadata", orjson.dumps({"id": str(uuid.uuid4())}), durable=True)

    @property
    def _home(self) -> Path:
        """Batches of another query have the same numbers, and lie elsewhere."""
        return self.folder / "batches" / (self.query_id or "none")

    @property
    def end(self) -> DeltaOffset:
        """Behind the newest batch."""
        return batch_start(max(self.batches, default=-1) + 1)

    def look(self) -> None:
        """See which batches there are."""
        if not self.batches and self.query_id is not None:
            for path in sorted(self._home.glob("*.json")):
                self._take(int(path.stem))
        while self.batches and self._take(max(self.batches) + 1):
            pass

    def _take(self, number: int) -> bool:
        try:
            told = orjson.loads(self._list(number).read_bytes())
        except FileNotFoundError:
            return False
        pieces, row = [], 0
        for file in told["files"]:
            start = DeltaOffset(True, number, row)
            modified = int(told["written"] * 1000)
            path = f"{self._home.relative_to(self.folder)}/{file['path']}"
            pieces.append(Piece(start, path, file["rows"], file["size"], (), modified))
            row += file["rows"]
        self.batches[number] = SpooledBatch(number, tuple(pieces), told["written"])
        return True

    def put(self, number: int, write: Callable[[str], None]) -> None:
        """Keep a batch, unless it is there; `write` writes its Parquet files to a folder."""
        plan = self._planned(number)
        if (there := self._list(number)).exists():
            if orjson.loads(there.read_bytes()).get("plan", plan) == plan:
                return
            raise self._other(number)
        if number < self.end.version:
            raise self._other(number)
        folder = self._home / f"{number:0{_DIGITS}d}"
        self._home.mkdir(parents=True, exist_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        write(str(folder))
        files = []
        for path in sorted(folder.glob("*.parquet")):
            with path.open("rb") as stream:
                rows = pq.ParquetFile(stream).metadata.num_rows
                os.fsync(stream.fileno())
            if rows:
                name = f"{folder.name}/{path.name}"
                files.append({"path": name, "rows": rows, "size": path.stat().st_size})
        told = orjson.dumps({"files": files, "written": time.time(), "plan": plan})
        put_new(self._list(number), told, durable=True)

    def _planned(self, number: int) -> str | None:
        """What Spark has noted that a batch holds, before it runs it."""
        try:
            return (self.checkpoint / "offsets" / str(number)).read_text()
        except FileNotFoundError:
            return None

    def _other(self, number: int) -> SourceError:
        return SourceError(
            f"Spark runs batch {number} with other rows than it had: its checkpoint {self.checkpoint} was "
            "brought back to an older state.\nBring back the newest one, or drop the tables: they begin anew."
        )

    def forget(self, before: int, age: float) -> None:
        """Delete batches before a number that are older than `age` seconds, oldest first.

        The newest stays, so that it is known which number comes next.
        """
        for number in sorted(self.batches)[:-1]:
            if number >= before or time.time() - self.batches[number].written < age:
                break
            # The list first: killed in between, a batch is gone as a whole.
            self._list(number).unlink(missing_ok=True)
            shutil.rmtree(self._home / f"{number:0{_DIGITS}d}", ignore_errors=True)
            del self.batches[number]

    def drop_known(self, before: int) -> None:
        """Let go of what is known of batches that others delete."""
        for number in sorted(self.batches)[:-1]:
            if number < before:
                del self.batches[number]

    def size(self, first: int) -> int:
        """Bytes of the batches from a number on."""
        return sum(batch.size for number, batch in self.batches.items() if number >= first)

    def between(self, start: DeltaOffset, end: DeltaOffset) -> Iterable[Piece]:
        """What lies between two offsets. Raises KeyError where a batch is gone."""
        last = end.version if end.row else end.version - 1
        for number in range(start.version, last + 1):
            yield from cut_out(self.batches[number].pieces, start, end)

    def _list(self, number: int) -> Path:
        return self._home / f"{number:0{_DIGITS}d}.json"
