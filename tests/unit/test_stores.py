from __future__ import annotations

import io
import json
import re
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest
from deltalake import CommitProperties, DeltaTable, Schema, write_deltalake
from deltalake.exceptions import CommitFailedError
from deltalake.transaction import AddAction

from lakefeed.errors import StoreUnavailable, TableError
from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.stores import (
    delete_files,
    delta_options,
    drop_files,
    is_unsafe,
    listed_objects,
    located,
    open_store,
    parallel_map,
    store_errors,
    store_path,
)
from lakefeed.stores.location import Bucket, bucket_of
from lakefeed.stores.objects import ObjectFiles, _client
from lakefeed.tables.log.checkpoint import read_transactions
from lakefeed.tables.write.keyed.backwards import logged
from support.s3 import S3Server

ROWS = pa.record_batch({"c": ["a b", "x%y", "u/v", "ü", None], "id": [0, 1, 2, 3, 4]})
TARGET = FileTarget(ROWS.schema, ("c",))


def write(path: str, storage: dict[str, str]) -> list[WrittenFile]:
    writer = TableWriter(open_store(path, storage), TARGET)
    writer.write(ROWS)
    return writer.close()


@pytest.mark.parametrize("name", ["plain", "with space", "100%", "ü"])
def test_a_local_table_is_written_by_path_and_by_url(tmp_path: Path, name: str) -> None:
    by_path = write(str(tmp_path / name), {})
    by_url = write((tmp_path / name).as_uri(), {})

    assert all((tmp_path / name / file.path).exists() for file in [*by_path, *by_url])


def test_the_directory_of_a_table_is_made_with_its_first_file(tmp_path: Path) -> None:
    writer = TableWriter(open_store(str(tmp_path / "lake/new/table"), {}), FileTarget(ROWS.schema))
    writer.write(ROWS)

    [file] = writer.close()

    assert (tmp_path / "lake/new/table" / file.path).exists()


def test_a_relative_path_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    files = write("lake/clicks", {})

    assert all((tmp_path / "lake/clicks" / file.path).exists() for file in files)
    assert store_path(open_store("lake/clicks", {})) == str(tmp_path / "lake/clicks")


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_a_table_on_s3_is_written_with_the_options_of_the_log(s3: S3Server, scheme: str) -> None:
    bucket = f"lake-{scheme}"
    s3.create_bucket(bucket)
    path = f"{scheme}://{bucket}/clicks"

    files = write(path, s3.storage)

    table = DeltaTable.create(
        path, Schema.from_arrow(ROWS.schema), partition_by=["c"], storage_options=s3.storage
    )
    adds = [AddAction(f.path, f.size, f.partition_values, 1, True, f.stats) for f in files]
    table.create_write_transaction(adds, "append", table.schema(), partition_by=["c"])
    found = DeltaTable(path, storage_options=s3.storage).to_pyarrow_table().sort_by("id")
    assert found["c"].to_pylist() == ROWS.column("c").to_pylist()
    assert store_path(open_store(path, s3.storage)) == path


def test_a_file_larger_than_one_part_arrives_whole_on_s3(s3: S3Server) -> None:
    s3.create_bucket("large")
    rows = pa.record_batch(
        {"id": list(range(200_000)), "text": [f"{i * 2654435761 % 2**64:064x}" for i in range(200_000)]}
    )
    store = open_store("s3://large/table", s3.storage)
    writer = TableWriter(store, FileTarget(rows.schema, compression="none"))
    writer.write(rows)

    [file] = writer.close()

    assert file.size > 10_000_000
    assert s3.client.head_object(Bucket="large", Key=f"table/{file.path}")["ContentLength"] == file.size
    assert pq.read_table(store.open_input_file(file.path)).equals(pa.table(rows))


def test_abort_leaves_nothing_on_s3(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lakefeed.files.parquet._GATHERED_BYTES", 1)
    s3.create_bucket("aborted")
    writer = TableWriter(open_store("s3://aborted/table", s3.storage), TARGET)
    writer.write(ROWS)

    writer.abort()

    assert s3.keys("aborted") == []
    assert "Uploads" not in s3.client.list_multipart_uploads(Bucket="aborted")


def test_a_missing_bucket_is_refused(s3: S3Server) -> None:
    with pytest.raises(TableError) as told:
        write("s3://no-such-bucket/clicks", s3.storage)

    assert not told.value.retryable
    assert str(told.value) == (
        "s3://no-such-bucket/clicks: the bucket or container does not exist\nCreate it, or correct the path."
    )


def test_a_store_that_is_away_is_tried_again() -> None:
    storage = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
        "max_retries": "1",
    }

    with pytest.raises(StoreUnavailable) as told:
        write("s3://lake/clicks", storage)

    assert str(told.value) == (
        "s3://lake/clicks: the store does not answer: Connection refused (os error 111)\n"
        "The write is tried again; check that the store can be reached."
    )


