from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakefeed.columns.column_types import TIMESTAMP, declared_schema
from lakefeed.errors import PipelineFileError
from lakefeed.formats.fit.decimals import extreme
from lakefeed.formats.json.block import Block, BlockReader
from lakefeed.formats.json.format import JsonFormat
from lakefeed.formats.json.strict import StrictReader


def rows(columns: dict[str, str], *payloads: bytes) -> list[dict[str, Any]]:
    decoded = JsonFormat().decoder(declared_schema(columns)).decode(payloads)
    assert decoded.refused == []
    found: list[dict[str, Any]] = decoded.rows.to_pylist()
    return found


def values(kind: str, *texts: str) -> list[Any]:
    return [row["v"] for row in rows({"v": kind}, *(f'{{"v": {text}}}'.encode() for text in texts))]


def test_the_format_needs_no_options() -> None:
    assert JsonFormat().model_dump(exclude_none=True) == {"type": "json"}
    with pytest.raises(PipelineFileError, match="compact: unknown key"):
        JsonFormat(compact=True)  # type: ignore[call-arg]


def test_columns_come_in_the_order_of_the_schema_and_missing_ones_are_null() -> None:
    assert rows({"b": "long", "a": "string"}, b'{"a": "x", "b": 1}', b'{"b": 2}', b"{}") == [
        {"b": 1, "a": "x"},
        {"b": 2, "a": None},
        {"b": None, "a": None},
    ]


def test_rows_have_the_types_and_the_nullability_of_the_table() -> None:
    columns = {
        "a": "uint8 not null",
        "b": "uint64",
        "c": "timestamp(ms)",
        "d": "array<struct<x: uint32 not null>>",
    }

    decoded = JsonFormat().decoder(declared_schema(columns)).decode([b'{"a": 1}'])

    assert decoded.rows.schema.equals(
        pa.schema(
            [
                pa.field("a", pa.int16(), nullable=False),
                pa.field("b", pa.int64()),
                pa.field("c", TIMESTAMP),
                pa.field(
                    "d",
                    pa.list_(pa.field("element", pa.struct([pa.field("x", pa.int64(), nullable=False)]))),
                ),
            ]
        )
    )


def test_numbers_keep_every_digit() -> None:
    assert values("long", "9223372036854775807", "-9223372036854775808") == [2**63 - 1, -(2**63)]
    assert values("uint64", "9223372036854775807") == [2**63 - 1]
    assert values("double", "0.1", "1", "1e-400", "1.7976931348623157e308") == [
        0.1,
        1.0,
        0.0,
        1.7976931348623157e308,
    ]
    assert values("decimal(38,18)", "12345678901234567890.123456789012345678") == [
        Decimal("12345678901234567890.123456789012345678")
    ]


def test_empty_array_is_an_empty_object_and_the_other_way_round() -> None:
    assert values("struct<a: long>", '{"a": 1}', "[]", "{}") == [{"a": 1}, {"a": None}, {"a": None}]
    assert values("map<string, long>", '{"a": 1}', "[]") == [[("a", 1)], []]
    assert values("array<long>", "[1]", "{}") == [[1], []]
    assert values("array<struct<m: map<string, double>>>", '[{"m": []}, []]', '[{"m": {"a": 1.5}}]') == [
        [{"m": []}, {"m": None}],
        [{"m": [("a", 1.5)]}],
    ]


def test_whole_numbers_and_midnights_may_be_written_in_other_ways() -> None:
    assert values("long", "13.0", "1e3", "-0.0", "9007199254740991e0", "9223372036854775807.00") == [
        13,
        1000,
        0,
        2**53 - 1,
        2**63 - 1,
    ]
    assert values("timestamp(s)", "1700000000.0") == [datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)]
    assert (
        values("date", '"2026-11-15"', '"2026-11-15T00:00:00.000Z"', '"2026-11-15T02:00:00+02:00"')
        == [date(2026, 11, 15)] * 3
    )


def test_decimals_come_as_numbers_or_as_strings() -> None:
    assert values("decimal(10,2)", "1", '"1.5"', "1.500", "1e2", '"+.5"', "-99999999.99") == [
        Decimal("1.00"),
        Decimal("1.50"),
        Decimal("1.50"),
        Decimal("100.00"),
        Decimal("0.50"),
        Decimal("-99999999.99"),
    ]


