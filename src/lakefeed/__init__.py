"""Lakefeed streams events into Delta Lake tables, exactly once, on Spark.

Names are imported when they are used, so that `import lakefeed` loads neither Spark nor Arrow.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakefeed.errors import (
    BatchFailed,
    DataLoss,
    Fenced,
    GaveUp,
    JavaError,
    LakefeedError,
    PipelineFileError,
    SourceError,
    SourceUnavailable,
    StoreUnavailable,
    TableError,
    UsageError,
)

if TYPE_CHECKING:
    from lakefeed.formats.json import JsonFormat
    from lakefeed.pipeline.flush import Flush
    from lakefeed.pipeline.model import Pipeline
    from lakefeed.pipeline.table import Table
    from lakefeed.sources.generate import GenerateSource
    from lakefeed.sources.kafka import KafkaSource

__version__ = "0.1.0"

__all__ = [
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

_HOMES = {
    "Flush": "lakefeed.pipeline.flush",
    "GenerateSource": "lakefeed.sources.generate",
    "JsonFormat": "lakefeed.formats.json",
    "KafkaSource": "lakefeed.sources.kafka",
    "Pipeline": "lakefeed.pipeline.model",
    "Table": "lakefeed.pipeline.table",
}


def __getattr__(name: str) -> Any:
    """Import a public name from the room that it lives in."""
    if name not in _HOMES:
        raise AttributeError(f"module 'lakefeed' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, whether they are imported yet or not."""
    return sorted(__all__)
