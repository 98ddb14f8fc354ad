"""The arguments of kafka-delta-ingest, with their short forms, defaults and variables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import typer


@dataclass(frozen=True, kw_only=True)
class IngestArguments:
    """What kafka-delta-ingest is called with; None for what has no default there and was left out."""

    topic: Annotated[str, typer.Argument(metavar="TOPIC", envvar="KAFKA_TOPIC", help="The topic to read.")]
    table: Annotated[
        str,
        typer.Argument(
            metavar="TABLE", envvar="TABLE_LOCATION", help="The path of the Delta table, which must exist."
        ),
    ]
    kafka: Annotated[
        str, typer.Option("--kafka", "-k", envvar="KAFKA_BROKERS", help="The Kafka brokers.")
    ] = "localhost:9092"
    consumer_group: Annotated[
        str,
        typer.Option(
            "--consumer_group",
            "--consumer_group_id",
            "-g",
            envvar="KAFKA_CONSUMER_GROUP",
            help="The consumer group whose members share the partitions.",
        ),
    ] = "kafka_delta_ingest"
    app_id: Annotated[
        str,
        typer.Option("--app_id", "-a", envvar="APP_ID", help="Positions are kept as `<app_id>-<partition>`."),
    ] = "kafka_delta_ingest"
    seek_offsets: Annotated[
        str | None,
        typer.Option(
            "--seek_offsets",
            envvar="KAFKA_SEEK_OFFSETS",
            help='The last offset to leave out, by partition: {"0": 123}. For a table without positions.',
        ),
    ] = None
    auto_offset_reset: Annotated[
        str,
        typer.Option(
            "--auto_offset_reset",
            "-o",
            envvar="KAFKA_AUTO_OFFSET_RESET",
            help="Where partitions without a position begin: earliest or latest.",
        ),
    ] = "earliest"
    allowed_latency: Annotated[
        int,
        typer.Option(
            "--allowed_latency",
            "-l",
            min=1,
            envvar="ALLOWED_LATENCY",
            help="How many seconds a message waits at most until it is written.",
        ),
    ] = 300
    max_messages_per_batch: Annotated[
        int | None,
        typer.Option(
            "--max_messages_per_batch",
            "-m",
            envvar="MAX_MESSAGES_PER_BATCH",
            help="No effect: Lakefeed chooses the size of record batches itself.",
        ),
    ] = None
    min_bytes_per_file: Annotated[
        int,
        typer.Option(
            "--min_bytes_per_file",
            "-b",
            min=1,
            envvar="MIN_BYTES_PER_FILE",
            help="The bytes of messages after which they are written, whatever the latency.",
        ),
    ] = 134_217_728
    transform: Annotated[
        list[str] | None,
        typer.Option(
            "--transform", "-t", metavar="'PROPERTY: SOURCE'", help="A field to set. Several are allowed."
        ),
    ] = None
    dlq_table_location: Annotated[
        str | None,
        typer.Option(
            "--dlq_table_location",
            envvar="DLQ_TABLE_LOCATION",
            help="The dead-letter table, in its form there. Left out: Lakefeed's own, next to TABLE.",
        ),
    ] = None
    dlq_transform: Annotated[
        list[str] | None,
        typer.Option("--dlq_transform", metavar="'PROPERTY: SOURCE'", help="A column of the dead letters."),
    ] = None
    checkpoints: Annotated[
        bool,
        typer.Option(
            "--checkpoints",
            "-c",
            envvar="WRITE_CHECKPOINTS",
            help="No effect: checkpoints are always written.",
        ),
    ] = False
    kafka_setting: Annotated[
        list[str] | None,
        typer.Option("--kafka_setting", "-K", metavar="NAME=VALUE", help="A setting of the Kafka client."),
    ] = None
    statsd_endpoint: Annotated[
        str,
        typer.Option("--statsd_endpoint", "-s", envvar="STATSD_ENDPOINT", help="Where metrics are sent."),
    ] = "localhost:8125"
    json: Annotated[
        str | None,
        typer.Option(
            "--json",
            envvar="JSON_REGISTRY",
            help="Messages are JSON; the URL of their schema registry, or ''.",
        ),
    ] = None
    avro: Annotated[
        str | None,
        typer.Option(
            "--avro",
            envvar="AVRO_REGISTRY",
            help="Messages are Avro; the URL of their schema registry, or anything else for Avro containers.",
        ),
    ] = None
    soe_avro: Annotated[
        str | None,
        typer.Option(
            "--soe-avro", help="Messages are Avro single objects; a schema file, or a folder of them."
        ),
    ] = None
    ends_at_latest_offsets: Annotated[
        bool,
        typer.Option(
            "--ends_at_latest_offsets",
            "-e",
            envvar=["ENDS_AT_LATEST_OFFSETS", "TURN_OFF_AT_KAFKA_TOPIC_END"],
            help="Read the messages that are there now, then exit.",
        ),
    ] = False
    decompress_gzip: Annotated[
        bool,
        typer.Option(
            "--decompress_gzip", envvar="DECOMPRESS_GZIP", help="Messages are compressed with gzip."
        ),
    ] = False
