"""The arguments of kafka-delta-ingest as a pipeline: what they mean here, and which mean nothing."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import yaml

from lakefeed.commands.ingest_arguments import IngestArguments
from lakefeed.errors import UsageError
from lakefeed.pipeline.secrets import is_secret_key

_SOURCE = "kafka"
_OVERRULED = {
    "bootstrap.servers": "--kafka",
    "group.id": "--consumer_group",
    "auto.offset.reset": "--auto_offset_reset",
    "enable.auto.commit": "Lakefeed",
    "enable.auto.offset.store": "Lakefeed",
    "enable.partition.eof": "Lakefeed",
    "group.protocol": "Lakefeed",
    "partition.assignment.strategy": "Lakefeed",
}
"""Settings of the consumer that something else decides, there as here."""
_LOCKS = re.compile(r"(DEAD_LETTER_)?DYNAMO_LOCK_\w+")
_PEM = {"CERT": "ssl.certificate.pem", "KEY": "ssl.key.pem", "CA": "ssl.ca.pem"}


@dataclass
class Ingest:
    """A pipeline file that does the same, the variables that it needs, and what has no meaning in it."""

    document: dict[str, Any] = field(default_factory=dict)
    variables: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The pipeline file."""
        return yaml.safe_dump(self.document, sort_keys=False, width=110, allow_unicode=True)


def pipeline_of(
    given: IngestArguments, environment: Mapping[str, str], partition_by: Sequence[str] = ()
) -> Ingest:
    """The pipeline that does what kafka-delta-ingest would. Raises UsageError for what it would refuse.

    `partition_by` are the columns that the table is partitioned by.
    """
    made = Ingest()
    table = re.sub(r"[^A-Za-z0-9_\-]+", "_", given.table.rstrip("/").rpartition("/")[2]).strip("_") or "table"
    made.document = {
        "name": _name(given.app_id),
        "sources": {_SOURCE: _source(given, environment, made)},
        "tables": {table: _table(given, partition_by)},
        **_dead_letters(given),
        "statsd": {
            "endpoint": given.statsd_endpoint,
            "prefix": environment.get("METRICS_PREFIX", "kafka_delta_ingest"),
        },
        "upkeep": "off",
    }
    _note_what_is_idle(given, environment, made)
    return made


def _source(given: IngestArguments, environment: Mapping[str, str], made: Ingest) -> dict[str, Any]:
    options = _options(given, environment, made)
    return {
        "type": "kafka",
        "brokers": given.kafka,
        "topics": [given.topic],
        "group": given.consumer_group,
        "assignment": "group",
        "start": _start(given),
        "format": _format(given, environment),
        **({"options": options} if options else {}),
        "flush": {"interval": f"{given.allowed_latency}s", "bytes": given.min_bytes_per_file},
    }


def _table(given: IngestArguments, partition_by: Sequence[str]) -> dict[str, Any]:
    transform = _pairs(given.transform or (), ":", "--transform", "PROPERTY: SOURCE")
    return {
        "path": given.table,
        "from": _SOURCE,
        "create": False,
        "app_id": given.app_id,
        "evolve": "ignore",
        "coerce": "kafka-delta-ingest",
        **({"transform": transform} if transform else {}),
        **({"partition_by": list(partition_by)} if partition_by else {}),
    }


def _dead_letters(given: IngestArguments) -> dict[str, Any]:
    transform = _pairs(given.dlq_transform or (), ":", "--dlq_transform", "PROPERTY: SOURCE")
    if given.dlq_table_location is None:
        return {}
    told = {"path": given.dlq_table_location, "form": "kafka-delta-ingest"}
    return {"dead_letters": {**told, **({"transform": transform} if transform else {})}}


def _name(app_id: str) -> str:
    """The app id as the name of a pipeline: what a name may hold of it, and something that tells it apart."""
    name = re.sub(r"[^A-Za-z0-9_.\-]", "_", app_id)
    if name == app_id and len(name) <= 100 and set(name) != {"."}:
        return name
    return f"{name[:80]}-{hashlib.sha256(app_id.encode()).hexdigest()[:8]}"


def _start(given: IngestArguments) -> Any:
    """Where a table without positions begins; a seek names the last message that is left out."""
    if given.auto_offset_reset not in ("earliest", "latest"):
        raise UsageError(
            f"--auto_offset_reset: expected earliest or latest, got {given.auto_offset_reset!r}."
        )
    if given.seek_offsets is None:
        return given.auto_offset_reset
    try:
        offsets = {str(int(number)): int(at) + 1 for number, at in json.loads(given.seek_offsets).items()}
    except (ValueError, TypeError, AttributeError):
        raise UsageError(
            f'--seek_offsets: expected JSON such as {{"0": 123, "1": 321}}, got {given.seek_offsets!r}.'
        ) from None
    others = {"*": "latest"} if given.auto_offset_reset == "latest" else {}
    return {given.topic: {**offsets, **others}}


