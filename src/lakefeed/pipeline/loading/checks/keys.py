"""Whether `key` of a source fits the tables in which events without a payload delete."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lakefeed.pipeline.options.event_key import ONE_VALUE

if TYPE_CHECKING:
    from lakefeed.pipeline.loading.outline import Outline, TableOutline
    from lakefeed.pipeline.secrets import Path


def key_problems(outline: Outline) -> Iterator[tuple[Path, str]]:
    """Keys that have no effect, or that tables cannot delete by."""
    formats = {name: one.key_format for name, one in outline.sound.items()}
    for source, kind in ((name, one.type) for name, one in formats.items() if one):
        fed = {name: table for name, table in outline.tables.items() if source in (table.sources or ())}
        deleting = {name: table for name, table in fed.items() if table.mode in ("upsert", "history")}
        if fed and not deleting:
            message = "has an effect only for tables with `mode: upsert` or `mode: history`"
            yield ("sources", source, "key"), f"{message}; give a table such a mode, or remove this"
        for name, table in deleting.items():
            if kind in ONE_VALUE and len(table.keyed_by["keys"]) != 1:
                message = f"`key: {kind}` of source '{source}' is one value, so `keys` must name one column"
                yield ("tables", name, "keys"), message
            elif table.mode == "history" and source not in outline.envelopes:
                yield from _without_sequence(name, table)


def _without_sequence(name: str, table: TableOutline) -> Iterator[tuple[Path, str]]:
    """A state ends where its deletion is, which an event without a payload must tell."""
    always = {*table.metadata.schema.names, *table.keyed_by["keys"]}
    lacking = next((one for one in table.keyed_by["sequence_by"] if one not in always), None)
    if lacking is not None and not table.reshapes:
        yield (
            ("tables", name, "sequence_by"),
            f"an event without a payload deletes by its key, and has no '{lacking}' that says when. Order by "
            "what every event has, such as `metadata: [_timestamp]` and `sequence_by: _timestamp`, or remove "
            "`key` of the source",
        )
