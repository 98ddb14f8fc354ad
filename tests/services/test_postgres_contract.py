"""Postgres keeps the contract of every source, on a real server and without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.postgres import PostgresServer
from support.source_contract import SourceCase, SourceContract


class TestPostgres(SourceContract):
    @pytest.fixture
    def case(self, postgres: PostgresServer, database: str, tmp_path: Path) -> SourceCase:
        """Every twentieth row has a size that its column does not hold. The first 200 are a snapshot."""
        postgres.execute("CREATE TABLE items (event_id bigint PRIMARY KEY, size bigint)", database=database)
        sent = [0]

        def options(count: int) -> str:
            values = "SELECT i, CASE i % 20 WHEN 3 THEN 1::bigint << 40 ELSE i END"
            for first in range(sent[0], count, 50):
                postgres.execute(
                    f"INSERT INTO items {values} FROM generate_series({first}, {first + 49}) i",
                    database=database,
                )
            if not sent[0]:
                postgres.execute("ANALYZE items", database=database)
            sent[0] = max(count, sent[0])
            return f'connection: "{postgres.dsn(database)}", tables: public.items'

        return SourceCase("postgres", tmp_path, options, "event_id: long, size: int", "ignore")
