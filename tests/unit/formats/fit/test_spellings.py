"""Columns of a writer whose fields have other spellings than those of the table."""

from __future__ import annotations

import io
from typing import Any

import fastavro
import pyarrow as pa

from lakefeed.columns.column_types import declared_schema, stored
from lakefeed.formats import Decoded, JsonFormat, Rules
from lakefeed.formats.avro.format import AvroFormat
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.formats.fit.spellings import Spellings


def fit(columns: dict[str, str], made: pa.StructArray, **rules: Any) -> Decoded:
    found = Fitter(declared_schema(columns), Rules(names="clean", **rules)).fit(made)
    found.rows.validate(full=True)
    assert found.rows.schema == stored(declared_schema(columns))
    return found


def test_fields_are_found_in_any_case_at_any_level() -> None:
    columns = {"id": "long", "l": "array<struct<a_b: long>>", "m": "map<string, struct<n: string>>"}
    kind = pa.struct(
        [
            ("ID", pa.int64()),
            ("L", pa.list_(pa.struct([("A b", pa.int64())]))),
            ("m", pa.map_(pa.string(), pa.struct([("N", pa.string())]))),
        ]
    )
    rows = [{"ID": 1, "L": [{"A b": 2}, None], "m": [("K", {"N": "x"})]}, None, {"ID": 2, "L": None, "m": []}]

    found = fit(columns, pa.array(rows, kind).filter(pa.array([True, False, True])))

    assert found.rows.to_pylist() == [
        {"id": 1, "l": [{"a_b": 2}, None], "m": [("K", {"n": "x"})]},
        {"id": 2, "l": None, "m": []},
    ]
    assert found.unknown is None


def test_two_spellings_in_one_row_are_refused_with_their_path_and_null_gives_way() -> None:
    kind = pa.struct([("l", pa.list_(pa.struct([("a", pa.int64()), ("A", pa.int64())])))])
    rows = [{"l": [{"a": 1, "A": None}, {"a": None, "A": 2}]}, {"l": [{"a": 1, "A": 1}, {"a": 3, "A": 3}]}]

    found = fit({"l": "array<struct<a: long>>"}, pa.array(rows, kind))

    assert found.rows.to_pylist() == [{"l": [{"a": 1}, {"a": 2}]}]
    assert [(one.index, one.stage, one.code, one.error) for one in found.refused] == [
        (
            1,
            "schema",
            "bad_name",
            "l[0].A: is another spelling of a, and the event has both; a table has one column",
        )
    ]


def test_where_new_fields_are_rescued_the_second_spelling_is() -> None:
    kind = pa.struct([("ID", pa.int64()), ("id", pa.int64()), ("Id", pa.string())])
    rows = [{"ID": 1, "id": 2, "Id": "x"}, {"ID": 3, "id": None, "Id": None}]

    found = fit({"id": "long"}, pa.array(rows, kind), new_column="rescue")

    assert found.rows.to_pylist() == [{"id": 2}, {"id": 3}]
    assert found.rescued is not None
    assert found.rescued.to_pylist() == ['{"ID":1,"Id":"x"}', None]


def test_a_spelling_with_values_of_another_type_is_a_second_value() -> None:
    kind = pa.struct([("id", pa.int64()), ("ID", pa.string())])

    found = fit({"id": "long"}, pa.array([{"id": None, "ID": "1"}, {"id": 2, "ID": None}], kind))

    assert found.rows.to_pylist() == [{"id": 2}]
    assert [one.code for one in found.refused] == ["bad_name"]


def test_avro_records_fill_columns_in_any_case(tmp_path: Any) -> None:
    schema = {"type": "record", "name": "r", "fields": [{"name": "ID", "type": "long"}]}
    (tmp_path / "r.avsc").write_text(
        '{"type": "record", "name": "r", "fields": [{"name": "ID", "type": "long"}]}'
    )
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), {"ID": 7})
    form = AvroFormat(schema_file=str(tmp_path / "r.avsc"))

    found = form.decoder(declared_schema({"id": "long"}), Rules(names="clean")).decode([out.getvalue()])

    assert found.rows.to_pylist() == [{"id": 7}]
    assert found.unknown is None


def test_more_spellings_than_are_expected_are_still_values_of_the_column() -> None:
    names = ["abcdefgh"[:at].upper() + "abcdefgh"[at:] for at in range(9)]
    names += [name[:-1] + name[-1].swapcase() for name in names] + [name.swapcase() for name in names]
    names += ["".join(c.upper() if n >> at & 1 else c for at, c in enumerate("abcdefgh")) for n in range(99)]
    payloads = [b'{"%b": %d}' % (name.encode(), at) for at, name in enumerate(names)]
    for rules in (Rules(names="clean"), Rules(names="clean", new_column="ignore")):
        decoder = JsonFormat().decoder(declared_schema({"abcdefgh": "long", "n": "long"}), rules)

        for _ in range(2):
            found = decoder.decode(payloads)

            assert found.rows.column(0).to_pylist() == [*range(len(names))]


def test_names_of_dropped_fields_are_found_in_any_case() -> None:
    spellings = Spellings(declared_schema({"id": "long"}), ["my note"], rescues=False)

    assert [spellings.name(one) for one in ("ID", "My Note", "my_note", "note")] == [
        "id",
        "my note",
        "my note",
        None,
    ]
