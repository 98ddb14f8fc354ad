"""What a run tells while it copies the rows of a database, and how far it is behind its changes."""

from __future__ import annotations

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.events import Outstanding
from lakefeed.reports.outstanding import copied_words
from lakefeed.reports.status import status
from lakefeed.sources.postgres.client import PostgresClient
from lakefeed.watch.log_lines import LogLines
from lakefeed.watch.metrics import Metrics
from lakefeed.watch.state import RunState
from lakefeed.watch.web.status import status_of
from support.postgres import PostgresServer
from support.postgres_shop import APPEND, ORDERS, PostgresShop


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
    told: list[Outstanding] = []
    for statement in ("SELECT 1", "UPDATE orders SET total = 0", "SELECT 1"):
        shop.execute(statement)
        told.append(client.outstanding(position, client.latest()))
        time.sleep(0.5)
    caught_up = client.outstanding(client.latest(), client.latest())
    client.close()

    assert [one.seconds for one in (told[0], caught_up)] == [0.0, 0.0]
    assert told[2].bytes >= told[1].bytes > 400 * 50
    assert told[1].seconds is not None and told[2].seconds is not None
    assert told[2].seconds - told[1].seconds >= 0.5


def test_rows_are_copied_no_faster_than_the_file_says(shop: PostgresShop) -> None:
    began = time.monotonic()
    shop.run(APPEND, "tables: public.orders, snapshot_rate: 200")

    # The last rows need not be waited for.
    assert time.monotonic() - began >= 400 / 200 * 0.75
    assert len(shop.table("orders", "id")) == 400
