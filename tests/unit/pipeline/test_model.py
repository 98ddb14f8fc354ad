from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakefeed.errors import PipelineFileError, UsageError
from lakefeed.pipeline.options.paths import is_inside, location, sibling
from lakefeed.pipeline.pipeline import DeadLetters, Pipeline
from lakefeed.pipeline.table import Table
from lakefeed.sources.generate.source import GenerateSource
from unit.pipeline.pipeline_connectors import LinesFormat, QueueSource

EXPECTED = "expected a local path, file:///path, s3://bucket/path, gs://bucket/path or az://container/path"


def _pipeline(**changes: Any) -> Pipeline:
    parts: dict[str, Any] = {
        "name": "shop",
        "sources": {"clicks": QueueSource(brokers="here")},
        "tables": {"clicks": Table(path="/lake/clicks", from_=("clicks",))},
    }
    return Pipeline(**{**parts, **changes})


def test_a_pipeline_built_in_code_has_the_documented_defaults() -> None:
    pipeline = _pipeline()

    assert pipeline.spark.master == "local[*]"
    assert (pipeline.stop_timeout, pipeline.give_up_after, pipeline.state) == (30.0, 600.0, ".lakefeed")
    table = pipeline.tables["clicks"]
    assert (table.create, table.metadata, table.compression) == (True, False, "zstd")
    assert (table.target_file_size, table.max_rows_per_file, table.commit_retries) == (128 * 1024**2, None, 5)
    assert table.declared is None


def test_a_pipeline_cannot_be_changed() -> None:
    with pytest.raises(UsageError, match=r"Pipeline\.name cannot be changed.*immutable.\nBuild a new one"):
        _pipeline().name = "other"  # type: ignore[misc]


def test_a_mistake_is_told_by_the_argument_that_was_given() -> None:
    wrong = {"a": "lnog"}

    for name in ("schema", "columns"):
        with pytest.raises(PipelineFileError, match=f"Table: {name}.a: unknown type 'lnog'"):
            Table(path="/lake/clicks", from_=("clicks",), **{name: wrong})  # type: ignore[arg-type]
    with pytest.raises(PipelineFileError, match="Table: from_: expected at least one"):
        Table(path="/lake/clicks", from_=())


def test_a_pipeline_knows_how_to_type_its_file_in_a_shell(tmp_path: Path, small: str) -> None:
    file = tmp_path / "my shop.yaml"
    file.write_text(small)

    assert Pipeline.from_file(file).file_argument == f"'{file}'"
    assert _pipeline().file_argument == "FILE"


def test_what_does_not_fit_together_is_refused_in_code_as_well() -> None:
    with pytest.raises(PipelineFileError) as refusal:
        _pipeline(tables={"clicks": Table(path="/lake/clicks", from_=("click",))})

    assert "tables.clicks.from: unknown source 'click', did you mean 'clicks'?" in str(refusal.value)


def test_a_format_is_no_source() -> None:
    with pytest.raises(PipelineFileError, match="expected a source, got a format"):
        _pipeline(sources={"clicks": LinesFormat()})


def test_a_format_may_be_given_by_name_by_options_or_as_a_model() -> None:
    by_name = QueueSource.model_validate({"brokers": "here", "format": "lines"})
    by_options = QueueSource.model_validate(
        {"brokers": "here", "format": {"type": "lines", "separator": ";"}}
    )
    as_model = QueueSource(brokers="here", format=LinesFormat(separator=";"))

    assert by_name.format == LinesFormat()
    assert by_options == as_model


def test_a_tables_storage_adds_to_the_pipelines() -> None:
    pipeline = _pipeline(
        storage={"AWS_REGION": "here", "AWS_ENDPOINT_URL": "http://one"},
        tables={
            "clicks": Table(
                path="/lake/clicks", from_=("clicks",), storage={"AWS_ENDPOINT_URL": "http://two"}
            )
        },
    )

    assert pipeline.storage_for("clicks") == {"AWS_REGION": "here", "AWS_ENDPOINT_URL": "http://two"}


def test_options_become_the_text_that_clients_want() -> None:
    pipeline = _pipeline(storage={"AWS_ALLOW_HTTP": True, "TIMEOUT": 5})

    assert pipeline.storage == {"AWS_ALLOW_HTTP": "true", "TIMEOUT": "5"}


def test_dead_letters_lie_beside_the_first_table_and_share_its_storage() -> None:
    table = Table(path="s3://lake/raw/clicks", from_=("clicks",), storage={"AWS_REGION": "here"})
    pipeline = _pipeline(tables={"clicks": table})

    assert pipeline.dead_letters_path == "s3://lake/raw/shop_dead_letters"
    assert pipeline.dead_letters_storage == {"AWS_REGION": "here"}


def test_dead_letters_with_a_path_use_the_pipelines_storage_and_their_own() -> None:
    letters = DeadLetters(path="s3://lake/letters", storage={"B": "2"})
    pipeline = _pipeline(storage={"A": "1"}, dead_letters=letters)

    assert pipeline.dead_letters_path == "s3://lake/letters"
    assert pipeline.dead_letters_storage == {"A": "1", "B": "2"}


