"""Files in each cloud's store: new ones, a restart, a kill, a change, and what becomes of them afterwards."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.errors import LakefeedError
from lakefeed.reports.verify import verify
from support.forks import run_and_kill
from support.landing_bucket import LandingBucket
from support.object_server import ObjectServer


def test_files_are_read_once_over_restarts_and_kills_and_moved(cloud: ObjectServer, tmp_path: Path) -> None:
    bucket = LandingBucket(cloud, tmp_path)
    bucket.put("a/1.json", 1, 2)
    bucket.put("b c+ü/2.json", 3)
    bucket.put("_SUCCESS", 99)

    bucket.run()
    bucket.put("a/0.json", 4)
    codes = [run_and_kill(bucket.file, "files_written"), run_and_kill(bucket.file, "table_committed")]
    bucket.put("a/3.json", 5)
    bucket.run()
    bucket.run()
    bucket.put("a/1.json", 6)
    with pytest.raises(LakefeedError, match=r"a/1\.json has changed since it was found"):
        bucket.run()
    bucket.set(on_change="reload", after={"move": cloud.url(bucket.name, "done")})
    bucket.run()

    assert codes == [-signal.SIGKILL] * 2
    assert bucket.ids() == [1, 2, 3, 4, 5, 6]
    # A kill has lost the counts of one, which stays where it is.
    assert bucket.states() == ["read", "moved", "read", "moved", "moved"]
    assert bucket.keys("in") == ["_SUCCESS", "a/0.json"]
    assert bucket.keys("done") == ["a/1.json", "a/3.json", "b c+ü/2.json"]
    assert verify(Pipeline.from_file(bucket.file)).sound


def test_files_that_come_during_a_run_are_found_behind_the_last_name(
    cloud: ObjectServer, tmp_path: Path
) -> None:
    bucket = LandingBucket(cloud, tmp_path)
    bucket.set(backfill="1h")
    bucket.put("1.json", 1)

    with bucket.running():
        bucket.wait_for(1)
        bucket.put("2.json", 2)
        bucket.put("ü/3.json", 3)
        bucket.wait_for(2, 3)
        bucket.put("ü/4.json", 4)
        bucket.wait_for(4)

    assert bucket.ids() == [1, 2, 3, 4]


def test_copy_of_a_prefix_is_kept_but_for_what_differs(cloud: ObjectServer, tmp_path: Path) -> None:
    bucket = LandingBucket(cloud, tmp_path)
    bucket.set(path=cloud.url(bucket.name, "in/one"))
    bucket.put("one/a.json", 1)
    bucket.put("one/b.json", 2)
    bucket.run()
    bucket.put("two/a.json", 1)
    bucket.put("two/b.json", 3)
    bucket.set(path=cloud.url(bucket.name, "in/two"), on_move="keep")

    bucket.run()
    bucket.run()

    assert bucket.ids() == [1, 2, 3]
