"""Where tasks run: on this machine, or on others, whose disks are not the one that the driver commits on."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lakefeed.errors import UsageError
from lakefeed.pipeline.pipeline import Pipeline

_HERE = re.compile(r"local(\[.*\])?|local-cluster\[.*\]")


def refuse_unshared_disks(pipeline: Pipeline, master: str) -> None:
    """Raise UsageError when workers on other machines would write files that the driver never sees."""
    if _HERE.fullmatch(master) or pipeline.spark.shared_disk:
        return
    for what, why, use in _on_this_disk(pipeline):
        raise UsageError(
            f"{what}, and {master} runs tasks on other machines, which {why}.\n{use}If every machine has the "
            "same disk there, say so with `spark: {shared_disk: true}`."
        )


def _on_this_disk(pipeline: Pipeline) -> Iterator[tuple[str, str, str]]:
    """What lies on the disk of the driver, why that would go wrong, and what to use instead."""
    for name, source in pipeline.sources.items():
        if _is_local(journal := source.keeps_events_at()):
            what = f"source {name}: the journal {journal} is a local path"
            yield what, "could not read it", "Use `journal: s3://...`. "
        if _is_local(folder := source.reads_folder()):
            yield f"source {name}: {folder} is a local path", "could not read it", "Use an object store. "
        if source.type == "spark":
            yield f"source {name}: Spark keeps its batches on a local disk", "do not see it", ""
    paths = {name: table.neighbour for name, table in pipeline.tables.items()}
    for name, path in {**paths, "dead letters": pipeline.dead_letters_path}.items():
        if _is_local(path):
            what = f"table {name}: {path} is a local path"
            yield what, "would write to disks of their own", "Use an object store. "


def _is_local(path: str | None) -> bool:
    return bool(path) and "://" not in str(path)