def test_a_sources_own_flush_takes_the_place_of_the_pipelines() -> None:
    pipeline = Pipeline.model_validate(
        {
            "name": "shop",
            "sources": {
                "a": {"type": "queue", "brokers": "here", "flush": {"interval": "1s"}},
                "b": {"type": "queue", "brokers": "here"},
            },
            "tables": {"t": {"path": "/t", "from": ["a", "b"]}, "u": {"path": "/u", "from": "b"}},
            "flush": {"rows": 10},
        }
    )

    assert (pipeline.flush_for("a").interval, pipeline.flush_for("a").rows) == (1.0, 1_000_000)
    assert pipeline.flush_for("b").rows == 10
    assert list(pipeline.tables_of("a")) == ["t"]
    assert list(pipeline.tables_of("b")) == ["t", "u"]


def test_a_pipeline_travels_to_other_processes() -> None:
    pipeline = _pipeline(flush={"interval": "1s"})

    assert pickle.loads(pickle.dumps(pipeline)) == pipeline


def test_run_hands_over_to_the_engine(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Any, ...]] = []
    monkeypatch.setattr(
        "lakefeed.background.run",
        lambda pipeline, once, master, **_: calls.append((pipeline, once, master)),
    )
    pipeline = _pipeline(sources={"clicks": GenerateSource(rows=1, format=LinesFormat())})

    pipeline.run(once=True, master="local[1]")

    assert calls == [(pipeline, True, "local[1]")]


def test_relative_paths_are_relative_to_the_file(
    write: Callable[[str], Path], tmp_path: Path, small: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(small)
    monkeypatch.chdir("/")

    pipeline = Pipeline.from_file(tmp_path / "shop.yaml")

    assert pipeline.tables["clicks"].path == str(tmp_path / "lake/clicks")
    assert pipeline.dead_letters_path == str(tmp_path / "lake/shop_dead_letters")
    assert pipeline.state == str(tmp_path / ".lakefeed")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/lake/a/", "/lake/a"),
        ("/lake/b/../a", "/lake/a"),
        ("file:///lake/a%20b/", "/lake/a b"),
        ("s3://bucket/a//b/", "s3://bucket/a/b"),
        ("s3a://Bucket/A", "s3://Bucket/A"),
        ("gs://bucket/a/", "gs://bucket/a"),
        ("az://container/a//b", "az://container/a/b"),
        ("adl://container/a", "az://container/a"),
        ("abfss://container/a", "az://container/a"),
        ("abfs://lake@Account.dfs.core.windows.net/a", "abfss://lake@account.dfs.core.windows.net/a"),
        ("lake/a", "lake/a"),
    ],
)
def test_a_location_has_one_spelling(text: str, expected: str) -> None:
    assert location(text) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ftp://bucket/a", f"{EXPECTED}, got one of ftp://"),
        ("gs://bucket", "expected gs://bucket/path without '.', '..', '#' and '?', got 'gs://bucket'"),
        ("az://me@here/a", "expected az://container/path; credentials and endpoints belong in `storage`"),
        ("s3://b/a?x", "expected s3://bucket/path without '.', '..', '#' and '?', got 's3://b/a?x'"),
        ("", f"{EXPECTED}, got ''"),
        ("/", f"{EXPECTED}, got '/'"),
        ("a\0b", rf"{EXPECTED}, got 'a\x00b'"),
        ("s3://bucket", "expected s3://bucket/path without '.', '..', '#' and '?', got 's3://bucket'"),
        ("s3://b/../a", "expected s3://bucket/path without '.', '..', '#' and '?', got 's3://b/../a'"),
        ("s3://me:hush@bucket/a", "expected s3://bucket/path; credentials and endpoints belong in `storage`"),
    ],
)
def test_a_location_elsewhere_is_refused(text: str, message: str) -> None:
    with pytest.raises(ValueError) as refusal:
        location(text)

    assert str(refusal.value) == message


def test_a_directory_is_inside_itself_and_its_parents_only() -> None:
    assert is_inside("/lake/a", "/lake/a")
    assert is_inside("/lake/a/b", "/lake/a")
    assert not is_inside("/lake/ab", "/lake/a")
    assert is_inside("s3://bucket/a/b", "s3://bucket/a")
    assert sibling("/a", "b") == "/b"
    assert sibling("a", "b") == "b"


def test_two_names_of_one_directory_are_one_place(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")

    assert is_inside(str(tmp_path / "link" / "t"), str(tmp_path / "real" / "t"))


def test_a_stream_that_a_source_built_in_code_does_not_have_is_refused() -> None:
    with pytest.raises(PipelineFileError, match=r"tables\.clicks\.streams\.0: no stream of source 'clicks'"):
        _pipeline(
            sources={"clicks": QueueSource(brokers="here", topics=("orders",))},
            tables={"clicks": Table(path="/lake/clicks", from_=("clicks",), streams=("visits",))},
        )
