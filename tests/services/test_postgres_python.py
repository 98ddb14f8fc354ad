"""A function of the user's between a Postgres database and a copy of its table."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.reports.plan.plan import plan_run
from support.postgres import PostgresServer
from support.postgres_shop import LARGE, PostgresShop

FUNCTION = """
import pyarrow as pa, pyarrow.compute as pc

def measure(batch):
    at = batch.schema.get_field_index("size")
    size = pc.cast(pc.utf8_length(batch.column("document")), pa.int32())
    return batch.append_column("size", size) if at < 0 else batch.set_column(at, "size", size)
"""
DECLARED = (
    "schema: {id: int, total: int, document: string not null, size: int, "
    "_op: string, _lsn: long, _ordinal: long, _unchanged: array<string>}"
)


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    (tmp_path / "measuring.py").write_text(FUNCTION)
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(
        "CREATE TABLE orders (id int PRIMARY KEY, total int, doc text NOT NULL)",
        "ALTER TABLE orders ALTER doc SET STORAGE EXTERNAL",
        f"INSERT INTO orders SELECT i, i, {LARGE} || i FROM generate_series(1, 5) i",
    )
    return shop


def test_copies_of_what_a_function_makes_follow_changes_that_do_not_carry_all_columns(
    shop: PostgresShop,
) -> None:
    more = {
        "plain": "mode: upsert, rename: {doc: document}, schema: {document: string not null}",
        "merged": "mode: upsert, updates: merge_on_read, rename: {doc: document}, "
        "schema: {document: string not null}",
        "past": "mode: history, rename: {doc: document}, schema: {document: string not null}",
        "python": "mode: upsert, rename: {doc: document}, python: 'measuring:measure'",
        "declared": f"mode: upsert, rename: {{doc: document}}, python: 'measuring:measure', {DECLARED}",
        "python_past": f"mode: history, rename: {{doc: document}}, python: 'measuring:measure', {DECLARED}",
    }
    tables = "\n".join(f"  {name}: {{path: {name}, from: db, {one}}}" for name, one in more.items())
    planned = {one.name: one for one in plan_run(Pipeline.from_file(shop.write(tables))).tables}
    assert {one.refused for one in planned.values()} == {None}
    shop.run(tables)
    shop.execute(
        "UPDATE orders SET total = 10 WHERE id = 1",
        "UPDATE orders SET id = 20, total = 21 WHERE id = 2",
        "BEGIN; UPDATE orders SET total = 30 WHERE id = 3; UPDATE orders SET id = 31 WHERE id = 3; COMMIT",
        "UPDATE orders SET total = 4 WHERE id = 4",
        "DELETE FROM orders WHERE id IN (4, 5)",
        "INSERT INTO orders VALUES (6, 6, 'small')",
    )
    shop.run_until_killed("table_committed:2")

    shop.run(tables)

    rows = shop.query("SELECT id, total, doc FROM orders ORDER BY id")
    for name in more:
        present = [row for row in shop.rows(name) if row.get("valid_to") is None]
        assert sorted((row["id"], row["total"], row["document"]) for row in present) == rows, name
        if "size" in present[0]:
            assert all(row["size"] == len(row["document"]) for row in present)
    # States that the database does not have any more, and that a function cannot be called for.
    letters = [(row["table"], row["code"], row["key"]) for row in shop.rows("shop_dead_letters")]
    assert sorted(letters) == [
        ("python_past", "unknown_value", b'{"id":3}'),
        ("python_past", "unknown_value", b'{"id":4}'),
    ]
