"""Every field of the models of a pipeline file: what draws it, or why no life draws it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lakefeed.pipeline.flush import Flush
from lakefeed.pipeline.options.evolve import Evolve
from lakefeed.pipeline.pipeline import DeadLetters, Pipeline
from lakefeed.pipeline.section import Section
from lakefeed.pipeline.table import Table
from lakefeed.sources.files.source import FilesSource
from lakefeed.sources.kafka.source import KafkaSource
from lakefeed.sources.postgres.source import PostgresSource
from simulation import file_lives, postgres_lives
from simulation.pipelines import DRAWN, LAYOUT

MODELS: tuple[type[Section], ...] = (
    Table,
    Evolve,
    KafkaSource,
    FilesSource,
    PostgresSource,
    Pipeline,
    DeadLetters,
    Flush,
)

ALWAYS: Mapping[type[Section], tuple[str, ...]] = {
    Table: ("path", "from_", "route"),
    Evolve: ("new_column", "type_change"),
    KafkaSource: ("type", "format", "brokers", "topics", "key"),
    FilesSource: ("type", "path"),
    PostgresSource: ("type", "connection", "tables"),
    Pipeline: ("name", "sources", "tables", "flush", "upkeep", "state", "sync", "give_up_after"),
    DeadLetters: (),
    Flush: ("rows", "bytes"),
}
"""Fields that every case sets, or that are drawn together with another one."""

NO_DIFFERENCE: Mapping[type[Section], Mapping[str, str]] = {
    Table: {
        "create": "a missing table is made or refused before its first event",
        "commit_retries": "how often a commit gives way, in time that a life does not have",
        "storage": "options of an object store; the store of a life is memory",
        "upkeep": "when upkeep is due; a life calls its operations as steps",
        "max_columns": "more columns than a life has",
        "refresh": "when a query is run",
    },
    KafkaSource: {
        "flush": "the flush of the pipeline, which a life draws",
        "group": "a name under which offsets are told to others",
        "options": "options of librdkafka, which a life has not",
    },
    FilesSource: {
        "flush": "the flush of the pipeline, which a life draws",
        "settle": "how long a file must rest; those of a life are whole",
        "after_delay": "when files go that were read; `after` draws that they do",
        "ledger": "where the ledger is",
        "storage": "options of an object store; the store of a life is memory",
    },
    PostgresSource: {
        "format": "refused, as tables have columns",
        "flush": "the flush of the pipeline, which a life draws",
        "host": "where the server is; `connection` says it",
        "port": "where the server is; `connection` says it",
        "database": "where the server is; `connection` says it",
        "user": "who asks; a life has one role, which may do everything",
        "password": "who asks; a life has one role, which may do everything",
        "options": "options of libpq, which a life has not",
        "slot": "the name of the slot",
        "snapshot_rate": "how fast rows are copied",
    },
    Pipeline: {
        "storage": "options of an object store; the store of a life is memory",
        "http": "a page on which a run is watched",
        "statsd": "metrics for a server",
        "ready": "what /readyz says",
        "spark": "the session of a run; a life has none",
        "stop_timeout": "how long a stop waits",
        "tests": "tests of `lakefeed test`",
    },
    DeadLetters: {
        "storage": "options of an object store; the store of a life is memory",
        "upkeep": "when upkeep is due",
        "path": "where the table is",
    },
    Flush: {
        "interval": "when a batch is due; a run that drains is always in a hurry",
        "idle": "when a batch is due",
    },
}
"""Fields that make no difference to rows, dead letters and positions, and why."""

ELSEWHERE: Mapping[type[Section], Mapping[str, str]] = {
    Table: {
        "max_tables": "tests/engine/test_routing.py",
        "query": "tests/unit/tables/test_refresh.py",
        "streams": "tests/unit/engine/test_streams.py",
        "exclude": "tests/unit/engine/test_streams.py",
        "share": "tests/unit/sources/test_tables_from_tables.py",
        "app_id": "tests/services/test_ingest.py",
        "tombstones": "tests/unit/tables/write",
        "time_by": "tests/unit/tables/write",
        "transform": "tests/services/test_ingest.py",
        "coerce": "tests/services/test_ingest.py",
        "python": "tests/unit/engine/test_python_function.py",
    },
    KafkaSource: {
        "topic_pattern": "tests/services/test_kafka_streams.py",
        "start": "tests/services/test_kafka_reading.py",
        "on_data_loss": "tests/services/test_kafka_truncated.py",
        "assignment": "tests/services/test_kafka_group.py",
    },
    FilesSource: {
        "encoding": "tests/unit/sources/files/test_formats.py",
        "start": "tests/unit/sources/files/test_behind.py",
        "on_move": "tests/unit/sources/files/test_moved.py",
        "notify": "tests/services/test_files_s3.py",
        "backfill": "tests/services/test_files_s3.py",
        "partitions": "tests/unit/sources/files/test_partitions.py",
    },
    PostgresSource: {
        "exclude": "tests/services/test_postgres_many_tables.py",
        "publication": "tests/services/test_postgres_odd_tables.py",
        "snapshot": "tests/services/test_postgres_snapshot_modes.py",
    },
    Pipeline: {"dead_letters": "tests/unit/engine/batch/test_refusals.py"},
    DeadLetters: {
        "form": "tests/services/test_ingest.py",
        "transform": "tests/services/test_ingest.py",
        "stop_above": "tests/unit/engine/batch/test_refusals.py",
    },
    Flush: {},
    Evolve: {},
}
"""Fields that make a difference and that no life draws yet, with the tests that try them."""


_DRAWN: Mapping[type[Section], Collection[str]] = {
    Table: {**DRAWN, **LAYOUT},
    FilesSource: file_lives.DRAWN,
    PostgresSource: postgres_lives.DRAWN,
}
"""Fields that a life draws."""


def missing(model: type[Section]) -> list[str]:
    """The fields of a model that nothing here names."""
    drawn = _DRAWN.get(model, {})
    named = {*ALWAYS[model], *drawn, *NO_DIFFERENCE.get(model, {}), *ELSEWHERE[model]}
    return sorted(model.model_fields.keys() - named)


def unknown(model: type[Section]) -> list[str]:
    """What is named here and is no field of the model, or is named twice."""
    named = [*ALWAYS[model], *_DRAWN.get(model, {}), *NO_DIFFERENCE.get(model, {}), *ELSEWHERE[model]]
    return sorted({name for name in named if name not in model.model_fields or named.count(name) > 1})
