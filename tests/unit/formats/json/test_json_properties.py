"""Two ways must agree: payloads read together, one by one, and by the strict path alone."""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakefeed.columns.column_types import declared_schema, stored
from lakefeed.columns.widening import merge_proposals
from lakefeed.formats import DEFAULT_RULES, Decoded, Rules
from lakefeed.formats.fit.spellings import spellings_of
from lakefeed.formats.json.block import Block, BlockReader
from lakefeed.formats.json.format import CODES, JsonFormat
from lakefeed.formats.json.strict import StrictReader

RICH = {
    "id": "long not null",
    "i8": "byte",
    "i32": "int",
    "u8": "uint8",
    "u32": "uint32",
    "u64": "uint64",
    "f32": "float",
    "f64": "double",
    "b": "boolean",
    "s": "string",
    "bin": "binary",
    "day": "date",
    "at": "timestamp",
    "at_s": "timestamp(s)",
    "at_ms": "timestamp(ms)",
    "at_us": "timestamp(us)",
    "at_ns": "timestamp(ns)",
    "price": "decimal(10,2)",
    "big": "decimal(38,18)",
    "tiny": "decimal(38,38)",
    "meta": "struct<ip: string, n: int not null, deep: struct<at: timestamp, price: decimal(5,1)>>",
    "list": "array<long>",
    "full": "array<string not null>",
    "items": "array<struct<sku: string not null, price: decimal(10,2), at: array<timestamp>>>",
}
MAPPED = {
    **{name: RICH[name] for name in ("id", "f32", "at", "price", "meta", "items")},
    "tags": "map<string, string>",
    "counts": "map<string, long not null>",
    "prices": "map<string, decimal(10,2)>",
    "nested": "struct<m: map<string, struct<at: timestamp, f: float>>, l: array<map<string, date>>>",
    "any": "json",
    "anys": "array<json>",
    "some": "struct<a: json, n: double, m: map<string, json>>",
}


def words(text: str) -> list[str]:
    return text.split()


