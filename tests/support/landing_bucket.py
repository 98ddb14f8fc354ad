"""Files that come into a bucket, a pipeline that reads them without Spark, and a queue that tells of them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

from lakefeed import Pipeline
from lakefeed.engine.inline import InlineFlow, run_inline
from lakefeed.engine.run_events import Watcher, unwatched
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.supervisor import Supervisor
from lakefeed.handles.tables import Tables
from lakefeed.reports.found_files import found_files
from lakefeed.sources.files.filter import FileFilter
from lakefeed.stores import delta_options, listed_objects, open_store
from support.ledger import table_ids
from support.object_server import ObjectServer
from support.processes import wait_until
from support.s3 import S3Server
from support.unreliable import UnreliableStore


class LandingBucket:
    """A bucket of any cloud; `storage` leads the pipeline to it."""

    def __init__(self, server: ObjectServer, folder: Path, storage: Mapping[str, str] | None = None) -> None:
        self.name = f"lake-{uuid4().hex[:8]}"
        server.create_bucket(self.name)
        self.server, self.folder = server, folder
        self.storage = dict(storage or server.storage)
        self.file = folder / "shop.yaml"
        self.table = server.url(self.name, "lake/rows")
        self._store = open_store(server.url(self.name, ""), server.storage)
        self.set()

    def set(self, **options: Any) -> None:
        """Write the pipeline file."""
        source = {"type": "files", "path": self.server.url(self.name, "in"), "format": "json", **options}
        file = {
            "name": "shop",
            "sources": {"drops": source},
            "tables": {"rows": {"path": self.table, "from": "drops", "schema": {"event_id": "long"}}},
            "storage": self.storage,
            "flush": {"interval": "100ms", "idle": "50ms"},
            "give_up_after": "30s",
        }
        self.file.write_text(json.dumps(file))

    def put(self, key: str, *ids: int) -> None:
        """Put a file with these ids."""
        with self._store.open_output_stream(f"in/{key}") as out:
            out.write("".join(f'{{"event_id": {one}}}\n' for one in ids).encode())

    def keys(self, prefix: str) -> list[str]:
        """The keys below a prefix, from there on."""
        below = open_store(self.server.url(self.name, prefix), self.server.storage)
        return sorted(one[0] for one in listed_objects(below))

    def run(self) -> None:
        """Read what is there."""
        run_inline(Pipeline.from_file(self.file))

    @contextmanager
    def running(self, watch: Watcher = unwatched) -> Iterator[None]:
        """Read what comes until the end of the block."""
        pipeline, stop = Pipeline.from_file(self.file), threading.Event()
        flow = InlineFlow(Tables(pipeline), "drops", LocalTasks(), self.folder, watch, once=False)
        thread = threading.Thread(target=Supervisor(pipeline, [flow], watch, stop).run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(120)

    def ids(self) -> list[int]:
        """What the table has, sorted."""
        return sorted(table_ids(self.table, storage=delta_options(self.table, self.server.storage)))

    def wait_for(self, *ids: int) -> None:
        """Wait until the table has these."""
        wait_until(lambda: set(ids) <= set(self.ids()), 120, lambda: f"{self.ids()} and not {ids}")

    def states(self) -> list[str]:
        """The states of the files, by number."""
        (report,) = found_files(Pipeline.from_file(self.file), None, FileFilter())
        found: list[str] = report.rows["state"].to_pylist()
        return found


def listings(door: UnreliableStore) -> list[str]:
    """How the files were listed through a door since it was asked last."""
    return [one for one in door.requests() if "list-type" in one and "prefix=in" in one]


class ToldBucket(LandingBucket):
    """A bucket of S3 with a queue that gets an event for each object that is created in it."""

    def __init__(self, server: S3Server, folder: Path, storage: Mapping[str, str] | None = None) -> None:
        self.sqs = server.service("sqs")
        self.queue = self.sqs.create_queue(
            QueueName=f"landing-{uuid4().hex[:8]}", Attributes={"VisibilityTimeout": "2"}
        )["QueueUrl"]
        super().__init__(server, folder, storage)
        attributes = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=["QueueArn"])
        arn = attributes["Attributes"]["QueueArn"]
        rules = {"Key": {"FilterRules": [{"Name": "prefix", "Value": "in/"}]}}
        told = {"QueueArn": arn, "Events": ["s3:ObjectCreated:*"], "Filter": rules}
        server.client.put_bucket_notification_configuration(
            Bucket=self.name, NotificationConfiguration={"QueueConfigurations": [told]}
        )

    def set(self, **options: Any) -> None:
        super().set(**{"notify": {"sqs": self.queue}, **options})

    def send(self, body: Any) -> None:
        """Send any message."""
        text = body if isinstance(body, str) else json.dumps(body)
        self.sqs.send_message(QueueUrl=self.queue, MessageBody=text)

    def messages(self) -> int:
        """How many messages the queue has, those that somebody has received among them."""
        names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"]
        found = self.sqs.get_queue_attributes(QueueUrl=self.queue, AttributeNames=names)["Attributes"]
        return sum(int(found[name]) for name in names)

    def wait_for_messages(self, count: int) -> None:
        """Wait until the queue has so many."""
        wait_until(lambda: self.messages() == count, 120, lambda: f"{self.messages()} and not {count}")
