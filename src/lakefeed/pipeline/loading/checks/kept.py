"""Whether sources that answer for events can keep their word: a folder of their own, and tables for all."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import TYPE_CHECKING

from lakefeed.pipeline.loading.outline import Outline
from lakefeed.pipeline.options.paths import is_inside

if TYPE_CHECKING:
    from lakefeed.pipeline.secrets import Path


def kept_problems(outline: Outline) -> Iterator[tuple[Path, str]]:
    """Journals that two sources would write, or that lie in a table, and streams that no table takes."""
    journals = {name: path for name, one in outline.sound.items() if (path := one.keeps_events_at())}
    for (one, path), (other, second) in combinations(journals.items(), 2):
        if is_inside(path, second) or is_inside(second, path):
            yield ("sources", other, "journal"), f"source '{one}' has it too; give each a journal of its own"
    tables = {name: table.path for name, table in outline.tables.items()}
    tables["dead_letters"] = outline.dead_letters
    for source, path in journals.items():
        for name, table in tables.items():
            if table and (is_inside(path, table) or is_inside(table, path)):
                where = "the dead letters" if name == "dead_letters" else f"table '{name}'"
                yield ("sources", source, "journal"), f"shares its folder with {where}; choose another one"
        yield from _untaken(outline, source)


def _untaken(outline: Outline, source: str) -> Iterator[tuple[Path, str]]:
    """Streams whose events would be accepted and never land; only told where all tables can be read."""
    if any(table.sources is None and not table.query for table in outline.tables.values()):
        return
    takers = [table for table in outline.tables.values() if source in (table.sources or ())]
    for at, stream in enumerate(outline.streams.get(source) or ()):
        if takers and not any(table.takes(stream) for table in takers):
            message = f"no table takes '{stream}'; add it to `streams` of a table, or remove it here"
            yield ("sources", source, "streams", at), message