NUMBERS = words(
    """
    0 -0 1 -1 7 127 128 -128 -129 255 256 65535 2147483647 2147483648 4294967295 4294967296
    9223372036854775807 9223372036854775808 -9223372036854775808 -9223372036854775809
    18446744073709551615 18446744073709551616 99999999 99999999.99 99999999.994 99999999.995 100000000
    1.0 1.5 1.25 1.250 1.255 0.1 1e2 1E+2 1E-2 1e-3 1e-09 1e-12 1e-38 1e-39 1e-77 1e-400 1e-1000000000
    0e-1000000000 0e99 1e38 1e39 3.4028235e38 3.4028236e38 1.7e308 1e309 1e400 1e1000000000
    99999999999999999999999999999999999999 0.30000000000000004 1700000000 1700000000000 -62135596800
    -62135596801 253402300799 253402300800 -1500 -1 0.00000000000000000000000000000000000000000000000000
    0.5000000000000000000000000000000000000000000 12345678901234567890.123456789012345678
    123456789012345678901.1 0.99999999999999999999999999999999999999 NaN Infinity -Infinity -NaN Inf 01
    1. .5 +1 - 1e 0x10
    """
)
TIMES = words(
    """
    2024-03-01T12:00:00Z 2024-03-01T12:00:00.123Z 2024-03-01T12:00:00.123456789Z 2024-03-01t12:00:00z
    2024-03-01T12:00:00+02:00 2024-03-01T12:00:00.1234567-23:59 2024-03-01T12:00:00+0200
    2024-03-01T12:00:00+02 2024-03-01T12:00:00+24:00 2024-03-01T12:00:00 2024-03-01T12:00:00.999999999
    2024-03-01 2024-03-01Z 2024-03-01T12 2024-03-01T12Z 2024-03-01T12:30 2024-03-01T12:30Z
    2024-03-01T12:30+02:00 2024-03-01T12:00:60Z 2024-03-01T24:00:00Z 2024-02-29T00:00:00Z
    2023-02-29T00:00:00Z 2023-02-29 2024-02-30 2024-13-01 2024-04-31 0000-01-01T00:00:00Z
    0000-12-31T23:59:59-02:00 0001-01-01T00:00:00Z 0001-01-01T00:00:00+01:00 0001-01-01
    9999-12-31T23:59:59.999999Z 9999-12-31T23:59:59-00:01 9999-12-31 0000-01-01 10000-01-01
    1969-12-31T23:59:59.9Z 2024-03-01T12:00:00.Z 2024-03-01T12:00:00,5Z 20240301 2024-3-1
    2024-03-01T12:00:00.123abcZ now
    """
)
TEXTS = [
    *TIMES,
    *(
        "2024-03-01 12:00:00Z",
        "2024-03-01 12:00:00.5 +02:00",
        "",
        "abc",
        "YQ==",
        "YWJj",
        "YQ",
        "Y Q=",
        "ü",
        "\x7f",
        "日本",
    ),
    *(
        "12.34",
        "+1.5",
        ".5",
        "1.",
        "1e1",
        "-7",
        " 1",
        "1e-77",
        "1e-1000000000",
        "NaN",
        "1_0",
        "\u0661",
        "99999999.995",
    ),
]
RAW = [
    *(
        "null",
        "true",
        "false",
        "tru",
        "[]",
        "{}",
        "[1, 2]",
        "[null]",
        '["a", null]',
        "[[]]",
        "[1, 2.5]",
        '[{"sku": "a"}]',
    ),
    *(
        '{"ip": "x", "n": 1}',
        '{"n": 1, "extra": 2}',
        '{"n": null}',
        '{"n": 1, "n": 2}',
        '{"a": 1, "b": null}',
        '{"a b": 1}',
    ),
    *(
        '[{"sku": "a", "price": 1.5, "at": ["2024-03-01"]}, null]',
        '[{"sku": null}]',
        '[{"sku": "a", "new": [1]}]',
    ),
    *(
        '{"n": 3, "deep": {"at": "2024-03-01T00:00:00Z", "price": 1.5}}',
        '{"n": 3, "deep": {"at": 5}}',
        '{"x": {"at": "2024-03-01"}}',
    ),
    *(
        '{"m": {"k": {"at": "2024-03-01", "f": 1e39}}}',
        '{"m": {"k": {"f": 0.1}}, "l": [{"d": "2024-03-01"}, null]}',
    ),
    *(
        '"\\ud800"',
        '"\\u00e9"',
        '"\\u0031e-\\u0039\\u0039"',
        '"1\\u0065-1000000000"',
        '"a\\u003ab"',
        '"\x01"',
        '"open',
    ),
    *(
        "[" * 101 + "]" * 101,
        "[" * 98 + "]" * 98,
        '{"u":' * 100 + "1" + "}" * 100,
        '{"u":' * 90 + "1" + "}" * 90,
    ),
]
SPACE = st.sampled_from(["", "", "", " ", "\n\t"])

tokens = st.one_of(
    st.sampled_from(NUMBERS),
    st.sampled_from(TEXTS).map(json.dumps),
    st.sampled_from(TEXTS).map(lambda text: json.dumps(text, ensure_ascii=False)),
    st.sampled_from(RAW),
    st.integers(-(2**70), 2**70).map(str),
    st.integers(-200, 200).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    st.decimals(-1000, 1000, places=2).map(str),
    st.text(max_size=5).map(json.dumps),
    st.datetimes().map(lambda moment: f'"{moment.isoformat()}Z"'),
)
FITTING = {
    "long": st.integers(-(2**63), 2**63 - 1).map(str),
    "byte": st.integers(-128, 127).map(str),
    "int": st.integers(-(2**31), 2**31 - 1).map(str),
    "uint8": st.integers(0, 255).map(str),
    "uint32": st.integers(0, 2**32 - 1).map(str),
    "uint64": st.integers(0, 2**63 - 1).map(str),
    "float": st.floats(width=32, allow_nan=False, allow_infinity=False).map(json.dumps),
    "double": st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    "boolean": st.sampled_from(["true", "false"]),
    "string": st.text(max_size=8).map(json.dumps),
    "binary": st.sampled_from(['"YQ=="', '""', '"AAECAwQF"']),
    "date": st.dates().map(lambda day: f'"{day.isoformat()}"'),
    "timestamp": st.datetimes().map(lambda moment: f'"{moment.isoformat()}Z"'),
    "timestamp(s)": st.integers(-62135596800, 253402300799).map(str),
    "timestamp(ms)": st.integers(-62135596800000, 253402300799999).map(str),
    "timestamp(us)": st.integers(-62135596800000000, 253402300799999999).map(str),
    "timestamp(ns)": st.integers(-(2**63), 2**63 - 1).map(str),
    "decimal(10,2)": st.decimals(-99999999, 99999999, places=2).map(str),
    "decimal(38,18)": st.decimals(-(10**19), 10**19, places=18).map(str),
    "decimal(38,38)": st.decimals(-1, 1, places=30).map(lambda number: f"{number:f}"),
    "array<long>": st.lists(st.integers(-5, 5)).map(json.dumps),
    "array<string not null>": st.lists(st.text(max_size=3)).map(json.dumps),
    "map<string, string>": st.dictionaries(st.text(max_size=3), st.text(max_size=3), max_size=3).map(
        json.dumps
    ),
    "map<string, long not null>": st.dictionaries(st.text(max_size=3), st.integers(-5, 5), max_size=3).map(
        json.dumps
    ),
}

