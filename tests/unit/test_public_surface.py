from __future__ import annotations

import subprocess
import sys

import pytest

import lakefeed
import lakefeed.testing

PUBLIC = [
    "BatchFailed",
    "DataLoss",
    "Fenced",
    "Flush",
    "GaveUp",
    "GenerateSource",
    "JavaError",
    "JsonFormat",
    "KafkaSource",
    "LakefeedError",
    "Pipeline",
    "PipelineFileError",
    "SourceError",
    "SourceUnavailable",
    "StoreUnavailable",
    "Table",
    "TableError",
    "UsageError",
    "__version__",
]


def test_the_public_names_are_exactly_these() -> None:
    assert lakefeed.__all__ == PUBLIC
    assert dir(lakefeed) == sorted(PUBLIC)


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
    loaded = _loaded_by("import lakefeed.pipeline.load")

    assert not loaded & {"pyspark", "confluent_kafka", "deltalake"}
