"""Random Spark SQL over columns of every type, and rows with everything that is hard to compute with."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

COLUMNS = pa.schema(
    [
        ("b", pa.int8()),
        ("h", pa.int16()),
        ("i", pa.int32()),
        ("l", pa.int64()),
        ("f", pa.float32()),
        ("x", pa.float64()),
        ("d", pa.decimal128(10, 2)),
        ("w", pa.decimal128(20, 6)),
        ("s", pa.string()),
        ("n", pa.string()),
        ("q", pa.string()),
        ("y", pa.binary()),
        ("t", pa.bool_()),
        ("dt", pa.date32()),
        ("ts", pa.timestamp("us", "UTC")),
        ("st", pa.struct([("a", pa.int32()), ("s", pa.string())])),
    ]
)


def _integers(bits: int) -> st.SearchStrategy[int]:
    edge = 2 ** (bits - 1)
    return st.one_of(st.sampled_from([0, 1, -1, 2, edge - 1, -edge, 10, 100]), st.integers(-edge, edge - 1))


_FLOATS = st.one_of(
    st.sampled_from(
        [0.0, -0.0, math.nan, math.inf, -math.inf, 1.0, -1.5, 1e300, 5e-324, 2.0**63, -(2.0**63)]
    ),
    st.floats(),
    st.floats(-1000, 1000),
)
_FLOATS_32 = st.one_of(
    st.sampled_from([0.0, -0.0, math.nan, math.inf, -math.inf, 2.0**31, 1.5]), st.floats(width=32)
)
_TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "abc",
            "ABC",
            "a%b_c",
            "ß",
            "İı",
            "Σίσυφος",
            "ΑΣ",
            "e\u0301",
            "😀x",
            "\t a\n",
            "a\\b",
            "'",
            "ab",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00"), max_size=8),
    st.text("ab %_é😀", max_size=6),
)
_NUMERALS = st.one_of(
    st.sampled_from(
        [
            "1",
            "-1",
            "+7",
            " 42 ",
            "4_2",
            "1.5",
            "1e3",
            ".5",
            "5.",
            "",
            "abc",
            "0x1F",
            "1d",
            "1f",
            "1L",
            "inf",
            "NaN",
            "-Infinity",
            "+inf",
            "99999999999",
            "9223372036854775808",
            "-128",
            "128",
            "true",
            "F",
            "yes",
            "\t1\n",
            "\x7f1",
            "1\u00a0",
            "\u0661",
            "--1",
            "1e400",
            "1E-400",
            "00012",
            "-0",
            "0.005",
            "12345678901.5",
        ]
    ),
    st.integers(-(10**20), 10**20).map(str),
    st.decimals(-(10**9), 10**9, allow_nan=False, places=3).map(str),
    st.floats().map(repr),
)
_DATE_TEXTS = st.one_of(
    st.sampled_from(
        [
            "2020-02-29",
            "2021-02-29",
            "2020-1-1",
            "2020",
            "2020-12",
            "2020-12-31T10:00",
            "2020-12-31 x",
            "20201231",
            "-2020-01-01",
            "+12020-01-01",
            "12020-01-01",
            " 2020-01-01 ",
            "0000-01-01",
            "99-01-01",
            "2020-13-01",
            "2020-01-01T",
            "2020-01-",
            "2020-",
            "-",
            "1582-10-10",
            "9999999-01-01",
            "5881580-07-12",
            "2020-00-01",
            "2020-01-01 ",
            "2020-001-01",
            "+2020",
            "2020-06-31",
            "0001-01-01",
        ]
    ),
    st.dates().map(str),
)
_TYPED: dict[str, st.SearchStrategy[Any]] = {
    "b": _integers(8),
    "h": _integers(16),
    "i": _integers(32),
    "l": _integers(64),
    "f": _FLOATS_32,
    "x": _FLOATS,
    "d": st.decimals(Decimal("-99999999.99"), Decimal("99999999.99"), places=2),
    "w": st.decimals(Decimal("-99999999999999.999999"), Decimal("99999999999999.999999"), places=6),
    "s": _TEXTS,
    "n": _NUMERALS,
    "q": _DATE_TEXTS,
    "y": st.binary(max_size=4),
    "t": st.booleans(),
    "dt": st.one_of(
        # Spark's optimizer turns `cast(dt AS timestamp) > constant` into a comparison of dates, which
        # does not throw for dates that no timestamp reaches; those have a test of their own.
        st.sampled_from([0, -1, -719529, 11016, -25567]),
        st.integers(-100_000_000, 100_000_000),
        st.integers(-800000, 3000000),
    ),
    "ts": st.one_of(
        st.sampled_from([0, -1, 2**63 - 1, -(2**63), 951782400000000]),
        st.integers(-62135596800000000, 253402300799999999),
        _integers(64),
    ),
    "st": st.one_of(st.fixed_dictionaries({"a": st.none() | _integers(32), "s": st.none() | _TEXTS})),
}


@st.composite
def batches(draw: st.DrawFn, rows: int = 30) -> pa.RecordBatch:
    """Rows with values of every kind; one of six is null."""
    arrays = []
    for field in COLUMNS:
        value = _TYPED[field.name]
        values = draw(st.lists(st.one_of(*[value] * 5, st.none()), min_size=rows, max_size=rows))
        plain = {pa.date32(): pa.int32(), pa.timestamp("us", "UTC"): pa.int64()}.get(field.type, field.type)
        arrays.append(pa.array(values, plain).cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=COLUMNS)


_NUMBERS = ["b", "h", "i", "l", "f", "x", "d", "w"]
_ALL = [*_NUMBERS, "s", "t", "dt", "ts", "y"]
_TYPES = {
    "b": "tinyint",
    "h": "smallint",
    "i": "int",
    "l": "bigint",
    "f": "float",
    "x": "double",
    "d": "decimal(10,2)",
    "w": "decimal(20,6)",
    "s": "string",
    "t": "boolean",
    "dt": "date",
    "ts": "timestamp",
    "y": "binary",
}
_CASTS = [
    *[(one, other) for one in _NUMBERS for other in _NUMBERS if not (one in "fx" and other in "dw")],
    *[(one, "t") for one in _NUMBERS],
    *[("t", one) for one in ["b", "h", "i", "l", "f", "x", "s"]],
    *[(one, "s") for one in ["b", "h", "i", "l"]],
    *[("s", one) for one in [*_NUMBERS, "t", "dt"]],
    ("ts", "dt"),
    ("dt", "ts"),
    ("ts", "l"),
    ("l", "ts"),
]
_LITERALS: dict[str, st.SearchStrategy[str]] = {
    "b": st.sampled_from(["0Y", "1Y", "-1Y", "127Y", "-128Y"]),
    "h": st.sampled_from(["0S", "1S", "-1S", "32767S", "-32768S"]),
    "i": st.sampled_from(["0", "1", "-1", "3", "2147483647", "-2147483648"]),
    "l": st.sampled_from(["0L", "1L", "-1L", "7L", "9223372036854775807L", "-9223372036854775808L"]),
    "f": st.sampled_from(
        ["cast('NaN' as float)", "cast(0 as float)", "cast('-0.0' as float)", "cast(1.5 as float)"]
    ),
    "x": st.sampled_from(
        ["cast('NaN' as double)", "0D", "cast('-0.0' as double)", "1.5D", "1e300", "cast('inf' as double)"]
    ),
    "d": st.sampled_from(["1.25BD", "0.00BD", "-99999999.99BD", "cast(7 as decimal(10,2))"]),
    "w": st.sampled_from(["cast(7.000001 as decimal(20,6))", "cast(0 as decimal(20,6))"]),
    "s": st.sampled_from(["''", "'a'", "' '", "'ß'", "'😀x'", "'abc'", "'12'", "'2020-01-01'"]),
    "t": st.sampled_from(["true", "false", "cast(null as boolean)"]),
    "dt": st.sampled_from(["date'2020-02-29'", "date'1969-12-31'", "date'0001-01-01'"]),
    "ts": st.sampled_from(["timestamp'2020-02-29 23:59:59.999999Z'", "timestamp'1969-12-31 23:00:00+02:00'"]),
    "y": st.sampled_from(["x'00ff'", "x''"]),
}
_SOUGHT = st.sampled_from(["a", "b", "%", "", "é", "😀", "ab", " ", "_", "ß", "A"])
_PATTERNS = st.sampled_from(
    ["a%", "%b", "%a%", "a_c", "_", "%", "", "a\\\\%b%", "%😀_", "_%_", "ab", ".*", "a%b"]
)
_COMPARED = st.sampled_from(["=", "<>", "<", "<=", ">", ">=", "<=>"])


@st.composite
def texts(draw: st.DrawFn, kind: str, depth: int = 3) -> str:
    """An expression of a kind, named as the column of its type."""
    if depth == 0 or draw(st.integers(0, 5)) == 0:
        leaves = [kind, kind, kind]
        if kind == "s":
            leaves = ["s", "s", "n", "q", "st.s"]
        if kind == "i":
            leaves.append("st.a")
        return (
            draw(st.one_of(st.sampled_from(leaves), _LITERALS[kind]))
            if draw(st.booleans())
            else draw(st.sampled_from(leaves))
        )
    below = depth - 1
    general = draw(
        st.sampled_from(["coalesce", "if", "case", "nullif", "cast", "special", "special", "special", "cast"])
    )
    one = lambda of=kind: draw(texts(of, below))  # noqa: E731
    condition = lambda: draw(texts("t", below))  # noqa: E731
    if general == "coalesce":
        return f"coalesce({one()}, {one()})"
    if general == "if":
        return f"if({condition()}, {one()}, {one()})"
    if general == "case":
        return f"CASE WHEN {condition()} THEN {one()} WHEN {condition()} THEN {one()} ELSE {one()} END"
    if general == "nullif":
        return f"nullif({one()}, {one()})"
    sources = [source for source, target in _CASTS if target == kind]
    if general == "cast" and sources:
        source = draw(st.sampled_from(sources))
        word = draw(st.sampled_from(["cast", "cast", "try_cast"]))
        return f"{word}({one(source)} AS {_TYPES[kind]})"
    return draw(_special(kind, below))


@st.composite
def _special(draw: st.DrawFn, kind: str, below: int) -> str:
    one = lambda of=kind: draw(texts(of, below))  # noqa: E731
    if kind == "t":
        return draw(_condition(below))
    if kind in ("b", "h", "i", "l"):
        choice = draw(st.integers(0, 3 if kind in "bh" else 6))
        if choice < 2:
            tried = draw(st.sampled_from(["+", "-", "*", "%", "&", "|", "^"]))
            return f"({one()} {tried} {one()})"
        if choice == 2:
            return f"(- {one()})"
        if choice == 3:
            return f"abs({one()})"
        return draw(_whole(kind, below))
    if kind in ("f", "x"):
        operators = ["+", "-", "*", "%"] + (["/"] if kind == "x" else [])
        choice = draw(st.integers(0, 4))
        if choice == 0:
            return f"try_divide({one('i')}, {one('i')})" if kind == "x" else f"(- {one()})"
        return f"({one()} {draw(st.sampled_from(operators))} {one()})" if choice > 1 else f"abs(- {one()})"
    if kind in ("d", "w"):
        left, right = (
            draw(st.sampled_from(["d", "w", "1.5"])),
            draw(st.sampled_from(["d", "0.001", "i", "w"])),
        )
        return f"cast({left} {draw(st.sampled_from(['+', '-', '*']))} {right} AS {_TYPES[kind]})"
    if kind == "s":
        return draw(_text(below))
    if kind == "dt":
        unit = draw(st.sampled_from(["year", "quarter", "month", "week", "MM"]))
        return draw(
            st.sampled_from(
                [
                    f"date_add({one()}, {one('b')})",
                    f"trunc({one()}, '{unit}')",
                    f"{one()} - 1",
                    f"to_date({one('ts')})",
                ]
            )
        )
    if kind == "ts":
        unit = draw(
            st.sampled_from(
                ["year", "quarter", "month", "week", "DAY", "hour", "minute", "second", "millisecond"]
            )
        )
        return draw(
            st.sampled_from(
                [
                    f"date_trunc('{unit}', {one()})",
                    f"timestamp_millis({one('l')})",
                    f"timestamp_seconds({one('l')})",
                ]
            )
        )
    return f"concat({one()}, {one()})"


@st.composite
def _condition(draw: st.DrawFn, below: int) -> str:
    choice = draw(st.integers(0, 8))
    kind = draw(st.sampled_from(_ALL))
    one = lambda of: draw(texts(of, below))  # noqa: E731
    if choice < 3:
        return f"({one(kind)} {draw(_COMPARED)} {one(kind)})"
    if choice == 3:
        return f"({one('t')} {draw(st.sampled_from(['AND', 'OR']))} {one('t')})"
    if choice == 4:
        return draw(
            st.sampled_from([f"(NOT {one('t')})", f"({one(kind)} IS NULL)", f"({one(kind)} IS NOT NULL)"])
        )
    if choice == 5:
        listed = ", ".join(
            draw(st.lists(st.one_of(_LITERALS[kind], st.just("NULL")), min_size=1, max_size=4))
        )
        return f"({one(kind)} {draw(st.sampled_from(['IN', 'NOT IN']))} ({listed}))"
    if choice == 6:
        return f"({one(kind)} BETWEEN {one(kind)} AND {one(kind)})"
    if choice == 7:
        return f"isnan({one(draw(st.sampled_from(['f', 'x'])))})"
    search = draw(st.sampled_from(["startswith", "endswith", "contains"]))
    return draw(
        st.sampled_from(
            [f"{search}({one('s')}, '{draw(_SOUGHT)}')", f"({one('s')} LIKE '{draw(_PATTERNS)}')"]
        )
    )


@st.composite
def _whole(draw: st.DrawFn, kind: str, below: int) -> str:
    one = lambda of: draw(texts(of, below))  # noqa: E731
    if kind == "l":
        return draw(
            st.sampled_from(
                [f"({one('l')} div {one('l')})", f"unix_millis({one('ts')})", f"unix_seconds({one('ts')})"]
            )
        )
    part = draw(
        st.sampled_from(
            [
                "year",
                "quarter",
                "month",
                "day",
                "dayofyear",
                "dayofweek",
                "weekday",
                "weekofyear",
                "unix_date",
            ]
        )
    )
    clock = draw(st.sampled_from(["hour", "minute", "second", "year", "month"]))
    return draw(
        st.sampled_from(
            [
                f"{part}({one('dt')})",
                f"{clock}({one('ts')})",
                f"length({one(draw(st.sampled_from(['s', 'y'])))})",
                f"datediff({one('dt')}, {one('dt')})",
                f"octet_length({one('s')})",
            ]
        )
    )


@st.composite
def _text(draw: st.DrawFn, below: int) -> str:
    one = lambda of="s": draw(texts(of, below))  # noqa: E731
    sought, instead = draw(_SOUGHT), draw(_SOUGHT)
    position, length = draw(st.integers(-5, 5)), draw(st.integers(-2, 6))
    return draw(
        st.sampled_from(
            [
                f"concat({one()}, {one()}, {one()})",
                f"concat_ws('-', {one()}, {one()})",
                f"trim({one()})",
                f"ltrim({one()})",
                f"rtrim({one()})",
                f"trim(BOTH '{sought}' FROM {one()})",
                f"substring({one()}, {position}, {length})",
                f"substring({one()}, {position})",
                f"left({one()}, {length})",
                f"right({one()}, {length})",
                f"replace({one()}, '{sought}', '{instead}')",
                f"upper({one()})",
                f"lower({one()})",
            ]
        )
    )


@st.composite
def expressions(draw: st.DrawFn) -> str:
    """An expression of any kind."""
    return draw(texts(draw(st.sampled_from(_ALL)), draw(st.integers(1, 3))))