AWKWARD = {kind: st.sampled_from(NUMBERS) for kind in FITTING if kind not in ("boolean", "string", "binary")}
AWKWARD |= {kind: st.sampled_from(TIMES).map(json.dumps) for kind in ("date", "timestamp")}
EVERY = [*NUMBERS, *map(json.dumps, TEXTS), *RAW]


@st.composite
def documents(draw: st.DrawFn, columns: dict[str, str]) -> bytes:
    names = draw(st.lists(st.sampled_from([*columns]), unique=True, max_size=3))
    parts = {"id": str(draw(st.integers(0, 99)))} if draw(st.integers(0, 9)) else {}
    for name in names:
        kind = columns[name].removesuffix(" not null") if "<" not in columns[name] else columns[name]
        good = draw(st.booleans()) and kind in FITTING
        parts[name] = draw(FITTING[kind]) if good else draw(AWKWARD.get(kind, tokens))
    pairs = [*parts.items()]
    if draw(st.integers(0, 7)) == 0:
        pairs.append(
            (draw(st.sampled_from(["id", "new", "Price", "a b", "", "New", "extra", "at"])), draw(tokens))
        )
    space = draw(SPACE)
    body = ",".join(f"{json.dumps(name)}{space}:{space}{value}" for name, value in pairs)
    text = f"{space}{{{body}}}{space}".encode("utf-8", "surrogatepass")
    return draw(damage(text)) if draw(st.integers(0, 9)) == 0 else text


@st.composite
def spelled_documents(draw: st.DrawFn, columns: dict[str, str]) -> bytes:
    """Documents with other spellings of the names of columns, also beside those."""
    text = draw(documents(columns))
    for name in draw(
        st.lists(st.sampled_from(["id", "meta", "ip", "n", "items", "sku", "at", "price", "some"]))
    ):
        other = draw(st.sampled_from([name.upper(), name.capitalize()]))
        text = text.replace(f'"{name}"'.encode(), f'"{other}"'.encode(), draw(st.integers(0, 2)))
    if draw(st.integers(0, 4)) == 0 and text.endswith(b"}"):
        more = draw(st.sampled_from(["id", "ID", "Meta", "Items", "A B", "a_b", "Extra"]))
        text = text[:-1] + f',"{more}":{draw(tokens)}}}'.encode("utf-8", "surrogatepass")
    return text


def damage(text: bytes) -> st.SearchStrategy[bytes]:
    return st.one_of(
        st.integers(0, len(text)).map(lambda end: text[:end]),
        st.sampled_from([b',"q":{}', b"}", b"x", b"\xff", b'}{"r":{}', b',"r":{}', b"\x00", b"{}"]).map(
            lambda more: text + more
        ),
        st.sampled_from([b"\xef\xbb\xbf", b"[", b"\xff", b"null "]).map(lambda more: more + text),
        st.sampled_from(
            [b"null", b"[]", b"5", b'"x"', b"", b" ", b"\xff\xfe", b"{}},{", b'{},"q":{}', b'{}}{"r":{}']
        ),
        st.just(text.replace(b'"', b'"\xff', 1)),
    )


