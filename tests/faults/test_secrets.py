"""Canaries in every field that holds a credential; then everything that a run leaves is searched."""

from __future__ import annotations

import json
import logging
import re
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen
from uuid import uuid4

import psutil
import pytest

from conftest import TopicFactory
from lakefeed import LakefeedError, Pipeline
from lakefeed.pipeline.secrets import Redactor
from support.kafka import Broker
from support.lakefeed import Process, run, start
from support.s3 import S3Server
from support.unreliable import Fault, UnreliableStore

CANARY = "canary"
"""Part of every secret here; a new credential field gets its line in one of these."""
KAFKA = {
    "sasl.username": "${WHO}",
    "sasl.password": "${KAFKA_PASSWORD}",
    "ssl.key.password": f"{CANARY}-key-password",
}
STORAGE = {
    "AWS_ACCESS_KEY_ID": f"{CANARY}-id",
    "AWS_SECRET_ACCESS_KEY": "${AWS_SECRET}",
    "AWS_SESSION_TOKEN": f"{CANARY}-session",
}
SPARK = {"spark.hadoop.fs.s3a.secret.key": f"{CANARY}-spark", "spark.hadoop.my.setting": "${MINE}"}
VARIABLES = {
    "WHO": f"{CANARY}-who",
    "KAFKA_PASSWORD": f"{CANARY}-kafka pass/word",
    "AWS_SECRET": f"{CANARY}-secret",
    "MINE": f"{CANARY}-mine",
}
QUOTED = f"{CANARY}-id {CANARY}-session {CANARY}-secret {CANARY}-spark {CANARY}-mine"
"""What a store says that quotes all it was sent, and more."""


def pipeline_text(source: str, tables: str, storage: dict[str, str]) -> str:
    own = {**storage, **STORAGE}
    return f"""\
name: shop
sources: {{clicks: {source}}}
tables:
{tables}
storage: {json.dumps(own)}
dead_letters: {{storage: {json.dumps(STORAGE)}}}
spark: {{conf: {json.dumps(SPARK)}}}
http: {{listen: "127.0.0.1:0", token: "{CANARY}-token"}}
give_up_after: 1s
"""


def kafka(address: str, **options: str) -> str:
    sasl = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN"}
    given = json.dumps({**sasl, **KAFKA, **options})
    return f'{{type: kafka, brokers: "{address}", topics: [clicks], format: json, options: {given}}}'


def registered(address: str, topic: str) -> str:
    """Payloads whose schemas a registry has that is not there."""
    registry = {"url": "http://127.0.0.1:9", "user": "reader", "password": f"{CANARY}-registry"}
    form = json.dumps({"type": "json", "registry": registry})
    return f'{{type: kafka, brokers: "{address}", topics: [{topic}], format: {form}}}'


def served(said: str) -> str:
    """All that the running pipeline shows to those who know the token; empty before it listens."""
    found = re.search(r"http://127\.0\.0\.1:\d+", said)
    texts = []
    for path in ("/", "/metrics", "/api/status", "/readyz") if found else ():
        asked = Request(found[0] + path, headers={"Authorization": f"Bearer {CANARY}-token"})
        with suppress(OSError), urlopen(asked, timeout=5) as answer:
            texts.append(answer.read().decode())
    return "\n".join(texts)


@pytest.fixture
def bucket(s3: S3Server) -> str:
    name = f"lake-{uuid4().hex[:8]}"
    s3.create_bucket(name)
    return name


def whole(error: BaseException | None) -> str:
    """An error as a program sees it: its text, its traceback, and whatever it is tied to."""
    texts = []
    while error is not None:
        texts += [repr(error), str(error), *traceback.format_exception(error)]
        error = error.__cause__ or error.__context__
    return "\n".join(texts)


def command_lines(process: Process) -> str:
    lines = []
    with suppress(psutil.Error):
        for one in [psutil.Process(process.pid), *psutil.Process(process.pid).children(recursive=True)]:
            # One that has ended since is no reason to miss the others.
            with suppress(psutil.Error):
                lines.append(" ".join(one.cmdline()))
    return "\n".join(lines)


