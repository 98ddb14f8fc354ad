"""Files of a store that cannot be read at this moment, or not as they are stored now."""

from __future__ import annotations

import gzip
import json
import random
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.errors import TableError
from lakefeed.reprocess.files import retry_or_forget
from lakefeed.sources.files.piece import FoundFile, Piece
from lakefeed.sources.files.reading.opening import FileOpener
from lakefeed.sources.files.reading.parquet import parquet_rows
from lakefeed.stores import StoreError, open_store
from lakefeed.tables.operations.convert import plan
from support.ledger import dead_letters, table_ids
from support.s3 import S3Server
from support.unreliable import Fault, UnreliableStore


def noise(size: int) -> bytes:
    """Bytes that no codec makes smaller."""
    return random.Random(7).randbytes(size)


def parquet(size: int) -> bytes:
    sink = pa.BufferOutputStream()
    content = noise(size)
    rows = [content[at : at + 1000] for at in range(0, size, 1000)]
    pq.write_table(pa.table({"data": pa.array(rows)}), sink, compression="none", use_dictionary=False)
    return bytes(sink.getvalue())


@pytest.mark.parametrize("name", ["a.bin.gz", "a.parquet"])
def test_store_that_fails_in_the_middle_of_a_file_does_not_make_it_damaged(s3: S3Server, name: str) -> None:
    bucket = f"middle-{uuid4().hex[:8]}"
    s3.create_bucket(bucket)
    content = gzip.compress(noise(6 * 2**20)) if name.endswith("gz") else parquet(6 * 2**20)
    s3.client.put_object(Bucket=bucket, Key=f"in/{name}", Body=content)

    with UnreliableStore(s3) as door:

        class Opener(FileOpener):
            def open(self, path: str) -> pa.NativeFile:
                """The beginning is read; the next request is refused, as by a key that is out of reach."""
                stream = super().open(path)
                door.inject(Fault("refused", "GET", name))
                return stream

        opener = Opener(f"s3://{bucket}/in", door.storage)
        file = FoundFile(1, f"s3://{bucket}/in/{name}", len(content), 0)
        with pytest.raises(StoreError, match="AccessDenied"):
            if name.endswith("gz"):
                opener.content(file, "gzip")
            else:
                list(parquet_rows(opener.open(file.path), Piece(file)))


def test_archived_file_is_a_dead_letter_and_read_when_it_is_restored(s3: S3Server, tmp_path: Path) -> None:
    bucket = f"cold-{uuid4().hex[:8]}"
    s3.create_bucket(bucket)
    for number, kind in enumerate(["STANDARD", "GLACIER", "STANDARD"]):
        body = json.dumps({"id": number}).encode()
        s3.client.put_object(Bucket=bucket, Key=f"in/{number}.json", Body=body, StorageClass=kind)
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{drops: {{type: files, path: "s3://{bucket}/in", format: json}}}}
tables: {{rows: {{path: rows, from: drops, schema: {{id: long}}}}}}
storage: {json.dumps(s3.storage)}
"""
    )

    run_inline(Pipeline.from_file(file))

    assert sorted(table_ids(tmp_path / "rows", "id")) == [0, 2]
    (letter,) = dead_letters(tmp_path / "shop_dead_letters")
    assert (letter["code"], letter["topic"]) == ("file_archived", f"s3://{bucket}/in/1.json")
    assert letter["error"].endswith("Restore it, then type: lakefeed files retry")
    s3.client.restore_object(Bucket=bucket, Key="in/1.json", RestoreRequest={"Days": 1})
    retry_or_forget(Pipeline.from_file(file), None, ["1.json"], forget=False, who="me")
    run_inline(Pipeline.from_file(file))
    assert sorted(table_ids(tmp_path / "rows", "id")) == [0, 1, 2]


def test_store_that_fails_while_files_are_converted_does_not_make_them_damaged(s3: S3Server) -> None:
    bucket = f"convert-{uuid4().hex[:8]}"
    s3.create_bucket(bucket)
    s3.client.put_object(Bucket=bucket, Key="t/a.parquet", Body=parquet(2**20))

    with UnreliableStore(s3) as door:
        door.inject(Fault("refused", "GET", "a.parquet"))
        path = f"s3://{bucket}/t"
        with pytest.raises(TableError, match="the store refused access"):
            plan(path, open_store(path, door.storage), {})
        assert plan(path, open_store(path, door.storage), {}).files.files == 1
