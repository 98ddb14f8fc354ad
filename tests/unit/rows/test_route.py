from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakefeed.pipeline.options.route import Route
from lakefeed.rows.conform import conformed
from lakefeed.rows.route import lacking, part

ROUTE = Route("/lake/{country}/events_{kind}")


def rows(*given: dict[str, Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(list(given))


def test_rows_part_by_all_columns_of_the_route_and_values_that_read_alike_in_a_path_share_a_table() -> None:
    batch = rows(
        {"id": 0, "country": "de", "kind": 1},
        {"id": 1, "country": "de", "kind": 2},
        {"id": 2, "country": "a/b", "kind": 1},
        {"id": 3, "country": "a b", "kind": 1},
        {"id": 4, "country": None, "kind": 1},
        {"id": 5, "country": "", "kind": 1},
        {"id": 6, "country": "_delta_log", "kind": 1},
    )

    parts, unroutable = part(batch, ROUTE)

    assert {key: own.column("id").to_pylist() for key, own in parts} == {
        ("de", "1"): [0],
        ("de", "2"): [1],
        ("a_b", "1"): [2, 3],
    }
    assert [(one.index, one.error) for one in unroutable] == [
        (4, "country: no value that says which table the event belongs to"),
        (5, "country: expected 1 to 100 characters for the path of a table, got 0"),
        (6, "country, kind: the path would begin with '_' or '.', got '_delta_log'"),
    ]


@pytest.mark.parametrize("kind", [pa.float64(), pa.list_(pa.string()), None])
def test_column_that_cannot_stand_in_a_path_leaves_every_row_without_a_table(
    kind: pa.DataType | None,
) -> None:
    columns = {"country": pa.array(["de"])} | ({"kind": pa.nulls(1, kind)} if kind else {})

    parts, unroutable = part(pa.record_batch(columns), ROUTE)

    assert parts == []
    assert [one.index for one in unroutable] == [0]


def test_table_lacks_only_what_its_rows_fill_and_nested_fields_one_by_one() -> None:
    batch = rows(
        {"id": 1, "meta": {"ip": "x", "port": None, "tls": True}, "empty": None, "blank": {"a": None}}
    )
    known = pa.schema([("id", pa.int64()), ("meta", pa.struct([("ip", pa.string())]))])

    assert lacking(batch, known) == pa.schema([("meta", pa.struct([("tls", pa.bool_())]))])
    assert lacking(batch.select(["id"]), known) is None
    assert conformed(batch, known).to_pylist() == [{"id": 1, "meta": {"ip": "x"}}]


def test_table_takes_rows_without_a_value_where_it_has_another_type_than_other_tables() -> None:
    batch = pa.record_batch({"id": pa.array([1, 2]), "size": pa.nulls(2, pa.string())})
    known = pa.schema([("id", pa.int64()), ("size", pa.int64())])

    assert lacking(batch, known) is None
    assert conformed(batch, known).schema.field("size").type == pa.int64()


@pytest.mark.parametrize(
    ("path", "key"),
    [
        ("/lake/de/events_view", ("de", "view")),
        ("/lake/de/view", None),
        ("/lake/de/events_a/b", None),
        ("/lake/_x/events_a", None),
        ("/other/de/events_a", None),
    ],
)
def test_path_tells_the_values_that_lead_to_it(path: str, key: tuple[str, ...] | None) -> None:
    assert ROUTE.key_of(path) == key
    assert key is None or ROUTE.path(key) == path
