from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from lakefeed.errors import PipelineFileError
from lakefeed.pipeline.loading.load import load
from lakefeed.pipeline.pipeline import Pipeline

Problems = Callable[..., list[str]]


def test_the_smallest_file_loads(write: Callable[[str], Path], small: str) -> None:
    loaded = load(write(small))

    assert loaded.pipeline.name == "shop"
    assert loaded.pipeline.tables["clicks"].from_ == ("clicks",)
    assert loaded.warnings == ()


def test_every_problem_is_reported_at_once_with_its_line(problems: Problems) -> None:
    text = """\
name: my shop
sources:
  clicks:
    type: queue
    brokers: here
    topcis: [a]
    start: 5
    format: {type: lines, separater: x}
  other: {type: quue}
  third: {brokers: here}
tables:
  clicks:
    path: lake/clicks
    from: click
    partition_by: [day(user_id)]
    schema:
      user_id: lnog
      price: decimal(10,2)
      Price: long
      a b: long
    compression: zip
    commit_retries: -1
    max_rows_per_file: abc
    properties: {delta.enableDeletionVectors: true}
  again:
    path: ./lake/x/../clicks/
    from: [clicks, clicks]
    create: maybe
    metadata: [a]
  third: {path: 'ftp://lake/third'}
flush: {interval: 5, rows: 0}
spark: local
htpp: {listen: here}
"""

    found = problems(text)

    assert found == [
        "shop.yaml:1: name: expected at most 100 letters, digits, '_', '-' and '.', got 'my shop'",
        "shop.yaml:6: sources.clicks.topcis: unknown key, did you mean 'topics'?",
        "shop.yaml:7: sources.clicks.start: expected 'earliest' or 'latest' or keys and values, got 5",
        "shop.yaml:8: sources.clicks.format.separater: unknown key, did you mean 'separator'?",
        "shop.yaml:9: sources.other.type: unknown source type 'quue', did you mean 'queue'?",
        "shop.yaml:10: sources.third.type: missing; the type of the source: queue",
        "shop.yaml:14: tables.clicks.from: unknown source 'click', did you mean 'clicks'?",
        "shop.yaml:17: tables.clicks.schema.user_id: unknown type 'lnog', did you mean 'long'?",
        "shop.yaml:19: tables.clicks.schema.Price: differs from 'price' only in case; engines treat both as "
        "one column",
        "shop.yaml:20: tables.clicks.schema.a b: a column name may not contain a space; write 'a_b'",
        "shop.yaml:21: tables.clicks.compression: expected 'zstd', 'snappy', 'gzip', 'lz4' or 'none', "
        "got 'zip'",
        "shop.yaml:22: tables.clicks.commit_retries: expected a number of at least 0, got -1",
        "shop.yaml:23: tables.clicks.max_rows_per_file: expected a whole number, got 'abc'",
        "shop.yaml:24: tables.clicks.properties.delta.enableDeletionVectors: refused: deletion vectors are "
        "not readable by every engine; use `updates: merge_on_read`",
        f"shop.yaml:26: tables.again.path: '{Path.cwd()}/lake/clicks' is the path of table 'clicks' already; "
        "each needs its own",
        "shop.yaml:27: tables.again.from: names 'clicks' twice",
        "shop.yaml:28: tables.again.create: expected true or false, got 'maybe'",
        "shop.yaml:29: tables.again.metadata: unknown metadata column 'a'; known are _topic, _partition, "
        "_offset, _timestamp, _key and _headers",
        "shop.yaml:30: tables.third.from: required, but missing",
        "shop.yaml:30: tables.third.path: expected a local path, file:///path, s3://bucket/path, "
        "gs://bucket/path or az://container/path, got one of ftp://",
        "shop.yaml:31: flush.interval: expected a duration with its unit, got 5; write 5s for seconds",
        "shop.yaml:31: flush.rows: expected a number greater than 0, got 0",
        "shop.yaml:32: spark: expected keys and values, got 'local'",
        "shop.yaml:33: htpp: unknown key, did you mean 'http'?",
    ]


def test_missing_keys_are_reported_at_their_parent(problems: Problems) -> None:
    assert problems("name: shop\nsources:\n  a: {type: queue}\ntables: {}\n") == [
        "shop.yaml:3: sources.a.brokers: required, but missing",
        "shop.yaml:4: tables: expected at least one",
    ]
    assert problems("flush: {rows: 1}\n") == [
        "shop.yaml:1: name: required, but missing",
        "shop.yaml:1: sources: required, but missing",
        "shop.yaml:1: tables: required, but missing",
    ]


