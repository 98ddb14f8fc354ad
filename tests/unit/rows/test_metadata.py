from __future__ import annotations

import datetime as dt

import pyarrow as pa

from lakefeed.columns.column_types import METADATA
from lakefeed.events import ORIGIN
from lakefeed.pipeline.options.metadata import metadata_columns
from lakefeed.rows.metadata import add_metadata


def test_metadata_columns_come_after_the_columns_of_the_payload() -> None:
    rows = pa.record_batch({"id": [1, 2]})
    at = dt.datetime(2026, 11, 15, tzinfo=dt.UTC)
    origin = pa.RecordBatch.from_pylist(
        [
            {"stream": "t", "partition": 3, "offset": 7, "timestamp": at, "key": b"k", "headers": []},
            {"offset": 8, "headers": [{"key": "h", "value": b"\xff"}]},
        ],
        schema=ORIGIN,
    )

    found = add_metadata(rows, origin, metadata_columns(True))

    assert found.schema == pa.schema([("id", pa.int64()), *METADATA])
    assert found.to_pylist() == [
        {
            "id": 1,
            "_topic": "t",
            "_partition": 3,
            "_offset": 7,
            "_timestamp": at,
            "_key": b"k",
            "_headers": [],
        },
        {
            "id": 2,
            "_topic": None,
            "_partition": None,
            "_offset": 8,
            "_timestamp": None,
            "_key": None,
            "_headers": [{"key": "h", "value": b"\xff"}],
        },
    ]


def test_metadata_columns_may_be_chosen_renamed_or_put_into_one_document() -> None:
    rows = pa.record_batch({"id": [1, 2]})
    at = dt.datetime(2026, 11, 15, 10, 0, 0, 250, tzinfo=dt.UTC)
    origin = pa.RecordBatch.from_pylist(
        [
            {
                "stream": 'a"b',
                "partition": 3,
                "offset": 7,
                "timestamp": at,
                "key": b"k",
                "headers": [{"key": "h", "value": b"\xff"}, {"key": "n", "value": None}],
            },
            {"offset": 8},
        ],
        schema=ORIGIN,
    )

    chosen = add_metadata(rows, origin, metadata_columns(("_offset", "_topic")))
    renamed = add_metadata(rows, origin, metadata_columns({"_offset": "position"}))
    documents = add_metadata(rows, origin, metadata_columns({"as": "origin"}))

    assert chosen.to_pylist()[0] == {"id": 1, "_topic": 'a"b', "_offset": 7}
    assert renamed.to_pylist()[1] == {"id": 2, "position": 8}
    assert documents.column("origin").to_pylist() == [
        '{"topic":"a\\"b","partition":3,"offset":7,"timestamp":"2026-11-15T10:00:00.000250Z",'
        '"key":"aw==","headers":[{"key":"h","value":"/w=="},{"key":"n","value":null}]}',
        '{"topic":null,"partition":null,"offset":8,"timestamp":null,"key":null,"headers":null}',
    ]
