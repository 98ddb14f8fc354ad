"""Ordinary days: the command line on sources that are quiet, new or interrupted, until it is stopped well.

No event waits when these runs start, and hardly any comes later. A run that meets its first event after
seconds of silence takes other ways than one that begins with a thousand.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable

from support.command_line import in_process
from support.kafka import Broker
from support.lakefeed import Process, run, start
from support.ledger import assert_each_once, table_ids
from support.shop import Shop

SILENCE = 2.0
"""Longer than the second after which Spark is told that there is nothing new, and many flush intervals."""


@pytest.fixture(scope="module")
def own_broker() -> Iterator[Broker]:
    """A broker that may be stopped and put to sleep."""
    with Broker() as broker:
        yield broker


class Topics(Shop):
    """A pipeline of some topics, each into a table of the same name, and what was sent to them."""

    def __init__(self, broker: Broker, folder: Path, sources: dict[str, str]) -> None:
        super().__init__(folder)
        self.broker = broker
        self.sent: dict[str, list[int]] = {name: [] for name in sources}
        listed = "\n".join(
            f'  {name}: {{type: kafka, brokers: "{broker.address}", {topics}, format: json}}'
            for name, topics in sources.items()
        )
        tables = "\n".join(
            f"  {name}: {{path: {name}, from: {name}, schema: {{event_id: long}}}}" for name in sources
        )
        self.file.write_text(
            f"name: shop\nsources:\n{listed}\ntables:\n{tables}\nflush: {{interval: 200ms, idle: 50ms}}\n"
        )

    def send(self, source: str, topic: str, count: int = 1, **more: object) -> None:
        first = len(self.sent[source])
        numbers = range(first, first + count)
        self.broker.produce(topic, [json.dumps({"event_id": number, **more}) for number in numbers])
        self.sent[source] += numbers

    def wait_for_all(self, process: Process) -> None:
        """Wait until everything has landed, while the run goes on."""
        for source, sent in self.sent.items():
            process.wait_for(lambda name=source, all_=sent: len(self.rows(name)) >= len(all_))
        assert "defect" not in process.stderr, process.stderr
        self.check()

    def wait_for_silence(self, process: Process, *sources: str) -> None:
        """Wait until Spark was told that there is nothing new, and has run its batch without tasks."""
        for source in sources:
            folder = self.folder / ".lakefeed" / "shop" / "checkpoints" / source
            process.wait_for(lambda at=folder: _has_ended_a_batch(at))
        time.sleep(SILENCE)

    def rows(self, source: str) -> list[int]:
        return table_ids(self.folder / source)

    def check(self) -> None:
        for source, sent in self.sent.items():
            assert_each_once(sent, self.rows(source))

    def check_at_the_end(self, process: Process, code: int) -> None:
        """It has ended well, without a word of an error, and the tables prove that nothing is lost."""
        assert code == 0, process.stderr
        assert " ERROR " not in process.stderr
        self.check()
        code, said, _ = run("verify", str(self.file), "--deep")
        assert (code, said.splitlines()[-1]) == (0, "shop: sound: nothing lost, nothing twice")


def said(process: Process, since: int, source: str, words: str) -> bool:
    """Whether a line of the log since then says this of a source."""
    lines = process.stderr[since:].splitlines()
    return any(f"source {source}: " in line and words in line for line in lines)


def _has_ended_a_batch(checkpoints: Path) -> bool:
    try:
        return any(checkpoints.glob("**/commits/0"))
    except FileNotFoundError:
        # A new run of the flow deletes what the last one has left, also under our eyes.
        return False


def test_days_of_a_pipeline_that_was_started_before_the_first_event(
    own_broker: Broker, tmp_path: Path
) -> None:
    own_broker.create_topic("quiet")
    own_broker.create_topic("busy", partitions=2)
    shop = Topics(
        own_broker,
        tmp_path,
        {"quiet": "topics: [quiet]", "busy": "topics: [busy]", "late": 'topic_pattern: "late-.*"'},
    )
    with start("run", str(shop.file)) as process:
        shop.wait_for_silence(process, "quiet", "busy")

        # The first events, one now and then; beside them a source that is never quiet for long.
        for _ in range(3):
            shop.send("quiet", "quiet")
            shop.send("busy", "busy", 300)
            shop.wait_for_all(process)
            time.sleep(SILENCE / 2)

        # A topic that was not there at the start.
        assert "no topic on" in process.stderr
        own_broker.create_topic("late-orders")
        process.wait_for(lambda: "source late: continues" in process.stderr)
        shop.wait_for_silence(process, "late")
        shop.send("late", "late-orders")
        shop.wait_for_all(process)

        # A new column after silence, which begins a new run of the flow, and silence after that.
        shop.send("quiet", "quiet", colour="red")
        shop.wait_for_all(process)
        assert "colour" in DeltaTable(tmp_path / "quiet").schema().to_json()
        shop.wait_for_silence(process, "quiet")
        shop.send("quiet", "quiet", colour="blue")
        shop.wait_for_all(process)

        # The sleep of a laptop: everything stands still, and goes on.
        process.pause()
        own_broker.pause()
        time.sleep(6)
        own_broker.resume()
        process.resume()
        shop.send("quiet", "quiet")
        shop.send("busy", "busy", 10)
        shop.wait_for_all(process)

        # A broker that is restarted while nothing happens.
        before = len(process.stderr)
        own_broker.stop()
        for name in shop.sent:
            process.wait_for(lambda at=name: said(process, before, at, "does not answer"))
        before = len(process.stderr)
        own_broker.start()
        for name in shop.sent:
            process.wait_for(lambda at=name: said(process, before, at, "continues"))
        shop.wait_for_silence(process, "quiet", "busy", "late")
        for _ in range(2):
            shop.send("quiet", "quiet")
            shop.wait_for_all(process)

        time.sleep(SILENCE)
        process.terminate()
        shop.check_at_the_end(process, process.wait())


@pytest.mark.usefixtures("spark")
def test_days_of_a_pipeline_whose_topic_is_missing_then_empty_then_drained(
    own_broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = Topics(own_broker, tmp_path, {"orders": "topics: [orders]"})
    command = in_process(capsys, monkeypatch, "run")

    code, _, said = command(shop.file)
    assert code == 1
    assert f"source orders stopped: topic 'orders' does not exist on {own_broker.address}." in said
    assert "Create the topic" in said

    own_broker.create_topic("orders")
    assert command(shop.file, "--once")[0] == 0
    shop.send("orders", "orders", 50)
    assert command(shop.file, "--once")[0] == 0
    shop.check()

    with start("run", str(shop.file)) as process:
        shop.wait_for_silence(process, "orders")
        for _ in range(2):
            shop.send("orders", "orders")
            shop.wait_for_all(process)
        time.sleep(SILENCE)
        process.interrupt()
        shop.check_at_the_end(process, process.wait())
