"""verify, rewind and replay of tables in an object store, as on a disk."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.rewind import rewind
from support.ledger import assert_each_once, dead_letters, table_ids
from support.offline import drain
from support.s3 import S3Server


def test_table_on_s3_is_proved_rewound_and_gets_its_letters_back(s3: S3Server, tmp_path: Path) -> None:
    bucket, file = f"lake-{uuid4().hex[:8]}", tmp_path / "shop.yaml"
    s3.create_bucket(bucket)

    def write(time: str) -> None:
        file.write_text(
            f"""\
name: shop
sources: {{clicks: {{type: generate, rows: 60, bad_ratio: 0.1}}}}
tables:
  events:
    path: s3://{bucket}/deep/er/events
    from: clicks
    metadata: true
    partition_by: ["strftime(event_time, '%Y at %H') as part"]
    schema: {{event_id: long, event_time: {time}}}
storage: {json.dumps(s3.storage)}
"""
        )

    write("timestamp(ms)")
    drain(file, batch=30)
    write("timestamp")
    pipeline = Pipeline.from_file(file)
    empty = verify(pipeline, deep=True)
    (replayed,) = replay(pipeline, DeadLetterFilter())

    report = rewind(pipeline, "events", to_version=1)
    replay(pipeline, DeadLetterFilter())

    dead = [one["offset"] for one in dead_letters(f"s3://{bucket}/deep/er/shop_dead_letters", s3.storage)]
    path = f"s3://{bucket}/deep/er/events"
    proof = verify(pipeline, deep=True)
    assert (empty.sound, replayed.rows, report.dead_letters_returned) == (True, 54, 54)
    assert_each_once(range(60), table_ids(path, storage=s3.storage), dead)
    assert proof.sound, proof


def test_file_that_was_deleted_from_the_bucket_is_named(s3: S3Server, tmp_path: Path) -> None:
    bucket, file = f"lake-{uuid4().hex[:8]}", tmp_path / "shop.yaml"
    s3.create_bucket(bucket)
    file.write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate, rows: 10}}}}
tables:
  events: {{path: "s3://{bucket}/events", from: clicks, partition_by: ["hour(event_time)"]}}
storage: {json.dumps(s3.storage)}
"""
    )
    drain(file)
    (key,) = [key for key in s3.keys(bucket, "events/event_time_hour=") if key.endswith(".parquet")]

    s3.client.delete_object(Bucket=bucket, Key=key)

    (finding,) = verify(Pipeline.from_file(file)).tables[0].findings
    assert str(finding) == f"file: version 1: {key.removeprefix('events/')} with 10 rows is missing"
