"""Lakefeed streams events into Delta Lake tables, exactly once, on Spark.

Names are imported when they are used, so that `import lakefeed` loads neither Spark nor Arrow. The models of
sources are in `lakefeed.sources`, those of formats in `lakefeed.formats`.
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
    from lakefeed.api import Pipeline
    from lakefeed.pipeline.flush import Flush
    from lakefeed.pipeline.result import Commit, RunResult, TableResult
    from lakefeed.pipeline.run import Run
    from lakefeed.pipeline.table import Table

__version__ = "0.1.0"

__all__ = [
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

_HOMES = {
    "Commit": "lakefeed.pipeline.result",
    "Flush": "lakefeed.pipeline.flush",
    "Pipeline": "lakefeed.api",
    "Run": "lakefeed.pipeline.run",
    "RunResult": "lakefeed.pipeline.result",
    "Table": "lakefeed.pipeline.table",
    "TableResult": "lakefeed.pipeline.result",
}


def __getattr__(name: str) -> Any:
    """Import a public name from its module."""
    if name not in _HOMES:
        raise AttributeError(f"module 'lakefeed' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    """The public names, whether they are imported yet or not."""
    return sorted(__all__)
