"""Where tasks run: on this machine, or on others, whose disks are not the one that the driver commits on."""

from __future__ import annotations

import re

from lakefeed.errors import UsageError
from lakefeed.pipeline.pipeline import Pipeline

_HERE = re.compile(r"local(\[.*\])?|local-cluster\[.*\]")


def refuse_unshared_disks(pipeline: Pipeline, master: str) -> None:
    """Raise UsageError when workers on other machines would write files that the driver never sees."""
    if _HERE.fullmatch(master) or pipeline.spark.shared_disk:
        return
    paths = {name: table.neighbour for name, table in pipeline.tables.items()}
    paths["dead letters"] = pipeline.dead_letters_path
    for name, source in pipeline.sources.items():
        journal = source.keeps_events_at()
        if journal and "://" not in journal:
            raise UsageError(
                f"source {name}: the journal {journal} is a local path, and {master} runs tasks on other "
                "machines, which could not read it.\nUse `journal: s3://...`. If every machine has the same "
                "disk there, say so with `spark: {shared_disk: true}`."
            )
    for name, source in pipeline.sources.items():
        folder = source.reads_folder()
        if folder and "://" not in folder:
            raise UsageError(
                f"source {name}: {folder} is a local path, and {master} runs tasks on other machines, which "
                "could not read it.\nUse an object store. If every machine has the same disk there, say so "
                "with `spark: {shared_disk: true}`."
            )
    for name, source in pipeline.sources.items():
        if source.type == "spark":
            raise UsageError(
                f"source {name}: Spark keeps its batches on a local disk, and {master} runs tasks on other "
                "machines, which do not see it.\nIf every machine has the same disk there, say so with "
                "`spark: {shared_disk: true}`."
            )
    for name, path in paths.items():
        if "://" not in path:
            raise UsageError(
                f"table {name}: {path} is a local path, and {master} runs tasks on other machines, which "
                "would write to disks of their own.\nUse an object store. If every machine has the same disk "
                "there, say so with `spark: {shared_disk: true}`."
            )
