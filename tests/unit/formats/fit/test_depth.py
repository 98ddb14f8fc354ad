"""New fields that are nested deeper than readers bear: refused before anything is committed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.columns.column_types import DEEPEST, column, declared_schema, depth, type_text
from lakefeed.errors import PipelineFileError
from lakefeed.formats import DEFAULT_RULES, Decoded, Rules
from lakefeed.formats.avro.format import AvroFormat
from lakefeed.formats.debezium.format import DebeziumFormat
from lakefeed.formats.json.format import JsonFormat
from lakefeed.formats.json.strict import StrictReader
from lakefeed.formats.protobuf.format import ProtobufFormat
from support.decoding import proposed

ID = declared_schema({"id": "long"})
BAD_LEVELS = [21, 42, 60, 98, 250, 600, 1000, 1030, 5000]


def objects(levels: int, innermost: str = "1") -> str:
    return '{"o":' * levels + innermost + "}" * levels


def arrays(levels: int) -> str:
    return "[" * levels + "1" + "]" * levels


def mixed(levels: int) -> str:
    return '[{"o":' * (levels // 2) + "1" + "}]" * (levels // 2)


def decoded(*payloads: str, schema: pa.Schema = ID, rules: Rules = DEFAULT_RULES) -> Decoded:
    return JsonFormat().decoder(schema, rules).decode([payload.encode() for payload in payloads])


@pytest.mark.parametrize("nested", [objects, arrays, mixed])
@pytest.mark.parametrize("levels", BAD_LEVELS)
def test_a_new_field_that_is_nested_too_deep_refuses_its_event_alone(nested: Any, levels: int) -> None:
    deep = f'{{"id": 2, "new": {nested(levels + levels % 2)}}}'

    for rest in ([], ['{"id": 1, "other": "x"}'] * 40):
        found = decoded('{"id": 1}', deep, *rest)

        assert [(one.index, one.code) for one in found.refused] == [(1, "too_deep")]
        assert found.rows.num_rows == 1 + len(rest)
        assert {field.name for field in found.unknown or ()} == ({"other"} if rest else set())


@pytest.mark.parametrize("nested", [objects, arrays, mixed])
def test_a_new_field_that_is_just_deep_enough_is_proposed(nested: Any) -> None:
    found = decoded(f'{{"id": 1, "new": {nested(DEEPEST)}}}')

    assert not found.refused
    assert found.unknown is not None
    assert depth(found.unknown.field("new").type) == DEEPEST


def test_the_message_names_the_field_and_the_limit() -> None:
    (refused,) = decoded(f'{{"new": {{"a": 1, "in": {objects(30)}}}}}').refused

    assert refused.error == "new: a new column may be nested at most 20 levels deep, this is deeper"
    assert (refused.stage, refused.code) == ("decode", "too_deep")


def test_levels_of_known_columns_count() -> None:
    known = declared_schema({"a": "struct<b: array<struct<c: long>>>", "m": "map<string, struct<c: long>>"})
    good = f'{{"a": {{"b": [{{"c": 1, "new": {arrays(DEEPEST - 3)}}}]}}}}'
    bad = f'{{"a": {{"b": [{{"c": 1}}, {{"c": 1, "new": {arrays(DEEPEST - 2)}}}]}}}}'
    in_map = f'{{"m": {{"k": {{"new": {objects(DEEPEST - 1)}}}}}}}'

    found = decoded(good, bad, in_map, schema=known)

    assert [one.error.partition(":")[0] for one in found.refused] == ["a.b[1].new", "m.k.new"]
    assert found.unknown is not None
    assert depth(found.unknown.field("a").type) == DEEPEST


@pytest.mark.parametrize("levels", [21, 42, 90])
def test_what_is_not_added_may_be_deep(levels: int) -> None:
    payload = f'{{"id": 1, "new": {objects(levels)}}}'

    ignored = decoded(payload, rules=Rules("ignore"))
    rescued = decoded(payload, rules=Rules("rescue"))
    dropped = decoded(payload, rules=Rules(dropped=frozenset(["new"])))

    assert [found.rows.num_rows for found in (ignored, rescued, dropped)] == [1, 1, 1]
    assert rescued.rescued is not None
    assert rescued.rescued.to_pylist() == [f'{{"new":{objects(levels)}}}']


@pytest.mark.parametrize("levels", [250, 1000, 1030, 5000])
@pytest.mark.parametrize("rule", ["add", "ignore", "rescue", "dead_letter", "fail"])
@pytest.mark.parametrize("schema", [ID, declared_schema({"m": "map<string, long>"})])
def test_no_rule_walks_deeper_than_the_stack_of_python(levels: int, rule: Any, schema: pa.Schema) -> None:
    payloads = ["{}", f'{{"new": {objects(levels)}}}', f'{{"new": {arrays(levels)}}}']

    found = decoded(*payloads, schema=schema, rules=Rules(rule))

    assert [(one.index, one.code) for one in found.refused] == [(1, "too_deep"), (2, "too_deep")]


@pytest.mark.parametrize("levels", BAD_LEVELS)
def test_nothing_deep_is_inferred(levels: int) -> None:
    assert proposed(b'{"id": 1}', f'{{"id": 1, "new": {objects(levels)}}}'.encode()).names == ["id"]


@settings(deadline=None)
@given(
    st.recursive(
        st.sampled_from([1, "x", None]),
        lambda inner: st.builds(
            lambda value, levels: json.loads("[" * levels + json.dumps(value) + "]" * levels),
            st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from("abo"), inner, max_size=2),
            st.integers(0, 19),
        ),
        max_leaves=4,
    ),
    st.sampled_from(["id", "new", "s"]),
)
def test_both_paths_agree_about_depth(value: Any, name: str) -> None:
    schema = declared_schema({"id": "long", "s": "struct<a: array<struct<b: long>>>"})
    payload = json.dumps({name: value}).encode()

    fast = JsonFormat().decoder(schema).decode([payload, b'{"id": 1}', b'{"z": 1}'])
    strict = StrictReader(schema).read([payload], [0])

    assert [one for one in fast.refused if one.index == 0] == strict.refused
    assert all(depth(field.type) <= DEEPEST for field in fast.unknown or ())


def test_an_avro_field_that_is_nested_too_deep_refuses_the_events_that_have_it(tmp_path: Path) -> None:
    def record(level: int) -> dict[str, Any]:
        inner: Any = ["null", record(level + 1)] if level < 45 else "long"
        return {"type": "record", "name": f"R{level}", "fields": [{"name": "f", "type": inner}]}

    schema = {"type": "record", "name": "Top", "fields": [{"name": "id", "type": "long"}]}
    schema["fields"].append({"name": "new", "type": ["null", record(0)]})  # type: ignore[attr-defined]
    file = tmp_path / "deep.avsc"
    file.write_text(json.dumps(schema))
    deep: Any = 7
    for _ in range(46):
        deep = {"f": deep}

    found = (
        AvroFormat(schema_file=str(file), encoding="plain")
        .decoder(ID)
        .decode([avro(schema, {"id": 1, "new": None}), avro(schema, {"id": 2, "new": deep})])
    )

    assert found.rows.to_pylist() == [{"id": 1}]
    (refused,) = found.refused
    assert (refused.index, refused.code) == (1, "too_deep")
    assert refused.error.startswith("new.f.f.f")


def avro(schema: Any, value: Any) -> bytes:
    import io

    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def test_an_avro_schema_beyond_the_stack_of_python_is_refused_when_the_file_is_loaded(tmp_path: Path) -> None:
    for levels in (150, 300, 900, 3000):
        text = '{"type":"array","items":' * levels + '"long"' + "}" * levels
        file = tmp_path / f"{levels}.avsc"
        file.write_text(
            '{"type":"record","name":"R","fields":[{"name":"a","type":' + text + "}]}",
        )

        with pytest.raises(PipelineFileError, match="nested"):
            AvroFormat(schema_file=str(file), encoding="plain")


def test_a_debezium_row_that_is_nested_too_deep_is_refused() -> None:
    event = f'{{"op": "c", "after": {{"id": 1, "doc": {objects(30)}}}}}'.encode()

    for unwrap in (False, True):
        found = (
            DebeziumFormat(unwrap=unwrap)
            .decoder(pa.schema([]))
            .decode([event, b'{"op": "c", "after": {"id": 1}}'])
        )

        assert [(one.index, one.code) for one in found.refused] == [(0, "too_deep")]


def test_a_declared_type_is_not_deeper_than_readers_bear() -> None:
    def array(levels: int) -> str:
        return "array<" * levels + "long" + ">" * levels

    assert type_text(column("a", array(DEEPEST)).type) == array(DEEPEST)
    for levels in (DEEPEST + 1, 100, 3000):
        with pytest.raises(ValueError, match="at most 20 levels deep"):
            column("a", array(levels))


def test_protobuf_messages_that_are_nested_too_deep_refuse_their_events(tmp_path: Path) -> None:
    def described(levels: int) -> ProtobufFormat:
        messages = "".join(f"message M{at} {{ int64 id = 1; M{at + 1} f = 2; }}\n" for at in range(levels))
        file = tmp_path / f"{levels}.proto"
        file.write_text(f'syntax = "proto3"; package p; {messages} message M{levels} {{ int64 id = 1; }}')
        return ProtobufFormat(descriptor=str(file), message="p.M0")

    def payload(levels: int) -> bytes:
        content = b"\x08\x01"
        for _ in range(levels):
            assert len(content) < 128
            content = b"\x08\x01\x12" + bytes([len(content)]) + content
        return content

    found = described(45).decoder(ID).decode([payload(0), payload(DEEPEST + 1), payload(DEEPEST)])

    assert [(one.index, one.code) for one in found.refused] == [(1, "too_deep")]
    assert found.rows.to_pylist() == [{"id": 1}, {"id": 1}]
    assert found.unknown is not None
    assert depth(found.unknown.field("f").type) == DEEPEST
    with pytest.raises(PipelineFileError, match="nested more than 100 levels deep"):
        described(1000)
