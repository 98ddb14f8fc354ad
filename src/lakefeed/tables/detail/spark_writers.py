"""Spark's Delta among the writers of a table on S3, which may overwrite the commits of others."""

from __future__ import annotations

from lakefeed.stores import is_overwritable
from lakefeed.tables.table import LakeTable

_LOOKED_AT = 20
_SPARK = "Apache-Spark"


def spark_beside(table: LakeTable) -> str | None:
    """What to know of a table that Spark has written to lately without a lock table; None for all others."""
    if not is_overwritable(table.store):
        return None
    log = table.log()
    for version in sorted(log.versions, reverse=True)[:_LOOKED_AT]:
        engine = str(log.entry(version).info.get("engineInfo", ""))
        if engine.startswith(_SPARK):
            return (
                f"version {version} is of {engine}, and on S3 Spark's Delta may overwrite commits of others: "
                "let it write only while no pipeline does, or let both use one lock table "
                "(AWS_S3_LOCKING_PROVIDER)"
            )
    return None
