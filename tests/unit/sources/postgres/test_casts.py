from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.sources.postgres.values import nested_text
from lakefeed.sources.postgres.values.casts import cast
from lakefeed.sources.postgres.values.type_catalog import PostgresColumn, PostgresType

TEXT = PostgresType("text")
TEXTS = PostgresColumn("c", PostgresType("_text", element=TEXT))


def typed(name: str, typmod: int = -1, **more: Any) -> PostgresColumn:
    return PostgresColumn("c", PostgresType(name, **more), typmod)


def as_array(elements: list[str | None]) -> str:
    """The way that Postgres writes arrays, with every element quoted."""
    written = ["NULL" if each is None else f'"{_escaped(each)}"' for each in elements]
    return "{" + ",".join(written) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')


@settings(deadline=None)
@given(st.lists(st.none() | st.lists(st.none() | st.text(max_size=5), max_size=4), max_size=5))
def test_arrays_of_any_text_come_back(lists: list[list[str | None] | None]) -> None:
    texts = pa.array([None if each is None else as_array(each) for each in lists], pa.string())

    values, refused = cast(texts, TEXTS)

    assert values.to_pylist() == lists
    assert refused is None


@settings(deadline=None)
@given(st.lists(st.none() | st.lists(st.none() | st.integers(-9, 99), max_size=4), max_size=5))
def test_arrays_of_numbers_come_back(lists: list[list[int | None] | None]) -> None:
    written = [
        each and "{" + ",".join("NULL" if one is None else str(one) for one in each) + "}" for each in lists
    ]
    texts = pa.array(["{}" if each == [] else text for each, text in zip(lists, written, strict=True)])

    values, _ = cast(texts.cast(pa.string()), typed("_int4", element=PostgresType("int4")))

    assert values.to_pylist() == lists


@settings(deadline=None)
@given(st.lists(st.none() | st.binary(max_size=9), max_size=5), st.integers(0, 2))
def test_bytes_come_back_also_of_a_slice(found: list[bytes | None], start: int) -> None:
    texts = pa.array([None if each is None else f"\\x{each.hex()}" for each in found], pa.string())

    values, _ = cast(texts.slice(start), typed("bytea"))

    assert values.to_pylist() == found[start:]


@settings(deadline=None)
@given(st.lists(st.tuples(st.none() | st.text(max_size=4), st.none() | st.integers(0, 9)), max_size=4))
def test_composite_values_come_back(rows: list[tuple[str | None, int | None]]) -> None:
    fields = (PostgresColumn("a", TEXT), PostgresColumn("b", PostgresType("int4")))

    def written(row: tuple[str | None, int | None]) -> str:
        first = "" if row[0] is None else '"' + row[0].replace("\\", "\\\\").replace('"', '""') + '"'
        return f"({first},{'' if row[1] is None else row[1]})"

    values, refused = cast(pa.array(map(written, rows), pa.string()), typed("pair", kind="c", fields=fields))

    assert [(each["a"], each["b"]) for each in values.to_pylist()] == rows
    assert refused is None


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=4), st.none() | st.text(max_size=4), max_size=4))
def test_an_hstore_comes_back(pairs: dict[str, str | None]) -> None:
    text = ", ".join(
        f'"{_escaped(key)}"=>{"NULL" if value is None else chr(34) + _escaped(value) + chr(34)}'
        for key, value in pairs.items()
    )

    assert dict(nested_text.hstore(text)) == pairs


def test_one_value_that_does_not_fit_leaves_the_others_alone() -> None:
    texts = pa.array(["1.50", "NaN", None, "12345678901.00", "2"])

    values, refused = cast(texts, typed("numeric", (10 << 16 | 2) + 4))

    assert values.to_pylist() == [Decimal("1.50"), None, None, None, Decimal("2.00")]
    assert refused is not None and refused.tolist() == [False, True, False, True, False]


def test_a_composite_value_of_another_shape_than_its_type_is_refused() -> None:
    fields = (PostgresColumn("a", TEXT),)

    values, refused = cast(pa.array(["(x)", "(x,1)", "x"]), typed("one", kind="c", fields=fields))

    assert values.to_pylist() == [{"a": "x"}, None, None]
    assert refused is not None and refused.tolist() == [False, True, True]


@pytest.mark.parametrize(
    ("texts", "scale", "amounts"),
    [
        (["$1,234.50", "-$0.05", "($2.00)"], 2, ["1234.50", "-0.05", "-2.00"]),
        (["1.234,50 €", "-0,05 €"], 2, ["1234.50", "-0.05"]),
        (["¥1,234"], 0, ["1234"]),
    ],
)
def test_money_is_read_in_every_locale(texts: list[str], scale: int, amounts: list[str]) -> None:
    values, _ = cast(pa.array(texts), typed("money", scale=scale))

    assert values.to_pylist() == [Decimal(each) for each in amounts]


def test_types_of_pgvector_and_postgis_are_read_from_the_text_that_they_write() -> None:
    vectors, _ = cast(pa.array(["[1,2.5,-3]", None]), typed("vector", extension="vector"))
    points, _ = cast(
        pa.array(["0101000000000000000000F03F0000000000000040", None]), typed("geometry", extension="postgis")
    )

    assert vectors.to_pylist() == [[1.0, 2.5, -3.0], None]
    assert points.to_pylist() == [bytes.fromhex("0101000000000000000000f03f0000000000000040"), None]


def test_bytes_in_another_notation_are_an_error_and_not_other_bytes() -> None:
    with pytest.raises(ValueError, match="set bytea_output to hex"):
        cast(pa.array(["\\000\\377"]), typed("bytea"))