@pytest.mark.parametrize("name", ["from_", "columns"])
def test_names_of_the_python_api_are_no_keys_of_the_file(problems: Problems, small: str, name: str) -> None:
    text = small.replace("from: clicks}", f"from: clicks, {name}: x}}")

    assert any(f"tables.clicks.{name}: unknown key" in problem for problem in problems(text))


def test_a_source_that_feeds_no_table_is_an_error(problems: Problems, small: str) -> None:
    text = small.replace("tables:", "  idle: {type: queue, brokers: here}\ntables:")

    assert problems(text) == [
        "shop.yaml:4: sources.idle: feeds no table; add `from: idle` to a table, or remove this source"
    ]


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("lake/clicks/deep", "is inside table 'clicks' at"),
        ("lake", "contains table 'clicks' at"),
        ("lake/clicks/", "is the path of table 'clicks' already; each needs its own"),
        ("lake/shop_dead_letters", "is the path of table 'more' already"),
    ],
)
def test_tables_and_dead_letters_do_not_overlap(
    problems: Problems, small: str, path: str, message: str
) -> None:
    found = problems(small + f"  more: {{path: {path}, from: clicks}}\n")

    assert any(message in problem for problem in found)


def test_dead_letters_inside_a_table_are_refused(problems: Problems, small: str) -> None:
    found = problems(small + "dead_letters: {path: lake/clicks/dead}\n")

    assert len(found) == 1
    assert found[0].startswith("shop.yaml:6: dead_letters.path: ")
    assert "is inside table 'clicks'" in found[0]


def test_one_table_under_two_spellings_of_a_store_is_refused(problems: Problems) -> None:
    text = """\
name: shop
sources: {a: {type: queue, brokers: here}}
tables:
  one: {path: s3://lake/t, from: a}
  two: {path: s3a://lake//t/, from: a}
"""

    assert problems(text) == [
        "shop.yaml:5: tables.two.path: 's3://lake/t' is the path of table 'one' already; each needs its own"
    ]


def test_names_that_contradict_each_other_are_reported_with_their_line(problems: Problems) -> None:
    text = """\
name: shop
sources: {a: {type: queue, brokers: here}}
tables:
  one:
    path: t
    from: a
    evolve: rescue
    schema: {_rescued: string, old: long, gone: long, where: string}
    metadata: {_topic: where}
    drop: [gone, other]
    rename:
      old: new
      older: NEW
      other: another
  two: {path: u, from: a, evolve: {new_column: rescued}, metadata: {_topik: x}}
  three: {path: v, from: a, metadata: {as: a b}, rename: {a: "b c"}, drop: [a, a]}
  four: {path: w, from: a, metadata: {_topic: x, _key: X}, schema: guess, evolve: {type_change: add}}
  five: {path: x, from: a, evolve: append}
"""

    assert problems(text) == [
        "shop.yaml:8: tables.one.schema._rescued: `evolve` adds a column '_rescued' already; "
        "rename this one, or change `evolve`",
        "shop.yaml:8: tables.one.schema.gone: no event fills it, as it is in `drop`",
        "shop.yaml:8: tables.one.schema.old: no event fills it, as `rename` calls 'old' 'new'; declare that",
        "shop.yaml:8: tables.one.schema.where: `metadata` adds a column 'where' already; rename this one, or "
        "change `metadata`",
        "shop.yaml:13: tables.one.rename.older: 'NEW' is the new name of 'old' already",
        "shop.yaml:14: tables.one.rename.other: 'other' is in `drop` as well; remove it from one of them",
        "shop.yaml:15: tables.two.evolve.new_column: expected 'add', 'ignore', 'rescue', 'dead_letter' or "
        "'fail', got 'rescued'",
        "shop.yaml:15: tables.two.metadata: unknown metadata column '_topik', did you mean '_topic'?",
        "shop.yaml:16: tables.three.drop: names 'a' twice",
        "shop.yaml:16: tables.three.metadata: 'a b': a column name may not contain a space",
        "shop.yaml:16: tables.three.rename.a: a column name may not contain a space; write 'b_c'",
        "shop.yaml:16: tables.three.rename.a: 'a' is in `drop` as well; remove it from one of them",
        "shop.yaml:17: tables.four.evolve.type_change: expected 'widen', 'dead_letter', 'rescue' "
        "or 'fail', got 'add'",
        "shop.yaml:17: tables.four.metadata: makes two columns 'X', which are one in a table",
        "shop.yaml:17: tables.four.schema: expected infer, or keys and values, got 'guess'",
        "shop.yaml:18: tables.five.evolve: expected one of add, ignore, rescue, dead_letter, fail, or keys "
        "and values, got 'append'",
    ]


