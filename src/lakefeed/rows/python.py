"""The user's function: a batch of rows goes in and rows come out, and each is known to come from its event.

The function is called once for a batch. When it raises, it is called for halves of the batch, until the rows
are found that make it raise. The batch has a column `_event`, the number of each row: where the result still
has it, it says where each row came from. Without it, as many rows as before are the same rows; otherwise the
function is called again on parts of the batch when somebody asks, which is when a later step refuses a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

from lakefeed.columns.widening import merge_proposals
from lakefeed.errors import TableError
from lakefeed.events import Refused
from lakefeed.rows import Rows, StepResult
from lakefeed.rows.attribution import Search, Searched, joined
from lakefeed.rows.plain_types import plain
from lakefeed.rows.user_code import Function, UserFunction
from lakefeed.text import counted

EVENT = "_event"
"""The column that numbers the rows of a batch."""

_LONGEST = 1000
"""Characters of an exception that a dead letter keeps."""


class Fitted(Protocol):
    """Rows that meet the columns of a table, and why the others do not, by their index."""

    @property
    def rows(self) -> pa.RecordBatch: ...  # noqa: D102
    @property
    def refused(self) -> list[Refused]: ...  # noqa: D102
    @property
    def unknown(self) -> pa.Schema | None: ...  # noqa: D102


Fit = Callable[[pa.RecordBatch], Fitted]
"""Brings rows to the columns of a table, by its rules."""


class RunPython:
    """Sends rows through the user's function, and fits what it returns to the columns of the table."""

    def __init__(self, table: str, function: UserFunction, fit: Fit) -> None:
        self._name = f"table {table}: `python: {function.name}`"
        self._function, self._fit = function, fit
        try:
            self._call = function.load()
        except TableError as error:
            raise TableError(f"{self._name}: {error}") from error

    def __call__(self, rows: Rows) -> StepResult:
        """The rows that the function made, fitted; what it raised, and what does not fit, is refused."""
        if EVENT in rows.batch.schema.names:
            raise TableError(
                f"{self._name}: events have a field '{EVENT}', the name of the column that numbers the rows."
                f"\nGive it another name with `rename`, or leave it out with `drop`."
            )
        calls = _Calls(self._name, self._call)
        made, indexes, numbers, unknown = [], [], [], None
        refused: list[Refused] = []
        for piece in calls.pieces(_numbered(rows.batch)):
            fitted, own = self._fit(piece.batch), piece.indexes(rows.indexes)
            gone = [one.index for one in fitted.refused]
            refused += [replace(one, index=int(own[one.index])) for one in fitted.refused]
            made.append(fitted.rows)
            indexes.append(_kept(own, gone))
            if rows.ops is not None or rows.unchanged is not None:
                numbers.append(_kept(piece.indexes(range(rows.batch.num_rows)), gone))
            if fitted.unknown is not None:
                unknown = merge_proposals(unknown, fitted.unknown) if unknown else fitted.unknown
        refused += [
            Refused(int(rows.indexes[at]), "python", type(error).__name__, self._words(error))
            for at, error in calls.raised
        ]
        # Nothing is left of rows that all raised, but the columns.
        batch = pa.concat_batches(made) if made else self._fit(rows.batch.slice(0, 0)).rows
        done = Rows(batch, rows.events, joined(indexes), None, *_beside(rows, joined(numbers)))
        return StepResult(done, refused, unknown=unknown)

    def _words(self, error: BaseException) -> str:
        text = str(error) or type(error).__name__
        cut = text if len(text) <= _LONGEST else text[:_LONGEST] + "..."
        return f"{cut}{self._function.line_of(error)}"


def _numbered(batch: pa.RecordBatch) -> pa.RecordBatch:
    return batch.append_column(EVENT, pa.array(np.arange(batch.num_rows, dtype=np.int32)))


def _beside(rows: Rows, numbers: Sequence[int]) -> list[pa.Array | None]:
    """What stands beside rows in a table of changes, for the rows made of those with these numbers."""
    given = (rows.ops, rows.unchanged)
    return [None if one is None else one.take(pa.array(list(numbers), pa.int64())) for one in given]


def _kept(indexes: Sequence[int], gone: list[int]) -> Sequence[int]:
    if not gone:
        return indexes
    left = np.delete(np.arange(len(indexes)), gone)
    if isinstance(indexes, Searched):
        return indexes.take(left)
    kept: list[int] = np.asarray(indexes)[left].tolist()
    return kept


