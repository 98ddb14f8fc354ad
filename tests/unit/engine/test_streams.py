"""Tables of one source that take different streams of it; without Spark and without a broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, PipelineFileError
from lakefeed.engine.batch.manifest import Manifest
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.inline import run_inline
from lakefeed.engine.spark import local_tasks
from lakefeed.engine.task.task import run_task
from lakefeed.events import EPOCH, Split
from lakefeed.pipeline.test_file import Sample
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.sources import source_of
from lakefeed.sources.samples import SampleClient, SampleSource
from support.ledger import dead_letters, table_ids


class Shop:
    """A pipeline over given events of the topics `orders` and `clicks`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "shop.yaml"
        self.events: list[tuple[str, str]] = []

    def write(self, **tables: str) -> None:
        named = "\n".join(
            f"  {name}: {{path: {name}, from: shop, {options}}}" for name, options in tables.items()
        )
        self.file.write_text(
            "name: shop\n"
            "sources: {shop: {type: kafka, brokers: 'localhost:1', topics: [orders, clicks], format: json}}\n"
            f"tables:\n{named}\n"
        )

    def send(self, topic: str, *numbers: int) -> None:
        self.events += [(topic, f'{{"id": {number}}}') for number in numbers]

    def pipeline(self) -> Pipeline:
        pipeline = Pipeline.from_file(self.file)
        samples = [Sample.model_validate({"topic": topic, "text": text}) for topic, text in self.events]
        given = SampleSource.of(source_of(pipeline, "shop"), "shop", samples)
        return pipeline.model_copy(update={"sources": {"shop": given}})

    def run(self) -> None:
        run_inline(self.pipeline())

    def ids(self, table: str) -> list[int]:
        return sorted(table_ids(self.folder / table, "id"))

    def position(self, table: str, topic: str) -> int | None:
        return DeltaTable(self.folder / table).transaction_version(f"shop/shop/{topic}-0")


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    made = Shop(tmp_path)
    made.write(orders="streams: orders", clicks="streams: [click*]", everything="create: true")
    made.send("orders", 1, 2)
    made.send("clicks", 10, 11, 12)
    return made


def test_each_table_takes_its_streams_and_a_restart_continues(shop: Shop) -> None:
    shop.run()
    shop.send("clicks", 13)
    shop.send("orders", 3)
    shop.run()

    assert shop.ids("orders") == [1, 2, 3]
    assert shop.ids("clicks") == [10, 11, 12, 13]
    assert shop.ids("everything") == [1, 2, 3, 10, 11, 12, 13]
    assert all(not one.findings for one in verify(shop.pipeline()).tables)


def test_log_holds_positions_of_the_streams_that_the_table_takes_and_of_no_other(shop: Shop) -> None:
    shop.run()

    assert (shop.position("orders", "orders"), shop.position("orders", "clicks")) == (1, None)
    assert (shop.position("clicks", "orders"), shop.position("clicks", "clicks")) == (None, 2)


