from __future__ import annotations

import inspect
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import lakefeed
import lakefeed.sources
import lakefeed.testing
from lakefeed.pipeline.connectors import connector_class, connector_types

PUBLIC = [
    "BatchFailed",
    "Commit",
    "DataLoss",
    "Fenced",
    "Flush",
    "GaveUp",
    "JavaError",
    "LakefeedError",
    "Pipeline",
    "PipelineFileError",
    "Run",
    "RunResult",
    "SourceError",
    "SourceUnavailable",
    "StoreUnavailable",
    "Table",
    "TableError",
    "TableResult",
    "UsageError",
    "__version__",
]


def test_the_public_names_are_exactly_these() -> None:
    assert lakefeed.__all__ == PUBLIC
    assert dir(lakefeed) == sorted(PUBLIC)


def test_the_public_names_are_few() -> None:
    assert len(PUBLIC) <= 20


@pytest.mark.parametrize(
    ("room", "names"),
    [
        (
            "source",
            [
                "DeltaSource",
                "FilesSource",
                "GenerateSource",
                "HttpSource",
                "KafkaSource",
                "PostgresSource",
                "SparkSource",
            ],
        ),
        (
            "format",
            [
                "AvroFormat",
                "BytesFormat",
                "CsvFormat",
                "DebeziumFormat",
                "EventFormat",
                "Int64Format",
                "JsonFormat",
                "ParquetFormat",
                "ProtobufFormat",
                "TextFormat",
            ],
        ),
    ],
)
def test_every_source_and_every_format_can_be_imported_from_its_room(room: str, names: list[str]) -> None:
    module = import_module(f"lakefeed.{room}s")

    found = {getattr(module, name) for name in names}

    assert found == {connector_class(room, name) for name in connector_types(room)}


@pytest.mark.parametrize("room", ["source", "format"])
def test_every_source_and_every_format_is_listed_for_people_editors_and_type_checkers(room: str) -> None:
    module = import_module(f"lakefeed.{room}s")
    page = (Path(__file__).parents[2] / "docs" / "python.md").read_text()
    source = inspect.getsource(module)

    names = {connector_class(room, name).__name__ for name in connector_types(room)}

    assert names <= set(dir(module))
    assert {name for name in names if f" import {name} as {name}\n" not in source} == set()
    assert {name for name in names if f"`{name}`" not in page} == set()


def test_a_listing_of_the_sources_and_formats_imports_none_of_them() -> None:
    loaded = _loaded_by(
        "import lakefeed.sources, lakefeed.formats; dir(lakefeed.sources), dir(lakefeed.formats)"
    )

    assert not loaded & {"pyspark", "confluent_kafka", "deltalake", "psycopg", "fastavro"}


def test_a_near_name_of_a_source_or_a_format_is_told() -> None:
    with pytest.raises(AttributeError, match="no attribute 'KafkSource', did you mean 'KafkaSource'"):
        lakefeed.sources.KafkSource  # noqa: B018


@pytest.mark.parametrize("name", PUBLIC)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(lakefeed, name) is not None


def test_the_public_names_of_testing_are_exactly_these() -> None:
    assert lakefeed.testing.__all__ == [
        "Case",
        "Difference",
        "ExpectedLetter",
        "ExpectedTable",
        "Landed",
        "Sample",
        "Verdict",
        "assert_rows",
        "check",
        "run_samples",
    ]
    assert all(getattr(lakefeed.testing, name) is not None for name in lakefeed.testing.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="module 'lakefeed' has no attribute 'Pipelin'"):
        lakefeed.Pipelin  # noqa: B018


def _loaded_by(statement: str) -> set[str]:
    program = f"import sys; {statement}; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return {module.partition(".")[0] for module in run.stdout.split()}


def test_importing_lakefeed_loads_neither_spark_nor_arrow_nor_a_client() -> None:
    loaded = _loaded_by("import lakefeed, lakefeed.pipeline")

    assert not loaded & {"pyspark", "pyarrow", "confluent_kafka", "deltalake", "pydantic"}


def test_loading_a_pipeline_file_starts_no_spark_and_no_client() -> None:
    loaded = _loaded_by("import lakefeed.pipeline.loading.load")

    assert not loaded & {"pyspark", "confluent_kafka", "deltalake"}