@dataclass(frozen=True)
class _Piece:
    """What one call of the function made of some rows of the batch."""

    batch: pa.RecordBatch
    first: int
    """The number of the first row that it was called with."""
    called_with: int
    events: np.ndarray[Any, Any] | None
    """The number of the row that each row came from, if the result says so."""
    count: Callable[[int, int], int]
    """How many rows the function makes of rows from one to another."""

    def indexes(self, given: Sequence[int]) -> Sequence[int]:
        """For each row the index of its event; `given` are those of the rows before the function."""
        if self.events is not None:
            whole = len(self.events) == len(given) and np.array_equal(self.events, np.arange(len(given)))
            if whole:
                return given
            # A range of all of them, which is the rule, would be made an array for each of many pieces.
            same = isinstance(given, range) and given.start == 0
            found: list[int] = (self.events if same else np.asarray(given)[self.events]).tolist()
            return found
        rows, after = self.batch.num_rows, self.first + self.called_with
        if rows == self.called_with:
            return given[self.first : after]
        return Searched(Search(self.count, (self.first, after), rows, given).find, np.arange(rows))


@dataclass
class _Calls:
    """Calls the function for a batch, and for halves of it where it raises."""

    name: str
    call: Function
    raised: list[tuple[int, BaseException]] = field(default_factory=list)
    """Rows that it raises for."""

    def pieces(self, batch: pa.RecordBatch) -> Iterator[_Piece]:
        """What became of the rows, in their order."""

        def count(first: int, end: int) -> int:
            return int(self._result(batch.slice(first, end - first)).num_rows)

        waiting = [(0, batch.num_rows)]
        while waiting:
            first, size = waiting.pop()
            try:
                result = self._result(batch.slice(first, size))
            except TableError:
                raise
            except (Exception, SystemExit) as error:
                if size > 1:
                    half = size // 2
                    waiting += [(first + half, size - half), (first, half)]
                elif isinstance(error, MemoryError):
                    raise
                else:
                    self.raised.append((first, error))
                continue
            rest, events = self._parted(result, batch.num_rows)
            yield _Piece(rest, first, size, events, count)

    def _result(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        result: Any = self.call(batch)
        if isinstance(result, pa.Table):
            result = pa.RecordBatch.from_struct_array(result.to_struct_array().combine_chunks())
        if not isinstance(result, pa.RecordBatch):
            kind = f"{type(result).__module__.partition('.')[0]}.{type(result).__name__}"
            hint = _HINTS.get(kind, "")
            raise TableError(
                f"{self.name} returned {kind.removeprefix('builtins.')}, not a pyarrow.RecordBatch{hint}.\n"
                "Correct the function, then start again."
            )
        return result

    def _parted(
        self, result: pa.RecordBatch, most: int
    ) -> tuple[pa.RecordBatch, np.ndarray[Any, Any] | None]:
        """The result without the column of numbers, and that column."""
        at = result.schema.get_field_index(EVENT)
        names = result.schema.names
        twice = next((name for name in names if names.count(name) > 1), None)
        if twice is not None:
            raise TableError(
                f"{self.name} returned two columns '{twice}'.\n"
                "The batch has a column for each that `schema` declares; replace it with `set_column`."
            )
        if result.num_rows and set(names) <= {EVENT}:
            raise TableError(
                f"{self.name} returned {counted(result.num_rows, 'row')} without a column.\n"
                "Return the columns of the rows; to leave all rows out, return `batch.slice(0, 0)`."
            )
        if at < 0:
            return plain(result, self.name), None
        numbers = result.column(at)
        rest = plain(result.remove_column(at), self.name)
        try:
            events = numbers.cast(pa.int64()).to_numpy()
            sound = bool(numbers.null_count == 0 and ((events >= 0) & (events < most)).all())
        except (pa.ArrowException, ValueError):
            sound = False
        if not sound:
            raise TableError(
                f"{self.name} returned other numbers in '{EVENT}' than it was given.\n"
                "Leave that column as it is, or drop it."
            )
        return rest, events


_HINTS = {
    "pandas.DataFrame": "; end it with `pyarrow.RecordBatch.from_pandas(frame, preserve_index=False)`",
    "polars.DataFrame": "; end it with `frame.to_arrow()`",
    "builtins.NoneType": "; does it end with `return`?",
}
