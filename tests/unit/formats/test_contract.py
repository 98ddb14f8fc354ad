"""The contract that every format keeps, whatever the payloads are."""

from __future__ import annotations

import gzip
import inspect
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import get_args

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import TypeAdapter

from lakefeed.columns.column_types import declared_schema, stored
from lakefeed.errors import PipelineFileError
from lakefeed.formats import Decoded, Format, Rules
from lakefeed.pipeline.connectors import FormatField, connector_class, connector_types
from lakefeed.pipeline.loading.load import load
from lakefeed.pipeline.options.evolve import NewColumn, TypeChange

FEW = settings(max_examples=25, deadline=None)
HUGE = 5 * 1024**2


@dataclass(frozen=True)
class Case:
    """How one format is used: its smallest options, columns that fit, and payloads that become rows."""

    options: dict[str, object]
    columns: dict[str, str]
    good: list[bytes]
    huge: bytes | None
    skips: bool = False
    """Whether an event without payload carries nothing, and is no dead letter."""


def avro_schema() -> str:
    file = Path(mkdtemp()) / "case.avsc"
    fields = [{"name": "id", "type": ["null", "long"]}, {"name": "name", "type": ["null", "string"]}]
    file.write_text(json.dumps({"type": "record", "name": "Case", "fields": fields}))
    return str(file)


CASES = {
    "avro": Case(
        {"type": "avro", "schema_file": avro_schema()},
        {"id": "long", "name": "string"},
        [b"\x02\x02\x02\x02a", b"\x00\x00", b"\x02\x04\x02\x06\xc3\xbcb"],
        b"\x02\x02\x02\x80\x80\x80\x05" + b"x" * HUGE,
    ),
    "json": Case(
        {"type": "json"},
        {"id": "long", "name": "string"},
        [b'{"id": 1, "name": "a"}', b'{"id": null}', b"{}"],
        json.dumps({"id": 1, "name": "x" * HUGE}).encode(),
    ),
    # Its rows are columns of files; what is decoded are dead letters, which hold theirs as JSON.
    "parquet": Case(
        {"type": "parquet"},
        {"id": "long", "name": "string"},
        [b'{"id": 1, "name": "a"}', b'{"id": null}', b"{}"],
        json.dumps({"id": 1, "name": "x" * HUGE}).encode(),
    ),
    "protobuf": Case(
        {
            "type": "protobuf",
            "descriptor": str(Path(__file__).with_name("contract.proto")),
            "message": "contract.v1.Named",
        },
        {"id": "long", "name": "string"},
        [b"\x08\x01\x12\x01a", b"\x08\x02", b"\x12\x00\x08\x03"],
        b"\x08\x01\x12\x80\x80\xc0\x02" + b"x" * HUGE,
    ),
    "debezium": Case(
        {"type": "debezium"},
        {"op": "string", "after": "struct<id: long, name: string>"},
        [
            b'{"op": "c", "after": {"id": 1, "name": "a"}}',
            b'{"schema": null, "payload": {"op": "u", "after": {"id": 2}}}',
            b'{"op": "d", "before": null, "after": null}',
        ],
        json.dumps({"op": "c", "after": {"id": 1, "name": "x" * HUGE}}).encode(),
        skips=True,
    ),
    "csv": Case(
        {"type": "csv", "columns": ["id", "name"]},
        {"id": "long", "name": "string"},
        [b"1,a", b"2,", b'3,"a, b"\r\n'],
        b"1," + b"x" * HUGE,
    ),
    "text": Case({"type": "text"}, {"data": "string"}, [b"hello", b"", "größe".encode()], b"x" * HUGE),
    "int64": Case({"type": "int64"}, {"value": "long"}, [bytes(8), b"\xff" * 8, b"\0" * 7 + b"*"], None),
    "bytes": Case(
        {"type": "bytes"}, {"data": "string", "size": "long"}, [b"\x01\x02", b"", b"\xff"], b"x" * HUGE
    ),
    "event": Case(
        {"type": "event"},
        {"data": "string", "event_type": "string", "timestamp": "timestamp", "stream": "string"},
        [b'{"event_type": "insert", "timestamp": "2024-01-15T10:30:00Z", "stream": "users"}', b"{}", b"[1]"],
        json.dumps({"event_type": "log", "text": "x" * HUGE}).encode(),
    ),
}
MANGLED = [
    b"\x02\x02\x02\x02ab",
    b"\x02\x02\x02\x02\xff",
    b"\x02" + b"\xff" * 11,
    b"\x02\x02\x02\xfe\xff\xff\xff\xff\xff\xff\xff\x7f",
    b"\x04\x02",
    b"",
    b" ",
    b"\n",
    b"\0",
    b"\xff\xfe",
    b"{",
    b'{"id": "a"}',
    b'{"id": 1, "name": "cut o',
    b'1,"cut o',
    b"1,2,3",
    b"1,a\n2,b",
    b'"a"b,c',
    b"x,y",
    b"1234567",
    b"123456789",
    b"[" * 10_000,
    b'{"event_type": 1}',
    b'{"timestamp": "yesterday"}',
    b'{"stream": "a", "stream": "b"}',
]


