"""The `avro` format: what each type becomes, how payloads name their schema, and what is refused."""

from __future__ import annotations

import io
import json
import uuid
import zlib
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from lakefeed.columns.column_types import declared_schema, type_text
from lakefeed.errors import PipelineFileError
from lakefeed.formats import Decoded, Rules
from lakefeed.formats.avro.format import AvroFormat
from lakefeed.pipeline.loading.load import load

EMPTY = declared_schema({})


def record(*fields: tuple[str, Any], name: str = "Row") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": key, "type": kind} for key, kind in fields]}


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def contained(schema: Any, values: list[Any], codec: str = "null") -> bytes:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), values, codec=codec)
    return out.getvalue()


def single_object(schema: Any, value: Any) -> bytes:
    form = fastavro.schema.to_parsing_canonical_form(schema)
    return (
        b"\xc3\x01" + bytes.fromhex(fastavro.schema.fingerprint(form, "CRC-64-AVRO")) + written(schema, value)
    )


@pytest.fixture
def avro(tmp_path: Path) -> Any:
    def of(schema: Any, **options: Any) -> AvroFormat:
        file = tmp_path / "row.avsc"
        file.write_text(json.dumps(schema))
        return AvroFormat(schema_file=str(file), **options)

    return of


def inferred(form: AvroFormat, *payloads: bytes) -> Decoded:
    """What a table without a schema gets: the columns are proposed, then the rows decoded."""
    proposed = form.decoder(EMPTY).decode(payloads).unknown
    assert proposed is not None
    return form.decoder(proposed).decode(payloads)


def refusals(decoded: Decoded) -> list[tuple[int, str, str]]:
    return [(one.index, one.code, one.error) for one in decoded.refused]


UUID = uuid.UUID("12345678-9abc-def0-1234-56789abcdef0")
NOON = datetime(2026, 11, 15, 12, 0, 0, 123000, UTC)
FIXED = {"type": "fixed", "name": "F"}


@pytest.mark.parametrize(
    ("kind", "value", "column", "expected"),
    [
        ("boolean", True, "boolean", True),
        ("int", -5, "int", -5),
        ("long", 2**63 - 1, "long", 2**63 - 1),
        ("float", 1.5, "float", 1.5),
        ("double", 0.1, "double", 0.1),
        ("string", "größe", "string", "größe"),
        ("bytes", b"\0\xff", "binary", b"\0\xff"),
        ({**FIXED, "size": 2}, b"\0\xff", "binary", b"\0\xff"),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "string", "B"),
        ({"type": "array", "items": ["null", "int"]}, [1, None], "array<int>", [1, None]),
        ({"type": "map", "values": "long"}, {"a": 1, "b": 2}, "map<string, long>", [("a", 1), ("b", 2)]),
        (record(("x", "int"), name="In"), {"x": 1}, "struct<x: int>", {"x": 1}),
        (["null", "long"], 7, "long", 7),
        (["string", "null"], None, "string", None),
        (["int", "long"], 2**40, "long", 2**40),
        (["null", "float", "double"], 0.5, "double", 0.5),
        (
            ["null", "long", "string"],
            "a",
            "struct<member0: long, member1: string>",
            {"member0": None, "member1": "a"},
        ),
        ({"type": "int", "logicalType": "date"}, date(2026, 11, 15), "date", date(2026, 11, 15)),
        ({"type": "int", "logicalType": "time-millis"}, 5, "int", 5),
        ({"type": "long", "logicalType": "time-micros"}, 5, "long", 5),
        ({"type": "long", "logicalType": "timestamp-millis"}, NOON, "timestamp", NOON),
        ({"type": "long", "logicalType": "timestamp-micros"}, NOON, "timestamp", NOON),
        (
            {"type": "long", "logicalType": "timestamp-nanos"},
            1999,
            "timestamp",
            datetime(1970, 1, 1, 0, 0, 0, 1, UTC),
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            NOON.replace(tzinfo=None),
            "timestamp",
            NOON,
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            NOON.replace(tzinfo=None),
            "timestamp",
            NOON,
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 10, "scale": 2},
            Decimal("-1234.50"),
            "decimal(10,2)",
            Decimal("-1234.50"),
        ),
        (
            {**FIXED, "size": 16, "logicalType": "decimal", "precision": 38, "scale": 0},
            Decimal(10**38 - 1),
            "decimal(38,0)",
            Decimal(10**38 - 1),
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 2},
            Decimal("1.25"),
            "decimal(38,2)",
            Decimal("1.25"),
        ),
        ({"type": "string", "logicalType": "uuid"}, UUID, "string", str(UUID)),
        ({**FIXED, "size": 16, "logicalType": "uuid"}, UUID.bytes, "string", str(UUID)),
        (
            {**FIXED, "size": 12, "logicalType": "duration"},
            b"\1\0\0\0\2\0\0\0\xff\xff\xff\xff",
            "struct<months: long, days: long, millis: long>",
            {"months": 1, "days": 2, "millis": 2**32 - 1},
        ),
        ({"type": "string", "logicalType": "nobody-knows"}, "a", "string", "a"),
    ],
    ids=str,
)
def test_every_type_becomes_a_column(avro: Any, kind: Any, value: Any, column: str, expected: Any) -> None:
    schema = record(("c", kind))
    plain = {"uuid", "duration", "time-millis", "time-micros", "timestamp-nanos"}
    raw = isinstance(kind, dict) and kind.get("logicalType") in plain and not isinstance(value, uuid.UUID)
    raw = raw or (isinstance(value, bytes) and isinstance(kind, dict))
    bare = {key: part for key, part in kind.items() if key != "logicalType"} if raw else kind

    found = inferred(avro(schema), written(record(("c", bare)), {"c": value}))

    assert found.refused == []
    assert [type_text(field.type) for field in found.rows.schema] == [column]
    assert found.rows.column("c").to_pylist() == [expected]


