"""Keys of tombstones in JSON: one value or an object, plain or in the envelope of Kafka Connect."""

from __future__ import annotations

from decimal import Decimal

import pyarrow as pa

from lakefeed.formats import JsonFormat
from lakefeed.formats.key import KeyDecoder


def test_one_value_in_the_envelope_of_connect_is_the_key() -> None:
    made = KeyDecoder(JsonFormat(), pa.schema([("id", pa.int64()), ("v", pa.string())]), "id")

    found = made.decode(
        [
            b"5",
            b'{"id":6}',
            b'{"schema":{"type":"struct"},"payload":{"id":7}}',
            b'{"schema":{"type":"int64"},"payload":8}',
            b'{"schema":{"type":"string"},"payload":"x"}',
        ]
    )

    assert [row["id"] for row in found.rows.to_pylist()] == [5, 6, 7, 8]
    assert [(one.index, one.error) for one in found.refused] == [(4, 'key: id: expected long, got "x"')]


def test_digits_of_a_key_in_the_envelope_are_kept() -> None:
    made = KeyDecoder(JsonFormat(), pa.schema([("id", pa.decimal128(38, 0))]), "id")

    found = made.decode(
        [
            b'{"schema":{},"payload":{"id":12345678901234567890123}}',
            b'{"schema":{},"payload":12345678901234567890123}',
        ]
    )

    assert [row["id"] for row in found.rows.to_pylist()] == [Decimal("12345678901234567890123")] * 2