def format_of(name: str, **more: str) -> Format:
    found = TypeAdapter(FormatField).validate_python(CASES[name].options | more)
    assert isinstance(found, Format)
    return found


def codes_of(name: str) -> dict[str, str]:
    found: dict[str, str] = sys.modules[connector_class("format", name).__module__].CODES
    return found


def checked(name: str, decoded: Decoded, payloads: Sequence[bytes | None], schema: pa.Schema) -> Decoded:
    """What must hold for any payloads at all."""
    indexes = [one.index for one in decoded.refused]
    assert indexes == sorted(set(indexes))
    assert set(indexes) <= set(range(len(payloads)))
    assert decoded.skipped == [at for at, one in enumerate(payloads) if one is None and CASES[name].skips]
    assert decoded.rows.num_rows == len(payloads) - len(indexes) - len(decoded.skipped)
    assert decoded.rows.schema == stored(schema)
    decoded.rows.validate(full=True)
    for one in decoded.refused:
        assert one.code in codes_of(name)
        assert one.stage in ("decode", "schema")
        assert one.error and len(one.error) < 600
        one.error.encode()
    return decoded


def decode(name: str, payloads: Sequence[bytes | None], **more: str) -> Decoded:
    schema = declared_schema(CASES[name].columns)
    return checked(name, format_of(name, **more).decoder(schema).decode(payloads), payloads, schema)


formats = pytest.mark.parametrize("name", connector_types("format"))
compressed = pytest.mark.parametrize("kind", ["gzip", "zstd"])


def compress(kind: str, payload: bytes) -> bytes:
    return (
        gzip.compress(payload, mtime=0)
        if kind == "gzip"
        else pa.Codec("zstd").compress(payload, asbytes=True)
    )


@formats
def test_good_payloads_become_rows(name: str) -> None:
    decoded = decode(name, CASES[name].good)

    assert decoded.refused == []
    assert decoded.unknown is None


@formats
def test_an_event_without_payload_is_refused_or_skipped_among_others(name: str) -> None:
    good = CASES[name].good

    decoded = decode(name, [None, *good, None])

    expected = [
        (0, "decode", "null_payload", "the event has no payload"),
        (len(good) + 1, "decode", "null_payload", "the event has no payload"),
    ]
    found = [(one.index, one.stage, one.code, one.error) for one in decoded.refused]
    assert found == ([] if CASES[name].skips else expected)
    assert decoded.rows.equals(decode(name, good).rows)


@formats
def test_no_payloads_are_no_rows(name: str) -> None:
    assert decode(name, []).refused == []


