"""The JSON Schema of the pipeline file, for editors."""

from __future__ import annotations

from typing import Any

from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.section import Section
from lakefeed.units import format_duration, format_size

_VARIABLE = {"type": "string", "pattern": r"\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^}]*)?\}"}
_ABOUT = ("title", "description", "default", "examples")


def json_schema() -> dict[str, Any]:
    """The JSON Schema of the file, with every registered source and format."""
    schema = _with_variables(section_schema(Pipeline))
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema, "title": "Lakefeed pipeline"}


def section_schema(section: type[Section]) -> dict[str, Any]:
    """The JSON Schema of one section, with defaults as they would be written in the file."""
    schema = section.model_json_schema(by_alias=True)
    for described in (schema, *schema.get("$defs", {}).values()):
        for field in described.get("properties", {}).values():
            field.pop("title", None)
            _spell_default(field)
    return schema


def _spell_default(field: dict[str, Any]) -> None:
    default, written = field.get("default"), field.get("format")
    if default is None or isinstance(default, dict):
        # Left out is left out, and a section's defaults are shown at its own keys.
        field.pop("default", None)
    elif written == "lakefeed-duration":
        field["default"] = format_duration(default)
    elif written == "lakefeed-size":
        field["default"] = format_size(default)


def _with_variables(schema: dict[str, Any]) -> dict[str, Any]:
    """Let `${NAME}` stand wherever a number, a boolean or a certain text is wanted, as the loader does."""
    opened = dict(schema)
    if "$defs" in schema:
        opened["$defs"] = {name: _with_variables(each) for name, each in schema["$defs"].items()}
    if "properties" in schema:
        opened["properties"] = {key: _or_variable(each, key) for key, each in schema["properties"].items()}
    return opened


def _or_variable(schema: dict[str, Any], key: str) -> dict[str, Any]:
    choices = schema.get("anyOf", [schema])
    # By its constant `type`, an editor knows which source it is.
    if key == "type" or not any(_is_narrow(choice) for choice in choices):
        return schema
    about = {name: schema[name] for name in _ABOUT if name in schema}
    bare = [{name: item for name, item in choice.items() if name not in _ABOUT} for choice in choices]
    return {**about, "anyOf": [*bare, _VARIABLE]}


def _is_narrow(schema: dict[str, Any]) -> bool:
    return schema.get("type") in ("integer", "number", "boolean") or "pattern" in schema or "enum" in schema