def test_an_endpoint_that_may_not_be_asked_is_refused_at_once() -> None:
    storage = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:1",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }

    with pytest.raises(TableError) as told:
        write("s3://lake/clicks", storage)

    assert not told.value.retryable
    assert str(told.value) == (
        "s3://lake/clicks: cannot be opened: an endpoint is no URL that may be asked\n"
        'Check the endpoints in `storage` and in the environment. One with http:// wants ALLOW_HTTP: "true"; '
        "AWS_ENDPOINT_URL_STS must be https://"
    )


def test_an_unknown_kind_of_store_is_refused() -> None:
    with pytest.raises(TableError, match=r"foo://lake/clicks: cannot be opened: foo:// is no store"):
        open_store("foo://lake/clicks", {})


@pytest.mark.parametrize(
    ("error", "kind", "text"),
    [
        (PermissionError(13, "Permission denied"), TableError, "permission denied\nGive the user that runs"),
        (OSError(30, "Read-only file system"), TableError, "the file system is read-only\nMake it writable"),
        (OSError(122, "Disk quota exceeded"), StoreUnavailable, "no space left\nFree some space"),
        (
            OSError(
                "Generic S3 error\n  \x1b[31m↳\x1b[0m Server returned a status code\n  ↳ 403 Forbidden\n"
                "<Error><Code>AccessDenied</Code><Message>Access Denied</Message></Error>"
            ),
            TableError,
            "the store refused access: AccessDenied: Access Denied\nGive the credentials",
        ),
        (
            OSError("Generic S3 error\n  ↳ error sending request\n  ↳ operation timed out\n"),
            StoreUnavailable,
            "the store does not answer: operation timed out\nThe write is tried again",
        ),
        (
            OSError("Generic GCS error\n  ↳ 503 Service Unavailable"),
            StoreUnavailable,
            "503 Service Unavailable",
        ),
        *(
            (
                OSError(
                    f"Generic S3 error: Error performing PUT https://s3.amazonaws.com/{name}/part-1.parquet "
                    "in 30s, after 10 retries - Server returned non-2xx status code: 503 Slow Down"
                ),
                StoreUnavailable,
                "503 Slow Down",
            )
            for name in ("lake/credentials", "lake/configuration", "credentials.lake/x.configuration")
        ),
    ],
)
def test_what_a_store_raises_is_told_with_the_next_step(
    error: OSError, kind: type[TableError], text: str
) -> None:
    with pytest.raises(TableError) as told, store_errors("s3://lake/clicks"):
        raise error

    assert type(told.value) is kind
    assert str(told.value).startswith("s3://lake/clicks: ")
    assert text in str(told.value)
    assert len(str(told.value).splitlines()) <= 3


@pytest.mark.parametrize(
    ("path", "bucket"),
    [
        ("s3a://lake/a/b", Bucket("s3", "lake", "a/b")),
        ("gs://lake/a%20b", Bucket("gcs", "lake", "a b")),
        ("az://lake/a/", Bucket("azure", "lake", "a")),
        ("adl://lake/a", Bucket("azure", "lake", "a")),
        ("abfs://lake/a", Bucket("azure", "lake", "a")),
        ("abfss://lake@shop.dfs.core.windows.net/a", Bucket("azure", "lake", "a", "shop")),
    ],
)
def test_a_url_names_a_cloud_a_bucket_and_a_prefix(path: str, bucket: Bucket) -> None:
    assert bucket_of(path) == bucket


def test_the_account_in_a_path_wins_over_the_one_in_storage() -> None:
    storage = {"AZURE_STORAGE_ACCOUNT_NAME": "other", "AZURE_STORAGE_ACCOUNT_KEY": "Zm9v"}
    client = _client("abfss://lake@shop.dfs.core.windows.net/t", storage)

    assert [value for name, value in client.config.items() if "account_name" in name] == ["shop"]


def test_a_duration_that_is_none_is_told() -> None:
    with pytest.raises(TableError, match="retry_timeout is 'soon'"):
        open_store("s3://lake/a", {"retry_timeout": "soon", "AWS_ACCESS_KEY_ID": "k"})