@formats
def test_an_empty_schema_gets_every_column_as_unknown(name: str) -> None:
    known = declared_schema(CASES[name].columns)

    decoded = format_of(name).decoder(pa.schema([])).decode([*CASES[name].good, None])

    assert decoded.rows.num_rows == len(CASES[name].good)
    assert decoded.unknown is not None
    assert decoded.unknown.names == known.names
    again = format_of(name).decoder(decoded.unknown).decode(CASES[name].good)
    assert (again.refused, again.unknown) == ([], None)


@formats
def test_nothing_is_proposed_when_nothing_is_good(name: str) -> None:
    decoded = format_of(name).decoder(pa.schema([])).decode([None, None])

    assert decoded.unknown is None
    assert len(decoded.refused) + len(decoded.skipped) == 2


@formats
def test_columns_that_only_the_table_has_are_null(name: str) -> None:
    schema = declared_schema({"first": "struct<a: long>", **CASES[name].columns, "last": "uint8"})

    decoded = format_of(name).decoder(schema).decode(CASES[name].good)

    checked(name, decoded, CASES[name].good, schema)
    assert decoded.refused == []
    for column in ("first", "last"):
        assert decoded.rows.column(column).null_count == len(CASES[name].good)


@formats
def test_a_column_that_only_the_table_has_and_must_not_be_null_refuses_rows(name: str) -> None:
    schema = declared_schema({**CASES[name].columns, "other": "long not null"})

    decoded = format_of(name).decoder(schema).decode(CASES[name].good)

    assert {(one.stage, one.code) for one in decoded.refused} == {("schema", "missing_value")}
    assert len(decoded.refused) == len(CASES[name].good)
    assert decoded.refused[0].error.startswith("other: expected long not null, ")


@formats
def test_a_column_of_a_type_that_cannot_hold_the_values_refuses_rows(name: str) -> None:
    first = next(iter(CASES[name].columns))
    schema = declared_schema({**CASES[name].columns, first: "struct<a: long>"})

    decoded = format_of(name).decoder(schema).decode(CASES[name].good[:1])

    assert [(one.stage, one.code) for one in decoded.refused] == [("schema", "wrong_type")]
    assert decoded.refused[0].error.startswith(f"{first}: expected struct<a: long>, ")
    assert decoded.unknown is None


@formats
def test_a_column_that_differs_only_by_case_refuses_rows(name: str) -> None:
    first, *others = CASES[name].columns
    schema = declared_schema({first.upper(): "string", **{key: CASES[name].columns[key] for key in others}})

    decoded = format_of(name).decoder(schema).decode(CASES[name].good[:1])

    assert [(one.stage, one.code) for one in decoded.refused] == [("schema", "bad_name")]
    assert decoded.unknown is None


@formats
def test_columns_take_fields_that_are_spelled_in_another_case(name: str) -> None:
    columns = CASES[name].columns
    others = {key.upper(): text for key, text in columns.items()}
    expected = format_of(name).decoder(declared_schema(columns)).decode(CASES[name].good)

    for _ in range(2):
        decoded = (
            format_of(name).decoder(declared_schema(others), Rules(names="clean")).decode(CASES[name].good)
        )

        assert (decoded.refused, decoded.unknown) == ([], None)
        assert decoded.rows.columns == expected.rows.columns


@formats
@pytest.mark.parametrize("bad", MANGLED, ids=lambda bad: repr(bad[:20]))
def test_a_mangled_payload_is_a_row_or_a_refusal_and_touches_no_other(name: str, bad: bytes) -> None:
    good = CASES[name].good

    alone = decode(name, [bad])
    among = decode(name, [*good, bad, *good])

    assert [one.code for one in among.refused] == [one.code for one in alone.refused]
    assert among.rows.slice(0, len(good)).equals(decode(name, good).rows)
    assert among.rows.slice(among.rows.num_rows - len(good)).equals(decode(name, good).rows)


