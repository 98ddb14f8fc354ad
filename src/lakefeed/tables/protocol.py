"""Which features of a table an operation keeps; a table with any other feature is refused by name."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote

from deltalake import DeltaTable

from lakefeed.errors import TableError
from lakefeed.tables.shape import is_on
from lakefeed.tables.table import LakeTable
from lakefeed.text import listed

_PLAIN = frozenset(
    {
        "appendOnly",
        "changeDataFeed",
        "checkConstraints",
        "deletionVectors",
        "generatedColumns",
        "invariants",
        "timestampNtz",
        "v2Checkpoint",
    }
)
_WITH_MAPPING = _PLAIN | {"columnMapping"}
_ONLY_IN_THE_LOG = {
    "allowColumnDefaults",
    "clustering",
    "domainMetadata",
    "identityColumns",
    "inCommitTimestamp",
    "rowTracking",
}

# Tested against tables that Spark wrote: what is named here keeps its content and its promises.
_KEPT: dict[str, frozenset[str]] = {
    "compact": _WITH_MAPPING,
    "cluster": _WITH_MAPPING,
    "delete": _WITH_MAPPING,
    "replace": _WITH_MAPPING,
    "restore": _WITH_MAPPING,
    "properties": _WITH_MAPPING,
    "vacuum": _WITH_MAPPING,
    "layout": _PLAIN - {"generatedColumns"},
    "widen": _WITH_MAPPING - {"generatedColumns"},
    "changes": _WITH_MAPPING | _ONLY_IN_THE_LOG,
    "checkpoint": _WITH_MAPPING | _ONLY_IN_THE_LOG,
}

# Before features had names, a version stood for all of those up to it.
_OF_WRITER_VERSION = {
    2: ("appendOnly", "invariants"),
    3: ("checkConstraints",),
    4: ("changeDataFeed", "generatedColumns"),
    5: ("columnMapping",),
    6: ("identityColumns",),
}
_REBUILT = "\nA table of a pipeline: change `partition_by` or `schema` in its file, then `lakefeed rebuild`."
_IN_USE = {
    "columnMapping": "delta.columnMapping.mode",
    "generatedColumns": "delta.generationExpression",
    "identityColumns": "delta.identity.",
}


def features(delta: DeltaTable) -> list[str]:
    """The features that a table has, by name.

    Of an old protocol version, which stands for features whether or not they are used, only those in use
    count where the two differ.
    """
    protocol = delta.protocol()
    named = {*(protocol.writer_features or ()), *(protocol.reader_features or ())}
    if protocol.min_writer_version < 7:
        implied = {
            name
            for version, names in _OF_WRITER_VERSION.items()
            for name in names
            if version <= protocol.min_writer_version
        }
        named |= {name for name in implied if name not in _IN_USE or _in_use(delta, _IN_USE[name])}
    return sorted(named)


def refuse_unkept(table: LakeTable, operation: str) -> None:
    """Raise TableError when the table has a feature that the operation would break or ignore."""
    unkept = [name for name in features(table.delta) if name not in _KEPT[operation]]
    if unkept:
        raise TableError(
            f"{table.path}: the table uses {listed(unkept)}, which `table {_command(operation)}` "
            "cannot keep.\nUse the engine that set the feature, such as Spark, or drop the feature there."
            + (_REBUILT if operation == "layout" and unkept == ["columnMapping"] else "")
        )


def refuse_append_only(table: LakeTable, operation: str) -> None:
    """Raise TableError when the table promises that rows are never taken away."""
    if is_on(table.properties, "delta.appendOnly"):
        raise TableError(
            f"{table.path}: delta.appendOnly is true, and `table {_command(operation)}` takes rows away.\n"
            f"If that is meant: lakefeed table properties {quote(table.path)} "
            "--set delta.appendOnly=false --yes"
        )


def _command(operation: str) -> str:
    return {
        "compact": "optimize",
        "cluster": "optimize --z-order",
        "layout": "replace --partition-by",
        "widen": "replace --column",
    }.get(operation, operation)


def _in_use(delta: DeltaTable, sign: str) -> bool:
    configured: Iterable[str] = (
        name for name, value in delta.metadata().configuration.items() if value != "none"
    )
    return any(name.startswith(sign) for name in configured) or f'"{sign}' in delta.schema().to_json()
