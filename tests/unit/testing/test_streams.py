"""Tests of a route over a database: as in a run, each table has the types and the key of its own stream."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.pipeline.loading.load import load
from lakefeed.testing import Sample, check, run_samples

SHOP = """
    name: shop
    sources:
      db: {type: postgres, connection: "postgresql://localhost/shop", tables: "public.*"}
    tables:
      copies: {route: "lake/{_stream}", from: db, mode: upsert}
"""
TESTS = """
    tests:
      a column of one name has the type of its table:
        events:
          db:
            - {topic: public.orders, key: '{"id": 1}', json: {id: 1, v: 2, _op: insert, _lsn: 1, _ordinal: 1}}
            - {topic: public.users, key: '{"n": "x"}', json: {n: x, v: am, _op: insert, _lsn: 2, _ordinal: 1}}
            - {topic: public.orders, key: '{"id": 2}', json: {id: 2, v: 7, _op: insert, _lsn: 3, _ordinal: 1}}
            - {topic: public.orders, key: '{"id": 1}', json: {id: 1, v: 3, _op: update, _lsn: 4, _ordinal: 1}}
            - {topic: public.orders, key: '{"id": 2}', json: {id: 2, _op: delete, _lsn: 5, _ordinal: 1}}
        tables:
          copies/public.orders: {rows: [{id: 1, v: 3}]}
          copies/public.users: {rows: [{n: x, v: am}]}
"""


def test_each_table_has_the_types_and_the_key_of_its_stream(pipeline_file: Callable[[str], Path]) -> None:
    (verdict,) = check(load(pipeline_file(SHOP + TESTS)).pipeline)

    assert verdict.passed, verdict


def test_tables_have_the_columns_of_their_stream_alone(
    pipeline_file: Callable[[str], Path], tmp_path: Path
) -> None:
    change = {"_op": "insert", "_lsn": 1, "_ordinal": 1}
    samples = [
        Sample(topic="public.orders", key=b'{"id":1}', json={"id": 1, "v": 2, **change}),
        Sample(topic="public.users", key=b'{"n":"x"}', json={"n": "x", "v": "dusk", **change}),
    ]

    landed = run_samples(Pipeline.from_file(pipeline_file(SHOP)), {"db": samples}, tmp_path / "landed")

    types = {
        stream: {
            one.name: str(one.type.type)
            for one in DeltaTable(landed.path(f"copies/{stream}")).schema().fields
        }
        for stream in ("public.orders", "public.users")
    }
    own = {"_op": "string", "_lsn": "long", "_ordinal": "long"}
    assert types["public.orders"] == {"id": "long", "v": "long", **own}
    assert types["public.users"] == {"n": "string", "v": "string", **own}


def test_a_table_of_several_streams_needs_no_column_that_says_which(
    pipeline_file: Callable[[str], Path],
) -> None:
    text = (SHOP + TESTS).replace('route: "lake/{_stream}"', "path: lake/copies")
    text = text[: text.index("copies/public.orders:")] + "copies: {rows: [{id: 1, v: '3'}]}\n"
    lines = [line for line in text.splitlines() if "public.users" not in line]

    (verdict,) = check(load(pipeline_file("\n".join(lines).replace("v: '3'", "v: 3"))).pipeline)

    assert verdict.passed, verdict
