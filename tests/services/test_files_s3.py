"""Files in an object store: found with their etags, read once, moved away; the ledger lies there too."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from uuid import uuid4

import pytest

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.errors import LakefeedError
from lakefeed.reports.found_files import found_files
from lakefeed.reports.verify import verify
from lakefeed.sources.files.filter import FileFilter
from lakefeed.stores import listed_objects, objects, open_store
from support.ledger import table_ids
from support.s3 import S3Server


def test_files_of_a_bucket_are_read_once_noticed_when_they_change_and_moved(
    s3: S3Server, tmp_path: Path
) -> None:
    bucket = f"lake-{uuid4().hex[:8]}"
    s3.create_bucket(bucket)

    def put(key: str, content: bytes) -> None:
        s3.client.put_object(Bucket=bucket, Key=key, Body=content)

    def file(options: str) -> Path:
        found = tmp_path / "shop.yaml"
        found.write_text(
            f"""\
name: shop
sources: {{drops: {{type: files, path: "s3://{bucket}/in/*/day", format: json, {options}}}}}
tables: {{rows: {{path: "s3://{bucket}/lake/rows", from: drops, metadata: {{_topic: _file}}}}}}
storage: {json.dumps(s3.storage)}
give_up_after: 20s
"""
        )
        return found

    def run(options: str) -> None:
        run_inline(Pipeline.from_file(file(options)))

    put("in/a/day/1.json", b'{"event_id": 1}\n{"event_id": 2}')
    put("in/b/day/x/2.json.gz", gzip.compress(b'{"event_id": 3}'))
    put("in/b/night/3.json", b'{"event_id": 99}')
    put("in/a/day/_SUCCESS", b"x")
    run("on_change: fail")
    run("on_change: fail")
    put("in/a/day/1.json", b'{"event_id": 4}\n{"event_id": 5}')
    with pytest.raises(LakefeedError, match=r"1\.json has changed since it was found"):
        run("on_change: fail")
    run("on_change: reload")
    run(f'after: {{move: "s3://{bucket}/done"}}')

    storage = s3.storage
    assert sorted(table_ids(f"s3://{bucket}/lake/rows", storage=storage)) == [3, 4, 5]
    (report,) = found_files(Pipeline.from_file(file("")), None, FileFilter())
    assert report.rows["state"].to_pylist() == ["replaced", "moved", "moved"]
    assert None not in report.rows["etag"].to_pylist()
    assert s3.keys(bucket, "done/") == ["done/a/day/1.json", "done/b/day/x/2.json.gz"]
    assert verify(Pipeline.from_file(file(""))).sound


def test_listing_is_whole_whatever_its_pages_and_prefixes(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "_PAGE", 2)
    bucket = f"lake-{uuid4().hex[:8]}"
    s3.create_bucket(bucket)
    trees = {
        "flat": ["1", "2", "3", "4", "5"],
        "deep": ["a/1", "a/2", "a/b/3", "b/4", "b/5", "b/6", "c/d/e/7", "top", "z"],
        "few": ["x/1"],
    }
    for tree, names in trees.items():
        for name in names:
            s3.client.put_object(Bucket=bucket, Key=f"{tree}/{name}", Body=b"x")

    listed = {
        tree: sorted(one[0] for one in listed_objects(open_store(f"s3://{bucket}/{tree}", s3.storage)))
        for tree in (*trees, "none")
    }

    assert listed == {**trees, "none": []}
    started = listed_objects(open_store(f"s3://{bucket}/deep", s3.storage))
    assert next(started)[0]
    started.close()


def test_prefix_that_is_copied_to_another_bucket_is_not_read_again_unasked(
    s3: S3Server, tmp_path: Path
) -> None:
    old, new = f"old-{uuid4().hex[:8]}", f"new-{uuid4().hex[:8]}"
    for bucket in (old, new):
        s3.create_bucket(bucket)

    def run(bucket: str, options: str = "") -> None:
        file = tmp_path / "shop.yaml"
        file.write_text(
            f"""\
name: shop
sources: {{drops: {{type: files, path: "s3://{bucket}/in", format: json{options}}}}}
tables: {{rows: {{path: rows, from: drops}}}}
storage: {json.dumps(s3.storage)}
"""
        )
        run_inline(Pipeline.from_file(file))

    for key, content in (("in/a.json", b'{"event_id": 1}'), ("in/x/b.json", b'{"event_id": 2}')):
        s3.client.put_object(Bucket=old, Key=key, Body=content)
    run(old)
    for key in ("in/a.json", "in/x/b.json"):
        s3.client.copy_object(Bucket=new, Key=key, CopySource={"Bucket": old, "Key": key})
    # Its etag says that it is another one, though name and size are the same.
    s3.client.put_object(Bucket=new, Key="in/x/b.json", Body=b'{"event_id": 3}')

    with pytest.raises(LakefeedError) as refused:
        run(new)
    run(new, ", on_move: keep")
    run(new)

    assert (
        f"s3://{new}/in/a.json has the name and size of a file that is known as s3://{old}/in/a.json"
        in str(refused.value)
    )
    assert sorted(table_ids(tmp_path / "rows")) == [1, 2, 3]
