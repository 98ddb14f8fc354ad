"""Old rows get the default of a new column, in any table, and nothing else of it changes."""

from __future__ import annotations

import datetime as dt
import shlex
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Field, write_deltalake
from deltalake.schema import PrimitiveType

from lakefeed.errors import TableError
from lakefeed.tables.rewrite import stored_defaults
from lakefeed.tables.rewrite.stored_defaults import fill, intend, literal
from lakefeed.tables.write.keyed import KeyRules
from lakefeed.tables.write.keyed.merge_on_read import MergeOnRead
from support.command_line import in_process
from support.delta_tables import open_any
from support.keyed_table import KeyedTable
from support.vectors import allow

INFO = {"kind": "evolve"}
KIND = pa.decimal128(10, 2)
YEAR_12954 = 346_659_264_000_000_000


def rows(folder: Path) -> list[dict[str, Any]]:
    found = pa.RecordBatchReader.from_stream(DeltaTable(folder).scan()).read_all().to_pylist()
    return sorted(found, key=lambda row: int(row["id"]))


def with_new_column(folder: Path, **more: Any) -> None:
    """Rows in a partition of a negative decimal, which delta-rs would log as `-5.-25`."""
    row = pa.table({"id": [3], "price": pa.array([Decimal("7.50")], KIND)})
    write_deltalake(folder, row, partition_by=["price"], **more)
    (path,) = folder.glob("price=7.50/*.parquet")
    copy = folder / "price=-5.25" / "copy.parquet"
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())
    add = {
        "path": "price=-5.25/copy.parquet",
        "partitionValues": {"price": "-5.25"},
        "size": path.stat().st_size,
        "modificationTime": 1,
        "dataChange": True,
    }
    open_any(folder).put([{"commitInfo": {}}, {"add": add}])
    DeltaTable(folder).alter.add_columns([Field("state", PrimitiveType("string"))])
    own = pa.table({"id": [9], "price": pa.array([Decimal("1.00")], KIND), "state": ["own"]})
    write_deltalake(folder, own, mode="append")


@pytest.mark.parametrize("feed", [False, True])
def test_a_table_with_partitions_of_negative_decimals_stays_readable(feed: bool, tmp_path: Path) -> None:
    more = {"configuration": {"delta.enableChangeDataFeed": "true"}} if feed else {}
    with_new_column(tmp_path, **more)
    intend(open_any(tmp_path), {"state": str(literal(pa.scalar("it's new")))}, INFO)
    before = DeltaTable(tmp_path).version()

    assert fill(open_any(tmp_path), INFO) == ["state"]

    found = [(row["id"], row["price"], row["state"]) for row in rows(tmp_path)]
    assert sorted(found) == [
        (3, Decimal("-5.25"), "it's new"),
        (3, Decimal("7.50"), "it's new"),
        (9, Decimal("1.00"), "own"),
    ]
    assert fill(open_any(tmp_path), INFO) == []
    if feed:
        told = pa.table(DeltaTable(tmp_path).load_cdf(before + 1).read_all()).to_pylist()
        assert sorted((row["_change_type"], row["state"]) for row in told) == [
            ("update_postimage", "it's new"),
            ("update_postimage", "it's new"),
            ("update_preimage", None),
            ("update_preimage", None),
        ]


def test_rows_that_a_deletion_vector_removed_stay_removed(tmp_path: Path) -> None:
    schema = pa.schema([("id", pa.int64()), ("at", pa.int64()), ("n", pa.int32())])
    table = KeyedTable(tmp_path, schema, KeyRules(("id",), ("at",)), layout=MergeOnRead())
    allow(tmp_path)
    table.restart()
    table.apply({"id": 1, "at": 1}, {"id": 2, "at": 1}, {"id": 3, "at": 1, "n": 3})
    table.apply({"id": 1, "at": 2, "op": "delete"})
    lake = table.open()
    intend(lake, {"n": str(literal(pa.scalar(-7, pa.int32())))}, INFO)

    assert fill(lake, INFO) == ["n"]

    assert [(row["id"], row["n"]) for row in table.rows()] == [(2, -7), (3, 3)]


