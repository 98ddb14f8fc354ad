"""A queue of SQS tells of new files: read at once without a listing, once, whatever else is in the queue."""

from __future__ import annotations

import builtins
import json
import logging
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lakefeed import Pipeline, PipelineFileError
from lakefeed.engine.run_events import SourceSeen
from lakefeed.errors import SourceError
from lakefeed.sources.files.finding.notices import created_objects
from lakefeed.sources.files.finding.queue import Queue
from support import forks
from support.command_line import in_process
from support.landing_bucket import ToldBucket, listings
from support.processes import free_port, wait_until
from support.s3 import SECRET, S3Server
from support.unreliable import Fault, UnreliableStore


def run_until_deleting(file: Path) -> None:
    """A run that dies before it deletes the messages."""
    Queue.delete = lambda self, messages: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[method-assign]
    forks.read_all(file)


@pytest.fixture(scope="module")
def door(s3: S3Server) -> Iterator[UnreliableStore]:
    with UnreliableStore(s3) as door:
        yield door


def test_files_are_read_when_the_queue_tells_of_them_and_not_listed(
    s3: S3Server, door: UnreliableStore, tmp_path: Path
) -> None:
    bucket = ToldBucket(s3, tmp_path, door.storage)
    bucket.set(notify={"sqs": bucket.queue}, pattern="*.json")
    bucket.put("old.json", 1)

    with bucket.running():
        bucket.wait_for(1)
        first = listings(door)
        bucket.put("a day+more/ünïcode=1/2.json", 2)
        bucket.put("0-sorts-first.json", 3)
        bucket.put("notes.txt", 98)
        bucket.put("_hidden.json", 99)
        bucket.wait_for(2, 3)
        bucket.wait_for_messages(0)
    later = listings(door)
    bucket.run()

    assert first and later == []
    assert bucket.ids() == [1, 2, 3]
    assert bucket.states() == ["read"] * 3


def test_kill_between_the_ledger_and_the_queue_repeats_nothing(s3: S3Server, tmp_path: Path) -> None:
    bucket = ToldBucket(s3, tmp_path)
    bucket.put("1.json", 1)

    name = "services.test_files_notified:run_until_deleting"
    code = forks.ended(forks.start(forks.call, name, bucket.file))
    kept = bucket.messages()
    numbered = bucket.states()
    bucket.put("2.json", 2)
    with bucket.running():
        bucket.wait_for(1, 2)
        bucket.wait_for_messages(0)

    assert code == -signal.SIGKILL
    assert kept == 2 and numbered == ["waiting"]
    assert bucket.ids() == [1, 2]
    assert bucket.states() == ["read", "read"]