def strictly(columns: dict[str, str], payloads: list[bytes], rules: Rules = DEFAULT_RULES) -> Decoded:
    schema = declared_schema(columns)
    judged = StrictReader(schema, rules, spellings_of(schema, rules)).read(payloads, range(len(payloads)))
    rescued = [judged.rescued.get(index) for index in judged.good] if judged.rescued else None
    rows = pa.RecordBatch.from_struct_array(judged.rows)
    return Decoded(rows, judged.refused, rescued=None if rescued is None else pa.array(rescued, pa.string()))


def fields(schema: pa.Schema | None) -> dict[str, str]:
    return {field.name: str(field.type) for field in schema or ()}


bounded = settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


def read_alone(schema: pa.Schema, payloads: list[bytes]) -> dict[int, Block]:
    reader = BlockReader(schema)
    found = {place: reader.read([payload]) for place, payload in enumerate(payloads)}
    return {place: block for place, block in found.items() if isinstance(block, Block)}


@pytest.mark.parametrize("kind", [*dict.fromkeys([*RICH.values(), *MAPPED.values()]), None])
def test_every_awkward_value_in_every_kind_of_column_is_judged_alike(kind: str | None) -> None:
    columns = {"id": "long not null"} | ({"value": kind} if kind else {})
    payloads = [f'{{"id": 1, "value": {value}}}'.encode() for value in EVERY]
    schema = declared_schema(columns)

    together = JsonFormat().decoder(schema).decode(payloads)
    blocks = {} if "map<" in str(kind) or "json" in str(kind) else read_alone(schema, payloads)

    expected = strictly(columns, payloads)
    assert together.refused == expected.refused
    assert together.rows.equals(expected.rows)
    good = sorted({*range(len(payloads))} - {each.index for each in expected.refused})
    for place, block in blocks.items():
        if not np.any(block.doubt):
            assert place in good
            row = pa.RecordBatch.from_struct_array(block.rows)
            assert row.equals(expected.rows.slice(good.index(place), 1))


@pytest.mark.parametrize("columns", [RICH, MAPPED], ids=["rich", "mapped"])
@bounded
@given(data=st.data())
def test_payloads_read_together_become_what_the_strict_path_makes_of_them(
    data: st.DataObject, columns: dict[str, str]
) -> None:
    payloads = data.draw(st.lists(documents(columns), max_size=8))

    decoded = JsonFormat().decoder(declared_schema(columns)).decode(payloads)

    expected = strictly(columns, payloads)
    decoded.rows.validate(full=True)
    assert decoded.refused == expected.refused
    assert decoded.rows.schema.equals(stored(declared_schema(columns)))
    assert decoded.rows.equals(expected.rows), (decoded.rows.to_pylist(), expected.rows.to_pylist())


RULES = [
    Rules(new_column="ignore"),
    Rules(new_column="dead_letter"),
    Rules(new_column="rescue"),
    Rules(new_column="rescue", type_change="rescue"),
    Rules(new_column="add", type_change="rescue", taken=frozenset({"new", "id"})),
    Rules(dropped=frozenset({"new", "extra", "price"}), renamed=frozenset({"a b"})),
    Rules(new_column="rescue", dropped=frozenset({"new", "extra"})),
]


@pytest.mark.parametrize("columns", [RICH, MAPPED], ids=["rich", "mapped"])
@pytest.mark.parametrize("rules", RULES, ids=lambda rules: f"{rules.new_column}-{rules.type_change}")
@bounded
@given(data=st.data())
def test_fast_and_strict_path_keep_every_rule_alike(
    data: st.DataObject, columns: dict[str, str], rules: Rules
) -> None:
    columns = {name: kind for name, kind in columns.items() if name not in rules.dropped}
    payloads = data.draw(st.lists(documents(columns), max_size=8))

    decoded = JsonFormat().decoder(declared_schema(columns), rules).decode(payloads)

    expected = strictly(columns, payloads, rules)
    assert decoded.refused == expected.refused
    assert decoded.rows.equals(expected.rows), (decoded.rows.to_pylist(), expected.rows.to_pylist())
    assert decoded.rescued == expected.rescued
    assert rules.new_column == "add" or decoded.unknown is None


