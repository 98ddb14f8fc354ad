"""Tables whose SQL only Spark has: shaped by Spark's operators, between the two halves of a task."""

from __future__ import annotations

import json
import threading
import zlib
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql.datasource import DataSource

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.errors import TableError
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.sql import analysis
from lakefeed.tables.table import commit_info_of
from support.drivers import Drivers
from support.ledger import assert_each_once, dead_letters, table_ids
from support.processes import wait_until

pytestmark = pytest.mark.usefixtures("spark")

SCHEMA = "{event_id: long, event_time: timestamp, brand: string, price: double, user_id: long}"


def written(folder: Path, tables: str, more: str = "flush: {rows: 400}") -> Path:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate, rows: 1000, partitions: 2}}}}
tables:
{tables}
{more}
"""
    )
    return file


def run(file: Path) -> None:
    Pipeline.from_file(file).run(once=True)


def rows(path: Path) -> list[dict[str, Any]]:
    return DeltaTable(path).to_pyarrow_table().sort_by("event_id").to_pylist()


def letters(folder: Path) -> list[dict[str, Any]]:
    return sorted(dead_letters(folder / "shop_dead_letters"), key=lambda one: one["payload"])


def counted(path: Path, key: str) -> list[Any]:
    infos = [commit_info_of(one) for one in DeltaTable(path).history()]
    return [info[key] for info in infos if key in info]


TEXTS = [
    *("1e5", "-1.5E-3", "1e+05", ".5", "5.", " 7 ", "+8", "1d", "2F", "0e50", "-0", "1e-999999", "1e400"),
    *("0x1p3", "-0x1.8p1", "NaN", "-NaN", "+Infinity", "1e", "", "\u0663", "\u00011", "1\u00a0"),
    *("9" * 38, "9" * 39, f"0.{'9' * 40}", "12345678901234567890.123456789012345678"),
]
"""Texts that Arrow and Spark could take for other numbers, or that only one of them could take."""
SOME_TEXT = " ".join(f"WHEN {at} THEN '{text}'" for at, text in enumerate(TEXTS))
SOME_TEXT = f"CASE event_id % {len(TEXTS)} {SOME_TEXT} END"

BOTH = f"""\
  shaped:
    path: shaped
    from: clicks
    schema: {SCHEMA}
    where: event_id % 5 <> 0
    select:
    - event_id
    - _partition AS part
    - coalesce(brand, 'none') AS brand
    - cast(price AS int) AS whole
    - 12 / (event_id % 7 - 3) AS share
    - _batch_time IS NOT NULL AS timed
    - CASE WHEN event_id % 11 = 0 THEN NULL ELSE event_time END AS event_time
    - {json.dumps(f"try_cast({SOME_TEXT} AS double) AS tried")}
    - {json.dumps(f"try_cast({SOME_TEXT} AS float) AS small")}
    - {json.dumps(f"try_cast({SOME_TEXT} AS decimal(38,10)) AS money")}
    - {json.dumps(f"cast(if(event_id % 4 = 0, {SOME_TEXT}, '1') AS decimal(38,0)) AS digits")}
    - {json.dumps(f"cast(if(event_id % 4 = 1, {SOME_TEXT}, '1') AS double) AS number")}
    expect:
      dated: {{that: event_time IS NOT NULL, otherwise: dead_letter}}
      kept: {{that: "event_id % 13 <> 0", otherwise: drop}}
      cheap: {{that: whole < 500, otherwise: warn}}
    metadata: true
