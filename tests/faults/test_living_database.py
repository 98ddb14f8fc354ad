"""A short walk with a database whose schema changes while runs live and are killed."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

from faults.living_database import LivingDatabase
from faults.schema_changes import CHANGES, ChangingDatabase, drop_named_column, excluded_table
from support.postgres import PostgresServer


def test_copies_follow_every_change_of_a_schema(
    postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    notes: Counter[str] = Counter()
    living = LivingDatabase(postgres, database, tmp_path, lambda note: notes.update([note]), sql=False)
    chance = random.Random(1)
    changes = chance.sample(CHANGES, len(CHANGES))

    for at in range(0, len(changes), 4):
        living.round(chance, changes[at : at + 4])
        living.check()
        living.replay()
    living.check()

    assert notes["run killed"] and notes["living run killed"]
    assert len(notes) > len(CHANGES) // 2


def test_rows_of_before_another_name_or_another_condition_are_judged_by_it(
    postgres: PostgresServer, database: str, tmp_path: Path
) -> None:
    """A log keeps values under the names of then; a copy whose condition is another one is read anew."""
    living = LivingDatabase(postgres, database, tmp_path)
    chance = random.Random(1)

    def rename(db: ChangingDatabase, chance: random.Random) -> None:
        # No other change touches these keys.
        db.execute(
            "INSERT INTO people VALUES ('100', 'kept', '2026-01-01')",
            "INSERT INTO items (id, flag) VALUES (100, 9)",
        )
        db.rename("people", "full name", "name")
        db.rename("people", "name", "called")
        db.execute("INSERT INTO people VALUES ('101', 'new', '2026-01-01')")

    living.round(chance, [excluded_table])
    living.round(chance, [rename, drop_named_column])
    living.check()
    living.round(chance, [drop_named_column])
    living.check()
    living.check()
