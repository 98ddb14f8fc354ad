"""The source text of `.proto` files, read without a compiler."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.descriptor_pool import DescriptorPool
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.formats.protobuf.proto.source import file_descriptor
from lakefeed.formats.protobuf.proto.tokens import ProtoSyntaxError

ODD = """
/* A comment
   of two lines */
syntax = 'proto2';
package odd.pkg;  // behind
option java_package = "a" "b";
option (of.its.own) = { key: "}" list: [1, 2] };
import public "google/protobuf/timestamp.proto";
import weak 'elsewhere.proto';
message message {
  optional int32 message = 1;
  required string option = 2 [default = "a;}\\"{", deprecated = true];
  optional One oneof = 3;
  repeated Kind map = 4;
  enum Kind { NONE = 0; HEX = 0x1F; BELOW = -2; OCTAL = 017 [deprecated = true]; reserved 3, 8 to max; }
  message One {
    extensions 100 to max;
    reserved 4, 6 to 9;
    reserved "a", 'b';
    optional .odd.pkg.message.Kind kind = 1 [(x.y) = { a: 1 b: "]" }];
  }
  optional group Result = 9 { required string url = 1; }
  oneof choice {
    string a_text = 10;
    odd.pkg.message.One one = 12;
    option (q) = 5;
  }
  map<string, One> my_map_field = 13;
  ;
  extend One { optional int32 more = 101; }
  enum Aliased { option allow_alias = true; A = 0; B = 0; }
}
service Shop { rpc Buy (message) returns (stream message) { option (http) = { get: "/v1" }; } }
extend message.One { repeated int32 other = 102; }
"""


def described(text: str, name: str) -> Any:
    pool = DescriptorPool()
    for imported in ("google/protobuf/timestamp.proto", "elsewhere.proto"):
        pool.Add(file_descriptor(imported, ""))
    pool.Add(file_descriptor("a.proto", text))
    return pool.FindMessageTypeByName(name)


def test_fields_have_their_numbers_labels_and_types() -> None:
    message = described(ODD, "odd.pkg.message")

    fields = {
        field.name: (
            field.number,
            "required" if field.is_required else "repeated" if field.is_repeated else "optional",
            field.message_type and field.message_type.full_name,
            field.enum_type and field.enum_type.full_name,
            field.containing_oneof and field.containing_oneof.name,
        )
        for field in message.fields
    }
    assert fields == {
        "message": (1, "optional", None, None, None),
        "option": (2, "required", None, None, None),
        "oneof": (3, "optional", "odd.pkg.message.One", None, None),
        "map": (4, "repeated", None, "odd.pkg.message.Kind", None),
        "result": (9, "optional", "odd.pkg.message.Result", None, None),
        "a_text": (10, "optional", None, None, "choice"),
        "one": (12, "optional", "odd.pkg.message.One", None, "choice"),
        "my_map_field": (13, "repeated", "odd.pkg.message.MyMapFieldEntry", None, None),
    }


def test_enums_and_maps_are_what_protoc_makes_of_them() -> None:
    message = described(ODD, "odd.pkg.message")

    kind, entry = message.enum_types_by_name["Kind"], message.nested_types_by_name["MyMapFieldEntry"]
    assert {value.name: value.number for value in kind.values} == {
        "NONE": 0,
        "HEX": 31,
        "BELOW": -2,
        "OCTAL": 15,
    }
    assert kind.is_closed
    assert entry.GetOptions().map_entry
    assert [(field.name, field.number) for field in entry.fields] == [("key", 1), ("value", 2)]


def test_optional_in_proto3_is_presence() -> None:
    fields = "int32 a = 1; optional int32 b = 2; oneof c { int32 d = 3; } A e = 4;"
    text = f'syntax = "proto3"; message A {{ {fields} }}'

    message = described(text, "A")

    assert {field.name: field.has_presence for field in message.fields} == {
        "a": False,
        "b": True,
        "d": True,
        "e": True,
    }
    assert [(oneof.name, len(oneof.fields)) for oneof in message.oneofs] == [("c", 1), ("_b", 1)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ('syntax = "proto3";\nmessage A {\n  int32 a 1;\n}', "line 3: expected '=', got '1'"),
        ("message A {\n  optional int32 a = b;\n}", "line 2: expected the number of a field, got 'b'"),
        ("message A {\n", "line 2: expected a field, got the end of the file"),
        ('syntax = "proto9";', "expected the syntax proto2 or proto3, got proto9"),
        ('edition = "2023";', "expected the syntax proto2 or proto3, got an edition; give a descriptor set"),
        ("# what", "line 1: unexpected '#'"),
        (
            "hello world",
            "line 1: expected message, enum, import, package, option, service or extend, got 'hello'",
        ),
        ("message A { optional int32 a = 1.5; }", "line 1: expected the number of a field, got '1.5'"),
        (
            "message A { optional int32 a = 99999999999; }",
            "line 1: expected the number of a field, got '9999",
        ),
        ("enum A { B = 08; }", "line 1: expected the number of a value, got '08'"),
        ("option a = {", "line 1: expected something more, got the end of the file"),
    ],
)
def test_what_is_no_proto_is_told_with_its_line(text: str, problem: str) -> None:
    with pytest.raises(ProtoSyntaxError) as error:
        file_descriptor("a.proto", text)

    assert str(error.value).startswith(problem)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.sampled_from([*ODD.split(), "{", "}", "[", ";", "=", "<"]), max_size=30).map(" ".join))
def test_any_text_is_a_file_or_an_error(text: str) -> None:
    try:
        file_descriptor("a.proto", text)
    except ProtoSyntaxError as error:
        assert str(error)