@pytest.mark.parametrize(
    ("precision", "scale"), [(2, 3), (0, 0), (-1, 0), (4, -1), ("4", 2), (4, "2"), (None, 0), (4, 2.0)]
)
def test_a_decimal_that_is_none_counts_as_its_bytes(
    avro: Any, precision: Any, scale: Any, tmp_path: Path
) -> None:
    odd = {"type": "bytes", "logicalType": "decimal", "precision": precision, "scale": scale}
    fixed = {"type": "fixed", "name": "F", "size": 2, **{key: odd[key] for key in odd if key != "type"}}
    schema = record(("c", odd), ("l", {"type": "array", "items": ["null", fixed]}))
    plain = record(("c", "bytes"), ("l", {"type": "array", "items": ["null", {**FIXED, "size": 2}]}))
    payload = written(plain, {"c": b"\x01\x02", "l": [b"\x03\x04"]})

    decoded = inferred(avro(schema), payload)

    assert (decoded.refused, decoded.rows.to_pylist()) == ([], [{"c": b"\x01\x02", "l": [b"\x03\x04"]}])
    (tmp_path / "odd.avsc").write_text(json.dumps(schema))
    AvroFormat(schema_file=str(tmp_path), encoding="single_object").decoder(pa.schema([]))


def test_null_and_records_without_fields_are_no_columns(avro: Any) -> None:
    schema = record(("none", "null"), ("empty", record(name="E")), ("a", "int"))

    found = inferred(avro(schema), written(schema, {"none": None, "empty": {}, "a": 1}))

    assert found.rows.to_pylist() == [{"a": 1}]


def test_what_is_no_record_is_the_column_value(avro: Any) -> None:
    found = inferred(avro("long"), written("long", 7))

    assert found.rows.to_pylist() == [{"value": 7}]


def test_long_lists_and_nested_ones_are_read_whole(avro: Any) -> None:
    item = record(("tags", {"type": "map", "values": {"type": "array", "items": "string"}}), name="Item")
    schema = record(
        ("numbers", {"type": "array", "items": "long"}), ("items", {"type": "array", "items": item})
    )
    rows = [
        {"numbers": list(range(count)), "items": [{"tags": {"x": ["a"] * count, "y": []}}] * (count % 3)}
        for count in (0, 1, 5, 1000, 2)
    ]

    found = inferred(avro(schema), *[written(schema, row) for row in rows])

    assert found.rows.column("numbers").to_pylist() == [row["numbers"] for row in rows]
    pairs = [[{"tags": list(item["tags"].items())} for item in row["items"]] for row in rows]
    assert found.rows.column("items").to_pylist() == pairs