def test_decimals_that_arrow_reads_wrongly_are_right() -> None:
    decoder = JsonFormat().decoder(declared_schema({"v": "decimal(38,38)", "s": "decimal(10,2)"}))

    decoded = decoder.decode(
        [b'{"v": 99999999}', b'{"s": 1e-77}', b'{"s": 1e-1000000000}', b'{"s": "1\\u0065-99"}']
    )

    assert [each.error for each in decoded.refused] == [
        "v: expected decimal(38,38), got 99999999",
        "s: expected decimal(10,2), got 1e-77",
        "s: expected decimal(10,2), got 1e-1000000000",
        's: expected decimal(10,2), got "1e-99"',
    ]


@pytest.mark.parametrize(
    ("text", "kept_away"),
    [
        ('{"v": 1e-38}', False),
        ('{"v": 1.5e-38}', True),
        ('{"v": 1E-039}', True),
        ('{"v": "1.e-1000000000"}', True),
        ('{"v": [0,1e-99]}', True),
        ('{"v": 0.' + "1" * 28 + "}", False),
        ('{"v": 0.' + "1" * 29 + "}", True),
        ('{"v": "\\u0031e5"}', True),
        ('{"v": "\\u00e9 \\u003c"}', False),
        ('{"id": "1234567e-1234-4e-12-be12-123e-123456789012"}', False),
    ],
)
def test_extreme_decimals_are_kept_away_from_arrow(text: str, kept_away: bool) -> None:
    assert bool(len(extreme(np.frombuffer(text.encode(), np.uint8)))) == kept_away


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2024-03-01T12:30:45Z", datetime(2024, 3, 1, 12, 30, 45, tzinfo=UTC)),
        ("2024-03-01t12:30:45.5z", datetime(2024, 3, 1, 12, 30, 45, 500000, tzinfo=UTC)),
        ("2024-03-01 12:30:45+02:00", datetime(2024, 3, 1, 10, 30, 45, tzinfo=UTC)),
        ("2024-03-01T12:30:45.123456789Z", datetime(2024, 3, 1, 12, 30, 45, 123456, tzinfo=UTC)),
        ("2024-03-01T12:30:45.1234567-0130", datetime(2024, 3, 1, 14, 0, 45, 123456, tzinfo=UTC)),
        ("2024-03-01T12:30:45", datetime(2024, 3, 1, 12, 30, 45, tzinfo=UTC)),
        ("2024-03-01", datetime(2024, 3, 1, tzinfo=UTC)),
        ("0001-01-01T00:00:00Z", datetime(1, 1, 1, tzinfo=UTC)),
        ("9999-12-31T23:59:59.999999Z", datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)),
    ],
)
def test_a_timestamp_is_rfc_3339_text(text: str, expected: datetime) -> None:
    assert values("timestamp", f'"{text}"') == [expected]


def test_timestamps_of_many_shapes_stand_side_by_side() -> None:
    assert values(
        "timestamp", '"2024-03-01"', "null", '"2024-03-01T00:00:00.999999999Z"', '"2024-03-01T00:00:00+01"'
    ) == [
        datetime(2024, 3, 1, tzinfo=UTC),
        None,
        datetime(2024, 3, 1, 0, 0, 0, 999999, tzinfo=UTC),
        datetime(2024, 2, 29, 23, tzinfo=UTC),
    ]


def test_nanoseconds_stay_on_the_fast_path() -> None:
    reader = BlockReader(declared_schema({"v": "timestamp"}))

    block = reader.read([b'{"v": "2024-03-01T12:30:45.123456789Z"}', b'{"v": "2024-03-01T12:30:45.5Z"}'])

    assert isinstance(block, Block)
    assert block.doubt is None


@pytest.mark.parametrize(
    ("unit", "number"),
    [("s", 1700000000), ("ms", 1700000000000), ("us", 1700000000000000), ("ns", 1700000000000000999)],
)
def test_an_epoch_number_has_the_declared_unit(unit: str, number: int) -> None:
    assert values(f"timestamp({unit})", str(number)) == [datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)]