def test_other_messages_are_told_and_none_of_them_stops_the_source(
    s3: S3Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = ToldBucket(s3, tmp_path)
    bucket.set(after="delete")
    s3_event = _event(bucket.name, "in/wrapped.json")
    with bucket.running(), caplog.at_level(logging.WARNING, "lakefeed"):
        bucket.put("1.json", 1)
        bucket.wait_for(1)
        s3.client.put_bucket_notification_configuration(
            Bucket=bucket.name, NotificationConfiguration={"QueueConfigurations": []}
        )
        bucket.put("wrapped.json", 2)
        bucket.send({"Type": "Notification", "Message": json.dumps(s3_event)})
        bucket.send(s3_event)
        bucket.send(_event("somebody-elses", "in/x.json"))
        bucket.send(_event(bucket.name, "in/never-was.json"))
        bucket.send(_event(bucket.name, "elsewhere/x.json"))
        bucket.send("no JSON")
        bucket.wait_for(1, 2)
        bucket.wait_for_messages(1)
        # Received after the others, it may be the last thing that the run meets.
        wait_until(lambda: "1 message that S3 has not sent: they stay there" in caplog.text, 120, lambda: "")

    assert bucket.ids() == [1, 2]
    told = [record.getMessage() for record in caplog.records]
    assert [one for one in told if "events of the bucket somebody-elses" in one]
    assert [one for one in told if "the queue has 1 message that S3 has not sent: they stay there" in one]


def _event(bucket: str, key: str, name: str = "ObjectCreated:Put") -> dict[str, Any]:
    return {"Records": [{"eventName": name, "s3": {"bucket": {"name": bucket}, "object": {"key": key}}}]}


@pytest.mark.parametrize(
    ("message", "created"),
    [
        (_event("b", "a+b%2Bc/%C3%BC%3D1"), [("b", "a b+c/ü=1")]),
        (_event("b", "k", "s3:ObjectCreated:CompleteMultipartUpload"), [("b", "k")]),
        (_event("b", "k", "ObjectRemoved:Delete"), []),
        ({"Event": "s3:TestEvent", "Bucket": "b"}, []),
        ({"Type": "Notification", "Message": json.dumps(_event("b", "k"))}, [("b", "k")]),
        (
            {
                "source": "aws.s3",
                "detail-type": "Object Created",
                "detail": {"bucket": {"name": "b"}, "object": {"key": "a+b"}},
            },
            [("b", "a+b")],
        ),
        ({"Type": "SubscriptionConfirmation"}, None),
        ({"Records": [{"eventSource": "aws:kinesis"}]}, None),
        ([1], None),
        ("text", None),
    ],
)
def test_what_a_message_says(message: Any, created: list[tuple[str, str]] | None) -> None:
    assert created_objects(json.dumps(message)) == created


def test_queue_that_is_away_is_told_and_files_are_listed(
    s3: S3Server, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bucket = ToldBucket(s3, tmp_path)
    gone = f"http://127.0.0.1:{free_port()}/123456789012/landing"
    bucket.set(notify={"sqs": gone})
    remarks: list[str] = []

    with (
        caplog.at_level(logging.WARNING, "lakefeed"),
        bucket.running(lambda event: remarks.append(event.remark) if isinstance(event, SourceSeen) else None),
    ):
        bucket.put("1.json", 1)
        bucket.wait_for(1)
        bucket.put("2.json", 2)
        bucket.put("0.json", 3)
        bucket.wait_for(2, 3)

    told = [record.getMessage() for record in caplog.records if "source drops" in record.getMessage()]
    assert len(told) == 1 and f"the queue {gone} cannot be asked" in told[0], told
    assert "the files are listed instead" in told[0] and SECRET not in caplog.text
    assert "the files are listed instead" in remarks[-1]


def test_queue_that_answers_again_tells_of_files_again(
    s3: S3Server, door: UnreliableStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefeed.sources.files.finding.finder._SILENCE", 0.0)
    bucket = ToldBucket(s3, tmp_path)
    door.inject(Fault("refused", "POST", ".*", times=3))
    through = bucket.queue.replace(s3.endpoint, door.storage["AWS_ENDPOINT_URL"])
    bucket.set(notify={"sqs": through})
    remarks: list[str] = []

    with bucket.running(lambda one: remarks.append(one.remark) if isinstance(one, SourceSeen) else None):
        bucket.put("1.json", 1)
        bucket.wait_for(1)
        bucket.wait_for_messages(0)
        wait_until(lambda: remarks[-1] == "", 120, lambda: str(remarks))

    door.heal()
    first = next(filter(None, remarks))
    assert "refuses: 403" in first and "the rights sqs:ReceiveMessage" in first


def test_doctor_and_plan_look_at_the_queue_and_take_no_message(
    s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = ToldBucket(s3, tmp_path)
    bucket.put("1.json", 1)
    lakefeed = in_process(capsys, monkeypatch)
    before = bucket.messages()

    _, fine, _ = lakefeed("doctor", bucket.file)
    bucket.set(notify={"sqs": f"{bucket.queue}-none"})
    _, wrong, _ = lakefeed("doctor", bucket.file)
    planned, plan, _ = lakefeed("plan", bucket.file)

    assert f"the queue answers, with about {before} messages" in fine
    assert "landing" in wrong and "Make the queue, or correct `notify.sqs`" in wrong
    assert planned == 0 and "the files are listed instead. Make the queue" in plan, plan
    assert bucket.messages() == before


def test_without_botocore_it_says_what_to_install(
    s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = ToldBucket(s3, tmp_path)
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("botocore"):
            raise ImportError(name)
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)

    with pytest.raises(SourceError, match=r"pip install 'lakefeed\[sqs\]'"):
        bucket.run()


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("path: gs://b/in, notify: {sqs: 'https://x/1/q'}", "notify.sqs tells of files in S3"),
        ("path: s3://b/in, notify: {sqs: q}", "notify.sqs is the URL of a queue"),
        ("path: s3://b/in, notify: {}", "sources.drops.notify"),
        ("path: in, backfill: 1h", "backfill has an effect only in an object store"),
    ],
)
def test_options_of_looking_that_do_not_fit_are_refused(tmp_path: Path, options: str, told: str) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"name: shop\nsources: {{drops: {{type: files, format: json, {options}}}}}\n"
        "tables: {rows: {path: rows, from: drops}}\n"
    )

    with pytest.raises(PipelineFileError) as error:
        Pipeline.from_file(file)

    assert told in str(error.value)
