"""How a bucket is looked at: behind the last name often, all of it now and then, and no file is missed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

from lakefeed.stores import delta_options
from support.landing_bucket import LandingBucket, listings
from support.s3 import S3Server
from support.unreliable import Fault, UnreliableStore

EVERYTHING = "^(?!.*start-after).*prefix=in"


@pytest.fixture(scope="module")
def door(s3: S3Server) -> Iterator[UnreliableStore]:
    with UnreliableStore(s3) as door:
        yield door


def test_names_that_grow_are_listed_from_the_last_one_on(
    s3: S3Server, door: UnreliableStore, tmp_path: Path
) -> None:
    bucket = LandingBucket(s3, tmp_path, door.storage)
    bucket.set(backfill="1h")
    bucket.put("day=1/5.json", 1)
    _write_table(bucket, "day=1/rows")

    with bucket.running():
        bucket.wait_for(1)
        listings(door)
        bucket.put("day=1/3.json", 9)
        bucket.put("day=1/6.json", 2)
        bucket.put("day=2/1.json", 3)
        _write_table(bucket, "day=1/rows")
        bucket.wait_for(2, 3)
        asked, within = listings(door), bucket.ids()
    bucket.run()

    assert within == [1, 2, 3]
    assert asked and all("start-after" in one for one in asked), asked
    assert bucket.ids() == [1, 2, 3, 9]


def test_everything_is_listed_again_every_backfill(
    s3: S3Server, door: UnreliableStore, tmp_path: Path
) -> None:
    bucket = LandingBucket(s3, tmp_path, door.storage)
    bucket.set(backfill="3s", on_change="reload")
    bucket.put("5.json", 1)

    with bucket.running():
        bucket.wait_for(1)
        listings(door)
        bucket.put("3.json", 2)
        bucket.put("5.json", 3)
        bucket.wait_for(2, 3)
        asked = listings(door)

    assert [one for one in asked if "start-after" not in one], asked
    assert bucket.ids() == [2, 3]


def test_listing_that_takes_long_is_repeated_seldom_without_being_told_so(
    s3: S3Server, door: UnreliableStore, tmp_path: Path
) -> None:
    bucket = LandingBucket(s3, tmp_path, door.storage)
    bucket.put("1.json", 1)
    door.inject(Fault("slow", "GET", EVERYTHING, times=100))

    with bucket.running():
        bucket.wait_for(1)
        listings(door)
        bucket.put("2.json", 2)
        bucket.wait_for(2)
        asked = listings(door)

    door.heal()
    assert asked and all("start-after" in one for one in asked), asked


def _write_table(bucket: LandingBucket, key: str) -> None:
    """A Delta table among the files, whose own files are none of them."""
    path = bucket.server.url(bucket.name, f"in/{key}")
    storage = delta_options(path, bucket.server.storage)
    write_deltalake(path, pa.table({"event_id": [77]}), mode="append", storage_options=storage)