@pytest.mark.parametrize(
    ("kind", "payload", "error"),
    [
        ("long", b"", "c: byte 1: expected a long, got the end of the payload"),
        ("long", b"\x02\x02", "byte 2: 1 bytes follow the end of the record"),
        ("long", b"\xff" * 11, "c: byte 1: expected a long, got a number of more than 64 bits"),
        ("int", b"\x80\x80\x80\x80\x20", "c: byte 1: expected an int of 32 bits, got 4294967296"),
        (
            "string",
            b"\x14abc",
            "c: byte 2: expected a string of 10 bytes, got 3, then the end of the payload",
        ),
        ("string", b"\x01", "c: byte 1: expected a string, got a length of -1"),
        ("string", b"\x04a\xff", "c: byte 3: 0xff is not UTF-8"),
        ("boolean", b"\x02", "c: byte 1: expected a boolean, 0 or 1, got 2"),
        ("double", b"\0\0", "c: byte 1: expected a double of 8 bytes, got 2, then the end of the payload"),
        (["null", "long"], b"\x05", "c: byte 1: expected the number of one of 2 branches, got -3"),
        (
            {"type": "enum", "name": "E", "symbols": ["A", "B"]},
            b"\x04",
            "c: byte 1: expected the number of one of 2 symbols, got 2",
        ),
        (
            {"type": "array", "items": "string"},
            b"\x04\x02a\x06a",
            "c[1]: byte 5: expected a string of 3 bytes, got 1, then the end of the payload",
        ),
        (
            {"type": "array", "items": "null"},
            b"\x80\x80\x80\x80\x80\x80\x01\x00",
            "c: byte 1: expected at most 10000 items without content",
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 2, "scale": 0},
            b"\x02\x64",
            "c: byte 1: expected a decimal of 2 digits, got more",
        ),
    ],
    ids=str,
)
def test_a_payload_that_is_not_a_record_of_its_schema_is_refused_with_its_byte(
    avro: Any, kind: Any, payload: bytes, error: str
) -> None:
    decoded = avro(record(("c", kind))).decoder(EMPTY).decode([payload])

    assert refusals(decoded) == [(0, "bad_avro", error)]


def test_a_broken_payload_touches_no_other(avro: Any) -> None:
    schema = record(("a", "long"), ("b", "string"))
    good = [written(schema, {"a": number, "b": "x" * number}) for number in range(5)]

    decoded = (
        avro(schema)
        .decoder(declared_schema({"a": "long", "b": "string"}))
        .decode([*good[:2], b"\x02", None, *good[2:]])
    )

    assert [(index, code) for index, code, _ in refusals(decoded)] == [(2, "bad_avro"), (3, "null_payload")]
    assert decoded.rows.column("a").to_pylist() == [0, 1, 2, 3, 4]


def packed(codec: str, content: bytes) -> bytes:
    if codec == "snappy":
        checksum = zlib.crc32(content).to_bytes(4, "big")
        return bytes(pa.Codec("snappy").compress(content, asbytes=True)) + checksum
    return bytes(pa.Codec("zstd").compress(content, asbytes=True))


def contained_by_hand(schema: Any, value: Any, codec: str) -> bytes:
    """A container of a codec that the writer of this test has not."""
    header = {"avro.schema": json.dumps(schema).encode(), "avro.codec": codec.encode()}
    block = packed(codec, written(schema, value))
    parts = [b"Obj\x01", written({"type": "map", "values": "bytes"}, header), bytes(16)]
    return b"".join([*parts, written("long", 1), written("bytes", block), bytes(16)])


@pytest.mark.parametrize("codec", ["null", "deflate", "bzip2", "xz", "snappy", "zstandard"])
def test_containers_of_one_record_are_rows_whatever_their_schema(codec: str) -> None:
    one, other = record(("a", "long")), record(("a", "int"), ("b", "string"))
    if codec in ("snappy", "zstandard"):
        payloads = [
            contained_by_hand(one, {"a": 1}, codec),
            contained_by_hand(other, {"a": 2, "b": "x"}, codec),
        ]
    else:
        payloads = [contained(one, [{"a": 1}], codec), contained(other, [{"a": 2, "b": "x"}], codec)]

    found = inferred(AvroFormat(encoding="container"), *payloads)

    assert found.rows.to_pylist() == [{"a": 1, "b": None}, {"a": 2, "b": "x"}]


