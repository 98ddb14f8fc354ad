"""From a request to a table: waiting for it, bad records as dead letters and back, forgotten segments."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import DataLoss, Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.assignment import Assignments
from lakefeed.engine.inline import InlineFlow, run_inline
from lakefeed.engine.run_events import RunEvent, TableReached, TableStopped, unwatched
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.start_positions import StartPositions
from lakefeed.engine.supervisor import Supervisor
from lakefeed.errors import TableError
from lakefeed.handles.tables import Tables
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.run import _receiving
from lakefeed.sources import source_of
from lakefeed.sources.http.receiver.server import Received, receiving
from support.http_source import journal_of, post
from support.ledger import dead_letters, table_ids
from support.processes import wait_until

FILE = """\
name: shop
sources:
  api:
    type: http
    listen: 127.0.0.1:0
    streams: [orders, clicks]
    token: {{shop: secret-of-shop}}
    quota: {quota}
    max_body: 8KB
tables:
  orders: {{path: orders, from: api, streams: orders, schema: {{event_id: long}}, metadata: {{_key: sender}}}}
  all: {{path: all, from: api, schema: {{event_id: long}}, evolve: {evolve}}}
flush: {{interval: 50ms}}
"""
FILLER = "x" * 1000
TOKEN = {"Authorization": "Bearer secret-of-shop"}


def pipeline_in(folder: Path, quota: str = "1GB", evolve: str = "add") -> Pipeline:
    (folder / "shop.yaml").write_text(FILE.format(quota=quota, evolve=evolve))
    return Pipeline.from_file(folder / "shop.yaml")


def ended_by_tables(run: Callable[[], None]) -> Callable[[], None]:
    """A run that may end with the error of a table."""

    def running() -> None:
        with suppress(TableError):
            run()

    return running


@contextmanager
def running(pipeline: Pipeline, folder: Path) -> Iterator[Received]:
    """A run that goes on, with its tasks in this process."""
    stop, tables = threading.Event(), Tables(pipeline)
    with receiving(pipeline, {}, listen=True) as received:

        def watch(event: RunEvent) -> None:
            if isinstance(event, TableReached):
                received[event.source].waiters.reach(event.table, event.positions)
            elif isinstance(event, TableStopped):
                received["api"].waiters.stop(event.table)

        flow = InlineFlow(tables, "api", LocalTasks(), folder / "checkpoints", watch, once=False)
        supervisor = Supervisor(pipeline, [flow], watch, stop, {"api": received["api"].journal.confirm})
        thread = threading.Thread(target=ended_by_tables(supervisor.run))
        thread.start()
        try:
            yield received["api"]
        finally:
            stop.set()
            thread.join(120)


def test_answer_201_comes_when_every_table_has_the_rows_or_the_dead_letters(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path)
    with running(pipeline, tmp_path) as api:
        good = post(api, "/orders?wait=table", [{"event_id": 1}, {"event_id": 2}], TOKEN)
        landed = sorted(table_ids(tmp_path / "orders")), sorted(table_ids(tmp_path / "all"))
        mixed = post(api, "/orders?wait=table", b'[{"event_id": 3}, 4]', TOKEN)
        bad = post(api, "/clicks?wait=table", b"[5, 6]", TOKEN)
        letters = [one["table"] for one in dead_letters(tmp_path / "shop_dead_letters")]

    assert (good[0], mixed[0], bad[0]) == (201, 201, 201)
    assert landed == ([1, 2], [1, 2])
    assert (mixed[1]["accepted"], bad[1]["accepted"]) == (1, 0)
    assert sorted(letters) == ["all", "all", "all", "orders"]
    rows = DeltaTable(tmp_path / "orders").to_pyarrow_table().to_pylist()
    assert {bytes(row["sender"]) for row in rows} == {b"shop"}
    assert verify(pipeline).sound


def test_wait_is_only_for_tables_that_go_on(tmp_path: Path) -> None:
    with receiving(pipeline_in(tmp_path), {}, listen=True) as received, ThreadPoolExecutor(1) as pool:
        api = received["api"]
        waiting = pool.submit(post, api, "/orders?wait=table", b"{}", TOKEN)
        wait_until(lambda: len(api.waiters._waiting) == 1, 120, lambda: "it does not wait")
        api.waiters.reach("orders", {"orders": 1})
        api.waiters.stop("all")
        held = waiting.result(120)
        api.waiters.stop("orders")
        late = post(api, "/orders?wait=table", b"{}", TOKEN)

    assert (held[0], held[1]["stopped"]) == (201, ["all"])
    assert (late[0], late[1]["stopped"]) == (504, ["all", "orders"])
    assert late[1]["error"].endswith("will be in the tables once: all, orders have stopped")


def test_requests_that_wait_for_a_table_hold_no_memory(tmp_path: Path) -> None:
    body = b'{"event_id": [' + b"1," * 450_000 + b"1]}"
    (tmp_path / "shop.yaml").write_text(STOPS)
    pipeline = Pipeline.from_file(tmp_path / "shop.yaml")
    with receiving(pipeline, {}, listen=True) as received, ThreadPoolExecutor(2) as pool:
        api = received["api"]
        waiting = [pool.submit(post, api, "/orders?wait=table", body) for _ in range(2)]
        wait_until(lambda: len(api.waiters._waiting) == 2, 120, lambda: str(api.journal.contents().next))
        held = api.receiver.pressure.in_flight  # type: ignore[union-attr]
        others = [post(api, "/orders", body)[0] for _ in range(3)]
        api.waiters.reach("orders", {"orders": 2})
        answers = [one.result(120)[0] for one in waiting]

    assert (held, others, answers) == (0, [202, 202, 202], [201, 201])


def test_journal_takes_events_though_every_table_has_stopped(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(STOPS)
    pipeline = Pipeline.from_file(tmp_path / "shop.yaml")
    with running(pipeline, tmp_path) as api:
        first = post(api, "/orders?wait=table", {"event_id": "x"})
        after = [post(api, "/orders?wait=table", {"event_id": 1}) for _ in range(2)]
        ends = api.journal.contents().next

    assert [first[0], *(one[0] for one in after)] == [504, 504, 504]
    assert after[-1][1]["stopped"] == ["orders"]
    assert ends == {"orders": 3}


STOPS = """
name: shop
sources: {api: {type: http, listen: "127.0.0.1:0", streams: [orders]}}
tables: {orders: {path: orders, from: api, schema: {event_id: long}, evolve: {type_change: fail}}}
flush: {interval: 50ms}
"""


def test_dead_letters_of_requests_are_replayed_from_what_they_hold(tmp_path: Path) -> None:
    with receiving(pipeline_in(tmp_path), {}, listen=True) as received:
        post(received["api"], "/orders", b'{"event_id": "x"}\n{"event_id": 8}', TOKEN)
    run_inline(pipeline_in(tmp_path))
    letters = dead_letters(tmp_path / "shop_dead_letters")
    replay(pipeline_in(tmp_path, evolve="{type_change: rescue}"), DeadLetterFilter(table="all"))

    assert [one["payload"] for one in letters] == [b'{"event_id": "x"}'] * 2
    assert [one["table"] for one in dead_letters(tmp_path / "shop_dead_letters")] == ["orders"]
    rows = DeltaTable(tmp_path / "all").to_pyarrow_table().to_pylist()
    assert sorted((row["event_id"] or 0, row.get("_rescued")) for row in rows) == [
        (0, '{"event_id":"x"}'),
        (8, None),
    ]


def test_segments_are_forgotten_while_a_run_goes_on(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path, quota="40KB")
    with running(pipeline, tmp_path) as api:
        for number in range(60):
            body = {"event_id": number, "filler": "x" * 1000}
            status = 503
            deadline = time.monotonic() + 120
            while status == 503 and time.monotonic() < deadline:
                status = post(api, "/orders?wait=table", body, TOKEN)[0]
            assert status == 201

    assert sorted(table_ids(tmp_path / "orders")) == list(range(60))
    assert sum(file.stat().st_size for file in (tmp_path / ".lakefeed/journal").glob("*.segment")) < 40_000


def test_full_journal_of_which_tables_have_everything_takes_events_again_at_the_next_start(
    tmp_path: Path,
) -> None:
    pipeline = pipeline_in(tmp_path, quota="40KB")
    taken = 0
    with receiving(pipeline, {}, listen=True) as received:
        while post(received["api"], "/orders", {"event_id": taken, "filler": FILLER}, TOKEN)[0] != 503:
            taken += 1
    # Only a process that writes the journal forgets what is in it.
    run_inline(pipeline)

    with running(pipeline, tmp_path) as api:
        body = {"event_id": taken, "filler": FILLER}
        wait_until(
            lambda: post(api, "/orders?wait=table", body, TOKEN)[0] == 201, 120, lambda: "it is still full"
        )

    assert taken > 20
    assert sorted(table_ids(tmp_path / "orders")) == list(range(taken + 1))


def test_run_goes_on_with_another_journal_only_when_asked(tmp_path: Path) -> None:
    pipeline = pipeline_in(tmp_path)
    with receiving(pipeline, {}, listen=True) as received:
        post(received["api"], "/orders", [{"event_id": number} for number in range(5)], TOKEN)
    run_inline(pipeline)
    shutil.rmtree(tmp_path / ".lakefeed" / "journal")
    with receiving(pipeline, {}, listen=True) as received:
        post(received["api"], "/orders", [{"event_id": 5}, {"event_id": 6}], TOKEN)

    with pytest.raises(DataLoss, match="the journal was deleted or replaced since"):
        run_inline(pipeline)
    skipping = Pipeline.from_file(tmp_path / "shop.yaml", ["sources.api.on_data_loss=skip"])
    run_inline(skipping)
    run_inline(skipping)

    assert sorted(table_ids(tmp_path / "orders")) == list(range(7))
    assert sorted(table_ids(tmp_path / "all")) == list(range(7))


@contextmanager
def receiving_as_a_run(pipeline: Pipeline) -> Iterator[dict[str, Received]]:
    """The receivers of a run, which ask its tables first."""
    received: dict[str, Received] = {}
    with _receiving(Tables(pipeline), received, unwatched, listen=True, in_stores=False):
        yield received


def test_journal_from_a_backup_takes_no_events_and_is_refused_at_every_start(tmp_path: Path) -> None:
    pipeline, folder = pipeline_in(tmp_path), tmp_path / ".lakefeed" / "journal"
    with receiving(pipeline, {}, listen=True) as received:
        post(received["api"], "/orders", [{"event_id": 0}], TOKEN)
    shutil.copytree(folder, tmp_path / "backup")
    with receiving(pipeline, {}, listen=True) as received:
        post(received["api"], "/orders", [{"event_id": 1}, {"event_id": 2}], TOKEN)
    run_inline(pipeline)
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "backup", folder)

    for _ in range(2):
        with (
            pytest.raises(DataLoss, match=r"older than the table\.\n.* Events 1 to 2 become"),
            receiving_as_a_run(pipeline),
        ):
            pytest.fail("it listens")
    with journal_of(folder, owner="shop/api") as journal:
        assert journal.contents().next == {"orders": 1}


def test_skipping_run_on_a_journal_from_a_backup_that_is_killed_before_its_first_commit_loses_nothing(
    tmp_path: Path,
) -> None:
    pipeline, folder = pipeline_in(tmp_path), tmp_path / ".lakefeed" / "journal"
    with receiving(pipeline, {}, listen=True) as received:
        post(received["api"], "/orders", [{"event_id": 0}], TOKEN)
    shutil.copytree(folder, tmp_path / "backup")
    with receiving(pipeline, {}, listen=True) as received:
        post(received["api"], "/orders", [{"event_id": 1}, {"event_id": 2}], TOKEN)
    run_inline(pipeline)
    shutil.rmtree(folder)
    shutil.copytree(tmp_path / "backup", folder)
    skipping = Pipeline.from_file(tmp_path / "shop.yaml", ["sources.api.on_data_loss=skip"])

    answers = []
    for number in (3, 4, 5):
        # Each of these runs ends before anything is committed.
        with receiving_as_a_run(skipping) as received:
            answers.append(post(received["api"], "/orders", [{"event_id": number}], TOKEN))
    run_inline(pipeline)

    assert [(status, told["position"]) for status, told, _ in answers] == [(202, 3), (202, 4), (202, 5)]
    assert sorted(table_ids(tmp_path / "orders")) == list(range(6))
    assert sorted(table_ids(tmp_path / "all")) == list(range(6))
    assert dead_letters(tmp_path / "shop_dead_letters") == []
    assert verify(pipeline).sound


def test_table_that_lacks_what_a_journal_from_a_backup_has_not_gets_dead_letters_for_it(
    tmp_path: Path,
) -> None:
    pipeline, folder = pipeline_in(tmp_path), tmp_path / ".lakefeed" / "journal"
    with receiving(pipeline, {}, listen=True) as received:
        post(received["api"], "/orders", [{"event_id": 0}], TOKEN)
    run_inline(pipeline)
    shutil.copytree(folder, tmp_path / "backup")
    shutil.copytree(tmp_path / "orders", tmp_path / "orders-before")
    with receiving(pipeline, {}, listen=True) as received:
        post(received["api"], "/orders", [{"event_id": 1}, {"event_id": 2}], TOKEN)
    run_inline(pipeline)
    for name, kept in ((folder, "backup"), (tmp_path / "orders", "orders-before")):
        shutil.rmtree(name)
        shutil.copytree(tmp_path / kept, name)
    skipping = Pipeline.from_file(tmp_path / "shop.yaml", ["sources.api.on_data_loss=skip"])

    with receiving_as_a_run(skipping) as received:
        post(received["api"], "/orders", [{"event_id": 3}], TOKEN)
    run_inline(skipping)

    assert sorted(table_ids(tmp_path / "all")) == list(range(4))
    assert sorted(table_ids(tmp_path / "orders")) == [0, 3]
    letters = dead_letters(tmp_path / "shop_dead_letters")
    assert [(one["table"], one["offset"], one["payload"]) for one in letters] == [
        ("orders", 1, None),
        ("orders", 2, None),
    ]


def test_tables_of_a_route_go_on_with_another_journal_and_acknowledge_none_of_it_before(
    tmp_path: Path,
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources: {api: {type: http, listen: "127.0.0.1:0", streams: [orders], on_data_loss: skip}}
tables:
  orders: {route: "of_{shop}", from: api, schema: {event_id: long, shop: string}}
"""
    )
    pipeline = Pipeline.from_file(file)
    with receiving(pipeline, {}, listen=True) as received:
        post(received["api"], "/orders", [{"event_id": number, "shop": "a"} for number in range(5)])
    run_inline(pipeline)
    shutil.rmtree(tmp_path / ".lakefeed" / "journal")
    with receiving(pipeline, {}, listen=True) as received:
        post(received["api"], "/orders", [{"event_id": 5, "shop": "a"}])

    tables = Tables(pipeline)
    assignments = Assignments(tables, "api", unwatched)
    client = source_of(pipeline, "api").client("shop", "api")
    found, _ = StartPositions(tables, assignments).find(client, ["orders"])
    run_inline(pipeline)

    assert [progress.recorded for progress in found] == [{"orders": 0}] * 2
    assert sorted(table_ids(tmp_path / "of_a")) == list(range(6))