"""


def test_both_ways_make_the_same_table_and_the_same_dead_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = []
    for way in ("arrow", "spark"):
        folder = tmp_path / way
        folder.mkdir()
        if way == "spark":
            monkeypatch.setattr(analysis, "_needs_spark", lambda parts: "the test says so")
        file = written(folder, BOTH)
        run(file)
        assert verify(Pipeline.from_file(file)).sound
        dead = [
            {
                key: one[key]
                for key in ("payload", "stage", "code", "error", "partition", "offset", "timestamp")
            }
            for one in letters(folder)
        ]
        path = folder / "shaped"
        found.append((rows(path), dead, counted(path, "filtered"), counted(path, "expectations")))

    arrow, spark = found
    # As text, NaN is like NaN, and zero is not like minus zero.
    assert list(map(str, arrow[0])) == list(map(str, spark[0]))
    assert arrow[1] == spark[1]
    assert arrow[2:] == spark[2:]
    assert {one["code"] for one in spark[1]} == {
        *("CAST_INVALID_INPUT", "DIVIDE_BY_ZERO", "NUMERIC_OUT_OF_SUPPORTED_RANGE"),
        "dated",
    }


def test_rows_that_throw_are_dead_letters_with_the_words_of_spark(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f"""\
  shaped:
    path: shaped
    from: clicks
    schema: {SCHEMA}
    where: cast(if(event_id % 100 = 1, 'x', '1') AS int) = 1
    select:
    - event_id
    - reverse(brand) AS turned
    - cast(if(event_id % 100 = 0, concat('b', event_id), '7') AS int) AS n
    - cast(if(event_id % 100 = 0, concat('b', event_id), '7') AS int) + 1 AS more
    - nanvl(if(event_id % 100 = 2, double('NaN'), price), 1D / 0) AS paid
""",
    )

    run(file)

    dead = letters(tmp_path)
    numbers = [json.loads(one["payload"])["event_id"] for one in dead]
    assert_each_once([*range(0, 1000, 100), *range(1, 1000, 100), *range(2, 1000, 100)], numbers)
    assert {one["stage"] for one in dead} == {"select"}
    words = {"CAST_INVALID_INPUT": 'cannot be cast to "INT"', "DIVIDE_BY_ZERO": "Division by zero"}
    assert all(words[one["code"]] in one["error"] for one in dead)
    assert {
        json.loads(one["payload"])["event_id"] % 100 for one in dead if one["code"] == "DIVIDE_BY_ZERO"
    } == {2}
    assert any("'b300'" in one["error"] for one in dead)
    assert {(one["partition"], one["offset"]) for one in dead} >= {(0, 0), (1, 0)}
    assert_each_once(set(range(1000)) - set(numbers), table_ids(tmp_path / "shaped"))
    assert verify(Pipeline.from_file(file)).sound


def test_dead_letters_are_rows_after_the_sql_is_corrected(tmp_path: Path) -> None:
    table = f"""\
  shaped:
    path: shaped
    from: clicks
    schema: {SCHEMA}
    select: ["event_id", "reverse(brand) AS turned", "12 DIVIDED (event_id % 7) AS n"]
"""
    file = written(tmp_path, table.replace("DIVIDED", "/"))
    run(file)
    assert len(letters(tmp_path)) == len(range(0, 1000, 7))
    file.write_text(file.read_text().replace("12 / (event_id % 7)", "try_divide(12, event_id % 7)"))

    (done,) = replay(Pipeline.from_file(file), DeadLetterFilter())

    assert done.rows == len(range(0, 1000, 7))
    assert not letters(tmp_path)
    assert_each_once(range(1000), table_ids(tmp_path / "shaped"))


def test_run_in_this_process_asks_spark_for_such_tables_alone(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f"""\
  turned: {{path: turned, from: clicks, schema: {SCHEMA}, select: ["event_id", "reverse(brand) AS turned"]}}
  plain: {{path: plain, from: clicks, schema: {SCHEMA}}}
""",
    )

    run_inline(Pipeline.from_file(file))

    brands = {one["event_id"]: one["brand"] for one in rows(tmp_path / "plain")}
    assert {one["event_id"]: one["turned"][::-1] for one in rows(tmp_path / "turned")} == brands


def test_tables_of_one_source_go_each_its_way(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f"""\
  turned: {{path: turned, from: clicks, schema: {SCHEMA}, select: ["event_id", "reverse(brand) AS turned"]}}
  plain: {{path: plain, from: clicks, schema: {SCHEMA}}}
  hashed: {{path: hashed, from: clicks, schema: {SCHEMA}, select: ["event_id", "xxhash64(brand) AS hash"]}}
  cheap: {{path: cheap, from: clicks, schema: {SCHEMA}, where: price < 100}}
