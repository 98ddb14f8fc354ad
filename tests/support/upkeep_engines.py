"""The same upkeep by both engines, in a process of its own whose Spark has Delta's jars."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

OPERATIONS = ("compact", "cluster", "delete", "vacuum")
SECONDS = 290


def look_after(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """Look after two equal tables, `folder/spark/events` and `folder/delta-rs/events`; the steps of each."""
    tests = Path(__file__).resolve().parents[1]
    done = subprocess.run(
        [sys.executable, "-m", "support.upkeep_engines", str(folder)],
        env={**os.environ, "PYTHONPATH": str(tests), "TZ": "UTC"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return dict(json.loads(done.stdout.splitlines()[-1]))


def main(folder: Path) -> None:
    from lakefeed.engine.spark.delta import delta_settings
    from lakefeed.engine.spark.session import own_session
    from support.jars import delta_jars
    from support.upkeep import Kept, age_at_noon

    age = age_at_noon(0)
    conf = delta_settings({"spark.jars": ",".join(str(jar) for jar in delta_jars())})
    steps = {}
    with own_session("tests", "local[2]", conf, folder / "spark.log") as session:
        for engine in ("spark", "delta-rs"):
            (folder / engine).mkdir()
            upkeep = (
                f"{{engine: {engine}, compact: {{min_files: 3}}, delete_after: {{column: at, age: {age}}}, "
                "vacuum: {retain: 1s, allow_short_retention: true}, max_share: 1}"
            )
            kept = Kept(folder / engine, upkeep, "partition_by: [day]\ncluster_by: [id]", spark=session)
            for day in range(2):
                kept.add(1000 + day * 40, 4, day=day)
            kept.stream(2, day=1, first=0)
            told = []
            for operation in OPERATIONS:
                time.sleep(1.1 if operation == "vacuum" else 0)
                told += [asdict(step) for step in kept.perform(operation)]
            kept.stream(2, day=1, first=20)
            steps[engine] = told
    print(json.dumps(steps))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
