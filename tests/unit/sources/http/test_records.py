"""Bodies are cut into events byte for byte, whatever they hold."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakefeed.sources.http.receiver import records as cutting
from lakefeed.sources.http.receiver.records import records
from lakefeed.sources.http.receiver.refusal import Refusal

TEXTS = st.text(st.sampled_from('ab{}[],:"\\ \n'), max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXTS, VALUES, max_size=4)
ITEMS = st.lists(OBJECTS | VALUES, max_size=6) | st.lists(OBJECTS, max_size=6)


@given(ITEMS, st.sampled_from([(",", ":"), (", ", ": "), (" ,\n\t", " : ")]), st.booleans())
def test_an_array_is_cut_into_the_texts_of_its_items(
    items: list[Any], signs: tuple[str, str], plain: bool
) -> None:
    texts = [json.dumps(item, separators=signs, ensure_ascii=plain).encode() for item in items]
    body = b" [\n" + signs[0].encode().join(texts) + b" ] "

    found = records(body, "application/json")

    assert found.payloads.between(0, len(found.payloads)) == texts
    assert found.bad == sum(not isinstance(item, dict) for item in items)


@given(st.lists(OBJECTS, min_size=1, max_size=6))
def test_lines_are_cut_into_their_texts(items: list[Any]) -> None:
    texts = [json.dumps(item).encode() for item in items]

    found = records(b"\r\n".join(texts), "application/x-ndjson")

    assert (found.payloads.between(0, len(found.payloads)), found.bad) == (texts, 0)


def test_one_object_with_a_long_first_line_is_one_record() -> None:
    body = b'{"text": "' + b"x" * cutting.LARGE + b'",\n "id": 1}'

    found = records(body, "")

    assert (len(found.payloads), found.bad) == (1, 0)
    assert len(records(body.replace(b",\n", b"}\n{"), "").payloads) == 2


@pytest.mark.parametrize(
    "text",
    [
        *[
            b"[]",
            b"[ ]",
            b'[{"a":1}]',
            b' [ {"a": [1, {"b": 2}]} , {} ]\n',
            b'[1, {"a":"}, {"}, null]',
            b"[[],[]]",
        ],
        *[
            b"[1,]",
            b"[,1]",
            b"[1 2]",
            b"[1]x",
            b"[1",
            b'["a]',
            b"[]]",
            b"[{]}",
            b'[{"a":1}}]',
            b"[1],[2]",
            b"[tru]",
        ],
    ],
)
def test_a_large_array_is_cut_and_refused_as_a_small_one(
    text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    def taken() -> object:
        try:
            found = records(text, "application/json")
        except Refusal as refusal:
            return refusal.status
        return found.payloads.between(0, len(found.payloads)), found.rejected, found.bad

    small = taken()
    monkeypatch.setattr(cutting, "LARGE", 1)

    assert taken() == small