SPELLED = [
    Rules(names="clean"),
    Rules(names="clean", new_column="ignore"),
    Rules(names="clean", new_column="dead_letter"),
    Rules(names="clean", new_column="rescue", type_change="rescue"),
    Rules(names="clean", dropped=frozenset({"extra", "price"}), renamed=frozenset({"a b"})),
]


@pytest.mark.parametrize("columns", [RICH, MAPPED], ids=["rich", "mapped"])
@pytest.mark.parametrize("rules", SPELLED, ids=lambda rules: f"{rules.new_column}-{rules.type_change}")
@bounded
@given(data=st.data())
def test_fast_and_strict_path_take_other_spellings_alike(
    data: st.DataObject, columns: dict[str, str], rules: Rules
) -> None:
    columns = {name: kind for name, kind in columns.items() if name not in rules.dropped}
    decoder = JsonFormat().decoder(declared_schema(columns), rules)

    # The decoder expects the spellings that it has seen.
    for _ in range(2):
        payloads = data.draw(st.lists(spelled_documents(columns), max_size=6))
        decoded = decoder.decode(payloads)

        expected = strictly(columns, payloads, rules)
        assert decoded.refused == expected.refused
        assert decoded.rows.equals(expected.rows), (decoded.rows.to_pylist(), expected.rows.to_pylist())
        assert decoded.rescued == expected.rescued


@pytest.mark.parametrize("rules", RULES, ids=lambda rules: f"{rules.new_column}-{rules.type_change}")
@pytest.mark.parametrize("kind", ["long", "array<long>", "struct<a: long, new: string>", None])
def test_every_awkward_value_in_an_unknown_field_is_judged_alike(kind: str | None, rules: Rules) -> None:
    columns = {"id": "long not null"} | ({"value": kind} if kind else {})
    payloads = [f'{{"id": 1, "new": {value}, "value": {value}}}'.encode() for value in EVERY]

    together = JsonFormat().decoder(declared_schema(columns), rules).decode(payloads)
    alone = [JsonFormat().decoder(declared_schema(columns), rules).decode([one]) for one in payloads]

    expected = strictly(columns, payloads, rules)
    assert together.refused == expected.refused
    assert together.rows.equals(expected.rows)
    assert together.rescued == expected.rescued
    assert [not one.refused for one in alone] == [
        index not in {each.index for each in expected.refused} for index in range(len(payloads))
    ]


@pytest.mark.parametrize("columns", [RICH, MAPPED, {}], ids=["rich", "mapped", "unknown"])
@bounded
@given(data=st.data())
def test_what_becomes_of_a_payload_does_not_depend_on_the_others(
    data: st.DataObject, columns: dict[str, str]
) -> None:
    payloads = data.draw(st.lists(documents(columns or RICH), max_size=6))
    decoder = JsonFormat().decoder(declared_schema(columns))

    together = decoder.decode(payloads)
    alone = [decoder.decode([payload]) for payload in payloads]

    rows = pa.Table.from_batches([each.rows for each in alone], together.rows.schema).to_pylist()
    assert together.rows.num_rows == sum(each.rows.num_rows for each in alone)
    assert repr(together.rows.to_pylist()) == repr(rows)
    refused = [(index, each.refused[0].code) for index, each in enumerate(alone) if each.refused]
    assert [(each.index, each.code) for each in together.refused] == refused
    merged = pa.schema([])
    for each in alone:
        merged = merge_proposals(merged, each.unknown or pa.schema([]))
    assert fields(together.unknown).keys() == fields(merged).keys()


@bounded
@given(
    payloads=st.lists(
        st.one_of(
            st.none(), st.binary(max_size=40), st.text('{}[]",:1e-.\\u0tfn ', max_size=30).map(str.encode)
        )
    )
)
def test_no_bytes_make_the_decoder_raise(payloads: list[bytes | None]) -> None:
    decoded = JsonFormat().decoder(declared_schema(RICH)).decode(payloads)

    assert decoded.rows.num_rows + len(decoded.refused) == len(payloads)
    assert {each.code for each in decoded.refused} <= CODES.keys()
    assert all(len(each.error) < 300 and "\n" not in each.error for each in decoded.refused)
