"""Tables with column mapping in an object store: only with conditional writes can their log be written."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from lakefeed import Pipeline, TableError
from lakefeed.engine.inline import run_inline
from lakefeed.stores import open_store
from lakefeed.testing.landed import read_rows
from support.s3 import S3Server

FILE = """\
name: shop
sources: {drops: {type: files, path: FOLDER, settle: 1ms, format: json}}
tables: {rows: {path: "PATH", from: drops, names: keep, mode: upsert, keys: [Order ID], evolve: add}}
storage: STORAGE
give_up_after: 10s
"""


def run(folder: Path, path: str, storage: dict[str, str], *events: object) -> None:
    into = folder / "in"
    into.mkdir(exist_ok=True)
    (into / f"{uuid4().hex}.json").write_text("".join(json.dumps(event) + "\n" for event in events))
    file = folder / "shop.yaml"
    text = FILE.replace("FOLDER", str(into)).replace("PATH", path).replace("STORAGE", json.dumps(storage))
    file.write_text(text)
    run_inline(Pipeline.from_file(file))


def test_table_is_made_and_changed_in_a_store_with_conditional_writes(s3: S3Server, tmp_path: Path) -> None:
    bucket = f"lake-{uuid4().hex[:8]}"
    s3.create_bucket(bucket)
    path = f"s3://{bucket}/rows"

    run(tmp_path, path, s3.storage, {"Order ID": 1, "n n": {"x y": 1}}, {"Order ID": 2})
    run(tmp_path, path, s3.storage, {"Order ID": 1, "n n": {"z z": 2}, "new new": 5})

    rows = sorted(read_rows(path, s3.storage)[1], key=lambda row: row["Order ID"])
    assert rows == [
        {"Order ID": 1, "n n": {"x y": None, "z z": 2}, "new new": 5},
        {"Order ID": 2, "n n": None, "new new": None},
    ]


def test_store_without_conditional_writes_is_refused_before_there_is_a_table(
    s3: S3Server, tmp_path: Path
) -> None:
    bucket = f"lake-{uuid4().hex[:8]}"
    s3.create_bucket(bucket)
    path, unsafe = f"s3://{bucket}/rows", {**s3.storage, "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}

    with pytest.raises(
        TableError, match="column mapping can be written only to a store with conditional writes"
    ):
        run(tmp_path, path, unsafe, {"Order ID": 1})

    assert not open_store(path, s3.storage).get_file_info("_delta_log/00000000000000000000.json").is_file
