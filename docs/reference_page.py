"""The reference page of the pipeline file, generated from the models."""

from __future__ import annotations

import json
import re
from typing import Any

from lakefeed.pipeline.connectors import connector_class, connector_types
from lakefeed.pipeline.flush import Flush
from lakefeed.pipeline.http import Http, Ready
from lakefeed.pipeline.json_schema import section_schema
from lakefeed.pipeline.options.changes import Within
from lakefeed.pipeline.options.evolve import Evolve
from lakefeed.pipeline.options.file_name import FileName
from lakefeed.pipeline.options.registry import Registry
from lakefeed.pipeline.options.shaping import Expectation
from lakefeed.pipeline.options.statsd import Statsd
from lakefeed.pipeline.pipeline import DeadLetters, Pipeline, Spark
from lakefeed.pipeline.section import Section
from lakefeed.pipeline.table import Table
from lakefeed.pipeline.test_file import Case, ExpectedLetter, ExpectedTable, Sample
from lakefeed.pipeline.upkeep import Cluster, Compact, DeleteAfter, Log, Upkeep, Vacuum
from lakefeed.sources.http.access import Hmac, Tls
from lakefeed.sources.http.source import Idempotency

_OPENING = """\
# Reference of the pipeline file

Every key that a pipeline file may hold. This page is generated from the models, as is the JSON Schema for
editors that `lakefeed schema` prints. In VS Code, with the YAML extension (`redhat.vscode-yaml`): run
`lakefeed schema > lakefeed.schema.json` and begin the pipeline file with
`# yaml-language-server: $schema=lakefeed.schema.json`; keys are then completed and explained as you type.

- Durations are written `500ms`, `5s`, `10m`, `2h` or `7d`.
- Sizes are written `64KB`, `128MB` or `1GB`; 1 KB is 1024 bytes.
- `${NAME}` and `${NAME:-default}` in any value come from the environment; `$${` stands for `${` itself.
- Relative paths are relative to the file.
- A key that is not listed here is an error.
"""
_WORDS = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}


def reference_markdown() -> str:
    """The whole page."""
    sections = [
        _section("Pipeline", Pipeline),
        *(
            _section(f"Source: {name}", connector_class("source", name), name)
            for name in connector_types("source")
        ),
        *(
            _section(f"Format: {name}", connector_class("format", name), name)
            for name in connector_types("format")
        ),
        _section("Table", Table),
        _section("Within", Within),
        _section("Evolve", Evolve),
        _section("Expectation", Expectation),
        _section("File name", FileName),
        _section("Flush", Flush),
        _section("Dead letters", DeadLetters),
        _section("Http", Http),
        _section("Hmac", Hmac),
        _section("Tls", Tls),
        _section("Idempotency", Idempotency),
        _section("Ready", Ready),
        _section("Statsd", Statsd),
        _section("Registry", Registry),
        _section("Upkeep", Upkeep),
        _section("Compact", Compact),
        _section("Cluster", Cluster),
        _section("Vacuum", Vacuum),
        _section("Delete after", DeleteAfter),
        _section("Log", Log),
        _section("Spark", Spark),
        _section("Case", Case),
        _section("Sample", Sample),
        _section("Expected table", ExpectedTable),
        _section("Expected letter", ExpectedLetter),
    ]
    return "\n".join([_OPENING, *sections, _column_types()])


def _section(title: str, section: type[Section], type_name: str | None = None) -> str:
    schema = section_schema(section)
    # A section that refers to itself is described in its definitions.
    described = schema if "properties" in schema else schema["$defs"][section.__name__]
    rows = [
        _row(key, field, key in described.get("required", []))
        for key, field in described["properties"].items()
        if key != "type"
    ]
    opening = f"`type: {type_name}`. " if type_name else ""
    about = (section.__doc__ or "").strip().split("\n\n")[0].replace("\n    ", " ")
    keys = (
        ["| key | type | default | meaning |", "|---|---|---|---|", *rows]
        if rows
        else ["It has no other keys."]
    )
    return "\n".join([f"## {title}", "", f"{opening}{about}", "", *keys, ""])


