"""A database with tables, and a pipeline that reads it into a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from lakefeed.tables.table import commit_info_of
from support.forks import run_until_killed
from support.postgres import PostgresServer

ORDERS = "CREATE TABLE orders (id int PRIMARY KEY, customer text, total numeric(10,2), note text)"
UPSERT = "  orders: {path: orders, from: db, mode: upsert}"
APPEND = "  orders: {path: orders, from: db}"
LARGE = "(SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) i)"
"""A value that is stored beside its row, and not sent by an update that leaves it alone."""


class PostgresShop:
    """Statements go to the database, runs read it; `file` is the pipeline of the last run."""

    def __init__(self, server: PostgresServer, database: str, folder: Path) -> None:
        self.server, self.database, self.folder = server, database, folder
        self.connection = server.dsn(database)
        self.file = folder / "shop.yaml"

    def execute(self, *statements: str) -> None:
        """Run statements, each in a transaction of its own unless it says otherwise."""
        with self.server.connect(self.database) as connection:
            for one in statements:
                connection.execute(one.encode())

    def query(self, query: str) -> list[tuple[Any, ...]]:
        return self.server.execute(query, database=self.database)

    def write(self, tables: str, options: str = "tables: public.orders", more: str = "") -> Path:
        self.file.write_text(
            f"""\
name: shop
give_up_after: 5s
sources: {{db: {{type: postgres, connection: "{self.connection}", {options}}}}}
tables:
{tables}
{more}
"""
        )
        return self.file

    def run(self, tables: str, options: str = "tables: public.orders", more: str = "") -> None:
        """Read all that is there, and let `verify` look at it."""
        pipeline = Pipeline.from_file(self.write(tables, options, more))
        run_inline(pipeline)
        report = verify(pipeline)
        assert report.sound, report

    def run_until_killed(self, point: str) -> None:
        """Run the pipeline of the last run in a process that dies at a point, as `files_written:2`."""
        run_until_killed(self.file, point)

    def rows(self, path: str) -> list[dict[str, Any]]:
        scan = pa.RecordBatchReader.from_stream(DeltaTable(str(self.folder / path)).scan())
        rows: list[dict[str, Any]] = scan.read_all().to_pylist()
        return rows

    def table(self, path: str, *columns: str) -> list[tuple[Any, ...]]:
        """Some columns of a Delta table, in order."""
        return sorted(tuple(row[one] for one in columns) for row in self.rows(path))

    def changes(self, path: str = "orders") -> int:
        """How many commits have more than a position, which the server's own WAL moves at any time."""
        history = DeltaTable(str(self.folder / path)).history()
        return sum(commit_info_of(one).get("kind") != "position" for one in history)

    def agrees(self, columns: str = "id, customer, total, note") -> None:
        """The Delta table `orders` is the table of the database."""
        found = self.table("orders", *columns.split(", "))
        assert found == self.query(f"SELECT {columns} FROM orders ORDER BY id")