@formats
def test_every_prefix_of_a_payload_is_a_row_or_a_refusal(name: str) -> None:
    payload = CASES[name].good[0]

    decode(name, [payload[:length] for length in range(len(payload))])


@formats
def test_a_huge_payload_becomes_a_row(name: str) -> None:
    huge = CASES[name].huge
    good = CASES[name].good

    decoded = decode(name, [*good, huge or b"x" * HUGE])

    refused = [] if huge else [(len(good), "bad_length")]
    assert [(one.index, one.code) for one in decoded.refused] == refused


@formats
@FEW
@given(
    st.lists(st.none() | st.binary(max_size=20) | st.sampled_from(MANGLED) | st.integers(0, 2), max_size=8)
)
def test_a_batch_is_what_its_payloads_are_one_by_one(name: str, drawn: list[bytes | int | None]) -> None:
    payloads = [CASES[name].good[one] if isinstance(one, int) else one for one in drawn]

    together = decode(name, payloads)
    alone = [decode(name, [payload]) for payload in payloads]

    assert [one.index for one in together.refused] == [n for n, one in enumerate(alone) if one.refused]
    codes = [(one.code, one.error) for each in alone for one in each.refused]
    assert [(one.code, one.error) for one in together.refused] == codes
    if alone:
        rows = pa.concat_arrays([one.rows.to_struct_array() for one in alone])
        assert together.rows.to_struct_array().equals(rows)


@formats
@compressed
def test_compressed_payloads_become_the_same_rows(name: str, kind: str) -> None:
    payloads = [*CASES[name].good, b"", CASES[name].huge, None]
    packed = [payload if payload is None else compress(kind, payload) for payload in payloads]

    plain = decode(name, payloads)
    decoded = decode(name, packed, decompress=kind)

    assert decoded == plain


@formats
@compressed
@FEW
@given(st.lists(st.none() | st.binary(max_size=40), max_size=5))
def test_what_is_not_compressed_is_refused(name: str, kind: str, payloads: list[bytes | None]) -> None:
    decoded = decode(name, payloads, decompress=kind)

    expected = ["null_payload" if payload is None else "bad_compression" for payload in payloads]
    refused = [code for code in expected if code == "bad_compression" or not CASES[name].skips]
    assert [one.code for one in decoded.refused] == refused


@formats
def test_every_option_is_described(name: str) -> None:
    model = connector_class("format", name)

    undescribed = [
        key for key, field in model.model_fields.items() if key != "type" and not field.description
    ]

    assert undescribed == []
    assert inspect.getdoc(model)


