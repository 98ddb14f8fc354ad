"""What the `protobuf` format makes of a payload, value by value."""

from __future__ import annotations

import datetime as dt
import json
import pickle
from pathlib import Path
from random import Random
from typing import Any, get_args

import pyarrow as pa
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.columns.column_types import declared_schema, type_text
from lakefeed.errors import PipelineFileError
from lakefeed.formats import Decoded, Rules
from lakefeed.formats.protobuf.block import read_block
from lakefeed.formats.protobuf.format import ProtobufFormat
from lakefeed.formats.protobuf.proto.files import Files, read_files
from lakefeed.formats.protobuf.strict import StrictReader
from lakefeed.formats.refusal import Misfit
from lakefeed.pipeline.loading.load import load
from lakefeed.pipeline.options.evolve import NewColumn
from support.protobuf import filled, mangled, message_class

EVERY = Path(__file__).with_name("every_type.proto")
Every = message_class(EVERY, "types.v1.Every")
FORMAT = ProtobufFormat(descriptor=str(EVERY), message="types.v1.Every")


def inferred(*payloads: bytes) -> pa.Schema:
    unknown = FORMAT.decoder(pa.schema([])).decode(payloads).unknown
    assert unknown is not None
    return unknown


def row(payload: bytes) -> dict[str, Any]:
    decoded = FORMAT.decoder(inferred(payload)).decode([payload])
    assert (decoded.refused, decoded.unknown) == ([], None)
    [found] = decoded.rows.to_pylist()
    return dict(found)


def made(tmp_path: Path, text: str, name: str, payload: bytes) -> Decoded:
    """What a payload becomes with a `.proto` file of its own."""
    file = tmp_path / "own.proto"
    file.write_text(text)
    form = ProtobufFormat(descriptor=str(file), message=name)
    unknown = form.decoder(pa.schema([])).decode([b"", payload]).unknown or pa.schema([])
    return form.decoder(unknown).decode([payload])


def test_every_field_becomes_a_column_of_its_type() -> None:
    columns = {field.name: type_text(field.type) for field in inferred(b"")}

    item = "struct<count: int, label: string, sizes: array<long>>"
    assert columns == {
        "a_double": "double",
        "a_float": "float",
        "an_int64": "long",
        "a_uint64": "uint64",
        "an_int32": "int",
        "a_fixed64": "uint64",
        "a_fixed32": "uint32",
        "a_bool": "boolean",
        "a_string": "string",
        "some_bytes": "binary",
        "a_uint32": "uint32",
        "an_enum": "string",
        "an_sfixed32": "int",
        "an_sfixed64": "long",
        "an_sint32": "int",
        "an_sint64": "long",
        "optional_int32": "int",
        "optional_string": "string",
        "chosen_number": "int",
        "chosen_text": "string",
        "chosen_item": item,
        "numbers": "array<int>",
        "doubles": "array<double>",
        "texts": "array<string>",
        "items": f"array<{item}>",
        "kinds": "array<string>",
        "unpacked": "array<long>",
        "bools": "array<boolean>",
        "fixed": "array<uint32>",
        "blobs": "array<binary>",
        "counts": "map<string, int>",
        "items_by_number": f"map<string, {item}>",
        "texts_by_bool": "map<string, string>",
        "kinds_by_name": "map<string, string>",
        "times_by_name": "map<string, timestamp>",
        "item": item,
        "tree": f"struct<name: string, children: array<string>, item: {item}>",
        "at": "timestamp",
        "took": "long",
        "wrapped_number": "long",
        "wrapped_text": "string",
        "wrapped_bool": "boolean",
        "any": "struct<type_url: string, value: binary>",
        "empty": "boolean",
        "mask": "struct<paths: array<string>>",
        "times": "array<timestamp>",
        "wrapped_numbers": "array<long>",
        "object": "string",
        "value": "string",
        "list": "string",
    }


def test_a_field_without_presence_has_its_default_and_others_are_null() -> None:
    found = row(b"")

    assert (found["an_int64"], found["a_string"], found["a_bool"], found["an_enum"]) == (0, "", False, "NONE")
    assert (found["numbers"], found["counts"], found["some_bytes"]) == ([], [], b"")
    for name in ("optional_int32", "chosen_text", "item", "at", "wrapped_number", "empty", "object"):
        assert found[name] is None