def _format(given: IngestArguments, environment: Mapping[str, str]) -> Any:
    chosen = {"--json": given.json, "--avro": given.avro, "--soe-avro": given.soe_avro}
    named = [option for option, value in chosen.items() if value is not None]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} exclude each other.")
    found: dict[str, Any] = {"type": "json"}
    where = given.avro if given.avro is not None else given.json
    registry = _registry(where, environment) if (where or "").startswith("http") else None
    if given.soe_avro is not None:
        found = {"type": "avro", "encoding": "single_object", "schema_file": given.soe_avro}
    elif given.avro is not None:
        found = (
            {"type": "avro", "registry": registry} if registry else {"type": "avro", "encoding": "container"}
        )
    elif registry:
        found["registry"] = registry
    if given.decompress_gzip:
        found["decompress"] = "gzip"
    return "json" if found == {"type": "json"} else found


def _registry(url: str | None, environment: Mapping[str, str]) -> Any:
    if "SCHEMA_REGISTRY_USERNAME" not in environment:
        return url
    return {
        "url": url,
        "user": "${SCHEMA_REGISTRY_USERNAME}",
        "password": "${SCHEMA_REGISTRY_PASSWORD:-}",
    }


def _options(given: IngestArguments, environment: Mapping[str, str], made: Ingest) -> dict[str, str]:
    options = {
        key: f"${{KAFKA_DELTA_INGEST_{name}}}"
        for name, key in _PEM.items()
        if f"KAFKA_DELTA_INGEST_{name}" in environment
    }
    if "KAFKA_DELTA_INGEST_SCRAM_JSON" in environment:
        options |= _scram(environment["KAFKA_DELTA_INGEST_SCRAM_JSON"], made)
    settings = _pairs(given.kafka_setting or (), "=", "--kafka_setting", "PROPERTY_NAME=PROPERTY_VALUE")
    for key, value in settings.items():
        if key in _OVERRULED:
            made.notes.append(f"--kafka_setting {key}: no effect, {_OVERRULED[key]} decides.")
        elif is_secret_key(key):
            options[key] = _variable(key.upper().replace(".", "_").replace("-", "_"), value, made)
        else:
            options[key] = value
    return options


def _scram(text: str, made: Ingest) -> dict[str, str]:
    try:
        login = json.loads(text)
        found = {key: str(login[key]) for key in ("username", "password")}
    except (ValueError, TypeError, KeyError):
        raise UsageError(
            'KAFKA_DELTA_INGEST_SCRAM_JSON: expected JSON with "username" and "password".'
        ) from None
    return {
        f"sasl.{key}": _variable(f"KAFKA_DELTA_INGEST_SCRAM_{key.upper()}", value, made)
        for key, value in found.items()
    }


def _variable(name: str, value: str, made: Ingest) -> str:
    """A secret as a variable, which the pipeline file names instead."""
    made.variables[name] = value
    return f"${{{name}}}"


def _pairs(given: Sequence[str], sign: str, option: str, pattern: str) -> dict[str, str]:
    found = {}
    for text in given:
        key, is_pair, value = text.partition(sign)
        if not is_pair or not key.strip():
            raise UsageError(f"{option}: expected '{pattern}', got {text!r}.")
        found[key.strip()] = value.strip()
    return found


def _note_what_is_idle(given: IngestArguments, environment: Mapping[str, str], made: Ingest) -> None:
    """Name each argument and variable that has no meaning here, and why."""
    note = made.notes.append
    if given.max_messages_per_batch is not None:
        note("--max_messages_per_batch: no effect. Lakefeed chooses the size of record batches itself.")
    if given.checkpoints:
        note("--checkpoints: no effect. Lakefeed writes checkpoints of the log without being asked.")
    if given.json and not given.json.startswith("http"):
        note(f"--json {given.json}: no effect, as in kafka-delta-ingest. Only the URL of a registry has one.")
    if given.avro and not given.avro.startswith("http"):
        note(f"--avro {given.avro}: not read. Payloads are Avro containers, which hold their own schema.")
    if given.dlq_transform and given.dlq_table_location is None:
        note("--dlq_transform: no effect without --dlq_table_location.")
    idle = {
        "METRICS_INPUT_QUEUE_SIZE": "metrics are sent as they come",
        "SCHEMA_REGISTRY_PROXY": "the registry is asked directly",
        "RUST_LOG": "use --debug or --quiet",
        "AWS_S3_ALLOW_UNSAFE_RENAME": "commits to S3 are conditional PUTs",
    }
    locks = {
        name: "commits to S3 are conditional PUTs and take no lock"
        for name in environment
        if _LOCKS.fullmatch(name)
    }
    for name, why in {**idle, **locks}.items():
        if name in environment:
            note(f"{name}: no effect, {why}.")