def test_nanoseconds_before_1970_are_cut_off_toward_the_past() -> None:
    assert values("timestamp(ns)", "-1") == [datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC)]


def test_dates_binaries_and_booleans() -> None:
    assert values("date", '"2024-02-29"', "null") == [date(2024, 2, 29), None]
    assert values("binary", '"AAEC"', '""') == [b"\x00\x01\x02", b""]
    assert values("boolean", "true", "false") == [True, False]


def test_structs_lists_and_maps_nest() -> None:
    kind = "struct<tags: array<string>, by_day: map<string, struct<n: int, at: timestamp>>>"

    found = values(
        kind, '{"tags": ["a", null], "by_day": {"mon": {"n": 1, "at": "2024-03-01"}, "tue": null}}', "{}"
    )

    assert found == [
        {
            "tags": ["a", None],
            "by_day": [("mon", {"n": 1, "at": datetime(2024, 3, 1, tzinfo=UTC)}), ("tue", None)],
        },
        {"tags": None, "by_day": None},
    ]


def test_good_rows_keep_their_order_among_bad_payloads() -> None:
    payloads = [f'{{"id": {n}, "at": "2024-03-01T00:00:00Z"}}'.encode() for n in range(500)]
    for place, bad in {
        0: b"{",
        7: b'{"id": "x"}',
        99: b"\xff",
        250: b'{"id": 1.5}',
        251: b"null",
        499: b'{"at": "x"}',
    }.items():
        payloads[place] = bad

    decoded = JsonFormat().decoder(declared_schema({"id": "long", "at": "timestamp"})).decode(payloads)

    refused = [0, 7, 99, 250, 251, 499]
    assert [each.index for each in decoded.refused] == refused
    assert decoded.rows.column("id").to_pylist() == [n for n in range(500) if n not in refused]


def test_pretty_printed_payloads_and_escaped_keys_are_read() -> None:
    assert rows({"a": "long"}, b' {\n\t"\\u0061" : 1\r\n}\n') == [{"a": 1}]


def test_a_payload_of_five_megabytes_is_a_row() -> None:
    text = "ü" * 2_500_000

    assert values("string", f'"{text}"') == [text]


def test_no_payloads_make_no_rows() -> None:
    decoded = JsonFormat().decoder(declared_schema({"a": "long"})).decode([])

    assert decoded.rows.num_rows == 0
    assert decoded.rows.schema.names == ["a"]


def test_without_a_schema_every_payload_is_a_row_without_columns() -> None:
    decoded = JsonFormat().decoder(pa.schema([])).decode([b'{"a": 1}', b"{}", b"["])

    assert (decoded.rows.num_rows, decoded.rows.num_columns) == (2, 0)
    assert [each.index for each in decoded.refused] == [2]


def test_bad_payloads_do_not_take_the_others_off_the_fast_path(monkeypatch: pytest.MonkeyPatch) -> None:
    decided: list[int] = []
    read = StrictReader.read

    def counted(self: StrictReader, payloads: Sequence[bytes | None], indexes: Sequence[int]) -> Any:
        decided.extend(indexes)
        return read(self, payloads, indexes)

    monkeypatch.setattr(StrictReader, "read", counted)
    bad = {
        3: b'{"id": 3, "price": 1',
        40: b'{"id": "x"}',
        41: b'{"id": 1.5}',
        120: b'{"price": "abc"}',
        199: b'{"id": 1, "id": 1}',
        200: b"",
        201: b'{"meta": {"n": []}}',
        250: b'{"price": 1e-99}',
        299: b'{"list": ["x"]}',
    }
    payloads = [bad.get(n, f'{{"id": {n}, "price": {n}.5, "list": [1]}}'.encode()) for n in range(300)]
    columns = {"id": "long", "price": "decimal(10,2)", "meta": "struct<n: int>", "list": "array<long>"}

    decoded = JsonFormat().decoder(declared_schema(columns)).decode(payloads)

    assert [each.index for each in decoded.refused] == [*bad]
    assert decided == [*bad]