def test_numbers_keep_every_bit() -> None:
    message = Every(
        a_double=1e300,
        a_float=1.5,
        an_int64=-(2**63),
        a_uint64=2**63 - 1,
        an_int32=-(2**31),
        a_fixed32=2**32 - 1,
        an_sint32=-(2**31),
        an_sint64=2**63 - 1,
        an_sfixed64=-5,
        numbers=[1, -1, 2**31 - 1],
        unpacked=[-(2**63), 0],
        bools=[True, False],
        fixed=[0, 2**32 - 1],
    )

    found = row(message.SerializeToString())

    for field, value in message.ListFields():
        assert found[field.name] == (list(value) if field.is_repeated else value)


def test_an_enum_is_its_name_or_else_its_number() -> None:
    message = Every(an_enum=5, kinds=[0, -3, 77], kinds_by_name={"b": 1, "a": -9})

    found = row(message.SerializeToString())

    assert (found["an_enum"], found["kinds"]) == ("CART", ["NONE", "BACK", "77"])
    assert found["kinds_by_name"] == [("a", "-9"), ("b", "VIEW")]


def test_the_last_member_of_a_oneof_counts_and_messages_that_come_twice_are_merged() -> None:
    first, second = Every(chosen_number=5), Every(chosen_text="x")
    first.item.count, second.item.label = 7, "both"

    found = row(first.SerializeToString() + second.SerializeToString())

    assert (found["chosen_number"], found["chosen_text"]) == (None, "x")
    assert found["item"] == {"count": 7, "label": "both", "sizes": []}


def test_map_keys_are_text_in_order_and_the_last_of_two_counts() -> None:
    first, second = Every(texts_by_bool={True: "t", False: "f"}), Every(texts_by_bool={True: "later"})
    first.items_by_number[-2].label = "below"
    first.items_by_number[10].count = 1

    found = row(first.SerializeToString() + second.SerializeToString())

    assert found["texts_by_bool"] == [("false", "f"), ("true", "later")]
    assert [key for key, _ in found["items_by_number"]] == ["-2", "10"]
    assert found["items_by_number"][0][1]["label"] == "below"


def test_well_known_types_become_what_they_stand_for() -> None:
    message = Every()
    message.at.FromJsonString("2026-11-15T10:00:00.123456789Z")
    message.took.FromJsonString("-1.5s")
    message.wrapped_number.SetInParent()
    message.wrapped_text.value = "set"
    message.empty.SetInParent()
    message.mask.paths.append("a.b")
    message.any.Pack(message.at)
    message.object.update({"b": [1, None], "a": {"deep": True}})
    message.value.string_value = "ä"
    message.list.extend([1.5])

    found = row(message.SerializeToString())

    assert found["at"] == dt.datetime(2026, 11, 15, 10, 0, 0, 123456, tzinfo=dt.UTC)
    assert (found["took"], found["wrapped_number"], found["wrapped_text"]) == (-1_500_000, 0, "set")
    assert (found["wrapped_bool"], found["empty"]) == (None, True)
    assert found["mask"] == {"paths": ["a.b"]}
    assert found["any"]["type_url"] == "type.googleapis.com/google.protobuf.Timestamp"
    assert found["object"] == '{"a":{"deep":true},"b":[1.0,null]}'
    assert (found["value"], found["list"]) == ('"ä"', "[1.5]")


def test_a_message_inside_itself_is_json() -> None:
    message = Every()
    message.tree.name = "root"
    message.tree.children.add(name="leaf").item.sizes.append(2**40)

    tree = row(message.SerializeToString())["tree"]

    assert tree["name"] == "root"
    assert tree["children"] == ['{"item":{"sizes":["1099511627776"]},"name":"leaf"}']


def test_unsigned_numbers_beyond_long_are_out_of_range() -> None:
    payload = Every(a_uint64=2**64 - 1).SerializeToString()

    [refused] = FORMAT.decoder(inferred(b"")).decode([b"", payload]).refused

    assert (refused.index, refused.stage, refused.code) == (1, "schema", "out_of_range")
    assert refused.error.startswith("a_uint64: expected uint64")
    assert "18446744073709551615" in refused.error
    rows = (
        FORMAT.decoder(declared_schema({"a_uint64": "decimal(20,0)"}), Rules("ignore")).decode([payload]).rows
    )
    assert rows.to_pylist() == [{"a_uint64": 2**64 - 1}]