@pytest.mark.parametrize("codec", ["deflate", "bzip2", "xz", "snappy", "zstandard"])
def test_a_container_that_is_a_bomb_is_refused(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefeed.formats.avro.container.DEFAULT_MAX_PAYLOAD", 1000)
    schema, value = record(("a", "bytes")), {"a": bytes(2000)}
    by_hand = codec in ("snappy", "zstandard")
    payload = contained_by_hand(schema, value, codec) if by_hand else contained(schema, [value], codec)

    decoded = AvroFormat(encoding="container").decoder(EMPTY).decode([payload])

    assert [code for _, code, _ in refusals(decoded)] == ["too_large"]


def test_a_container_whose_blocks_are_not_of_its_codec_is_refused() -> None:
    schema = record(("a", "long"))
    zstandard = contained_by_hand(schema, {"a": 1}, "zstandard")
    snappy = contained_by_hand(schema, {"a": 1}, "snappy")

    decoded = (
        AvroFormat(encoding="container")
        .decoder(EMPTY)
        .decode(
            [
                zstandard.replace(b"\x28\xb5\x2f\xfd", b"\x28\xb5\x2f\xfe"),
                snappy[:-17] + b"\0" + snappy[-16:],
                snappy.replace(b"\x0csnappy", b"\x0cslappy"),
            ]
        )
    )

    assert [code for _, code, _ in refusals(decoded)] == ["bad_compression"] * 3
    assert "a block of the container is not zstandard" in decoded.refused[0].error
    assert decoded.refused[1].error == "a block of the container is not snappy: its checksum is wrong"
    assert decoded.refused[2].error == (
        "expected a container of null, deflate, snappy, zstandard, bzip2 or xz, got slappy"
    )


def test_containers_that_are_none_or_hold_more_are_refused() -> None:
    schema = record(("a", "long"))
    whole = contained(schema, [{"a": 1}])
    nested = json.dumps(schema).replace('"long"', '["null", "Row"]').encode()

    decoded = (
        AvroFormat(encoding="container")
        .decoder(EMPTY)
        .decode(
            [
                contained(schema, []),
                contained(schema, [{"a": 1}, {"a": 2}]),
                b"",
                b"Obj\x02",
                whole[:-1],
                whole[:-1] + b"!",
                contained(schema, [{"a": 1}], "deflate")[:-22] + bytes(22),
                b"Obj\x01\x02\x16avro.schema"
                + bytes([len(nested) * 2 & 127 | 128, len(nested) >> 6])
                + nested
                + b"\0"
                + bytes(16)
                + b"\x02\x02\0"
                + bytes(16),
            ]
        )
    )

    assert [(code, error) for _, code, error in refusals(decoded)] == [
        ("many_records", "expected a container of one record, got 0"),
        ("many_records", "expected a container of one record, got 2"),
        ("bad_framing", "expected a container, which begins with 0x4f626a01, got an empty payload"),
        ("bad_framing", "expected a container, which begins with 0x4f626a01, got 0x4f626a02"),
        (
            "bad_avro",
            f"byte {len(whole) - 15}: expected a mark of 16 bytes, got 15, then the end of the payload",
        ),
        ("bad_avro", f"byte {len(whole) + 1}: the mark after a block is not that of the header"),
        ("bad_avro", decoded.refused[6].error),
        (
            "bad_schema",
            "the schema of the container: the record Row contains itself, which the columns of a table "
            "cannot",
        ),
    ]


def test_single_objects_are_read_with_the_schema_of_their_fingerprint(tmp_path: Path) -> None:
    old, new = record(("a", "long")), record(("a", "long"), ("b", ["null", "string"]))
    (tmp_path / "old.avsc").write_text(json.dumps(old))
    (tmp_path / "new.avsc").write_text(json.dumps(new))
    form = AvroFormat(schema_file=str(tmp_path), encoding="single_object")
    payloads = [
        single_object(new, {"a": 1, "b": "x"}),
        single_object(old, {"a": 2}),
        single_object(record(("z", "long")), {"z": 2}),
        b"\xc3\x01\x00",
        b"\xc3\x02" + bytes(9),
        b"",
    ]

    decoded = form.decoder(declared_schema({"a": "long", "b": "string"})).decode(payloads)

    assert decoded.rows.to_pylist() == [{"a": 1, "b": "x"}, {"a": 2, "b": None}]
    number = payloads[2][2:10][::-1].hex()
    assert refusals(decoded) == [
        (2, "unknown_schema", f"no schema of `schema_file` has the fingerprint {number}"),
        (3, "bad_framing", "expected 0xc301 and a fingerprint of 8 bytes, got 3 bytes in all"),
        (4, "bad_framing", "expected 0xc301 and a fingerprint of 8 bytes, got 0xc302"),
        (5, "bad_framing", "expected 0xc301 and a fingerprint of 8 bytes, got an empty payload"),
    ]


def test_writers_of_several_schemas_meet_one_table_under_its_rules(tmp_path: Path) -> None:
    schemas = [
        record(("id", "int"), ("price", "double")),
        record(("id", "long"), ("price", "string"), ("extra", ["null", record(("x", "int"), name="X")])),
    ]
    for at, schema in enumerate(schemas):
        (tmp_path / f"{at}.avsc").write_text(json.dumps(schema))
    form = AvroFormat(schema_file=str(tmp_path), encoding="single_object")
    payloads = [
        single_object(schemas[0], {"id": 1, "price": 1.5}),
        single_object(schemas[1], {"id": 2**40, "price": "free", "extra": {"x": 1}}),
        single_object(schemas[1], {"id": 3, "price": "free", "extra": None}),
    ]
    columns = declared_schema({"id": "long", "price": "double"})

    rescued = form.decoder(columns, Rules("rescue", "rescue")).decode(payloads)
    refused = form.decoder(columns, Rules("dead_letter")).decode(payloads)

    assert rescued.rows.to_pylist() == [
        {"id": 1, "price": 1.5},
        {"id": 2**40, "price": None},
        {"id": 3, "price": None},
    ]
    assert rescued.rescued is not None
    assert rescued.rescued.to_pylist() == [
        None,
        '{"price":"free","extra":{"x":1}}',
        '{"price":"free"}',
    ]
    assert [(index, code) for index, code, _ in refusals(refused)] == [(1, "wrong_type"), (2, "wrong_type")]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({}, "expected `registry`, `schema_file` or `encoding: container`"),
        ({"schema_file": "a", "registry": "http://r"}, "registry and schema_file exclude each other"),
        ({"encoding": "plain", "registry": "http://r"}, "registry and encoding exclude each other"),
        (
            {"encoding": "container", "schema_file": "a"},
            "a container holds its own schema; remove schema_file",
        ),
        (
            {"schema_file": "/nowhere.avsc"},
            "schema_file '/nowhere.avsc' cannot be read: No such file or directory",
        ),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(PipelineFileError) as error:
        AvroFormat(**options)

    assert problem in str(error.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "it is not JSON"),
        ('{"type": "array"}', "it is not an Avro schema"),
        ('"Nobody"', "it uses the type Nobody, which is not defined"),
        (
            json.dumps(record(("next", ["null", "Row"]))),
            "the record Row contains itself, which the columns of a table cannot",
        ),
        (json.dumps(record(("a", "int"), ("a", "int"))), "the record Row has two fields of one name"),
    ],
)
def test_a_schema_that_cannot_be_read_is_refused_with_the_line_of_the_pipeline_file(
    tmp_path: Path, text: str, problem: str
) -> None:
    (tmp_path / "row.avsc").write_text(text)
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources:
  clicks:
    {type: kafka, brokers: here, topics: [clicks], format: {type: avro, schema_file: row.avsc}}
tables:
  clicks: {path: lake/clicks, from: clicks}
"""
    )

    with pytest.raises(PipelineFileError) as error:
        load(file)

    assert str(error.value).startswith(f"{file}:4: sources.clicks.format: schema_file ")
    assert problem in str(error.value)


def test_a_folder_of_schemas_is_only_for_single_objects(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match="only single_object reads many schemas"):
        AvroFormat(schema_file=str(tmp_path))
    with pytest.raises(PipelineFileError, match=r"a folder without a file \*\.avsc"):
        AvroFormat(schema_file=str(tmp_path), encoding="single_object")


def test_workers_need_no_schema_file(tmp_path: Path) -> None:
    import pickle

    file = tmp_path / "row.avsc"
    file.write_text(json.dumps(record(("a", "long"))))
    packed = pickle.dumps(AvroFormat(schema_file=str(file)))
    file.unlink()

    decoded = pickle.loads(packed).decoder(declared_schema({"a": "long"})).decode([b"\x0e"])

    assert decoded.rows.to_pylist() == [{"a": 7}]