def test_events_are_read_once_for_all_tables(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    read: dict[str, int] = {}

    def counting(plan: FlowPlan, split: Split, **more: Any) -> Manifest:
        manifest = run_task(plan, split, **more)
        if not any(table.proposal is not None for table in manifest.tables.values()):
            for partition, count in manifest.read.items():
                read[partition] = read.get(partition, 0) + count
        return manifest

    monkeypatch.setattr(local_tasks, "run_task", counting)
    shop.run()

    assert read == {"orders-0": 2, "clicks-0": 3}


def test_dead_letters_belong_to_the_tables_that_take_their_stream(shop: Shop) -> None:
    shop.events.append(("clicks", "{broken"))
    shop.run()

    found = dead_letters(shop.folder / "shop_dead_letters")
    assert sorted((one["table"], one["topic"]) for one in found) == [
        ("clicks", "clicks"),
        ("everything", "clicks"),
    ]


def test_a_stream_that_no_table_takes_is_not_read(shop: Shop) -> None:
    shop.write(orders="streams: orders")
    shop.run()

    assert shop.ids("orders") == [1, 2]


def test_a_stream_taken_again_continues_where_the_table_was(shop: Shop) -> None:
    shop.write(orders="streams: [orders, clicks]")
    shop.run()
    shop.write(orders="streams: orders")
    shop.send("clicks", 13)
    shop.send("orders", 3)
    shop.run()
    assert shop.ids("orders") == [1, 2, 3, 10, 11, 12]

    shop.write(orders="streams: [orders, clicks]")
    shop.run()

    assert shop.ids("orders") == [1, 2, 3, 10, 11, 12, 13]
    assert all(not one.findings for one in verify(shop.pipeline()).tables)


def test_a_stream_made_anew_while_the_table_did_not_take_it_is_known_by_its_old_mark(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    marks = {"orders": 1, "clicks": 1, f"orders-0{EPOCH}": 1, f"clicks-0{EPOCH}": 1}
    monkeypatch.setattr(SampleClient, "marks", lambda client: dict(marks))
    shop.write(orders="streams: [orders, clicks]")
    shop.run()

    marks |= {"clicks": 2, f"clicks-0{EPOCH}": 2, f"orders-0{EPOCH}": 2}
    shop.write(orders="streams: orders")
    shop.send("orders", 3)
    shop.run()

    transactions = DeltaTable(shop.folder / "orders").transaction_version
    assert transactions(f"shop/shop/#orders-0{EPOCH}") == 2
    assert transactions("shop/shop/#clicks") == 1
    assert transactions(f"shop/shop/#clicks-0{EPOCH}") == 1


def test_a_table_without_any_of_its_streams_yet_takes_them_when_they_come(shop: Shop) -> None:
    shop.events = [("orders", '{"id": 1}')]
    shop.run()
    assert shop.ids("clicks") == []
    shop.send("clicks", 10)
    shop.run()

    assert shop.ids("clicks") == [10]


def test_a_route_takes_its_streams(shop: Shop) -> None:
    shop.write(orders="streams: orders")
    text = shop.file.read_text().replace("path: orders,", "route: 'by_{id}',")
    shop.file.write_text(text)
    shop.run()

    assert sorted(path.name for path in shop.folder.glob("by_*")) == ["by_1", "by_2"]
    log = DeltaTable(shop.folder / "by_1")
    assert log.transaction_version("shop/shop/clicks-0") is None


def test_the_source_may_forget_what_the_tables_of_each_stream_have(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[dict[str, int]] = []
    monkeypatch.setattr(SampleClient, "acknowledge", lambda client, positions: told.append(positions))
    shop.run()

    assert told[-1] == {"orders-0": 2, "clicks-0": 3}


def test_status_and_plan_tell_of_the_streams_that_a_table_takes(shop: Shop) -> None:
    shop.send("clicks", 13)
    foreseen = {table.name: table for table in plan_run(shop.pipeline()).tables}
    shop.run()
    shop.send("clicks", 14, 15)
    told = {table.name: table for table in status(shop.pipeline()).tables}

    assert list(foreseen["orders"].resumes["shop"]) == ["orders-0"]
    assert (foreseen["orders"].lag, foreseen["clicks"].lag, foreseen["everything"].lag) == (2, 4, 6)
    assert list(told["orders"].offsets["shop"]) == ["orders-0"]
    assert (told["orders"].lag, told["clicks"].lag, told["everything"].lag) == (0, 2, 2)


@pytest.mark.parametrize(
    ("streams", "message"),
    [
        ("[order]", "streams.0: no stream of source 'shop' is called 'order', did you mean 'orders'?"),
        (
            "[orders, 'x*']",
            "streams.1: no stream of source 'shop' is called 'x*'; known are orders and clicks",
        ),
        ("[orders, orders]", "streams: names 'orders' twice"),
    ],
)
def test_a_name_that_no_stream_has_is_refused(tmp_path: Path, streams: str, message: str) -> None:
    shop = Shop(tmp_path)
    shop.write(orders=f"streams: {streams}")

    with pytest.raises(PipelineFileError) as refused:
        Pipeline.from_file(shop.file)

    assert message in str(refused.value)


def test_streams_of_a_source_without_any_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\nsources: {clicks: {type: generate}}\n"
        "tables: {clicks: {path: clicks, from: clicks, streams: clicks}}\n"
    )

    with pytest.raises(PipelineFileError) as refused:
        Pipeline.from_file(file)

    assert "tables.clicks.streams: source 'clicks' has no streams; leave `streams` out" in str(refused.value)
