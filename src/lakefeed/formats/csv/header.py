"""Records that carry the header of their file: the names of the fields, a line break, then the record."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence

from lakefeed.formats import Decoded, Decoder
from lakefeed.formats.csv.record_ends import record_ends
from lakefeed.formats.csv.records import other_delimiter
from lakefeed.formats.joining import joined
from lakefeed.formats.refusal import Misfit, Misfits, no_payload, shown, utf8_text

_EXCEL_DELIMITER = re.compile("sep=.?", re.IGNORECASE)
_NAME_THEM = "name the fields with `columns` in place of `header`"

DecoderOf = Callable[[tuple[str, ...]], Decoder]
"""A decoder of records without a header, whose fields have these names."""


class HeaderDecoder(Decoder):
    """Decodes records of any number of headers, each by the names that it has."""

    def __init__(self, decoder_of: DecoderOf, delimiter: str, quote: str, *, strict: bool = True) -> None:
        self._strict = strict
        """Whether each field must have a name; else one may be without, as the index of a data frame is."""
        self._decoder_of = decoder_of
        self._delimiter, self._quote = delimiter, quote
        self._known: dict[bytes, Decoder | Misfit] = {}

    def decode(self, payloads: Sequence[bytes | None]) -> Decoded:
        """Every payload becomes a row or a refusal; what becomes of one does not depend on the others."""
        refused: Misfits = {}
        groups: dict[bytes, list[int]] = {}
        header = last = b""
        for index, payload in enumerate(payloads):
            if payload is None:
                refused[index] = no_payload()
                continue
            # Records of one file come one after the other.
            if not last or not payload.startswith(last):
                header = self._header(payload)
                # What is a header all through may be cut off: the next payload may begin so and go on.
                last = header if len(header) < len(payload) else b""
            groups.setdefault(header, []).append(index)
        parts = []
        for header, indexes in groups.items():
            decoder = self._decoder(header)
            if isinstance(decoder, Misfit):
                refused |= dict.fromkeys(indexes, decoder)
                continue
            records = [(payloads[index] or b"")[len(header) :] for index in indexes]
            parts.append((indexes, decoder.decode(records)))
        return joined(len(payloads), parts or [((), self._decoder_of(("data",)).decode([]))], refused)

    def _header(self, payload: bytes) -> bytes:
        """The header of a payload with its line break, which is the first that is in no quotes."""
        ends = record_ends(payload, self._delimiter.encode(), self._quote.encode())
        return payload[: int(ends[0]) + 1] if len(ends) else payload

    def _decoder(self, header: bytes) -> Decoder | Misfit:
        if header not in self._known:
            try:
                self._known[header] = self._decoder_of(self._names(header))
            except Misfit as misfit:
                self._known[header] = misfit
        return self._known[header]

    def _names(self, header: bytes) -> tuple[str, ...]:
        text = utf8_text(header)
        try:
            names = next(
                csv.reader([text], delimiter=self._delimiter, quotechar=self._quote, strict=True), []
            )
        except csv.Error as error:
            remedy = other_delimiter(text.rstrip("\r\n"), self._delimiter, self._quote)
            what = (
                f"is not separated by {self._delimiter!r}{remedy}" if remedy else f"cannot be read: {error}"
            )
            raise Misfit("bad_csv", f"the header {what}") from None
        if _EXCEL_DELIMITER.fullmatch(text.strip()):
            raise Misfit(
                "bad_fields",
                f"the header is {shown(text.strip())}, a line for Excel; remove it from the file",
            )
        if len(names) == 1 and (remedy := other_delimiter(text.rstrip("\r\n"), self._delimiter, self._quote)):
            raise Misfit("bad_fields", f"the header is one field, {shown(names[0])}{remedy}")
        if all(len(name) > 1 and name[0] == name[-1] == "'" for name in names):
            raise Misfit(
                "bad_fields", f'the header has names in quotes, {shown(names[0])}; set `quote: "\'"`'
            )
        folded = [name.strip().lower() for name in names]
        if not names or folded.count("") > (0 if self._strict else 1):
            nameless = folded.count("")
            have = "a field has" if nameless == 1 else f"{nameless} of {len(names)} fields have"
            raise Misfit("bad_fields", f"{have} no name in the header; {_NAME_THEM}")
        twice = next((name for at, name in enumerate(folded) if name in folded[:at]), None)
        if twice is not None:
            raise Misfit(
                "bad_fields",
                f"the header names '{twice}' twice, which is one column in a table; {_NAME_THEM}",
            )
        return tuple(name.strip() for name in names)