def test_no_secret_leaves_a_run_by_the_command_line(s3: S3Server, bucket: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    tables = "\n".join(
        f"  {name}: {{path: 's3://{bucket}/{name}', from: clicks, schema: {{event_id: long}}}}"
        for name in ("good", "bad")
    )
    with UnreliableStore(s3) as door:
        source = "{type: generate, rows: 500, bad_ratio: 0.1}"
        file.write_text(pipeline_text(source, tables, door.storage))
        door.inject(Fault("refused", path="/bad/", times=1000, text=QUOTED))
        listed = shown = ""

        with start("--debug", "run", str(file), "--once", env=VARIABLES) as process:
            while process.running:
                listed += command_lines(process)
                # The run may end while it is asked: each answer counts.
                shown += served(process.stderr)
                time.sleep(0.2)
            code = process.wait()
            said = process.stdout + process.stderr
        looked, out, err = run("--debug", "status", str(file), env=VARIABLES)

    stored = b"".join(s3.client.get_object(Bucket=bucket, Key=key)["Body"].read() for key in s3.keys(bucket))
    state = b"".join(one.read_bytes() for one in (tmp_path / ".lakefeed").rglob("*") if one.is_file())
    assert code == 1
    assert "table bad stopped: s3://" in said
    assert "AccessDenied: *** *** *** *** ***\n" in said
    assert looked == 0, err
    assert "java" in listed
    assert "lakefeed_up" in shown
    assert b"commitInfo" in stored
    assert state
    for handle in (
        said,
        listed,
        shown,
        out + err,
        stored.decode(errors="replace"),
        state.decode(errors="replace"),
    ):
        assert CANARY not in handle


def refuse_store(door: UnreliableStore) -> None:
    door.inject(Fault("refused", path="/events/", times=1000, text=QUOTED))


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("failing", ["broker", "client", "store", "registry"])
def test_no_secret_leaves_a_run_by_the_python_api(
    failing: str,
    broker: Broker,
    topic: TopicFactory,
    s3: S3Server,
    bucket: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    for name, value in VARIABLES.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("lakefeed.sources.SourceClient.patience", 1.0)
    caplog.set_level(logging.DEBUG, "lakefeed")
    sources = {
        "broker": kafka(broker.address),
        "client": kafka(broker.address, **{"ssl.key.pem": f"{CANARY}-pem", "security.protocol": "SASL_SSL"}),
        "store": "{type: generate, rows: 100}",
        "registry": registered(broker.address, framed := topic()),
    }
    broker.produce(framed, [b'\0\0\0\0\1{"event_id": 1}'])
    file = tmp_path / "shop.yaml"
    tables = f"  events: {{path: 's3://{bucket}/events', from: clicks, schema: {{event_id: long}}}}"
    with UnreliableStore(s3) as door:
        file.write_text(pipeline_text(sources[failing], tables, door.storage))
        if failing == "store":
            refuse_store(door)
        pipeline = Pipeline.from_file(file)

        with pytest.raises(LakefeedError) as failed:
            pipeline.run(once=True)

    assert CANARY not in whole(failed.value)
    assert CANARY not in caplog.text
    assert CANARY not in repr(pipeline)
    assert failed.value.__cause__ is None and failed.value.__context__ is None


class Talkative(Exception):
    """An error of some library that tells with which options it was called."""

    def __init__(self, options: dict[str, str]) -> None:
        super().__init__(options)

    def __str__(self) -> str:
        return f"cannot connect with {self.args[0]}"


def test_error_of_another_library_is_let_out_without_secrets() -> None:
    redactor = Redactor([f"{CANARY}-1"])

    def fail() -> None:
        try:
            raise KeyError(f"{CANARY}-1")
        except KeyError:
            raise Talkative({"password": f"{CANARY}-1"}) from None

    with pytest.raises(Talkative) as failed, redactor.guarding():
        fail()

    assert str(failed.value) == "cannot connect with {'password': '***'}"
    assert CANARY not in whole(failed.value)


def test_log_lines_of_a_run_are_clean_whoever_collects_them(caplog: pytest.LogCaptureFixture) -> None:
    redactor: Any = Redactor([f"{CANARY}-1"])

    with redactor.guarding():
        logging.getLogger("lakefeed").warning("the broker said %s", f"{CANARY}-1")
    logging.getLogger("lakefeed").warning("afterwards %s", "nothing is changed")

    assert "the broker said ***" in caplog.text
    assert "afterwards nothing is changed" in caplog.text
