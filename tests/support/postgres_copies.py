"""Copies of a database by a route, and runs that go on while it changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lakefeed import LakefeedError, Pipeline
from lakefeed.engine.flow import Flow
from lakefeed.engine.inline import InlineFlow
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.supervisor import Supervisor
from lakefeed.handles.tables import Tables
from lakefeed.watch.state import RunState
from support.postgres_shop import PostgresShop
from support.processes import wait_until

EVERY = 'tables: "public.*"'
ROUTE = "  copies: {route: 'lake/{_stream}', from: db, mode: upsert}"
LOG = "  log: {route: 'log/{_stream}', from: db}"
ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, v text)"
ITEMS = "CREATE TABLE items (id int PRIMARY KEY, v text)"
RECREATED = ("DROP TABLE orders", ORDERS, "INSERT INTO orders VALUES (2, 'new'), (3, 'new')")


def agrees(shop: PostgresShop, *tables: str, path: str = "lake") -> None:
    """Copies are the tables of the database."""
    for table in tables:
        found = shop.table(f"{path}/public.{table}", "id", "v")
        assert found == shop.query(f"SELECT id, v FROM ONLY {table} ORDER BY id"), table


def copies(shop: PostgresShop, path: str = "lake") -> list[str]:
    folders = (one.name for one in (shop.folder / path).iterdir())
    return sorted(one.removeprefix("public.") for one in folders if one.startswith("public."))


@contextmanager
def running(shop: PostgresShop, tables: str, options: str, more: str = "") -> Iterator[RunState]:
    """A run that goes on, in this process."""
    pipeline = Pipeline.from_file(shop.write(tables, options, f"flush: {{interval: 100ms}}\n{more}"))
    state, stop = RunState(pipeline), threading.Event()
    flow: Flow = InlineFlow(Tables(pipeline), "db", LocalTasks(), shop.folder / "s", state.watch, once=False)
    supervisor = Supervisor(pipeline, [flow], state.watch, stop)
    thread = threading.Thread(target=lambda: _quietly(supervisor.run), daemon=True)
    thread.start()
    try:
        yield state
    finally:
        stop.set()
        thread.join(120)
    assert not thread.is_alive()


def _quietly(run: Callable[[], None]) -> None:
    try:
        run()
    except LakefeedError as error:
        logging.getLogger("test").info("%s", error)


def eventually(shop: PostgresShop, *tables: str) -> None:
    """Copies become the tables of the database, within a minute."""

    def agree() -> bool:
        try:
            agrees(shop, *tables)
        except Exception:
            return False
        return True

    wait_until(agree, 120, lambda: f"{copies(shop)}")