BROKEN = {
    "cut off in a text": (b"\x4a\x05ab", "", "byte 3: field 9 needs 5 bytes, 2 are left"),
    "cut off in a number": (b"\x18\xff", "", "byte 2: the payload ends within a number"),
    "cut off behind a tag": (b"\x09\x00", "", "byte 2: field 1 needs 8 bytes, 1 are left"),
    "number without end": (b"\x18" + b"\xff" * 11, "", "byte 2: a number has more than 10 bytes"),
    "field number 0": (b"\x00\x01", "", "byte 1: 0 is no tag of a field"),
    "group that ends nowhere": (b"\x9b\x06\x08\x01", "", "byte 5: the group of field 99 is not closed"),
    "text for a number": (b"\x1a\x01a", "an_int64", "byte 3: expected a varint, got a length and bytes"),
    "number for a message": (b"\x90\x03\x01", "item", "byte 3: expected a length and bytes, got a varint"),
    "odd packed bytes": (b"\xaa\x02\x03abc", "fixed", "byte 4: 3 packed bytes are no multiple of 4"),
    "broken inside": (b"\x92\x03\x02\x12\x09", "item", "byte 6: field 2 needs 9 bytes, 0 are left"),
    "a month too far": (
        Every(at={"seconds": 2**40}).SerializeToString(),
        "at",
        "expected a timestamp of the years 1 to 9999, got 1099511627776 seconds and 0 nanoseconds",
    ),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_is_refused_with_its_place(name: str) -> None:
    payload, path, message = BROKEN[name]
    good = Every(an_int64=1).SerializeToString()

    decoded = FORMAT.decoder(declared_schema({"an_int64": "long"}), Rules("ignore")).decode(
        [good, payload, good]
    )

    [refused] = decoded.refused
    assert (refused.index, refused.stage, refused.code) == (1, "decode", "bad_protobuf")
    assert refused.error == (f"{path}: {message}" if path else message)
    assert decoded.rows.column(0).to_pylist() == [1, 1]


def test_text_that_is_not_utf8_is_refused_with_its_byte() -> None:
    [refused] = FORMAT.decoder(pa.schema([])).decode([b"\x82\x02\x02a\xff"]).refused

    assert (refused.code, refused.error) == ("not_utf8", "texts: byte 5: 0xff is not UTF-8")


ODD = """
syntax = "proto3";
import "google/protobuf/struct.proto";
message Nothing {}
message Odd {
  map<string, google.protobuf.Value> values = 1;
  map<string, Odd> odd = 2;
  map<string, Nothing> nothing = 3;
  int64 id = 4;
  int64 ID = 5;
}
"""


def varint(number: int) -> bytes:
    """A number as its 64 bits, as every library writes it."""
    number &= 2**64 - 1
    content = b""
    while number > 127:
        content, number = content + bytes([number & 127 | 128]), number >> 7
    return content + bytes([number])


WIDTHS = """\
syntax = "proto3";
package w;
enum Kind { NONE = 0; ONE = 1; MINUS = -1; }
message W {
  int32 i = 1; uint32 u = 2; sint32 s = 3; Kind k = 4;
  repeated int32 is = 5; repeated uint32 us = 6 [packed = false];
  map<int32, uint32> m = 7; Inner inner = 8;
}
message Inner { int32 n = 1; }
"""


@pytest.mark.parametrize(
    ("content", "where", "found"),
    [
        (b"\x08" + varint(2**31), "i", 2**31),
        (b"\x08" + varint(-(2**31) - 1), "i", -(2**31) - 1),
        (b"\x08" + varint(2**32 + 5), "i", 2**32 + 5),
        (b"\x08" + varint(2**40) + b"\x08\x01", "i", 2**40),
        (b"\x10" + varint(2**32), "u", 2**32),
        (b"\x18" + varint(2**32), "s", 2**31),
        (b"\x18" + varint(2**32 + 1), "s", -(2**31) - 1),
        (b"\x20" + varint(2**32 + 1), "k", 2**32 + 1),
        (b"\x2a\x06\x01" + varint(2**31), "is", 2**31),
        (b"\x28" + varint(2**63 - 1), "is", 2**63 - 1),
        (b"\x30" + varint(2**32), "us", 2**32),
        (b"\x3a\x06\x08" + varint(2**31), "m.key", 2**31),
        (b"\x3a\x08\x08\x01\x10" + varint(2**32), "m.value", 2**32),
        (b"\x42\x06\x08" + varint(2**31), "inner.n", 2**31),
    ],
)
def test_a_number_of_more_bits_than_its_field_is_refused_and_never_cut(
    tmp_path: Path, content: bytes, where: str, found: int
) -> None:
    file = tmp_path / "w.proto"
    file.write_text(WIDTHS)
    decoder = ProtobufFormat(descriptor=str(file), message="w.W").decoder(declared_schema({"i": "int"}))

    decoded = decoder.decode([b"\x08\x07", content, b""])

    assert decoded.rows.to_pylist() == [{"i": 7}, {"i": 0}]
    [refused] = decoded.refused
    assert (refused.index, refused.code) == (1, "out_of_range")
    assert refused.error.startswith(f"{where}: ")
    assert refused.error.endswith(f" bits, got {found}")


def test_the_largest_numbers_of_32_bits_are_kept(tmp_path: Path) -> None:
    content = b"".join(
        b"\x08"
        + varint(low)
        + b"\x10"
        + varint(2**32 - 1)
        + b"\x18"
        + varint(2**32 - 1)
        + b"\x20"
        + varint(-1)
        for low in (2**31 - 1, -(2**31))
    )

    [found] = made(tmp_path, WIDTHS, "w.W", content).rows.to_pylist()

    assert (found["i"], found["u"], found["s"], found["k"]) == (-(2**31), 2**32 - 1, -(2**31), "MINUS")


def test_a_number_of_more_than_64_bits_is_refused(tmp_path: Path) -> None:
    long = b"\xff" * 9 + b"\x02"
    for content in (b"\x08" + long, b"\x2a\x0a" + long, b"\x10" + long):
        decoded = made(tmp_path, WIDTHS, "w.W", content)

        assert [
            (one.code, one.error.endswith("a number has more than 64 bits")) for one in decoded.refused
        ] == [("bad_protobuf", True)]


TREE = """\
syntax = "proto3";
package t;
enum Kind { NONE = 0; ONE = 1; }
message T {
  int32 i = 1; uint32 u = 2; sint32 s = 3; Kind k = 4; repeated int32 is = 5; map<int32, int32> m = 6;
  T child = 7; string name = 8;
}
"""


def child(*contents: bytes) -> bytes:
    """A tree whose branches hold one another, with this content in the innermost."""
    inner = b"".join(contents)
    for _ in range(2):
        inner = b"\x3a" + varint(len(inner)) + inner
    return inner


@pytest.mark.parametrize(
    ("content", "code", "error"),
    [
        (
            b"\x08" + varint(2**32 + 5),
            "out_of_range",
            f"i: byte 6: expected a number of 32 bits, got {2**32 + 5}",
        ),
        (b"\x10" + varint(2**32), "out_of_range", f"u: byte 6: expected a number of 32 bits, got {2**32}"),
        (b"\x18" + varint(2**32), "out_of_range", f"s: byte 6: expected a number of 32 bits, got {2**31}"),
        (
            b"\x20" + varint(2**32 + 1),
            "out_of_range",
            f"k: byte 6: expected a number of 32 bits, got {2**32 + 1}",
        ),
        (
            b"\x2a\x06\x01" + varint(2**31),
            "out_of_range",
            f"is: byte 8: expected a number of 32 bits, got {2**31}",
        ),
        (
            b"\x32\x08\x08\x01\x10" + varint(2**31),
            "out_of_range",
            f"m.value: byte 10: expected a number of 32 bits, got {2**31}",
        ),
        (b"\x0a\x01a", "bad_protobuf", "i: byte 7: expected a varint, got a length and bytes"),
        (b"\x42\x01\xff", "not_utf8", "name: byte 7: 0xff is not UTF-8"),
    ],
)
def test_a_recursive_message_is_refused_for_what_any_other_is(
    tmp_path: Path, content: bytes, code: str, error: str
) -> None:
    decoded = made(tmp_path, TREE, "t.T", child(content))

    assert [(one.code, one.error) for one in decoded.refused] == [(code, f"child.child.{error}")]


def test_a_recursive_message_keeps_the_largest_numbers_of_32_bits_and_any_order_of_its_fields(
    tmp_path: Path,
) -> None:
    content = child(b"\x10" + varint(2**32 - 1), b"\x08" + varint(-(2**31)), b"\x18" + varint(2**32 - 1))

    [found] = made(tmp_path, TREE, "t.T", content).rows.to_pylist()

    assert json.loads(found["child"]) == {"child": {"i": -(2**31), "s": -(2**31), "u": 2**32 - 1}}


@pytest.mark.parametrize("kind", get_args(NewColumn))
def test_a_field_that_a_recursive_message_does_not_have_is_met_as_any_other(
    tmp_path: Path, kind: NewColumn
) -> None:
    file = tmp_path / "t.proto"
    file.write_text(TREE)
    schema = declared_schema({"i": "int"})
    rules = Rules(new_column=kind)

    decoded = (
        ProtobufFormat(descriptor=str(file), message="t.T")
        .decoder(schema, rules)
        .decode([child(b"\x48\x01")])
    )

    assert [one.error.partition(":")[0] for one in decoded.refused] == (
        ["`child.child.9`"] if kind == "dead_letter" else []
    )


def test_a_recursive_message_without_end_is_refused(tmp_path: Path) -> None:
    content = b""
    for _ in range(5_000):
        content = b"\x3a" + varint(len(content)) + content

    [refused] = made(tmp_path, TREE, "t.T", content).refused

    assert refused.code == "bad_protobuf"
    assert "nested more than 100 levels deep" in refused.error


def test_of_two_names_of_an_enum_value_the_first_counts(tmp_path: Path) -> None:
    text = """\
syntax = "proto3";
package e;
enum Kind { option allow_alias = true; NONE = 0; NOTHING = 0; STARTED = 1; RUNNING = 1; BEGUN = 1; }
message E { Kind kind = 1; repeated Kind kinds = 2; }
"""
    for content in (b"\x08\x01\x12\x02\x00\x01", b"\x08\x01\x10\x00\x10\x01\x08\x01"):
        [found] = made(tmp_path, text, "e.E", content).rows.to_pylist()

        assert found == {"kind": "STARTED", "kinds": ["NONE", "STARTED"]}


def test_a_repeated_group_that_is_not_there_is_empty(tmp_path: Path) -> None:
    text = """\
syntax = "proto2";
package g;
message G {
  optional int32 id = 1;
  repeated group Item = 2 { optional int32 n = 3; }
  optional group One = 4 { optional int32 n = 5; }
}
"""
    file = tmp_path / "own.proto"
    file.write_text(text)
    form = ProtobufFormat(descriptor=str(file), message="g.G")
    payloads = [b"\x08\x01", b"\x13\x18\x05\x14\x13\x14", b"\x23\x28\x07\x24"]
    columns = form.decoder(pa.schema([])).decode(payloads).unknown
    assert columns is not None

    found = form.decoder(columns).decode(payloads).rows.to_pylist()

    assert found == [
        {"id": 1, "item": [], "one": None},
        {"id": None, "item": [{"n": 5}, {"n": None}], "one": None},
        {"id": None, "item": [], "one": {"n": 7}},
    ]


def test_maps_of_what_cannot_be_columns_are_maps_of_json(tmp_path: Path) -> None:
    values, nothing = b"\x0a\x08\x0a\x01a\x12\x03\x1a\x01x", b"\x1a\x05\x0a\x01c\x12\x00"
    payload = values + b"\x12\x0b\x0a\x01b\x12\x06\x1a\x04\x0a\x00\x12\x00" + nothing
    columns = {
        "values": "map<string, string>",
        "odd": "map<string, string>",
        "nothing": "map<string, boolean>",
    }
    (tmp_path / "odd.proto").write_text(ODD)
    form = ProtobufFormat(descriptor=str(tmp_path / "odd.proto"), message="Odd")
    decoded = form.decoder(declared_schema(columns), Rules("ignore")).decode([payload])

    assert decoded.rows.to_pylist() == [
        {"values": [("a", '"x"')], "odd": [("b", '{"nothing":{"":{}}}')], "nothing": [("c", True)]}
    ]


def test_a_message_without_fields_is_a_row_without_columns(tmp_path: Path) -> None:
    (tmp_path / "odd.proto").write_text(ODD)
    form = ProtobufFormat(descriptor=str(tmp_path / "odd.proto"), message="Nothing")

    decoded = form.decoder(declared_schema({"other": "long"})).decode([b"", b"\x08\x01"])

    assert decoded.rows.to_pylist() == [{"other": None}, {"other": None}]


PROTO2 = """
syntax = "proto2";
message Old {
  enum Kind { ONE = 1; TWO = 2; }
  required int32 id = 1;
  optional Kind kind = 2;
  optional int32 size = 3 [default = 7];
  optional group Part = 4 { optional string name = 1; }
}
"""


def test_proto2_has_groups_and_null_for_what_is_missing(tmp_path: Path) -> None:
    decoded = made(tmp_path, PROTO2, "Old", b"\x08\x05\x10\x02\x23\x0a\x01a\x24")

    assert decoded.rows.to_pylist() == [{"id": 5, "kind": "TWO", "size": None, "part": {"name": "a"}}]


def test_proto2_refuses_what_it_requires_or_does_not_list(tmp_path: Path) -> None:
    [missing] = made(tmp_path, PROTO2, "Old", b"\x10\x01").refused
    [unlisted] = made(tmp_path, PROTO2, "Old", b"\x08\x05\x10\x03").refused

    assert (missing.code, missing.error) == ("bad_protobuf", "id: required by Old, but missing")
    assert unlisted.error == "kind: byte 4: 3 is not a value of the enum"


@pytest.mark.parametrize("rule", get_args(NewColumn))
def test_a_number_that_the_message_does_not_have_follows_the_rule(rule: NewColumn, tmp_path: Path) -> None:
    known = {"count": "int", "label": "string", "sizes": "array<long>"}
    form = ProtobufFormat(descriptor=str(EVERY), message="types.v1.Item")
    payloads = [b"\x08\x01", b"\x08\x02\x4a\x02hi\x50\x05"]

    decoded = form.decoder(declared_schema(known), Rules(new_column=rule)).decode(payloads)

    refused = [(one.index, one.code, one.error) for one in decoded.refused]
    if rule == "dead_letter":
        message = "9: no field of types.v1.Item has this number, and `evolve` allows none"
        assert refused == [(1, "new_column", message)]
    else:
        assert refused == []
        assert decoded.rows.column("count").to_pylist() == [1, 2]
    texts = None if decoded.rescued is None else decoded.rescued.to_pylist()
    assert texts == ([None, '{"9":"aGk=","10":"BQ=="}'] if rule == "rescue" else None)
    names = None if decoded.unknown is None else decoded.unknown.names
    assert names == (["10", "9"] if rule == "fail" else None)


def test_a_payload_with_a_field_a_thousand_times_is_a_row_alone_and_among_others() -> None:
    long = Every(texts=[str(number) for number in range(1000)], unpacked=range(1000)).SerializeToString()
    short = Every(texts=["a"]).SerializeToString()
    decoder = FORMAT.decoder(
        declared_schema({"texts": "array<string>", "unpacked": "array<long>"}), Rules("ignore")
    )

    alone = decoder.decode([long])
    among = decoder.decode([short, *[long] * 20, short])

    assert alone.rows.column("unpacked").to_pylist() == [list(range(1000))]
    assert among.rows.slice(20, 1).equals(alone.rows)
    assert among.rows.num_rows == 22


def test_many_payloads_keep_their_order_whatever_is_among_them() -> None:
    count = 40_000
    payloads = [Every(an_int64=number).SerializeToString() for number in range(count)]
    payloads[20_000] = b"\x18"
    payloads[30_000] += Every(item={"count": 1}).SerializeToString() * 2

    decoded = FORMAT.decoder(declared_schema({"an_int64": "long"}), Rules("ignore")).decode(payloads)

    assert [one.index for one in decoded.refused] == [20_000]
    assert decoded.rows.column(0).to_pylist() == [number for number in range(count) if number != 20_000]


def test_a_message_that_comes_twice_in_one_payload_moves_no_other_to_another_row() -> None:
    one, two = (Every(item={"count": count}).SerializeToString() for count in (1, 2))

    decoded = FORMAT.decoder(declared_schema({"item": "struct<count: int>"}), Rules("ignore")).decode(
        [one, b"", two + two, one]
    )

    assert decoded.rows.column("item").to_pylist() == [{"count": 1}, None, {"count": 2}, {"count": 1}]


MESSAGE = Files(read_files(EVERY)).message("types.v1.Every")
STRICT = StrictReader(MESSAGE)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32), st.booleans())
def test_the_fast_path_and_the_strict_path_agree(seed: int, broken: bool) -> None:
    random = Random(seed)
    payloads = [filled(random, Every()).SerializeToString() for _ in range(8)]
    if broken:
        payloads = [mangled(random, payload, payloads) for payload in payloads]

    block = read_block(MESSAGE, payloads, strict_numbers=False)

    block.values.validate(full=True)
    for place, payload in enumerate(payloads):
        try:
            expected, _ = STRICT.read(payload)
        except Misfit:
            assert block.doubt[place]
            continue
        if not block.doubt[place]:
            # As text, since a double that is no number is not equal to itself.
            found, wanted = block.values.slice(place, 1), pa.array([expected], MESSAGE.type)
            assert repr(found.to_pylist()) == repr(wanted.to_pylist())
        assert broken or not block.doubt[place]


