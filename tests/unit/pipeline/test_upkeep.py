from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from lakefeed import Pipeline
from lakefeed.pipeline.upkeep import Compact, DeleteAfter, Vacuum

Write = Callable[[str], Path]
Problems = Callable[..., list[str]]


def test_upkeep_is_on_by_itself_with_safe_intervals(write: Write, small: str) -> None:
    upkeep = Pipeline.from_file(write(small)).upkeep_for("clicks")

    assert upkeep is not None
    assert upkeep.compact == Compact(every=600, min_files=8)
    assert upkeep.vacuum == Vacuum(every=86_400, retain=None)
    assert upkeep.delete_after == "off"
    assert upkeep.log.properties == {}
    assert upkeep.engine == "delta-rs"


def test_upkeep_may_be_turned_off_for_all_or_for_one(write: Write, small: str) -> None:
    all_off = Pipeline.from_file(write(f"{small}upkeep: off\n"))
    one_off = Pipeline.from_file(write(small.replace("from: clicks", "from: clicks, upkeep: off")))
    no_vacuum = Pipeline.from_file(write(f"{small}upkeep: {{vacuum: false}}\n"))

    assert all_off.upkeep_for("clicks") is None
    assert all_off.dead_letters_upkeep is None
    assert one_off.upkeep_for("clicks") is None
    assert one_off.dead_letters_upkeep is not None
    upkeep = no_vacuum.upkeep_for("clicks")
    assert upkeep is not None and upkeep.vacuum == "off"


def test_table_takes_the_place_of_single_keys(write: Write, small: str) -> None:
    own = "from: clicks, upkeep: {compact: {every: 1m}, max_share: 0.5}"
    text = small.replace("from: clicks", own) + "upkeep: {compact: {min_files: 3}, vacuum: {every: 2d}}\n"

    upkeep = Pipeline.from_file(write(text)).upkeep_for("clicks")

    assert upkeep is not None
    assert upkeep.compact == Compact(every=60, min_files=3)
    assert upkeep.vacuum == Vacuum(every=172_800)
    assert upkeep.max_share == 0.5


def test_dead_letters_are_deleted_only_by_their_own_rule(write: Write, small: str) -> None:
    everywhere = "upkeep: {delete_after: {column: at, age: 90d}}\n"
    own = "dead_letters: {upkeep: {delete_after: {column: dead_at, age: 30d}}}\n"

    without = Pipeline.from_file(write(small + everywhere)).dead_letters_upkeep
    with_own = Pipeline.from_file(write(small + everywhere + own)).dead_letters_upkeep

    assert without is not None and without.delete_after == "off"
    assert with_own is not None and with_own.delete_after == DeleteAfter(column="dead_at", age=2_592_000)


def test_short_retention_is_refused_unless_it_is_allowed(problems: Problems, small: str) -> None:
    text = f"{small}upkeep:\n  vacuum: {{retain: 1d}}\n"

    assert problems(text) == [
        "shop.yaml:7: upkeep.vacuum: retain: 1d is shorter than 7d, and readers of older versions would "
        "fail; set `allow_short_retention: true` if that is meant"
    ]
    assert problems(text.replace("1d", "1d, allow_short_retention: true")) == []


def test_columns_of_upkeep_are_checked_against_the_schema(problems: Problems) -> None:
    text = """\
name: shop
sources:
  clicks: {type: queue, brokers: here}
tables:
  clicks:
    path: lake/clicks
    from: clicks
    schema: {id: long, at: timestamp, day: date, tags: "array<string>"}
    partition_by: [day]
    cluster_by: [idd, day, tags]
    sort_by: [att, day, tags]
    file_name: {prefix: _x, strategy: uid}
    upkeep: {delete_after: {column: id, age: 1d}}
  other: {path: lake/other, from: clicks, schema: {id: long}, shuffle_by_partition: true}
upkeep: {delete_after: {column: at, age: 90d}}
"""

    assert problems(text) == [
        "shop.yaml:10: tables.clicks.cluster_by.0: the table has no column 'idd', did you mean 'id'?",
        "shop.yaml:10: tables.clicks.cluster_by.1: 'day' is a partition column, so each file has one value "
        "of it already",
        "shop.yaml:10: tables.clicks.cluster_by.2: rows cannot be ordered by a column of type array<string>",
        "shop.yaml:11: tables.clicks.sort_by.0: the table has no column 'att', did you mean 'at'?",
        "shop.yaml:11: tables.clicks.sort_by.1: 'day' is a partition column, so each file has one value of "
        "it already",
        "shop.yaml:11: tables.clicks.sort_by.2: rows cannot be ordered by a column of type array<string>",
        "shop.yaml:12: tables.clicks.file_name.prefix: expected up to 64 letters, digits, dots, dashes and "
        "underscores that begin with a letter or digit, got '_x'",
        "shop.yaml:12: tables.clicks.file_name.strategy: expected 'uuid', 'uuid7' or 'serial', got 'uid'",
        "shop.yaml:13: tables.clicks.upkeep.delete_after.column: a row's age needs a timestamp or date "
        "column, 'id' is long",
        "shop.yaml:14: tables.other.shuffle_by_partition: has an effect only with `partition_by`; add that, "
        "or remove this",
        "shop.yaml:15: upkeep.delete_after.column: table other: the table has no column 'at'",
    ]


def test_spark_is_refused_for_a_table_in_an_object_store(problems: Problems, small: str) -> None:
    text = small.replace("lake/clicks", "s3://lake/clicks") + "upkeep: {engine: spark}\n"

    assert problems(text) == [
        "shop.yaml:6: upkeep.engine: Spark's commits to s3://lake/clicks are not conditional, so commits of "
        "other writers could be lost; leave `engine` out"
    ]


def test_log_is_described_in_one_place(problems: Problems, small: str) -> None:
    own = "from: clicks, properties: {delta.logRetentionDuration: interval 30 days}"
    text = small.replace("from: clicks", own) + "upkeep: {log: {retain: 30d}}\n"

    assert problems(text) == [
        "shop.yaml:5: tables.clicks.properties.delta.logRetentionDuration: `upkeep.log.retain` says this "
        "already; give one of them"
    ]


def test_nonsense_is_told_in_plain_words(problems: Problems, small: str) -> None:
    text = f"{small}upkeep:\n  compact: daily\n  max_share: 2\n  vaccum: off\n"

    assert problems(text) == [
        "shop.yaml:7: upkeep.compact: expected keys and values or 'off', got 'daily'",
        "shop.yaml:8: upkeep.max_share: expected a number of at most 1.0, got 2",
        "shop.yaml:9: upkeep.vaccum: unknown key, did you mean 'vacuum'?",
    ]