""",
    )

    run(file)
    run(file)

    for name in ("turned", "plain", "hashed"):
        assert_each_once(range(1000), table_ids(tmp_path / name))
    brands = {one["event_id"]: one["brand"] for one in rows(tmp_path / "plain")}
    assert all(one["turned"] == brands[one["event_id"]][::-1] for one in rows(tmp_path / "turned"))
    assert verify(Pipeline.from_file(file)).sound


def test_columns_that_events_show_first_are_added_and_nothing_is_written_before(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        """\
  shaped: {path: shaped, from: clicks, schema: {event_id: long}, select: ["*", "hex(event_id) AS hex"]}
""",
    )

    run(file)

    assert_each_once(range(1000), table_ids(tmp_path / "shaped"))
    found = rows(tmp_path / "shaped")
    assert found[10]["hex"] == "A"
    assert {"brand", "price", "user_session"} <= set(found[0])
    assert all(one["brand"] for one in found)


def test_rule_that_fails_stops_the_table_before_anything_lands(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f"""\
  shaped:
    path: shaped
    from: clicks
    schema: {SCHEMA}
    select: ["event_id", "reverse(brand) AS turned"]
    expect: {{early: {{that: event_id < 900, otherwise: fail}}}}
""",
    )

    with pytest.raises(TableError, match=r"expect.early.*event_id is 9\d\d"):
        run(file)

    assert len(table_ids(tmp_path / "shaped")) == 800


def test_routes_and_partitions_take_what_spark_made(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f"""\
  routed:
    route: "routed/{{turned}}"
    from: clicks
    schema: {SCHEMA}
    select:
    - event_id
    - if(event_id % 50 = 0, NULL, reverse(cast(event_id % 3 AS string))) AS turned
    - event_time
    partition_by: [day(event_time)]
""",
    )

    run(file)

    landed = [one for name in "012" for one in table_ids(tmp_path / "routed" / name)]
    dead = [json.loads(one["payload"])["event_id"] for one in letters(tmp_path / "routed")]
    assert_each_once(range(0, 1000, 50), dead)
    assert_each_once(range(1000), landed, dead)


def test_keyed_table_takes_changes_that_spark_shaped(tmp_path: Path) -> None:
    file = written(
        tmp_path,
        f"""\
  users:
    path: users
    from: clicks
    schema: {SCHEMA}
    mode: upsert
    keys: user
    delete_when: user_id % 10 = 0
    select: ["event_id % 100 AS user", "reverse(brand) AS turned", "event_id"]
""",
    )

    run(file)

    found = DeltaTable(tmp_path / "users").to_pyarrow_table().to_pylist()
    assert len({one["user"] for one in found}) == len(found)
    assert found


def test_stream_that_is_stopped_goes_on_where_it_was(tmp_path: Path) -> None:
    table = f"""\
  shaped: {{path: shaped, from: clicks, schema: {SCHEMA}, select: ["event_id", "reverse(brand) AS turned"]}}
"""
    file = written(tmp_path, table, "flush: {rows: 100, interval: 50ms}")
    stop = threading.Event()
    from lakefeed.run import run as run_until

    thread = threading.Thread(target=run_until, args=(Pipeline.from_file(file),), kwargs={"stop": stop})
    thread.start()
    wait_until(lambda: (tmp_path / "shaped" / "_delta_log" / f"{2:020}.json").exists(), 120, lambda: "")
    stop.set()
    thread.join(120)
    assert not thread.is_alive()

    run(file)

    assert_each_once(range(1000), table_ids(tmp_path / "shaped"))


def test_a_name_that_an_earlier_flow_had_in_the_session_does_not_stop_one_with_sql(
    tmp_path: Path, spark: Any
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources: {clicks: {type: generate, rows: 100}}
tables:
  turned: {path: turned, from: clicks, select: ["event_id", "reverse(brand) AS turned"]}
  plain: {path: plain, from: clicks}
"""
    )

    class Earlier(DataSource):
        @classmethod
        def name(cls) -> str:
            return f"lakefeed_clicks_{zlib.crc32(b'shop/clicks/1'):08x}"

    spark.dataSource.register(Earlier)
    spark.createDataFrame([(1,)], "one int")
    ended = Drivers(spark).run(file)

    assert ended.code == 0, ended.said
    assert len(table_ids(tmp_path / "turned")) == len(table_ids(tmp_path / "plain")) == 100