def validation(tmp_path: Path, options: dict[str, str]) -> str:
    file = tmp_path / "shop.yaml"
    source = {"type": "kafka", "brokers": "here", "topics": ["a"], "format": {"type": "protobuf", **options}}
    tables = "tables: {clicks: {path: lake, from: clicks}}"
    file.write_text(f"name: shop\nsources:\n  clicks: {json.dumps(source)}\n{tables}\n")
    with pytest.raises(PipelineFileError) as error:
        load(file)
    return str(error.value).removeprefix(f"{file}:3: sources.clicks.format: ").replace(str(tmp_path), "<dir>")


def test_a_descriptor_that_does_not_serve_is_told_before_anything_starts(tmp_path: Path) -> None:
    (tmp_path / "own.proto").write_text('syntax = "proto3";\nmessage Click {\n  int32 id 1;\n}\n')
    (tmp_path / "alone.proto").write_text(
        'syntax = "proto3"; import "other.proto"; message A { Other o = 1; }'
    )
    (tmp_path / "click.desc").write_bytes(b"no descriptor")
    name = {"message": "Click"}

    assert validation(tmp_path, {"descriptor": "nowhere.desc", **name}) == (
        "<dir>/nowhere.desc cannot be read: No such file or directory"
    )
    assert (
        validation(tmp_path, {"descriptor": "own.proto", **name})
        == "own.proto: line 3: expected '=', got '1'"
    )
    assert validation(tmp_path, {"descriptor": "click.desc", **name}).startswith(
        "<dir>/click.desc is no descriptor set; make one with protoc --include_imports"
    )
    assert validation(tmp_path, {"descriptor": str(EVERY), "message": "types.v1.Evry"}) == (
        "no message types.v1.Evry, did you mean 'types.v1.Every'?"
    )
    assert validation(tmp_path, {"descriptor": "alone.proto", "message": "A"}) == (
        "alone.proto: couldn't resolve name 'Other'; imports that are not there: other.proto"
    )


