from __future__ import annotations

import itertools
import json
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import psutil
import pyarrow as pa
import pytest

from lakefeed.columns.column_types import declared_schema, type_text
from lakefeed.formats import Rules
from lakefeed.formats.json.block import Block, BlockReader
from lakefeed.formats.json.format import JsonFormat
from lakefeed.formats.json.inference import NewFields


def columns(schema: pa.Schema | None) -> dict[str, str]:
    return {field.name: type_text(field.type) for field in schema or ()}


def new(known: dict[str, str], *payloads: bytes | None) -> dict[str, str]:
    return columns(JsonFormat().decoder(declared_schema(known)).decode(payloads).unknown)


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        (["1", "-2"], "long"),
        (["1", "2.5"], "double"),
        (["9223372036854775807"], "long"),
        (["1", "9223372036854775808"], "decimal(38,0)"),
        (["1", "18446744073709551616"], "decimal(38,0)"),
        (["18446744073709551616", "0.5"], "double"),
        (["1" + "0" * 38], "json"),
        (["-" + "1" * 39], "json"),
        (["1" + "0" * 38, "0.5"], "double"),
        (["1e30"], "double"),
        (["true", "null"], "boolean"),
        (['"a"'], "string"),
        (['"2024-03-01T12:00:00Z"', '"2024-03-01T12:00:00.123456789+02:00"'], "timestamp"),
        (['"2024-03-01T12:00:00Z"', '"2024-03-01T12:00:00"'], "string"),
        (['"2024-02-30T12:00:00Z"'], "string"),
        (['"1970-01-01T00:00:00Z"'], "timestamp"),
        (["1", '"a"'], "json"),
        (["1", "true"], "json"),
        (["[1]", "[2.5, null]"], "array<double>"),
        (["[]", "[[1]]"], "array<array<long>>"),
        (['{"a": 1, "b": null}', '{"a": 0.5, "b": "x"}'], "struct<a: double, b: string>"),
        (['[{"a": 1, "n": null}, {"b": {}}]'], "array<struct<a: long>>"),
        (['{"a": 1}', "[1]"], "json"),
        (["[]", "5"], "long"),
        (["{}", '"x"'], "string"),
        (['[1, "a"]'], "array<json>"),
        (['{"a": 1}', '{"a": "x"}'], "struct<a: json>"),
    ],
)
def test_the_type_of_a_new_column_does_not_depend_on_the_order(values: list[str], kind: str) -> None:
    for order in itertools.permutations(values):
        assert new({"id": "long"}, *(f'{{"id": 1, "v": {value}}}'.encode() for value in order)) == {"v": kind}


@pytest.mark.parametrize("value", ["null", "[]", "{}", "[null, []]", '{"a": null, "b": [{}]}'])
def test_a_column_without_a_value_is_not_proposed(value: str) -> None:
    decoded = (
        JsonFormat().decoder(declared_schema({"id": "long"})).decode([f'{{"id": 1, "v": {value}}}'.encode()])
    )

    assert decoded.unknown is None
    assert decoded.rows.to_pylist() == [{"id": 1}]


def test_known_columns_of_rows_with_new_ones_are_right() -> None:
    payloads = [b'{"id": 1, "v": 5}', b'{"id": 2}', b'{"id": 3, "v": "x", "w": [1]}', b'{"id": "x", "z": 1}']

    decoded = JsonFormat().decoder(declared_schema({"id": "long"})).decode(payloads)

    assert decoded.rows.to_pylist() == [{"id": 1}, {"id": 2}, {"id": 3}]
    assert columns(decoded.unknown) == {"v": "json", "w": "array<long>"}
    assert [each.index for each in decoded.refused] == [3]


def test_new_fields_of_known_structs_are_proposed_alone() -> None:
    known = {
        "meta": "struct<ip: string, geo: struct<lat: double>>",
        "items": "array<struct<sku: string>>",
        "by_day": "map<string, struct<n: long>>",
    }
    payload = (
        b'{"meta": {"ip": "x", "geo": {"lat": 1, "lon": 2.5}}, '
        b'"items": [{"sku": "a", "qty": 1}], "by_day": {"mon": {"m": true}}}'
    )

    assert new(known, payload) == {
        "meta": "struct<geo: struct<lon: double>>",
        "items": "array<struct<qty: long>>",
        "by_day": "map<string, struct<m: boolean>>",
    }


def test_new_columns_come_in_order_of_appearance() -> None:
    assert list(new({}, b'{"b": 1, "a": null}', b'{"c": 1, "a": 1}')) == ["b", "a", "c"]


def test_two_spellings_are_proposed_apart_as_other_tasks_may_have_seen_more_of_one() -> None:
    assert new({}, b'{"userid": 1}', b'{"userId": "x"}') == {"userid": "long", "userId": "string"}