def _row(key: str, field: dict[str, Any], required: bool) -> str:
    default = "required" if required else f"`{_written(field['default'])}`" if _has_default(field) else ""
    examples = ", ".join(f"`{_written(example)}`" for example in field.get("examples", []))
    meaning = field.get("description", "") + (f" Example: {examples}." if examples else "")
    cells = [f"`{key}`", _type_words(field), default, meaning]
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _has_default(field: dict[str, Any]) -> bool:
    return field.get("default") not in (None, "", [], {})


def _written(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _type_words(schema: dict[str, Any]) -> str:
    """A type as a reader of the file would name it."""
    if "$ref" in schema:
        return _link(schema["$ref"].rpartition("/")[2])
    if schema.get("format", "").startswith("lakefeed-"):
        return str(schema["format"].removeprefix("lakefeed-"))
    if "enum" in schema or "const" in schema:
        return ", ".join(f"`{choice}`" for choice in schema.get("enum", [schema.get("const")]))
    if "discriminator" in schema:
        return "keys and values with a `type`"
    if "anyOf" in schema:
        choices = [_type_words(choice) for choice in schema["anyOf"] if choice.get("type") != "null"]
        return " or ".join(choices)
    return _plain_words(schema)


def _plain_words(schema: dict[str, Any]) -> str:
    kind = schema.get("type")
    if kind == "array":
        return f"list of {_type_words(schema.get('items', {}))}"
    if kind == "object":
        named: dict[str, Any] = schema.get("patternProperties", {})
        values = schema.get("additionalProperties") or next(iter(named.values()), None)
        return f"map of {_type_words(values)}" if isinstance(values, dict) else "keys and values"
    return _WORDS.get(kind if isinstance(kind, str) else "string", "text")


def _link(name: str) -> str:
    title = re.sub(r"(?<=[a-z])[A-Z]", lambda letter: f" {letter[0].lower()}", name)
    return f"[{title}](#{title.lower().replace(' ', '-')})"


def _column_types() -> str:
    return """\
## Column types

Names have any case. `not null` may follow a column's type, a struct field's and an array element's.

| write | stored as | payload holds |
|---|---|---|
| `string`, `varchar`, `utf8`, `large_utf8` | string | text |
| `json` | string | any value; text as it is, all else as its JSON text |
| `long`, `bigint`, `int64` | long | a whole number |
| `int`, `integer`, `int32` | int | a whole number |
| `short`, `smallint`, `int16` | short | a whole number |
| `byte`, `tinyint`, `int8` | byte | a whole number |
| `uint8`, `uint16`, `uint32` | short, int, long | a whole number from 0 |
| `uint64` | long | a whole number from 0 up to the largest long |
| `float`, `real`, `float32` | float | a number |
| `double`, `float64` | double | a number |
| `decimal`, `decimal(p)`, `decimal(p,s)` | decimal, by default (10,0), at most 38 digits | a number |
| `boolean`, `bool` | boolean | true or false |
| `binary`, `bytes` | binary | bytes |
| `date`, `date32` | date | a date |
| `timestamp` | timestamp in UTC, microseconds | an RFC 3339 timestamp |
| `timestamp(s)`, `(ms)`, `(us)`, `(ns)` | timestamp in UTC, microseconds | an epoch number of that unit |
| `struct<a: T, b: T>` | struct | an object; names with other than letters, digits and `_` in backticks |
| `array<T>`, `list<T>` | array | a list |
| `map<string, T>` | map | an object; keys are text |

## Partitioning

An entry of `partition_by` is a column, or a function of a timestamp or date column. ` as NAME` after it names
the partition column.

| write | partition column | type | value |
|---|---|---|---|
| `country` | `country` | that of the column | the column's |
| `year(event_time)` | `event_time_year` | int | 2026 |
| `month(event_time)` | `event_time_month` | string | 2026-11 |
| `day(event_time)` | `event_time_day` | date | 2026-11-15 |
| `hour(event_time)` | `event_time_hour` | string | 2026-11-15-10 |
| `strftime(event_time, '%Y-%m')` | `event_time_strftime` | string | by the pattern |

Values of partition columns are in the names of directories, and in the log as text. So:

- the empty text is null there. In a column that is `not null`, the event is a dead letter with code
  `missing_value`;
- a text must fit the name of a directory: 255 bytes, together with the name of the column. Letters count as
  in UTF-8, and all but `A-Z a-z 0-9 _ . - ~` and letters three bytes each. A longer one is a dead letter of
  stage `write` with code `bad_partition`.
"""
