from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed import Pipeline, Table
from lakefeed.engine.spark.machines import refuse_unshared_disks
from lakefeed.errors import UsageError
from lakefeed.sources import SparkSource
from lakefeed.sources.files.source import FilesSource


def shop(folder: Path, path: str = "events", spark: str = "") -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate, rows: 1}}}}
tables: {{events: {{path: "{path}", from: clicks, schema: {{event_id: long}}}}}}
dead_letters: {{path: "s3://lake/letters"}}
spark: {{{spark}}}
"""
    )
    return Pipeline.from_file(file)


@pytest.mark.parametrize("master", ["spark://127.0.0.1:9", "k8s://127.0.0.1:9", "yarn"])
def test_local_paths_are_refused_where_tasks_run_on_other_machines(tmp_path: Path, master: str) -> None:
    with pytest.raises(UsageError) as refused:
        shop(tmp_path).run(once=True, master=master)

    assert str(refused.value) == (
        f"table events: {tmp_path / 'events'} is a local path, and {master} runs tasks on other machines, "
        "which would write to disks of their own.\nUse an object store. If every machine has the same disk "
        "there, say so with `spark: {shared_disk: true}`."
    )


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local-cluster[2,1,1024]"])
def test_local_paths_are_fine_where_all_tasks_run_here(tmp_path: Path, master: str) -> None:
    refuse_unshared_disks(shop(tmp_path), master)


def test_local_paths_are_fine_where_the_file_says_that_they_are_shared(tmp_path: Path) -> None:
    refuse_unshared_disks(shop(tmp_path, spark="shared_disk: true"), "spark://127.0.0.1:9")
    refuse_unshared_disks(shop(tmp_path, path="s3://lake/events"), "spark://127.0.0.1:9")


def test_batches_that_spark_keeps_must_be_on_a_shared_disk(tmp_path: Path) -> None:
    source = SparkSource(format="rate", checkpoint=str(tmp_path / "spark"))
    table = Table(path="s3://lake/ticks", from_=("ticks",))
    pipeline = Pipeline(name="shop", sources={"ticks": source}, tables={"ticks": table})

    with pytest.raises(
        UsageError, match=r"source ticks: Spark keeps its batches on a local disk, and spark://"
    ):
        refuse_unshared_disks(pipeline, "spark://host:7077")


def test_a_folder_of_files_must_be_seen_by_every_machine(tmp_path: Path) -> None:
    pipeline = shop(tmp_path, path="s3://lake/events")
    files = FilesSource.model_validate({"path": str(tmp_path / "landing"), "format": "json"})
    pipeline.sources["clicks"] = files

    with pytest.raises(UsageError, match="landing is a local path, and yarn runs tasks on other machines"):
        refuse_unshared_disks(pipeline, "yarn")
