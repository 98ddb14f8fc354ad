"""Records that carry the header of their file: the names of the fields, a line break, then the record."""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence

from lakefeed.formats import Decoded, Decoder
from lakefeed.formats.joining import joined
from lakefeed.formats.refusal import Misfit, Misfits, no_payload, utf8_text

DecoderOf = Callable[[tuple[str, ...]], Decoder]
"""A decoder of records without a header, whose fields have these names."""


class HeaderDecoder(Decoder):
    """Decodes records of any number of headers, each by the names that it has."""

    def __init__(self, decoder_of: DecoderOf, delimiter: str, quote: str) -> None:
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
        at, quote = payload.find(b"\n"), self._quote.encode()
        while at >= 0 and payload.count(quote, 0, at) % 2:
            at = payload.find(b"\n", at + 1)
        return payload[: at + 1] if at >= 0 else payload

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
            raise Misfit("bad_csv", f"the header cannot be read: {error}") from None
        folded = [name.strip().lower() for name in names]
        if not names or "" in folded:
            raise Misfit("bad_fields", "a field has no name in the header")
        twice = next((name for at, name in enumerate(folded) if name in folded[:at]), None)
        if twice is not None:
            raise Misfit("bad_fields", f"the header names '{twice}' twice, which is one column in a table")
        return tuple(name.strip() for name in names)
