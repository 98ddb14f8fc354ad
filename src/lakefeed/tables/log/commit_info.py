"""What a commit says about itself: positions as `txn`, and Lakefeed's own commit info as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from deltalake import CommitProperties, Transaction

COMMIT_KEY = "lakefeed"
"""The key in a commit's metadata under which Lakefeed keeps its own commit info, as JSON."""


def commit_properties(
    transactions: Mapping[str, int], commit_info: Mapping[str, Any], *, blind: bool = False
) -> CommitProperties:
    """What a commit carries besides its files: `txn` actions, and its commit info.

    A `blind` append was decided without reading a file of the table.
    """
    metadata: dict[str, Any] = commit_metadata(commit_info)
    return CommitProperties(
        app_transactions=[Transaction(name, version) for name, version in transactions.items()],
        custom_metadata={**metadata, "isBlindAppend": True} if blind else metadata,
    )


def commit_metadata(commit_info: Mapping[str, Any]) -> dict[str, str]:
    """Commit info as an entry stores it."""
    return {COMMIT_KEY: json.dumps(commit_info, separators=(",", ":"))}


def only_known(properties: Mapping[str, str]) -> bool:
    """Whether delta-rs is to refuse names that it does not know: a misspelt one, but not one's own."""
    return all(name.startswith("delta.") for name in properties)


def commit_info_of(info: Mapping[str, Any]) -> dict[str, Any]:
    """Lakefeed's own commit info in that of an entry; empty for the commits of others."""
    text = info.get(COMMIT_KEY)
    if isinstance(text, str):
        return _current(json.loads(text))
    # Spark's Delta has one text in which a commit may say something about itself.
    text = info.get("userMetadata")
    if isinstance(text, str) and text.startswith(f'{{"{COMMIT_KEY}":{{'):
        return _current(json.loads(text)[COMMIT_KEY])
    return {}


def _current(commit_info: dict[str, Any]) -> dict[str, Any]:
    """The names of today: earlier builds wrote `letters` for dead letters."""
    if commit_info.get("kind") == "letters":
        commit_info["kind"] = "dead_letters"
    for name in ("letters", "letters_version"):
        if name in commit_info:
            commit_info[f"dead_{name}"] = commit_info.pop(name)
    parts = commit_info.get("dead_letters")
    for part in parts if isinstance(parts, list) else ():
        if isinstance(part, dict) and "letters" in part:
            part["dead_letters"] = part.pop("letters")
    return commit_info
