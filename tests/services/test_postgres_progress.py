"""What a run tells while it copies the rows of a database, and how far it is behind its changes."""

from __future__ import annotations

import logging
import re
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from lakefeed import Pipeline
from lakefeed.commands.plan import _lines as plan_lines
from lakefeed.commands.status import _lines as status_lines
from lakefeed.engine.flow import Flow
from lakefeed.engine.inline import InlineFlow, run_inline
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.supervisor import Supervisor
from lakefeed.events import Outstanding
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.secrets import Redactor
from lakefeed.reports.outstanding import copied_words
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.sources.postgres.client import PostgresClient
from lakefeed.watch.log_lines import LogLines
from lakefeed.watch.metrics import Metrics
from lakefeed.watch.state import RunState
from lakefeed.watch.terminal import _sum as terminal_sum
from lakefeed.watch.web.page import StatusPage
from lakefeed.watch.web.status import status_of
from support.postgres import PostgresServer
from support.postgres_shop import APPEND, ORDERS, PostgresShop
from support.processes import wait_until


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(ORDERS, "INSERT INTO orders SELECT i, 'c', i, 'n' FROM generate_series(1, 400) i")
    shop.execute("ANALYZE orders")
    return shop


def test_a_snapshot_tells_how_far_it_is_and_what_log_it_keeps(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    pipeline = Pipeline.from_file(shop.write(APPEND, more="flush: {rows: 100}"))
    state = RunState(pipeline)
    metrics, lines, found = Metrics(state), LogLines(state), []

    def watch(event: Any) -> None:
        for one in (state, lines):
            one.watch(event)
        if type(event).__name__ == "SourceSeen":
            served = status_of(state.view()).outstanding.get("db")
            page = metrics.text().decode()
            found.append((served, page, state.view().sources[0].about))

    run_inline(pipeline, watch)

    middle = [one for one in found if one[0] and one[0].copied and one[0].copied.rows]
    served, page, about = middle[0]
    assert served is not None and served.copied is not None
    assert (served.copied.rows, served.copied.total) == (100, 400)
    assert served.copied.seconds_left is not None and served.retained is not None
    assert "snapshot: 100 of about 400 rows (25%), about " in about and "of its log" in about
    assert 'lakefeed_source_snapshot_rows{pipeline="shop",source="db"} 100.0' in page
    assert 'lakefeed_source_snapshot_estimated_rows{pipeline="shop",source="db"} 400.0' in page
    assert "source db: snapshot: 0 of about 400 rows (0%)" in caplog.text
    last, page, about = found[-1]
    assert last is not None and last.copied is None and "snapshot" not in about + page


def test_status_tells_how_far_a_snapshot_is_that_was_killed(shop: PostgresShop) -> None:
    def watch(event: object) -> None:
        if type(event).__name__ == "Committed":
            raise KeyboardInterrupt

    pipeline = Pipeline.from_file(shop.write(APPEND, more="flush: {rows: 100}"))
    with pytest.raises(KeyboardInterrupt):
        run_inline(pipeline, watch)

    told = status(pipeline).outstanding["db"]

    assert copied_words(told).startswith("snapshot: 100 of about 400 rows (25%); keeps ")


def test_lag_is_told_in_seconds_beside_bytes(shop: PostgresShop) -> None:
    shop.run(APPEND)
    pipeline = Pipeline.from_file(shop.file)
    client: Any = PostgresClient(pipeline.sources["db"], "shop", "db")  # type: ignore[arg-type]
    client.begin()
    position = client.latest()
    told: list[Outstanding] = [client.outstanding(position, position)]
    for statement in ("UPDATE orders SET total = 0", "SELECT 1"):
        time.sleep(0.5)
        shop.execute(statement)
        told.append(client.outstanding(position, client.latest()))
    end = client.latest()
    caught_up = client.outstanding(end, end)
    client.close()

    assert [one.seconds for one in (told[0], caught_up)] == [0.0, 0.0]
    assert told[2].bytes >= told[1].bytes > 400 * 50
    assert told[1].seconds is not None and told[2].seconds is not None
    assert told[2].seconds - told[1].seconds >= 0.5


def test_lag_that_nobody_can_count_is_told_in_bytes_of_wal(shop: PostgresShop) -> None:
    """The WAL is that of the whole server: nothing of it need be a change of these tables."""
    pipeline = Pipeline.from_file(shop.write(APPEND))
    before = "\n".join(status_lines(status(pipeline), Redactor([])))
    shop.run(APPEND)
    shop.execute("CREATE TABLE elsewhere AS SELECT i FROM generate_series(1, 10000) i")
    found, planned = status(pipeline), plan_run(pipeline)
    told, state = "\n".join(status_lines(found, Redactor([]))), RunState(pipeline)
    run_inline(pipeline, state.watch)
    table = found.tables[0]

    assert "orders <- db public.orders:rows: next the beginning, end all rows, lag about 400 rows" in before
    assert table.lag is not None and table.lag > 1000 and table.lag_words is not None
    assert re.fullmatch(r"[\d.]+ KB of WAL", table.lag_words)
    assert f", lag {table.lag_words}" in told
    assert "public.orders:rows: next all rows, end all rows, lag 0" in told
    assert re.search(r"public.orders: continues at .*, lag [\d.]+ KB of WAL", "\n".join(plan_lines(planned)))
    assert (state.view().lag, state.view().lag_words) == (0, None)


def test_page_and_terminal_tell_such_a_lag_in_the_same_words(shop: PostgresShop) -> None:
    shop.run(APPEND)
    pipeline = Pipeline.from_file(shop.file)
    shop.execute("UPDATE orders SET total = 0")
    state, pages, screens = RunState(pipeline), [], []

    def watch(event: Any) -> None:
        state.watch(event)
        view = state.view()
        if view.lag:
            pages.append((StatusPage(pipeline, "1").live(view), view.lag_words))
            screens.append(str(terminal_sum(view)))

    run_inline(pipeline, watch)

    page, words = pages[0]
    assert words is not None and words.endswith(" KB of WAL")
    assert page.count(words) >= 3 and f"lag {words}" in screens[0]
    assert status_of(state.view()).tables[0].lag_words is None


def test_empty_tables_are_read_at_once_for_whoever_looks(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    """A run that goes on says so in the log of each table, and does not wait for its first row."""
    caplog.set_level(logging.INFO)
    shop.execute("DELETE FROM orders", "CREATE TABLE users (id int PRIMARY KEY)", "VACUUM ANALYZE orders")
    route = "  copies: {route: 'lake/{_stream}', from: db, mode: upsert}"
    pipeline = Pipeline.from_file(shop.write(route, 'tables: "public.*"'))
    state, stop = RunState(pipeline), threading.Event()
    lines = LogLines(state, waits=True)

    def watch(event: Any) -> None:
        state.watch(event)
        lines.watch(event)

    flow: Flow = InlineFlow(Tables(pipeline), "db", LocalTasks(), shop.folder / "s", watch, once=False)
    running = threading.Thread(target=Supervisor(pipeline, [flow], watch, stop).run, daemon=True)
    running.start()
    try:
        wait_until(
            lambda: "source db: nothing to read, waiting for events" in caplog.text, 120, lambda: caplog.text
        )
        told = status(pipeline)
    finally:
        stop.set()
        running.join(120)

    assert not running.is_alive()
    assert [one.name for one in told.tables] == ["copies/public.orders", "copies/public.users"]
    assert told.outstanding["db"].copied is None
    assert {at.lag for one in told.tables for name, at in one.offsets["db"].items() if ":rows" in name} == {0}
    assert verify(pipeline).sound


def test_rows_are_copied_no_faster_than_the_file_says(shop: PostgresShop) -> None:
    began = time.monotonic()
    shop.run(APPEND, "tables: public.orders, snapshot_rate: 200")

    # The last rows need not be waited for.
    assert time.monotonic() - began >= 400 / 200 * 0.75
    assert len(shop.table("orders", "id")) == 400