@formats
def test_an_unknown_option_is_refused_by_its_line(name: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources:
  clicks:
    type: kafka
    brokers: here
    topics: [clicks]
    format: {json.dumps(CASES[name].options | {"decompres": "gzip"})}
tables:
  clicks: {{path: lake/clicks, from: clicks}}
"""
    )

    with pytest.raises(PipelineFileError) as error:
        load(file)

    assert str(error.value) == (
        f"{file}:7: sources.clicks.format.decompres: unknown key, did you mean 'decompress'?"
    )


RULES = pytest.mark.parametrize("rule", get_args(NewColumn))
NEW = pytest.mark.parametrize("name", [name for name in connector_types("format") if name != "debezium"])


def decode_by(name: str, columns: dict[str, str], rules: Rules) -> Decoded:
    schema, good = declared_schema(columns), CASES[name].good
    return checked(name, format_of(name).decoder(schema, rules).decode(good), good, schema)


@NEW
@RULES
def test_a_field_that_is_new_becomes_what_the_rule_says(name: str, rule: NewColumn) -> None:
    first, *others = CASES[name].columns
    known = {key: CASES[name].columns[key] for key in others}

    decoded = decode_by(name, known, Rules(new_column=rule))

    values = decode(name, CASES[name].good).rows.column(first)
    with_value = [index for index, value in enumerate(values.to_pylist()) if value is not None]
    assert (decoded.unknown is not None) == (rule in ("add", "fail"))
    assert decoded.unknown is None or decoded.unknown.names == [first]
    assert (decoded.rescued is not None) == (rule == "rescue")
    letters = [("new_column", index) for index in with_value] if rule == "dead_letter" else []
    assert [(one.code, one.index) for one in decoded.refused] == letters
    if decoded.rescued is not None:
        texts = decoded.rescued.to_pylist()
        assert [index for index, text in enumerate(texts) if text is not None] == with_value
        assert all(json.loads(text).keys() == {first} for text in texts if text is not None)


@NEW
@pytest.mark.parametrize("rule", get_args(TypeChange))
def test_a_value_that_does_not_fit_becomes_what_the_rule_says(name: str, rule: TypeChange) -> None:
    first = next(iter(CASES[name].columns))
    columns = {**CASES[name].columns, first: "struct<a: long>"}

    decoded = decode_by(name, columns, Rules(type_change=rule))

    values = decode(name, CASES[name].good).rows.column(first)
    with_value = [index for index, value in enumerate(values.to_pylist()) if value is not None]
    if rule == "rescue":
        assert decoded.refused == []
        assert decoded.rows.column(first).null_count == len(values)
        assert decoded.rescued is not None
        texts = decoded.rescued.to_pylist()
        assert [index for index, text in enumerate(texts) if text is not None] == with_value
        assert all(json.loads(text).keys() == {first} for text in texts if text is not None)
    else:
        assert [(one.code, one.index) for one in decoded.refused] == [("wrong_type", n) for n in with_value]
        assert decoded.rescued is None


@NEW
def test_a_value_that_does_not_fit_is_refused_where_null_is_not_allowed(name: str) -> None:
    first = next(iter(CASES[name].columns))
    columns = {**CASES[name].columns, first: "struct<a: long> not null"}

    decoded = decode_by(name, columns, Rules(type_change="rescue"))

    assert {one.code for one in decoded.refused} <= {"wrong_type", "missing_value"}
    assert len(decoded.refused) == len(CASES[name].good)


@NEW
def test_a_dropped_field_is_as_if_it_were_not_there(name: str) -> None:
    first, *others = CASES[name].columns
    rules = Rules(new_column="dead_letter", dropped=frozenset({first}))

    decoded = decode_by(name, {key: CASES[name].columns[key] for key in others}, rules)

    assert (decoded.refused, decoded.unknown, decoded.rescued) == ([], None, None)


@NEW
def test_a_new_field_of_a_name_that_the_table_makes_itself_is_refused(name: str) -> None:
    first, *others = CASES[name].columns

    decoded = decode_by(
        name, {key: CASES[name].columns[key] for key in others}, Rules(taken=frozenset({first}))
    )

    assert {one.code for one in decoded.refused} == {"bad_name"}
    assert decoded.unknown is None


@NEW
def test_a_field_that_is_renamed_may_have_a_name_that_no_column_may_have(name: str) -> None:
    first, *others = CASES[name].columns
    rules = Rules(taken=frozenset({first}), renamed=frozenset({first}))

    decoded = decode_by(name, {key: CASES[name].columns[key] for key in others}, rules)

    assert decoded.refused == []
    assert decoded.unknown is not None
    assert decoded.unknown.names == [first]


@NEW
@compressed
def test_what_is_rescued_from_compressed_payloads_is_the_same(name: str, kind: str) -> None:
    good, rules = CASES[name].good, Rules(new_column="rescue")
    packed = [compress(kind, payload) for payload in good]

    plain = format_of(name).decoder(pa.schema([]), rules).decode(good)
    decoded = format_of(name, decompress=kind).decoder(pa.schema([]), rules).decode(packed)

    assert plain.rescued is not None
    assert decoded == plain
