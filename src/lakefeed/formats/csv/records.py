"""Records of separated values: from payloads to columns of text."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.formats.fixed import Columns
from lakefeed.formats.refusal import Misfit, Misfits, empty_payload, utf8_text
from lakefeed.text import counted

_DELIMITERS = (",", ";", "\t", "|")

Record = Sequence[str | None]


class RecordReader:
    """Reads records of one shape. A line break at the end is fine; inside, it must be in quotes."""

    def __init__(self, names: tuple[str, ...], delimiter: str, quote: str, null: str) -> None:
        self._names, self._width = names, len(names)
        self._delimiter, self._quote, self._null = delimiter, quote, null
        # Made once: from the options, it would take longer than to read a small record.
        self._dialect = csv.reader([], delimiter=delimiter, quotechar=quote, strict=True).dialect

    def read(self, payloads: Sequence[bytes]) -> Columns:
        """The fields of each record, as text."""
        _allow_fields_of(max(map(len, payloads), default=0))
        misfits: Misfits = {}
        records = self._together(payloads)
        if records is None:
            records, misfits = self._one_by_one(payloads)
        fields = zip(*records, strict=True) if records else ((),) * self._width
        texts = [self._with_nulls(pa.array(column, pa.string())) for column in fields]
        return Columns(dict(zip(self._names, texts, strict=True)), misfits)

    def _with_nulls(self, texts: pa.StringArray) -> pa.StringArray:
        absent = pc.equal(texts, self._null)
        return pc.if_else(absent, None, texts) if pc.any(absent).as_py() else texts

    def _together(self, payloads: Sequence[bytes]) -> list[Record] | None:
        """All records in one go, or None if one of them is not as it should be."""
        if b"" in payloads:
            return None
        try:
            records: list[Record] = list(csv.reader([each.decode() for each in payloads], self._dialect))
        except (csv.Error, UnicodeDecodeError):
            return None
        # An open quote goes on in the next payload: as many records as payloads means that none does.
        aligned = len(records) == len(payloads) and set(map(len, records)) <= {self._width}
        return records if aligned else None

    def _one_by_one(self, payloads: Sequence[bytes]) -> tuple[list[Record], Misfits]:
        """A record for each payload, of nulls for those that are misfits."""
        records: list[Record] = []
        misfits: Misfits = {}
        for index, payload in enumerate(payloads):
            try:
                records.append(self._record(payload))
            except Misfit as misfit:
                misfits[index] = misfit
                records.append((None,) * self._width)
        return records, misfits

    def _record(self, payload: bytes) -> Record:
        if not payload:
            raise empty_payload()
        try:
            record = next(csv.reader([utf8_text(payload)], self._dialect))
        except csv.Error as error:
            raise _misfit(str(error), self._quote) from None
        if len(record) != self._width:
            remedy = (
                other_delimiter(utf8_text(payload), self._delimiter, self._quote) if len(record) == 1 else ""
            )
            raise Misfit("bad_fields", f"expected {counted(self._width, 'field')}, got {len(record)}{remedy}")
        return record


def other_delimiter(line: str, delimiter: str, quote: str) -> str:
    """For the message about a line with one field: the delimiter that gives more; empty if none does."""
    counts = {
        other: len(next(csv.reader([line], delimiter=other, quotechar=quote), []))
        for other in _DELIMITERS
        if other not in (delimiter, quote)
    }
    other = max(counts, key=lambda each: counts[each])
    return (
        f"; with {other!r} it has {counts[other]}: set `delimiter: {json.dumps(other)}`"
        if counts[other] > 1
        else ""
    )


def _misfit(complaint: str, quote: str) -> Misfit:
    if complaint.startswith("new-line character"):
        return Misfit("many_records", f"text after a line break that is not between {quote} quotes")
    if complaint == "unexpected end of data":
        return Misfit("bad_csv", f"a field begins with {quote} and never ends")
    return Misfit("bad_csv", f"text between a closing {quote} and the end of its field")


def _allow_fields_of(length: int) -> None:
    """Python's limit is there for files that may be anything; a payload is in memory already."""
    if length > csv.field_size_limit():
        csv.field_size_limit(length)