def test_a_column_may_not_take_the_name_of_a_metadata_column(problems: Problems) -> None:
    text = """\
name: shop
sources: {a: {type: queue, brokers: here}}
tables:
  one:
    path: t
    from: a
    metadata: true
    schema: {_offset: long, x: long}
    partition_by: [day(_timestamp), _topic, _key]
"""

    assert problems(text) == [
        "shop.yaml:8: tables.one.schema._offset: `metadata` adds a column '_offset' already; "
        "rename this one, or change `metadata`",
        "shop.yaml:9: tables.one.partition_by.2: a table cannot be partitioned by a column of type binary",
    ]


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("delta.setTransactionRetentionDuration", "interval 7 days", "events be repeated"),
        ("delta.columnMapping.mode", "name", "column mapping is not readable by every engine"),
        ("delta.enableTypeWidening", "true", "type widening is not readable by every engine"),
        ("delta.feature.deletionVectors", "supported", "a table with this feature is not readable"),
    ],
)
def test_properties_that_break_a_promise_are_refused(
    problems: Problems, small: str, name: str, value: str, reason: str
) -> None:
    text = small.replace("from: clicks}", f"from: clicks, properties: {{{name}: {value}}}}}")

    (found,) = problems(text)

    assert found.startswith(f"shop.yaml:5: tables.clicks.properties.{name}: refused: ")
    assert reason in found


def test_harmless_properties_become_the_text_that_delta_wants(
    write: Callable[[str], Path], small: str
) -> None:
    properties = "{delta.appendOnly: true, delta.checkpointInterval: 20, owner: me}"
    pipeline = load(
        write(small.replace("from: clicks}", f"from: clicks, properties: {properties}}}"))
    ).pipeline

    assert pipeline.tables["clicks"].properties == {
        "delta.appendOnly": "true",
        "delta.checkpointInterval": "20",
        "owner": "me",
    }


def test_types_with_colons_need_no_quotes(write: Callable[[str], Path]) -> None:
    text = """\
name: shop
sources:
  clicks: {type: queue, brokers: here}
tables:
  clicks:
    path: lake/clicks
    from: clicks
    schema:
      meta: struct<ip: string, tags: array<string>> not null   # as in the book
      more: array<struct<a: long>>
"""
    declared = load(write(text)).pipeline.tables["clicks"].declared

    assert declared is not None
    assert not declared.field("meta").nullable
    assert declared.field("meta").type.field("ip").type == "string"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "shop.yaml:1: the file is empty; a pipeline file begins with `name:`, `sources:` and `tables:`"),
        (
            "# nothing\n",
            "shop.yaml:1: the file is empty; a pipeline file begins with `name:`, `sources:` and `tables:`",
        ),
        ("- a\n", "shop.yaml:1: expected keys and values, got a list; a pipeline file begins with `name:`"),
        ("[" * 3000, "shop.yaml:1: nested deeper than 50 levels"),
        ("a: &a {<<: *a}\n", "shop.yaml:1: an alias refers to itself"),
        ("a: &a [*a]\n", "shop.yaml:1: nested deeper than 50 levels"),
    ],
)
def test_a_file_that_is_no_mapping_says_why(problems: Problems, text: str, message: str) -> None:
    (found,) = problems(text)

    assert found.startswith(message)


def test_an_alias_bomb_is_refused_quickly(problems: Problems) -> None:
    lines = ["a: &a [x, x, x, x, x, x, x, x, x, x]"]
    lines += [
        f"{key}: &{key} [{', '.join([f'*{before}'] * 10)}]"
        for before, key in zip("abcdefg", "bcdefgh", strict=True)
    ]

    (found,) = problems("\n".join(lines))

    assert found.endswith("more than 10,000 values, aliases unfolded")


