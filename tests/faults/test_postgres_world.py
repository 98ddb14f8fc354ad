"""A short walk with a Postgres database whose pipeline, workers, connections and server are killed."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from faults.postgres_world import FAULTS, PostgresWorld
from support.postgres import PostgresServer

ROUNDS = ("kill", "kill", "server", "connections", "kill", "worker", "none", "server", "kill")


def test_four_writers_and_kills_leave_tables_that_agree_with_the_database(tmp_path: Path) -> None:
    faults: Counter[str] = Counter()
    with PostgresServer() as server, server.database() as database:
        world = PostgresWorld(server, database, tmp_path, lambda fault: faults.update([fault]))
        chance = random.Random(1)

        for fault in ROUNDS:
            world.round(chance, fault)
            world.check()

    # The server may have had a fault of its own.
    assert set(FAULTS.values()) <= set(faults)


def test_a_slot_that_is_given_up_and_rows_that_are_read_anew_leave_tables_that_agree(tmp_path: Path) -> None:
    with PostgresServer() as server, server.database() as database:
        world, chance = PostgresWorld(server, database, tmp_path), random.Random(2)

        for fault in ("none", "kill", "none"):
            world.round(chance, fault)
            world.check()
            world.begin_anew()
            world.check()
