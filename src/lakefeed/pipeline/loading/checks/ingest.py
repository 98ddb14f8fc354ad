"""Whether a table can have what kafka-delta-ingest has: its positions, its transforms and its coercions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from lakefeed.pipeline.loading.outline import Outline, TableOutline

if TYPE_CHECKING:
    from lakefeed.pipeline.secrets import Path


def group_problems(outline: Outline) -> Iterator[tuple[Path, str]]:
    """What every process of a group would read whole, beside the one whose partitions they share."""
    whole = sorted((outline.sound.keys() | outline.reads.keys()) - outline.shared)
    for name in sorted(outline.shared) if whole else ():
        message = f"every process would read '{whole[0]}' whole, which only one may"
        yield ("sources", name, "assignment"), f"{message}; move it to a file of its own"


def ingest_problems(outline: Outline, table: TableOutline) -> Iterator[tuple[Path, str]]:
    """What does not fit to the sources of a table, by its keys."""
    sources = [name for name in table.sources or () if name in (outline.sources or ())]
    if (table.mode != "append" or table.route) and (shared := outline.shared.intersection(sources)):
        key = "route" if table.route else "mode"
        message = f"source '{min(shared)}' has `assignment: group`, and several processes can only append"
        yield (key,), f"{message} to one table; use `assignment: all`"
    for key in ("transform", "coerce"):
        if key in table.keys and table.query:
            yield (key,), "has an effect on events only, and a table with a `query` has none"
        for name in sources if key in table.keys else ():
            format = getattr(outline.sound.get(name), "format", None)
            if name in outline.sound and not getattr(format, "has_objects", False):
                yield (key,), f"works on json and avro; source '{name}' has another format, or columns"
        if key in table.keys and (fed := [name for name in table.sources or () if name in outline.reads]):
            yield (key,), f"works on payloads, and '{fed[0]}' brings columns; use `select`"
    if "app_id" not in table.keys or not table.sources:
        return
    if table.route:
        yield ("app_id",), "is for a table with a `path`; with `route` there are many tables"
    known = [outline.streams.get(name) for name in table.sources]
    topics = [one for streams in known for one in streams or () if table.takes(one)]
    if len(table.sources) > 1 or len(topics) != 1:
        found = "no named topic" if not topics else ", ".join(topics)
        yield (
            ("app_id",),
            f"its positions say nothing of topics, so the table must take one; it takes {found}",
        )
