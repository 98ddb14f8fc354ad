"""A store that refuses is told in one sentence with the remedy, at once; secrets are in none of them."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from uuid import uuid4

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.errors import TableError
from lakefeed.stores import open_store, put_new, store_errors
from lakefeed.tables.table import LakeTable
from support.azurite import AzuriteServer
from support.command_line import in_process
from support.lock_table import LockTableOf
from support.object_server import ObjectServer
from support.s3 import S3Server
from support.unreliable import Fault, UnreliableStore

SECONDS = 60


def refused(path: str, storage: Mapping[str, str]) -> list[str]:
    """What is said when a table is opened, and when a file is written; both soon, and not tried again."""
    said = []
    for attempt in (
        lambda: LakeTable.open("events", path, storage, open_store(path, storage)),
        lambda: put_new(open_store(path, storage), "x", b""),
    ):
        began = time.monotonic()
        with pytest.raises(TableError) as told, store_errors(path):
            attempt()
        assert not told.value.retryable
        assert time.monotonic() - began < SECONDS
        said.append(str(told.value))
    return said


@pytest.fixture(scope="module")
def door(s3: S3Server) -> Iterator[UnreliableStore]:
    with UnreliableStore(s3) as door:
        yield door


@pytest.fixture
def bucket(s3: S3Server) -> str:
    name = f"lake-{uuid4().hex[:8]}"
    s3.create_bucket(name)
    return name


def test_a_missing_bucket_is_told_on_each_cloud(cloud: ObjectServer) -> None:
    path = cloud.url("no-such-bucket", "events")

    assert (
        refused(path, cloud.storage)
        == [f"{path}: the bucket or container does not exist\nCreate it, or correct the path."] * 2
    )


def test_a_wrong_key_is_told_and_not_shown(azure: AzuriteServer) -> None:
    azure.create_bucket(name := f"lake-{uuid4().hex[:8]}")
    wrong = {**azure.storage, "AZURE_STORAGE_ACCOUNT_KEY": "Y2FuYXJ5LXNlY3JldA=="}

    for said in refused(f"az://{name}/events", wrong):
        assert "the store does not accept the credentials: AuthorizationFailure" in said
        assert "Check AZURE_STORAGE_ACCOUNT_KEY" in said
        assert "Y2FuYXJ5" not in said


@pytest.mark.parametrize(
    ("code", "what", "remedy"),
    [
        ("InvalidAccessKeyId: Unknown.", "does not accept the credentials", "Check AWS_ACCESS_KEY_ID"),
        ("SignatureDoesNotMatch: No.", "does not accept the credentials", "Check AWS_ACCESS_KEY_ID"),
        ("AccessDenied: Not yours.", "refused access: AccessDenied: Not yours.", "s3:PutObject"),
        ("RequestTimeTooSkewed: Late.", "the clock of this machine differs too much", "timedatectl"),
        ("PermanentRedirect: Elsewhere.", "the bucket is in another region", "Set AWS_REGION"),
        ("ExpiredToken: Old.", "the credentials have expired: ExpiredToken: Old.", "Get new ones"),
    ],
)
def test_each_refusal_of_s3_has_its_own_sentence(
    door: UnreliableStore, bucket: str, code: str, what: str, remedy: str
) -> None:
    door.heal()
    for method in ("GET", "PUT", "HEAD"):
        door.inject(Fault("refused", method=method, times=1000, text=code))

    for said in refused(f"s3://{bucket}/events", door.storage):
        first, second = said.split("\n")
        assert what in first
        assert remedy in second


def test_a_server_that_ignores_conditions_is_refused_before_the_first_commit(
    door: UnreliableStore,
    bucket: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    door.heal()
    door.inject(Fault("unconditional", times=1000))
    file = tmp_path / "shop.yaml"
    unsafe = {**door.storage, "AWS_S3_ALLOW_UNSAFE_RENAME": "true"}
    text = """\
name: shop
sources: {{clicks: {{type: generate, rows: 10}}}}
tables: {{events: {{path: "s3://{bucket}/events", from: clicks, schema: {{event_id: long}}}}}}
storage: {storage}
"""
    file.write_text(text.format(bucket=bucket, storage=json.dumps(door.storage)))
    lakefeed = in_process(capsys, monkeypatch)

    code, said, _ = lakefeed("doctor", file)
    file.write_text(text.format(bucket=bucket, storage=json.dumps(unsafe)))
    planned, plan, _ = lakefeed("plan", file)
    _, doctor, _ = lakefeed("doctor", file)

    assert code == 3 and "ignores conditional writes (If-None-Match)" in said
    assert planned == 0 and "commits are not protected against a second writer" in plan
    assert "commits are not protected against a second writer" in doctor


def test_spark_among_the_writers_of_a_table_on_s3_is_told_unless_a_lock_table_keeps_it_apart(
    s3: S3Server,
    bucket: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file, warning = tmp_path / "shop.yaml", "on S3 Spark's Delta may overwrite commits of others"
    text = """\
name: shop
sources: {{clicks: {{type: generate, rows: 10}}}}
tables: {{events: {{path: "s3://{bucket}/events", from: clicks, schema: {{event_id: long}}}}}}
storage: {storage}
"""
    file.write_text(text.format(bucket=bucket, storage=json.dumps(s3.storage)))
    run_inline(Pipeline.from_file(file))
    lakefeed = in_process(capsys, monkeypatch)
    _, alone, _ = lakefeed("plan", file)
    info = {"timestamp": 1, "operation": "WRITE", "engineInfo": "Apache-Spark/4.2.0 Delta-Lake/4.4.0"}
    newest = DeltaTable(f"s3://{bucket}/events", storage_options=s3.storage).version()
    key = f"events/_delta_log/{newest + 1:020d}.json"
    s3.client.put_object(Bucket=bucket, Key=key, Body=json.dumps({"commitInfo": info}).encode())

    _, planned, _ = lakefeed("plan", file)
    _, examined, _ = lakefeed("doctor", file)
    file.write_text(text.format(bucket=bucket, storage=json.dumps(LockTableOf(s3).storage)))
    _, locked, _ = lakefeed("plan", file)

    assert warning not in alone and warning not in locked
    for said in (planned, examined):
        assert f"version {newest + 1} is of Apache-Spark/4.2.0 Delta-Lake/4.4.0" in said
        assert warning in said


@pytest.fixture
def aws_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An environment without any keys but those of the files of a profile."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    return tmp_path


@pytest.mark.parametrize("kind", ["keys", "process"])
def test_a_profile_of_aws_gives_the_keys(
    s3: S3Server, bucket: str, aws_files: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "lake")
    keys = {"Version": 1, "AccessKeyId": "AKIA", "SecretAccessKey": "hush"}
    script = aws_files / "keys.py"
    script.write_text(f"print({json.dumps(keys)!r})")
    (aws_files / "credentials").write_text(
        "[lake]\naws_access_key_id = AKIA\naws_secret_access_key = hush\n"
        if kind == "keys"
        else f"[lake]\ncredential_process = {sys.executable} {script}\n"
    )
    storage = {name: value for name, value in s3.storage.items() if "KEY" not in name}

    put_new(open_store(f"s3://{bucket}/events", storage), "x", b"1")

    monkeypatch.delenv("AWS_PROFILE")
    assert s3.keys(bucket) == ["events/x"]


def test_a_profile_that_is_not_there_is_told(aws_files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "lake")

    with pytest.raises(TableError, match="the profile 'lake' that AWS_PROFILE names is in none of"):
        open_store("s3://lake/events", {"AWS_REGION": "eu-west-1"})