def test_a_descriptor_set_is_read_once_and_workers_need_no_file(tmp_path: Path) -> None:
    file = FileDescriptorProto(
        name="a.proto", syntax="proto3", dependency=["google/protobuf/timestamp.proto"]
    )
    message = file.message_type.add(name="Seen")
    message.field.add(name="at", number=1, label=1, type=11, type_name=".google.protobuf.Timestamp")
    (tmp_path / "seen.desc").write_bytes(FileDescriptorSet(file=[file]).SerializeToString())
    form = ProtobufFormat(descriptor=str(tmp_path / "seen.desc"), message="Seen")
    (tmp_path / "seen.desc").unlink()

    there = pickle.loads(pickle.dumps(form))

    decoded = there.decoder(declared_schema({"at": "timestamp"})).decode([b"\x0a\x02\x08\x01"])
    assert decoded.rows.to_pylist() == [{"at": dt.datetime(1970, 1, 1, 0, 0, 1, tzinfo=dt.UTC)}]


def test_a_proto_file_imports_from_beside_it_and_from_the_root_of_the_sources(tmp_path: Path) -> None:
    folder = tmp_path / "shop" / "v1"
    folder.mkdir(parents=True)
    (folder / "money.proto").write_text(
        'syntax = "proto3"; package shop.v1; message Money { int64 cents = 1; }'
    )
    (folder / "order.proto").write_text(
        'syntax = "proto3"; package shop.v1; import "shop/v1/money.proto"; import "other/rules.proto";\n'
        "message Order { Money total = 1 [(other.rules).required = true]; }"
    )

    form = ProtobufFormat(descriptor=str(folder / "order.proto"), message="shop.v1.Order")

    decoded = form.decoder(declared_schema({"total": "struct<cents: long>"})).decode([b"\x0a\x02\x08\x07"])
    assert decoded.rows.to_pylist() == [{"total": {"cents": 7}}]