def test_anchors_and_merges_work(write: Callable[[str], Path]) -> None:
    text = """\
name: shop
sources:
  a: &queue {type: queue, brokers: here, topics: [a]}
  b:
    <<: *queue
    topics: [b]
tables:
  t: {path: t, from: [a, b]}
"""
    sources = load(write(text)).pipeline.sources

    assert sources["b"].model_dump()["topics"] == ("b",)
    assert sources["b"].model_dump()["brokers"] == "here"


def test_a_key_given_twice_is_reported_at_the_second(problems: Problems, small: str) -> None:
    assert problems(small + "flush: {rows: 1}\nflush: {rows: 2}\n") == [
        "shop.yaml:7: flush: is given twice; first in line 6"
    ]


@pytest.mark.parametrize("tag", ["!!python/object:os.system", "!!int", "!mine"])
def test_tags_are_refused(problems: Problems, small: str, tag: str) -> None:
    assert problems(small + f"stop_timeout: {tag} '5'\n") == [
        f"shop.yaml:6: stop_timeout: the tag {tag} is not supported; write the value without it"
    ]


def test_words_that_other_readers_take_for_booleans_and_dates_stay_words(
    write: Callable[[str], Path], small: str
) -> None:
    options = "{country: no, day: 2026-11-15, id: 007, version: 0.10, big: 1_000, on: true, n: 1.5}"
    pipeline = load(write(small.replace("brokers: here}", f"brokers: here, options: {options}}}"))).pipeline

    assert pipeline.sources["clicks"].model_dump()["options"] == {
        "country": "no",
        "day": "2026-11-15",
        "id": "007",
        "version": "0.10",
        "big": "1_000",
        "on": "true",
        "n": "1.5",
    }


def test_characters_that_json_writes_in_halves_are_put_together(
    write: Callable[[str], Path], problems: Problems, small: str
) -> None:
    pipeline = load(write(small + r'storage: {"\ud83d\ude00": "\ud83d\ude00"}')).pipeline

    assert pipeline.storage == {"\U0001f600": "\U0001f600"}
    assert problems(small + r'storage: {a: "\ud83d", "\ude00": b}') == [
        "shop.yaml:6: storage: a key contains half of a surrogate pair; write the character itself, in UTF-8",
        "shop.yaml:6: storage.a: the text contains half of a surrogate pair; write the character itself, in "
        "UTF-8",
    ]


def test_a_boolean_is_no_number(problems: Problems, small: str) -> None:
    assert problems(small + "flush: {rows: true}\n") == [
        "shop.yaml:6: flush.rows: expected a whole number, got true"
    ]


def test_numbers_may_be_written_with_underscores(write: Callable[[str], Path], small: str) -> None:
    assert load(write(small + "flush: {rows: 1_000}\n")).pipeline.flush.rows == 1000


def refusal(name: str) -> str:
    with pytest.raises(PipelineFileError) as caught:
        load(name)
    return str(caught.value)


def test_a_missing_file_and_a_directory_have_no_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("empty").mkdir()

    assert refusal("nowhere.yaml") == "nowhere.yaml: no such file"
    assert refusal("empty") == "empty: is a directory; name the pipeline file in it"


def test_a_missing_file_is_told_with_the_one_that_may_be_meant(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shop").mkdir()
    Path("shop/shop.yaml").touch()
    Path("clicks.yaml").touch()

    assert refusal("shop.yaml") == "shop.yaml: no such file, did you mean 'shop/shop.yaml'?"
    assert (
        refusal("shop")
        == "shop: is a directory; name the pipeline file in it, did you mean 'shop/shop.yaml'?"
    )
    assert refusal("clicks") == "clicks: no such file, did you mean 'clicks.yaml'?"
    assert refusal("clcks.yaml") == "clcks.yaml: no such file, did you mean 'clicks.yaml'?"


def test_a_file_that_is_too_large_or_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "large.yaml").write_text("a" * (1024**2 + 1))
    (tmp_path / "latin.yaml").write_bytes(b"name: shop\n# caf\xe9\n")

    with pytest.raises(PipelineFileError, match="larger than 1 MB"):
        load(tmp_path / "large.yaml")
    with pytest.raises(PipelineFileError, match=r"latin\.yaml:2: not UTF-8 text"):
        load(tmp_path / "latin.yaml")


def test_from_file_takes_overrides(write: Callable[[str], Path], small: str) -> None:
    pipeline = Pipeline.from_file(write(small), overrides=["flush.rows=7"])

    assert pipeline.flush.rows == 7
