"""The refreshes of a table in its log: each holds the versions that it was made of, and these go forward."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lakefeed.tables.log.entry import Entry
from lakefeed.tables.positions import query_id
from lakefeed.tables.verify.finding import Finding


def check_refresh(
    entry: Entry, commit_info: Mapping[str, Any], held: Mapping[str, int]
) -> Iterator[Finding | str]:
    """Findings and notes about one refresh; `held` are the transactions of the version before."""
    pipeline = str(commit_info.get("pipeline"))
    for name, version in (commit_info.get("inputs") or {}).items():
        key = query_id(pipeline, name)
        if entry.transactions.get(key) != version:
            recorded = entry.transactions.get(key, "nothing")
            text = (
                f"it is made of version {version} of {name} by its commit info, and of {recorded} by its txn"
            )
            yield Finding("log", text, entry.version)
        before = held.get(key, -1)
        if version < before:
            yield (
                f"version {entry.version}: made of version {version} of {name}, after version {before}: "
                f"{name} was made anew"
            )