def test_values_of_every_type_come_back_from_their_text() -> None:
    for value in (
        pa.scalar(Decimal("-5.25"), KIND),
        pa.scalar(True),
        pa.scalar(dt.datetime(2026, 1, 2, tzinfo=dt.UTC), pa.timestamp("us", "UTC")),
        pa.scalar(dt.date(2026, 1, 2)),
        pa.scalar(-1.5, pa.float32()),
        pa.scalar(-(2**63), pa.int64()),
        pa.scalar(Decimal("0E-8"), pa.decimal128(20, 8)),
        pa.scalar(Decimal("0.00000015"), pa.decimal128(20, 8)),
        pa.scalar(YEAR_12954, pa.timestamp("us", "UTC")),
        pa.scalar(-YEAR_12954, pa.timestamp("us")),
        pa.scalar(4_000_000, pa.date32()),
        pa.scalar("it's (arrow_cast('1', 'Int8')"),
        pa.scalar(""),
        pa.scalar(b"\x00\xff"),
        pa.scalar([1, None], pa.list_(pa.int32())),
        pa.scalar({"a": "it's", "b": None}, pa.struct([("a", pa.string()), ("b", pa.int64())])),
    ):
        assert stored_defaults._value(str(literal(value)), value.type) == value
    # Nothing is kept that the column cannot hold, or whose text the database alone knows.
    assert literal(pa.scalar("x"), pa.int64()) is None
    assert literal(pa.scalar(True), pa.string()) is None


def test_defaults_that_python_cannot_hold_and_those_of_an_earlier_release_are_filled_in(
    tmp_path: Path,
) -> None:
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    texts = {
        "at": str(literal(pa.scalar(YEAR_12954, pa.timestamp("us", "UTC")))),
        "day": str(literal(pa.scalar(4_000_000, pa.date32()))),
        "fee": "arrow_cast('1.5E-7', 'Decimal128(20, 8)')",
        "on": "arrow_cast('2026-01-02', 'Date32')",
        "ok": "arrow_cast('True', 'Boolean')",
    }
    intend(open_any(tmp_path), texts, INFO)
    kinds = {"at": "timestamp", "day": "date", "fee": "decimal(20,8)", "on": "date", "ok": "boolean"}
    columns = [Field(name, PrimitiveType(kind)) for name, kind in kinds.items()]
    DeltaTable(tmp_path).alter.add_columns(columns)

    fill(open_any(tmp_path), INFO)

    (path,) = DeltaTable(tmp_path).file_uris()
    found = pq.read_table(path)
    assert found.column("at").cast(pa.int64()).to_pylist() == [YEAR_12954]
    assert found.column("day").cast(pa.int32()).to_pylist() == [4_000_000]
    assert found.select(["fee", "on", "ok"]).to_pylist() == [
        {"fee": Decimal("0.00000015"), "on": dt.date(2026, 1, 2), "ok": True}
    ]


@pytest.mark.parametrize("text", ["arrow_ipc:", "arrow_ipc:seven", "arrow_ipc:c2V2ZW4="])
def test_a_stream_that_holds_no_value_is_refused(text: str) -> None:
    with pytest.raises(TableError, match="is not the text of a value"):
        stored_defaults._value(text, pa.binary())


def test_a_text_that_is_no_value_and_a_table_whose_rows_must_stay_are_refused_with_the_way_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_deltalake(tmp_path, pa.table({"id": [1], "n": pa.nulls(1, pa.int32())}))
    intend(open_any(tmp_path), {"n": "arrow_cast('seven', 'Int32')"}, INFO)

    with pytest.raises(TableError, match="is to fill the column n") as caught:
        fill(open_any(tmp_path), INFO)
    command = str(caught.value).partition("To leave its rows as they are: lakefeed ")[2]
    assert in_process(capsys, monkeypatch)(*shlex.split(command))[0] == 0
    assert fill(open_any(tmp_path), INFO) == []

    intend(open_any(tmp_path), {"n": "arrow_cast('7', 'Int32')"}, INFO)
    DeltaTable(tmp_path).alter.set_table_properties({"delta.appendOnly": "true"})
    with pytest.raises(
        TableError, match=r"the default of its new column n changes rows.*delta.appendOnly=true"
    ):
        fill(open_any(tmp_path), INFO)
