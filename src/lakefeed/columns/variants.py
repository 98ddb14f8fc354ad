"""Variant columns: values of any type, which Parquet files hold in a binary form of Spark's, as JSON text."""

from __future__ import annotations

import re
from typing import Any

import orjson
import pyarrow as pa

from lakefeed.errors import TableError

_VARIANT, _TEXT = "variant", "string"
_ESCAPED = re.compile(r"\\u(?!00[0-7])([0-9a-fA-F]{4})|\\.")


def with_text_for_variants(schema: str) -> str:
    """The columns of a table as its log has them, with texts instead of variants."""
    if f'"{_VARIANT}"' not in schema:
        return schema
    return orjson.dumps(_replaced(orjson.loads(schema))).decode()


def _replaced(kind: Any) -> Any:
    if kind == _VARIANT:
        return _TEXT
    if not isinstance(kind, dict):
        return kind
    if kind.get("type") == "struct":
        fields = [{**field, "type": _replaced(field["type"])} for field in kind["fields"]]
        return {**kind, "fields": fields}
    inner = ("elementType", "keyType", "valueType")
    return {key: _replaced(value) if key in inner else value for key, value in kind.items()}


def variant_texts(column: pa.StructArray) -> pa.Array:
    """Each value as JSON: what Spark's `to_json` says, with numbers as Python writes them.

    Raises TableError for one that nobody understands.
    """
    # Only tables with such columns need Spark's own reader of them.
    from pyspark.errors import PySparkException
    from pyspark.sql.variant_utils import VariantUtils

    names = [field.name for field in column.type]
    if sorted(names) != ["metadata", "value"]:
        raise TableError(f"a variant is stored as {column.type}, in parts, which only Spark reads.")
    try:
        texts = [
            None if one is None else _as_written(VariantUtils.to_json(one["value"], one["metadata"]))
            for one in column.to_pylist()
        ]
    except (PySparkException, ValueError, IndexError) as error:
        raise TableError(f"a variant cannot be read: {error}") from error
    return pa.array(texts, pa.string())


def _as_written(text: str) -> str:
    """JSON whose letters beyond ASCII are themselves, as Spark's `to_json` leaves them, not their numbers."""
    if "\\u" not in text:
        return text
    told = _ESCAPED.sub(lambda found: chr(int(found[1], 16)) if found[1] else found[0], text)
    # Letters beyond 16 bits were written as two.
    return told.encode("utf-16", "surrogatepass").decode("utf-16")
