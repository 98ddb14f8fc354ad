"""Runs the examples for schedulers three times each, as a scheduler would: a program of its own.

`python -m support.scheduled_runs FOLDER` copies them into FOLDER, runs them in one Spark session, and writes
what became of each run to `FOLDER/outcome.json`. The packages of the schedulers are on its path.
"""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any

from support.spark import local_session

EXAMPLES = Path(__file__).parents[2] / "examples"
GOOD_ROWS, ALL_ROWS = 999, 2000
"""The first events of the example that are all good, and more of which two are not."""


def main(folder: Path) -> None:
    """Run both; a file of the table is lost before the third run."""
    with local_session():
        outcomes = {
            name: list(_three_runs(folder / name, begin))
            for name, begin in (("airflow", airflow), ("dagster", dagster))
        }
    (folder / "outcome.json").write_text(json.dumps(outcomes))


def _three_runs(folder: Path, begin: Callable[[Path], Callable[[], Any]]) -> Iterator[Any]:
    shutil.copytree(EXAMPLES, folder)
    sys.path.insert(0, str(folder))
    os.environ["LAKE"] = str(folder / "lake")
    run = begin(folder)
    for rows in (GOOD_ROWS, ALL_ROWS):
        os.environ["ROWS"] = str(rows)
        yield run()
    next((folder / "lake" / "events").rglob("*.parquet")).unlink()
    yield run()


def airflow(folder: Path) -> Callable[[], Any]:
    """Runs of the DAG, with a database of its own. The task has retries, as an installation may set them."""
    os.environ |= {
        "AIRFLOW_HOME": str(folder / "home"),
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
    }
    from airflow.utils.db import initdb

    initdb()
    dag = import_module("airflow_dag").hourly
    task = dag.get_task("load")
    task.retries, task.retry_delay = 2, timedelta(0)

    def run() -> Any:
        done = dag.test()
        of_run = "WHERE run_id = ? AND task_id = 'load'"
        with closing(sqlite3.connect(folder / "home" / "airflow.db")) as database:
            tasks = database.execute(
                f"SELECT task_id, state FROM task_instance {of_run}", [done.run_id]
            ).fetchall()
            results = database.execute(
                f"SELECT value FROM xcom {of_run} AND key = 'return_value'", [done.run_id]
            ).fetchall()
        returned = json.loads(results[0][0]) if results else None
        return {"state": done.state, "tasks": dict(tasks), "returned": returned}

    return run


def dagster(folder: Path) -> Callable[[], Any]:
    """Materializations of the asset."""
    from dagster import materialize

    asset = import_module("dagster_asset").events

    def run() -> Any:
        done = materialize([asset], raise_on_error=False)
        (event,) = done.get_asset_materialization_events()
        checks = {one.check_name: one.passed for one in done.get_asset_check_evaluations()}
        metadata = {name: value.value for name, value in event.materialization.metadata.items()}
        return {"success": done.success, "metadata": metadata, "checks": checks}

    return run


if __name__ == "__main__":
    main(Path(sys.argv[1]))
