"""The fast and the strict way of reading Avro agree, on what an ordinary writer makes and on any bytes."""

from __future__ import annotations

import io
import json
from typing import Any

import fastavro
import numpy as np
import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.formats.avro.reader import Plain, Written, _made
from lakefeed.formats.avro.schema import Node, parsed
from lakefeed.formats.avro.strict import read_each
from lakefeed.formats.fit.json_text import json_texts

SOME = settings(max_examples=40, deadline=None)

LEAVES = st.sampled_from(
    [
        "null",
        "boolean",
        "int",
        "long",
        "float",
        "double",
        "string",
        "bytes",
        {"type": "int", "logicalType": "date"},
        {"type": "long", "logicalType": "timestamp-millis"},
        {"type": "long", "logicalType": "local-timestamp-nanos"},
        {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
        {"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 0},
        {"type": "bytes", "logicalType": "decimal", "precision": 50, "scale": 3},
    ]
)


@st.composite
def types(draw: st.DrawFn, names: list[str], depth: int = 2) -> Any:
    kind = draw(st.sampled_from(["leaf", "leaf", "named", "array", "map", "record", "union", "wide union"]))
    if depth == 0 or kind == "leaf":
        return draw(LEAVES)
    if kind == "array":
        return {"type": "array", "items": draw(types(names, depth - 1))}
    if kind == "map":
        return {"type": "map", "values": draw(types(names, depth - 1))}
    if kind == "record":
        return draw(records(names, depth - 1))
    if kind == "union":
        one = draw(
            types(names, depth - 1).filter(lambda found: not isinstance(found, list) and found != "null")
        )
        return draw(st.permutations(["null", one]))
    if kind == "wide union":
        return draw(
            st.lists(st.sampled_from(["null", "int", "long", "string", "bytes"]), min_size=1, unique=True)
        )
    names.append(f"N{len(names)}")
    named = {
        "enum": {"symbols": ["A", "B", "C"]},
        "fixed": {"size": 3},
        "uuid": {"type": "fixed", "size": 16, "logicalType": "uuid"},
        "duration": {"type": "fixed", "size": 12, "logicalType": "duration"},
        "decimal": {"type": "fixed", "size": 5, "logicalType": "decimal", "precision": 9, "scale": 4},
    }
    which = draw(st.sampled_from(sorted(named)))
    return {"type": which, "name": names[-1], **named[which]}


@st.composite
def records(draw: st.DrawFn, names: list[str], depth: int = 2) -> Any:
    names.append(f"R{len(names)}")
    name = names[-1]
    fields = [{"name": f"f{at}", "type": draw(types(names, depth))} for at in range(draw(st.integers(0, 4)))]
    return {"type": "record", "name": name, "fields": fields}


def plain(schema: Any) -> Any:
    """The same schema without logical types: bytes are then what a writer is given."""
    if isinstance(schema, dict):
        return {key: plain(part) for key, part in schema.items() if key != "logicalType"}
    return [plain(part) for part in schema] if isinstance(schema, list) else schema


def values(schema: Any) -> st.SearchStrategy[Any]:
    if isinstance(schema, list):
        branches = [st.tuples(st.just(_branch_name(one)), values(one)) for one in schema if one != "null"]
        return st.one_of(([st.none()] if "null" in schema else []) + branches)
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return st.fixed_dictionaries({field["name"]: values(field["type"]) for field in schema["fields"]})
    if kind == "array":
        return st.lists(values(schema["items"]), max_size=4)
    if kind == "map":
        return st.dictionaries(st.text(max_size=3), values(schema["values"]), max_size=3)
    if kind == "enum":
        return st.sampled_from(schema["symbols"])
    if kind == "fixed":
        return st.binary(min_size=schema["size"], max_size=schema["size"])
    return {
        "null": st.none(),
        "boolean": st.booleans(),
        "int": st.integers(-(2**31), 2**31 - 1),
        "long": st.integers(-(2**63), 2**63 - 1),
        "float": st.floats(width=32),
        "double": st.floats(),
        "string": st.text(max_size=5),
        "bytes": st.binary(max_size=18),
    }[kind]


def _branch_name(schema: Any) -> str:
    return schema if isinstance(schema, str) else str(schema.get("name", schema["type"]))


def written(schema: Any, value: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(plain(schema)), value)
    return out.getvalue()


def agree(schema: Node, payloads: list[bytes], start: int = 0) -> None:
    """Reading all at once, with doubts decided one by one, is what reading each strictly is."""
    made = _made(Written(schema, range(len(payloads)), payloads, start))
    rows, misfits = read_each(schema, payloads, start, range(len(payloads)))

    made.values.validate(full=True)
    assert {at: one.message for at, one in made.misfits.items()} == {
        at: one.message for at, one in misfits.items()
    }
    good = pa.array(np.array([at not in misfits for at in range(len(payloads))], np.bool_))
    expected = pa.array(rows, schema.made)
    # By text: a NaN is not equal to itself.
    assert json_texts(made.values.filter(good)) == json_texts(expected.filter(good))


@SOME
@given(st.data())
def test_what_a_writer_wrote_is_read_alike_at_once_and_one_by_one(data: st.DataObject) -> None:
    schema = data.draw(records([]))
    payloads = [written(schema, value) for value in data.draw(st.lists(values(schema), max_size=5))]

    agree(parsed(json.dumps(schema)), payloads)
    agree(parsed(json.dumps(schema)), [b"12345" + payload for payload in payloads], 5)


@SOME
@given(st.data())
def test_any_bytes_are_read_alike_at_once_and_one_by_one(data: st.DataObject) -> None:
    schema = data.draw(records([]))
    whole = st.builds(lambda value: written(schema, value), values(schema))
    cut = st.tuples(whole, st.integers(0, 40)).map(lambda pair: pair[0][: pair[1]])
    more = st.tuples(whole, st.binary(max_size=3)).map(b"".join)
    flipped = st.tuples(whole, st.integers(0, 60), st.integers(0, 255)).map(lambda it: _flip(*it))
    payloads = data.draw(st.lists(st.binary(max_size=40) | whole | cut | more | flipped, max_size=6))

    agree(parsed(json.dumps(schema)), payloads)


def _flip(payload: bytes, place: int, byte: int) -> bytes:
    place = place % len(payload) if payload else 0
    return payload[:place] + bytes([byte]) + payload[place + 1 :]


@SOME
@given(st.data())
def test_what_is_read_is_what_was_written(data: st.DataObject) -> None:
    schema = plain(data.draw(records([])))
    rows = data.draw(st.lists(values(schema), max_size=4))

    made, misfits = Plain(parsed(json.dumps(schema))).read([written(schema, row) for row in rows])

    assert misfits == {}
    found = [row for part in made for row in part.values.to_pylist()]
    assert str(found) == str([_arrow(schema, row) for row in rows])


def _arrow(schema: Any, value: Any) -> Any:
    """A value that a writer was given, as Arrow answers it."""
    if isinstance(schema, list):
        members = [one for one in schema if one != "null"]
        if value is None or not members:
            return None
        at = [_branch_name(one) for one in members].index(value[0])
        inner = _arrow(members[at], value[1])
        if len(members) == 1 or set(members) == {"int", "long"}:
            return inner
        return {f"member{place}": inner if place == at else None for place in range(len(members))}
    kind = schema if isinstance(schema, str) else schema["type"]
    if kind == "record":
        return {field["name"]: _arrow(field["type"], value[field["name"]]) for field in schema["fields"]}
    if kind == "array":
        return [_arrow(schema["items"], each) for each in value]
    if kind == "map":
        return [(key, _arrow(schema["values"], each)) for key, each in value.items()]
    return value
