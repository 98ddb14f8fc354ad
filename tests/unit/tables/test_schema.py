"""What was added to a table, in words."""

from __future__ import annotations

import pyarrow as pa

from lakefeed.tables.schema import additions, missing_columns


def test_a_new_field_of_a_column_is_not_called_a_new_column() -> None:
    inner = pa.struct([("ip", pa.string())])
    have = pa.schema([("id", pa.int64()), ("meta", inner), ("items", pa.list_(inner))])
    longer = pa.struct(
        [("ip", pa.string()), ("port", pa.int64()), ("geo", pa.struct([("lat", pa.float64())]))]
    )
    want = pa.schema([("brand", pa.string()), ("meta", longer), ("items", pa.list_(longer))])

    told = list(additions(have, missing_columns(have, want)))

    assert told == [
        "new column brand string",
        "new field meta.port long",
        "new field meta.geo struct<lat: double>",
        "new field items.port long",
        "new field items.geo struct<lat: double>",
    ]


def test_new_fields_are_found_however_deep_they_are() -> None:
    have = pa.schema([("a", pa.map_(pa.string(), pa.struct([("b", pa.struct([("c", pa.int64())]))])))])
    want = pa.schema(
        [("a", pa.map_(pa.string(), pa.struct([("b", pa.struct([("c", pa.int64()), ("d", pa.string())]))])))]
    )

    assert list(additions(have, missing_columns(have, want))) == ["new field a.b.d string"]