def test_columns_are_proposed_for_good_payloads_only() -> None:
    at, bad_name = b'{"id": 1, "at": "2024-03-01T00:00:00Z"}', b'{"id": 2.5, "a b": 1}'

    assert new({}, at, None, b"{", bad_name, b'{"id": 2}') == {"id": "long", "at": "timestamp"}
    assert new({}) == {}


def test_a_field_that_is_always_null_does_not_keep_later_payloads_off_the_fast_path() -> None:
    schema = declared_schema({"id": "long", "items": "array<struct<sku: string>>"})
    payload = b'{"id": 1, "promo": null, "items": [{"sku": "a", "tags": [], "extra": {"x": null}}]}'
    reader = BlockReader(schema)
    quiet = NewFields(exact=True).of([{"promo": None, "items": [{"tags": [], "extra": {"x": None}}]}], schema)

    before = reader.read([payload])
    reader.learn(quiet)
    after = reader.read([payload])

    assert not isinstance(before, Block)
    assert isinstance(after, Block)
    assert after.rows.to_pylist() == [{"id": 1, "items": [{"sku": "a"}]}]


def test_a_field_that_was_always_null_is_proposed_when_it_has_a_value() -> None:
    decoder = JsonFormat().decoder(declared_schema({"id": "long"}))
    assert decoder.decode([b'{"id": 1, "promo": null}']).unknown is None

    decoded = decoder.decode([b'{"id": 1, "promo": null}', b'{"id": 2, "promo": "x"}'])

    assert columns(decoded.unknown) == {"promo": "string"}
    assert decoded.rows.to_pylist() == [{"id": 1}, {"id": 2}]


def test_a_field_that_was_an_empty_list_and_an_empty_object_is_proposed_when_it_has_a_value() -> None:
    decoder = JsonFormat().decoder(declared_schema({"id": "long"}))
    for quiet in (b"[]", b"{}"):
        assert decoder.decode([b'{"id": 1, "promo": %s}' % quiet]).unknown is None

    decoded = decoder.decode([b'{"id": 2, "promo": "x"}'])

    assert columns(decoded.unknown) == {"promo": "string"}


def test_time_for_new_names_grows_with_their_number_and_not_with_its_square() -> None:
    def seconds(names: int) -> float:
        payloads = [f'{{"id": {n}, "props": {{"k{n}": {n}}}}}'.encode() for n in range(names)]
        started = time.process_time()
        decoded = JsonFormat().decoder(declared_schema({"id": "long"})).decode(payloads)
        took = time.process_time() - started
        assert decoded.rows.num_rows == names
        assert decoded.unknown is not None
        assert decoded.unknown.field("props").type.num_fields == names
        return took

    few, many = (min(seconds(names) for _ in range(3)) for names in (1_000, 20_000))

    # Twenty times, with room for noise (30 on an idle machine); four hundred times would be quadratic.
    assert many < 150 * few


@pytest.mark.parametrize("rules", [Rules(new_column="ignore"), Rules(dropped=frozenset(["more"]))])
def test_fields_that_are_ignored_are_read_in_parts_and_make_no_difference(rules: Rules) -> None:
    schema = declared_schema({"id": "long", "at": "struct<x: double>"})
    odd = {700: b'{"id": "x"}', 1500: b'{"id": 1, "more": NaN}', 2100: b'{"id": 1, "more"', 2500: b"null"}
    more = [f'{{"id": {n}, "at": {{"x": {n}.5}}, "more": {{"k{n % 7}": {n}}}}}'.encode() for n in range(3000)]
    payloads = [odd.get(n, payload) for n, payload in enumerate(more)]

    done = JsonFormat().decoder(schema, rules).decode(payloads)
    again = [
        (start, JsonFormat().decoder(schema, rules).decode(payloads[start : start + 50]))
        for start in range(0, 3000, 50)
    ]

    assert sorted(one.index for one in done.refused) == sorted(odd)
    assert done.refused == [
        replace(refused, index=start + refused.index) for start, one in again for refused in one.refused
    ]
    assert done.rows == pa.concat_batches([one.rows for _, one in again])


def test_ignored_fields_whose_names_are_data_take_memory_by_the_size_of_the_text() -> None:
    decoder = JsonFormat().decoder(declared_schema({"id": "long"}), Rules(new_column="ignore"))
    events = [json.dumps({"id": n, **{f"k{n}_{at}": 1 for at in range(20)}}).encode() for n in range(800)]
    process = psutil.Process()

    with ThreadPoolExecutor(1) as pool:
        most = before = process.memory_info().rss
        decoding = pool.submit(decoder.decode, events)
        while not decoding.done():
            most = max(most, process.memory_info().rss)
            time.sleep(0.002)

    assert decoding.result().rows.num_rows == 800
    assert most - before < 60 * 2**20
