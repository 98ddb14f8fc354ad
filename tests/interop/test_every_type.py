"""A table with every type, fed from Kafka, read by four engines that must agree."""

from __future__ import annotations

import base64
import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from duckdb_extensions import import_extension

from conftest import TopicFactory
from lakefeed import Pipeline
from support.delta_spark import DeltaSpark
from support.kafka import Broker
from support.ledger import dead_letters

pytestmark = pytest.mark.usefixtures("spark")

SCHEMA = """
      id: long not null
      i8: byte
      i16: short
      i32: int
      i64: long
      u8: uint8
      u16: uint16
      u32: uint32
      u64: uint64
      f32: float
      f64: double
      flag: boolean
      text: string
      data: binary
      day: date
      at: timestamp
      at_ms: timestamp(ms)
      price: decimal(10,2)
      huge: decimal(38,10)
      deep: "struct<name: string, inner: struct<n: long, at: timestamp>>"
      items: "array<struct<sku: string, count: int>>"
      tags: array<string>
      counts: map<string, long>
      prices: "map<string, struct<amount: decimal(9,3)>>"
"""
UTC = dt.UTC
MOMENT = dt.datetime(2026, 11, 15, 10, 30, 0, 123456, UTC)


def instant(moment: dt.datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f").rjust(26, "0") + "Z"


def typical() -> tuple[dict[str, Any], dict[str, Any]]:
    """A payload, and the row that it must become."""
    payload = {
        "id": 1, "i8": 7, "i16": -300, "i32": 70_000, "i64": 5_000_000_000,
        "u8": 200, "u16": 60_000, "u32": 4_000_000_000, "u64": 9_000_000_000,
        "f32": 0.5, "f64": 0.1, "flag": True, "text": "Grüße, 世界 🌍 \u0000 \" \\ \n",
        "data": base64.b64encode(b"\x00\xff\x80").decode(), "day": "2026-11-15",
        "at": "2026-11-15T12:30:00.123456+02:00", "at_ms": 1_763_202_600_123,
        "price": 19.99, "huge": "1234567890123456789012345678.0123456789",
        "deep": {"name": "ü", "inner": {"n": -1, "at": "2026-11-15T10:30:00.123456Z"}},
        "items": [{"sku": "a", "count": 1}, {"sku": None, "count": None}, None],
        "tags": ["x", None, ""], "counts": {"a b": 1, "ü": None}, "prices": {"eur": {"amount": 1.125}},
    }  # fmt: skip
    row = payload | {
        "data": b"\x00\xff\x80", "day": dt.date(2026, 11, 15), "at": MOMENT,
        "at_ms": dt.datetime.fromtimestamp(1_763_202_600, UTC).replace(microsecond=123_000),
        "price": Decimal("19.99"), "huge": Decimal("1234567890123456789012345678.0123456789"),
        "deep": {"name": "ü", "inner": {"n": -1, "at": MOMENT}},
        "prices": {"eur": {"amount": Decimal("1.125")}},
    }  # fmt: skip
    return payload, row


def bounds(largest: bool) -> tuple[dict[str, Any], dict[str, Any]]:
    """The largest or the smallest values that a column holds."""

    def whole(bits: int) -> int:
        return (1 << bits - 1) - 1 if largest else -(1 << bits - 1)

    # As text: negating it would round to the digits of Python's context.
    nines = Decimal(f"{'' if largest else '-'}9999999999999999999999999999.9999999999")
    day = dt.date.max if largest else dt.date.min
    moment = (
        dt.datetime(9999, 12, 31, 23, 59, 59, 999999, UTC) if largest else dt.datetime(1, 1, 1, tzinfo=UTC)
    )
    double = 1.7976931348623157e308 if largest else -1.7976931348623157e308
    row: dict[str, Any] = {
        "id": 2 if largest else 3,
        "i8": whole(8), "i16": whole(16), "i32": whole(32), "i64": whole(64),
        "u8": 255 if largest else 0, "u16": 65_535 if largest else 0, "u32": 2**32 - 1 if largest else 0,
        "u64": 2**63 - 1 if largest else 0, "f32": 2.0**127 if largest else -(2.0**127), "f64": double,
        "flag": largest, "text": "\U0010ffff" * 40 if largest else "",
        "data": b"\xff" * 40 if largest else b"",
        "day": day, "at": moment, "at_ms": dt.datetime(2262, 4, 11, tzinfo=UTC) if largest else
        dt.datetime(1677, 9, 22, tzinfo=UTC), "price": Decimal("99999999.99") * (1 if largest else -1),
        "huge": nines, "deep": {"name": None, "inner": None},
        "items": [], "tags": [], "counts": {}, "prices": {},
    }  # fmt: skip
    payload = row | {
        "data": base64.b64encode(row["data"]).decode(), "day": row["day"].isoformat(),
        "at": instant(moment), "at_ms": int(row["at_ms"].timestamp() * 1000),
        "price": str(row["price"]), "huge": str(row["huge"]),
    }  # fmt: skip
    return payload, row


def empty(number: int, payload: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    names = typical()[1]
    return {"id": number, **payload}, {**dict.fromkeys(names), "id": number}


def cases() -> list[tuple[dict[str, Any], dict[str, Any]]]:
    return [
        typical(),
        bounds(largest=True),
        bounds(largest=False),
        empty(4, {}),
        empty(5, dict.fromkeys(name for name in typical()[1] if name != "id")),
    ]


def plain(value: Any) -> Any:
    """The value of any engine in the same Python: maps as dicts, moments in UTC, bytes as bytes."""
    if isinstance(value, dict):
        if set(value) == {"key", "value"} and isinstance(value["key"], list):
            return dict(zip(value["key"], map(plain, value["value"]), strict=True))
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list):
        pairs = value and all(isinstance(item, tuple) for item in value)
        return {key: plain(item) for key, item in value} if pairs else [plain(item) for item in value]
    if isinstance(value, dt.datetime):
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    return bytes(value) if isinstance(value, bytearray | memoryview) else value


MAPS = ("counts", "prices")


def rows_of(table: pa.Table) -> list[dict[str, Any]]:
    rows = [{name: plain(value) for name, value in row.items()} for row in table.to_pylist()]
    for row in rows:
        for name in MAPS:
            if row.get(name) == []:
                row[name] = {}
    return sorted(rows, key=lambda row: row["id"])


def read_with_duckdb(path: Path, query: str = "SELECT * FROM t") -> pa.Table:
    import_extension("delta")
    with duckdb.connect() as connection:
        connection.execute("LOAD delta")
        connection.execute("SET TimeZone = 'UTC'")
        connection.execute(f"CREATE VIEW t AS SELECT * FROM delta_scan('{path}')")
        return connection.execute(query).to_arrow_table()


def read_with_polars(path: Path) -> pa.Table:
    return pl.read_delta(str(path)).to_arrow()


def read_with_deltalake(path: Path) -> pa.Table:
    return DeltaTable(path).to_pyarrow_table()


class Tables:
    def __init__(self, broker: Broker, topic: str, folder: Path, schema: str, table: str = "") -> None:
        self.path, self.dead_letters = folder / "events", folder / "shop_dead_letters"
        self.file = folder / "shop.yaml"
        self.file.write_text(
            f"""\
name: shop
sources: {{clicks: {{type: kafka, brokers: '{broker.address}', topics: [{topic}], format: json}}}}
tables:
  events:
    path: events
    from: clicks
    {table}
    schema: {schema}
"""
        )

    def run(self) -> None:
        Pipeline.from_file(self.file).run(once=True)


def test_every_engine_reads_every_type_alike(
    broker: Broker, topic: TopicFactory, tmp_path: Path, delta_spark: DeltaSpark
) -> None:
    name = topic()
    lake = Tables(broker, name, tmp_path, SCHEMA)
    broker.produce(name, [json.dumps(payload) for payload, _ in cases()])
    expected = [row for _, row in cases()]

    lake.run()

    assert [letter["error"] for letter in dead_letters(lake.dead_letters)] == []
    assert rows_of(read_with_deltalake(lake.path)) == expected
    assert rows_of(delta_spark.read(lake.path)) == expected
    assert rows_of(read_with_duckdb(lake.path)) == expected
    assert with_maps(rows_of(read_with_polars(lake.path))) == with_maps(expected)
    protocol = DeltaTable(lake.path).protocol()
    assert (protocol.min_reader_version, protocol.reader_features) == (1, None)


def with_maps(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Polars has no maps: it gives lists of entries."""
    for row in rows:
        for name in MAPS:
            value = row[name]
            if isinstance(value, list):
                row[name] = {entry["key"]: entry["value"] for entry in value}
    return rows


def test_numbers_without_a_place_are_refused_and_the_smallest_are_kept(
    broker: Broker, topic: TopicFactory, tmp_path: Path
) -> None:
    name = topic()
    lake = Tables(broker, name, tmp_path, "{id: long not null, f: double, u: uint64}")
    broker.produce(
        name,
        [
            '{"id": 1, "f": NaN}',
            '{"id": 2, "f": 1e400}',
            '{"id": 3, "u": 18446744073709551615}',
            '{"id": 4, "f": -0.0}',
            '{"id": 5, "f": 5e-324}',
        ],
    )

    lake.run()

    assert [letter["offset"] for letter in dead_letters(lake.dead_letters)] == [0, 1, 2]
    for read in (read_with_deltalake, read_with_duckdb, read_with_polars):
        rows = rows_of(read(lake.path))
        assert [row["f"] for row in rows] == [0.0, 5e-324]
        assert math.copysign(1, rows[0]["f"]) == -1


ODD = ["a b", "x%y", "u/v", "ü", None, "", "=", "a'b", "A B", "..", "x%20y", "1", "\U0001f30d"]
DAYS = ["2026-01-01T23:59:59.999999Z", "2026-01-02T00:00:00Z", None]


def test_every_engine_reads_odd_partition_values_alike_and_skips_files(
    broker: Broker, topic: TopicFactory, tmp_path: Path, delta_spark: DeltaSpark
) -> None:
    name = topic()
    lake = Tables(
        broker,
        name,
        tmp_path,
        "{id: long not null, at: timestamp, kind: string}",
        "partition_by: [day(at), kind]",
    )
    pairs = [(moment, kind) for moment in DAYS for kind in ODD]
    broker.produce(
        name, [json.dumps({"id": n, "at": at, "kind": kind}) for n, (at, kind) in enumerate(pairs)]
    )

    lake.run()

    days = {DAYS[0]: dt.date(2026, 1, 1), DAYS[1]: dt.date(2026, 1, 2), None: None}
    expected = [
        # Delta's log has one word for the empty text and for null.
        {
            "id": n,
            "at": dt.datetime.fromisoformat(at) if at else None,
            "kind": kind or None,
            "at_day": days[at],
        }
        for n, (at, kind) in enumerate(pairs)
    ]
    for read in (read_with_deltalake, read_with_duckdb, read_with_polars, delta_spark.read):
        assert rows_of(read(lake.path)) == expected, read.__name__
    query = "SELECT * FROM t WHERE at_day = DATE '2026-01-02' AND kind = 'x%y'"
    assert [row["id"] for row in rows_of(read_with_duckdb(lake.path, query))] == [len(ODD) + 1]
    assert files_scanned(lake.path, query) == (1, len(DAYS) * (len(ODD) - 1))


def test_statistics_let_a_reader_skip_files(broker: Broker, topic: TopicFactory, tmp_path: Path) -> None:
    name = topic()
    lake = Tables(broker, name, tmp_path, "{id: long not null, at: timestamp}", "max_rows_per_file: 10")
    moments = [f"2026-01-01T00:{n:02}:00.000001Z" for n in range(50)]
    broker.produce(name, [json.dumps({"id": n, "at": at}) for n, at in enumerate(moments)])

    lake.run()

    query = "SELECT * FROM t WHERE id = 25"
    assert [row["id"] for row in rows_of(read_with_duckdb(lake.path, query))] == [25]
    assert files_scanned(lake.path, query) == (1, 5)
    # DuckDB does not skip by timestamps, whoever wrote the table.
    last = ds.field("at") >= dt.datetime(2026, 1, 1, 0, 49, 0, 1, tzinfo=UTC)
    dataset = DeltaTable(lake.path).to_pyarrow_dataset()
    assert len(list(dataset.get_fragments(last))) == 1
    assert [row["id"] for row in rows_of(dataset.to_table(filter=last))] == [49]


def files_scanned(path: Path, query: str) -> tuple[int, int]:
    """How many files DuckDB says that it opened for a query, and of how many."""
    plan = read_with_duckdb(path, f"EXPLAIN ANALYZE {query}").column(1)[0].as_py()
    found = [line for line in plan.splitlines() if "Scanning Files" in line or "Total Files Read" in line]
    read = next(line for line in found if "Total Files Read" in line).split(":")[1].strip(" │")
    total = len(pa.table(DeltaTable(path).get_add_actions()))
    return int(read), total
