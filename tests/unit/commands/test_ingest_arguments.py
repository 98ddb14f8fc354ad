"""The arguments of kafka-delta-ingest on the command line, and the pipeline that they mean."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from lakefeed.commands import app as line
from lakefeed.commands.ingest import IngestCommand, ingest_pipeline, spread
from lakefeed.commands.ingest_arguments import IngestArguments
from lakefeed.commands.ingest_translation import pipeline_of
from lakefeed.errors import StoreUnavailable, TableError, UsageError
from lakefeed.pipeline.pipeline import Pipeline

BOOK = [
    *("ingest", "ecomm.v1.clickstream", "file:///dldg/ecomm-ingest/"),
    *(
        "--allowed_latency",
        "120",
        "--app_id",
        "clickstream_ecomm",
        "--auto_offset_reset",
        "earliest",
        "--checkpoints",
    ),
    *("--kafka", "localhost:9092", "--max_messages_per_batch", "2000"),
    *("--transform", "date: substr(meta.producer.timestamp, `0`, `10`)"),
    *("--transform", "meta.kafka.offset: kafka.offset"),
    *("--transform", "meta.kafka.partition: kafka.partition"),
    *("--transform", "meta.kafka.topic: kafka.topic"),
]


def printed(*arguments: str, **environment: str) -> tuple[dict[str, Any], str]:
    done = CliRunner().invoke(line.app, [*arguments, "--print-pipeline"], env=environment)
    assert done.exit_code == 0, done.output
    return yaml.safe_load(done.stdout), done.stderr


def given(**others: Any) -> IngestArguments:
    return IngestArguments(topic="clicks", table="/lake/clicks", **others)


def test_the_command_of_the_book_is_a_pipeline() -> None:
    pipeline, notes = printed(*BOOK)

    assert pipeline == {
        "name": "clickstream_ecomm",
        "sources": {
            "kafka": {
                "type": "kafka",
                "brokers": "localhost:9092",
                "topics": ["ecomm.v1.clickstream"],
                "group": "kafka_delta_ingest",
                "assignment": "group",
                "start": "earliest",
                "format": "json",
                "flush": {"interval": "120s", "bytes": 134217728},
            }
        },
        "tables": {
            "ecomm-ingest": {
                "path": "file:///dldg/ecomm-ingest/",
                "from": "kafka",
                "create": False,
                "app_id": "clickstream_ecomm",
                "evolve": "ignore",
                "coerce": "kafka-delta-ingest",
                "transform": {
                    "date": "substr(meta.producer.timestamp, `0`, `10`)",
                    "meta.kafka.offset": "kafka.offset",
                    "meta.kafka.partition": "kafka.partition",
                    "meta.kafka.topic": "kafka.topic",
                },
            }
        },
        "statsd": {"endpoint": "localhost:8125", "prefix": "kafka_delta_ingest"},
        "upkeep": "off",
    }
    assert notes.splitlines() == [
        "--max_messages_per_batch: no effect. Lakefeed chooses the size of record batches itself.",
        "--checkpoints: no effect. Lakefeed writes checkpoints of the log without being asked.",
    ]


def test_several_values_behind_one_option_and_the_other_spelling_of_the_group() -> None:
    pipeline, _ = printed(
        *(
            "ingest",
            "-t",
            "a: b",
            "meta.x: kafka.offset",
            "-K",
            "security.protocol=SSL",
            "ssl.key.location=k",
        ),
        *("clicks", "/lake/clicks", "--consumer_group_id", "mine", "-l", "60"),
    )

    (source,) = pipeline["sources"].values()
    assert pipeline["tables"]["clicks"]["transform"] == {"a": "b", "meta.x": "kafka.offset"}
    assert source["options"] == {"security.protocol": "SSL", "ssl.key.location": "k"}
    assert (source["group"], source["topics"]) == ("mine", ["clicks"])


def test_a_path_is_no_transform() -> None:
    assert spread(["-t", "a: b", "s3://lake/x"]) == ["-t", "a: b", "s3://lake/x"]
    assert spread(["-t", "a: b", "c: d"]) == ["-t", "a: b", "-t", "c: d"]
    assert issubclass(IngestCommand, object)


def test_every_variable_of_kafka_delta_ingest_is_read() -> None:
    pipeline, notes = printed(
        "ingest",
        KAFKA_TOPIC="clicks",
        TABLE_LOCATION="/lake/clicks",
        KAFKA_BROKERS="one:1",
        KAFKA_CONSUMER_GROUP="group",
        APP_ID="app.one/two",
        KAFKA_SEEK_OFFSETS='{"0": 4, "1": 9}',
        KAFKA_AUTO_OFFSET_RESET="latest",
        ALLOWED_LATENCY="7",
        MIN_BYTES_PER_FILE="1000",
        MAX_MESSAGES_PER_BATCH="10",
        TRANSFORMS="date: substr(ts, `0`, `10`)",
        DLQ_TABLE_LOCATION="/lake/dlq",
        DLQ_TRANSFORMS="date: error",
        WRITE_CHECKPOINTS="true",
        STATSD_ENDPOINT="statsd:8125",
        METRICS_PREFIX="mine",
        AVRO_REGISTRY="http://registry:8081",
        DECOMPRESS_GZIP="1",
        SCHEMA_REGISTRY_USERNAME="me",
        SCHEMA_REGISTRY_PASSWORD="hush",
        KAFKA_DELTA_INGEST_CERT="cert",
        KAFKA_DELTA_INGEST_KEY="key",
        KAFKA_DELTA_INGEST_CA="ca",
        KAFKA_DELTA_INGEST_SCRAM_JSON='{"username": "u", "password": "geheim"}',
        DYNAMO_LOCK_TABLE_NAME="locks",
    )

    assert pipeline["name"].startswith("app.one_two-")
    assert pipeline["sources"]["kafka"] == {
        "type": "kafka",
        "brokers": "one:1",
        "topics": ["clicks"],
        "group": "group",
        "assignment": "group",
        "start": {"clicks": {"0": 5, "1": 10, "*": "latest"}},
        "format": {
            "type": "avro",
            "registry": {
                "url": "http://registry:8081",
                "user": "${SCHEMA_REGISTRY_USERNAME}",
                "password": "${SCHEMA_REGISTRY_PASSWORD:-}",
            },
            "decompress": "gzip",
        },
        "options": {
            "ssl.certificate.pem": "${KAFKA_DELTA_INGEST_CERT}",
            "ssl.key.pem": "${KAFKA_DELTA_INGEST_KEY}",
            "ssl.ca.pem": "${KAFKA_DELTA_INGEST_CA}",
            "sasl.username": "${KAFKA_DELTA_INGEST_SCRAM_USERNAME}",
            "sasl.password": "${KAFKA_DELTA_INGEST_SCRAM_PASSWORD}",
        },
        "flush": {"interval": "7s", "bytes": 1000},
    }
    assert pipeline["tables"]["clicks"]["app_id"] == "app.one/two"
    assert pipeline["dead_letters"] == {
        "path": "/lake/dlq",
        "form": "kafka-delta-ingest",
        "transform": {"date": "error"},
    }
    assert pipeline["statsd"] == {"endpoint": "statsd:8125", "prefix": "mine"}
    assert "DYNAMO_LOCK_TABLE_NAME: no effect" in notes
    assert "geheim" not in notes + str(pipeline)
    assert "Set these variables before you run it: KAFKA_DELTA_INGEST_SCRAM_USERNAME" in notes


def test_settings_that_something_else_decides_are_named_and_secrets_become_variables() -> None:
    made = pipeline_of(given(kafka_setting=["auto.offset.reset=latest", "sasl.password=hush"]), {})

    assert made.notes == ["--kafka_setting auto.offset.reset: no effect, --auto_offset_reset decides."]
    assert made.document["sources"]["kafka"]["options"] == {"sasl.password": "${SASL_PASSWORD}"}
    assert made.variables == {"SASL_PASSWORD": "hush"}


@pytest.mark.parametrize(
    ("others", "problem"),
    [
        ({"auto_offset_reset": "first"}, "--auto_offset_reset: expected earliest or latest, got 'first'."),
        ({"seek_offsets": "5"}, "--seek_offsets: expected JSON such as"),
        ({"transform": ["date"]}, "--transform: expected 'PROPERTY: SOURCE', got 'date'."),
        ({"kafka_setting": ["x"]}, "--kafka_setting: expected 'PROPERTY_NAME=PROPERTY_VALUE', got 'x'."),
        ({"avro": "", "json": ""}, "--json and --avro exclude each other."),
    ],
)
def test_mistakes_are_told(others: dict[str, Any], problem: str) -> None:
    with pytest.raises(UsageError) as caught:
        pipeline_of(given(**others), {})

    assert problem in str(caught.value)


def test_the_page_names_every_argument() -> None:
    page = (Path(__file__).parents[3] / "docs" / "kafka-delta-ingest.md").read_text()
    command = __import__("lakefeed.commands.ingest", fromlist=["ingest"]).ingest
    own = {"print_pipeline", "overrides", "master", "log_format", "quiet"}

    for name, parameter in inspect.signature(command).parameters.items():
        if name not in own:
            (told,) = parameter.annotation.__metadata__
            for word in (
                *(told.param_decls or ()),
                *([told.envvar] if isinstance(told.envvar, str) else told.envvar or ()),
            ):
                assert f"`{word}`" in page, word


def test_run_waits_for_a_store_that_is_away_and_keeps_the_partitioning(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers: list[Exception | list[str]] = [StoreUnavailable("s3 does not answer"), ["day"]]

    def look(_: Pipeline) -> list[str]:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr("lakefeed.commands.ingest._partition_columns", look)
    monkeypatch.setattr("lakefeed.commands.ingest._FIRST_WAIT", 0.01)

    _, pipeline = ingest_pipeline(IngestArguments(topic="t", table="/lake/t"))

    (table,) = pipeline.tables.values()
    assert [str(one) for one in table.partition_by] == ["day"]
    assert "s3 does not answer; trying again in" in capsys.readouterr().err


def test_run_on_a_table_that_cannot_be_opened_does_not_start(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Pipeline) -> list[str]:
        raise TableError("table t: broken")

    monkeypatch.setattr("lakefeed.commands.ingest._partition_columns", fail)

    with pytest.raises(TableError, match="broken"):
        ingest_pipeline(IngestArguments(topic="t", table="/lake/t"))
    made, _ = ingest_pipeline(IngestArguments(topic="t", table="/lake/t"), only_prints=True)
    assert "How the table is partitioned is not known" in made.notes[-1]


def test_settings_of_the_group_have_no_effect() -> None:
    given = IngestArguments(
        topic="t", table="/lake/t", kafka_setting=["partition.assignment.strategy=cooperative-sticky"]
    )

    made = pipeline_of(given, {})

    assert "--kafka_setting partition.assignment.strategy: no effect, Lakefeed decides." in made.notes
    assert "cooperative" not in made.text
