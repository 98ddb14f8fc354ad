"""Spark's Delta among the writers of a table on S3, which may overwrite the commits of others."""

from __future__ import annotations

from lakefeed.stores import is_overwritable, made_conditionally
from lakefeed.tables.log.entry import entry_name
from lakefeed.tables.table import LakeTable

_LOOKED_AT = 20
_SPARK = "Apache-Spark"


def spark_beside(table: LakeTable) -> str | None:
    """What to know of a table that Spark has written to lately without keeping others apart; else None."""
    if not is_overwritable(table.store):
        return None
    log = table.log()
    for entry in reversed(list(log.newest_entries(_LOOKED_AT))):
        engine = str(entry.info.get("engineInfo", ""))
        if engine.startswith(_SPARK) and not made_conditionally(table.store, entry_name(entry.version)):
            return (
                f"version {entry.version} is of {engine}, and on S3 Spark's Delta may overwrite commits of "
                "others: give it the log store lakefeed.ConditionalLogStore, or let it write only while no "
                "pipeline does, or let both use one lock table (AWS_S3_LOCKING_PROVIDER)"
            )
    return None