@pytest.mark.parametrize(
    ("path", "store", "within"),
    [
        ("day=12:00/part 1.parquet", "s3://lake/a", "day=12:00/part 1.parquet"),
        ("s3a://other/a b%20/part.parquet", "s3a://other", "a b%20/part.parquet"),
        ("file:/lake/b/part.parquet", None, "/lake/b/part.parquet"),
        ("file:///lake/b/part.parquet", None, "/lake/b/part.parquet"),
        ("/lake/b/part.parquet", None, "/lake/b/part.parquet"),
    ],
)
def test_a_file_that_a_log_names_lies_in_the_table_or_anywhere(
    path: str, store: str | None, within: str
) -> None:
    found, name = located(open_store("s3://lake/a", {"AWS_SKIP_SIGNATURE": "true"}), path)

    assert name == within
    assert isinstance(found, pafs.LocalFileSystem) if store is None else store_path(found) == store


def test_the_environment_does_not_turn_conditional_commits_off(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.create_bucket("environment")
    path, no_retry = "s3://environment/t", CommitProperties(max_commit_retries=0)
    write_deltalake(path, pa.table({"id": [1, 2]}), storage_options=delta_options(path, s3.storage))
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")

    first, second = (DeltaTable(path, storage_options=delta_options(path, s3.storage)) for _ in range(2))
    first.delete("id = 1", commit_properties=no_retry)

    with pytest.raises(CommitFailedError):
        second.delete("id = 2", commit_properties=no_retry)
    assert not is_unsafe(path, s3.storage)
    assert is_unsafe(path, {**s3.storage, "AWS_S3_ALLOW_UNSAFE_RENAME": "true"})


@pytest.mark.parametrize("request_kind", ["delete", "drop", "head", "get"])
def test_requests_to_an_object_store_run_in_parallel(
    request_kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("s3://bucket/table", {"AWS_REGION": "us-east-1"})
    paths = [f"{number}.parquet" for number in range(8)]
    # One request at a time would wait here for ever.
    together = threading.Barrier(4, timeout=120)

    def answer(files: ObjectFiles, path: str) -> pafs.FileInfo:
        together.wait()
        return pafs.FileInfo(path, pafs.FileType.File)

    monkeypatch.setattr(ObjectFiles, "delete_file" if request_kind in ("delete", "drop") else "_info", answer)

    if request_kind == "delete":
        deleted: list[None] = []
        delete_files(store, paths, lambda: deleted.append(None))
        assert len(deleted) == 8
    elif request_kind == "drop":
        drop_files(store, paths)
    elif request_kind == "head":
        assert [info.path for info in store.get_file_info(paths)] == paths
    else:
        assert list(parallel_map(store, lambda path: store.get_file_info(path).path, paths)) == paths


@pytest.mark.parametrize("read", [read_transactions, logged])
def test_entries_of_a_log_in_an_object_store_are_read_in_parallel(
    read: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store("s3://bucket/table", {"AWS_REGION": "us-east-1"})
    together = threading.Barrier(4, timeout=120)

    def answer(files: ObjectFiles, path: str) -> pa.NativeFile:
        if path.endswith("_last_checkpoint"):
            raise FileNotFoundError(path)
        together.wait()
        return pa.PythonFile(io.BytesIO(b'{"txn": {"appId": "a", "version": 7}}'), "r")

    monkeypatch.setattr(ObjectFiles, "open_input_stream", answer)
    monkeypatch.setattr(ObjectFiles, "get_file_info_selector", lambda files, selector: [])

    if read is logged:
        assert logged(store, 7, "shop") == {}
    else:
        assert read_transactions(store, 7) == {"a": 7}


def test_documented_rule_for_incomplete_uploads_is_accepted(s3: S3Server) -> None:
    s3.create_bucket("rule")
    page = Path(__file__).parents[2] / "docs" / "stores.md"
    (rule,) = re.findall(r"```json\n(.*?)```", page.read_text(), re.DOTALL)

    s3.client.put_bucket_lifecycle_configuration(Bucket="rule", LifecycleConfiguration=json.loads(rule))

    (kept,) = s3.client.get_bucket_lifecycle_configuration(Bucket="rule")["Rules"]
    assert kept["AbortIncompleteMultipartUpload"] == {"DaysAfterInitiation": 7}


@pytest.mark.parametrize("key", ["in//a.json", "in/./a.json", "in/\x7f.json"])
def test_object_whose_name_cannot_be_read_is_named(s3: S3Server, key: str) -> None:
    bucket = f"odd-{len(key)}-{ord(key[3])}"
    s3.create_bucket(bucket)
    s3.client.put_object(Bucket=bucket, Key=key, Body=b"{}")
    path = f"s3://{bucket}/in"

    with (
        pytest.raises(TableError, match=r"an object whose name cannot be read: ") as refused,
        store_errors(path),
    ):
        list(listed_objects(open_store(path, s3.storage)))

    assert key in str(refused.value)
    assert "\nGive it a name without //" in str(refused.value)
