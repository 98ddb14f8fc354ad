"""Changes of the schema and of the rows of a database, at random.

`items` and `people` are the tables whose columns change. The names `id`, `k`, `u`, `doc...` and `flag...`
have a meaning for the pipelines, so only the changes that are meant for them touch these columns.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import psycopg

from support.postgres import PostgresServer

KEYS = 30
ODD_DATES = ("infinity", "-infinity", "0044-03-15 BC")
ITEMS = """CREATE TABLE items (id int PRIMARY KEY, k int NOT NULL DEFAULT 0, u serial UNIQUE, n int, doc text,
           day date, amount numeric(8,2), code text, flag int)"""
PEOPLE = 'CREATE TABLE people (id text PRIMARY KEY, "full name" text, born date)'
_KEPT = ("id", "k", "u", "doc", "flag")


class ChangingDatabase:
    """The tables of a database, and statements that change them."""

    def __init__(self, server: PostgresServer, database: str) -> None:
        self.server, self.database = server, database
        self._number = 0
        self._former: dict[tuple[str, str], list[str]] = {}
        self.execute(ITEMS, "ALTER TABLE items ALTER doc SET STORAGE EXTERNAL", PEOPLE)

    def select(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        return self.server.execute(query, *values, database=self.database)

    def execute(self, *statements: str) -> None:
        for one in statements:
            self.server.execute(one, database=self.database)

    def next_number(self) -> int:
        """A number for a new name."""
        self._number += 1
        return self._number

    def tables(self) -> dict[str, list[str]]:
        """The ordinary tables that are published, and the columns of their keys: none if FULL replaces it."""
        query = """SELECT c.relname, array(SELECT a.attname::text FROM pg_index i JOIN pg_attribute a
                     ON a.attrelid = c.oid AND a.attnum = ANY(i.indkey)
                     WHERE i.indrelid = c.oid AND i.indisprimary ORDER BY a.attnum)
                   FROM pg_class c WHERE c.relnamespace = 'public'::regnamespace AND c.relkind = 'r'
                   AND c.relpersistence = 'p' AND c.relname NOT LIKE 'tmp\\_%' ORDER BY 1"""
        keys = dict(self.select(query))
        full = {name for (name,) in self.select("SELECT relname FROM pg_class WHERE relreplident = 'f'")}
        return {name: key for name, key in keys.items() if key or name in full}

    def columns(self, table: str) -> list[str]:
        """The columns that every server sends."""
        query = """SELECT attname FROM pg_attribute WHERE attrelid = %s::regclass AND attnum > 0
                   AND NOT attisdropped AND attgenerated = '' ORDER BY attnum"""
        return [name for (name,) in self.select(query, table)]

    def column(self, prefix: str) -> str | None:
        """What a column of `items` with a meaning is called now; None where it was dropped."""
        return next((name for name in self.columns("items") if name.startswith(prefix)), None)

    def rename(self, table: str, column: str, name: str) -> None:
        self.execute(f'ALTER TABLE {table} RENAME "{column}" TO {name}')
        self._former[table, name] = [column, *self.former_names(table, column)]

    def former_names(self, table: str, column: str) -> list[str]:
        """What a column was called before, the newest name first."""
        return self._former.get((table, column), [])

    def change_a_row(self) -> None:
        """Change a row of `items`: a run says that a column is gone when a change lacks it."""
        insert = "INSERT INTO items (id) VALUES (31) ON CONFLICT DO NOTHING"
        self.execute(insert, "UPDATE items SET k = k WHERE id = 31")

    def write_rows(self, chance: random.Random) -> None:
        """Insert, update, delete and move rows of every table, and leave large values alone now and then."""
        for table, key in self.tables().items():
            columns = self.columns(table)
            statements = _statements(table, columns, chance) if key else _keyless_statements(table, chance)
            with self.server.connect(self.database) as connection:
                for statement in statements:
                    try:
                        connection.execute(statement.encode())
                    except (psycopg.IntegrityError, psycopg.DataError, psycopg.ProgrammingError):
                        # A key that is taken, or a value that a changed type does not take.
                        continue

    def free_column(self, chance: random.Random, *names: str) -> tuple[str, str]:
        """A table and a column that may change; one of these names of `items`, if there are some."""
        table = "items" if names or chance.random() < 0.7 else "people"
        free = [one for one in self.columns(table) if one.rstrip("_0123456789") not in _KEPT]
        return table, chance.choice([one for one in free if not names or one in names])


Database = ChangingDatabase
Change = Callable[[Database, random.Random], None]


def widen_type(db: Database, chance: random.Random) -> None:
    wider = f"numeric({chance.randint(9, 20)},{chance.randint(2, 4)})"
    column, kind = chance.choice([("n", "bigint"), ("amount", wider)])
    db.execute(f"ALTER TABLE items ALTER {column} TYPE {kind}")


def change_to_text(db: Database, chance: random.Random) -> None:
    table, column = db.free_column(chance)
    db.execute(f'ALTER TABLE {table} ALTER "{column}" TYPE text USING "{column}"::text')


def change_to_number(db: Database, chance: random.Random) -> None:
    db.execute("ALTER TABLE items ALTER code TYPE int USING length(code)")


def rename_column(db: Database, chance: random.Random) -> None:
    table, column = db.free_column(chance)
    db.rename(table, column, f"c{db.next_number()}")


def rename_named_column(db: Database, chance: random.Random) -> None:
    """One that `rename`, `where` or `expect` reads."""
    prefix = chance.choice(["doc", "flag"])
    if old := db.column(prefix):
        db.rename("items", old, f"{prefix}_{db.next_number()}")
        db.change_a_row()


def drop_named_column(db: Database, chance: random.Random) -> None:
    if flag := db.column("flag"):
        db.execute(f"ALTER TABLE items DROP {flag}")
    else:
        db.execute(f"ALTER TABLE items ADD flag_{db.next_number()} int DEFAULT 4")
    db.change_a_row()


def add_column(db: Database, chance: random.Random) -> None:
    """The log of `people` keeps null in what it has, whatever the default is."""
    table = chance.choice(["items", "items", "people"])
    default = chance.choice(["", "DEFAULT 7", "NOT NULL DEFAULT 8"]) if table == "items" else ""
    db.execute(f"ALTER TABLE {table} ADD a{db.next_number()} int {default}")


def drop_column(db: Database, chance: random.Random) -> None:
    table, column = db.free_column(chance)
    db.execute(f'ALTER TABLE {table} DROP COLUMN "{column}"')


def change_key(db: Database, chance: random.Random) -> None:
    """To a key with a column more or less, right behind changes by the former one."""
    rows = f"BETWEEN {chance.randint(1, 10)} AND {KEYS // 2}"
    db.execute(f"DELETE FROM ONLY items WHERE id {rows}", f"UPDATE items SET n = NULL WHERE NOT id {rows}")
    key = "id" if db.tables()["items"] == ["id", "k"] else "id, k"
    drop, add = "ALTER TABLE items DROP CONSTRAINT items_pkey", f"ALTER TABLE items ADD PRIMARY KEY ({key})"
    db.execute(f"BEGIN; {drop}; {add}; COMMIT")


def change_identity(db: Database, chance: random.Random) -> None:
    identity = chance.choice(["FULL", "DEFAULT", "USING INDEX items_u_key"])
    db.execute(f"ALTER TABLE items REPLICA IDENTITY {identity}")


def recreate(db: Database, chance: random.Random) -> None:
    db.execute("DROP TABLE people", PEOPLE)


def recreate_with_rows(db: Database, chance: random.Random) -> None:
    """In one transaction, so nobody sees it without its rows."""
    people = PEOPLE.replace("born date", "born timestamp, since int") if chance.random() < 0.5 else PEOPLE
    rows = (
        f"INSERT INTO people (id, born) SELECT i::text, '2026-01-01' FROM generate_series(20, {KEYS + 5}) i"
    )
    db.execute(f"BEGIN; DROP TABLE people; {people}; {rows}; COMMIT")


def new_table(db: Database, chance: random.Random) -> None:
    name = f"new_{db.next_number()}"
    db.execute(f"CREATE TABLE {name} (id int PRIMARY KEY, v text)", f"INSERT INTO {name} VALUES (1, 'first')")


def excluded_table(db: Database, chance: random.Random) -> None:
    db.execute(f"CREATE TABLE tmp_{db.next_number()} (id int PRIMARY KEY, v text)")


def drop_table(db: Database, chance: random.Random) -> None:
    if names := [name for name in db.tables() if name.startswith("new_")]:
        db.execute(f"DROP TABLE {chance.choice(names)}")


def view(db: Database, chance: random.Random) -> None:
    kind = chance.choice(["VIEW", "MATERIALIZED VIEW"])
    # Not of whole tables: their columns could not change any more.
    db.execute(f"CREATE {kind} view_{db.next_number()} AS SELECT count(*) FROM pg_class")


def keyless(db: Database, chance: random.Random) -> None:
    name = f"keyless_{db.next_number()}"
    kind = chance.choice(["", "UNLOGGED"])
    db.execute(f"CREATE {kind} TABLE {name} (x int)", f"INSERT INTO {name} VALUES (1), (2)")
    # The application must still be able to change the table.
    db.execute(f"UPDATE {name} SET x = 3 WHERE x = 2")


def keyless_identity(db: Database, chance: random.Random) -> None:
    """A table without a key whose changes name their row by all columns: its log can be kept."""
    name = f"bag_{db.next_number()}"
    db.execute(
        f"BEGIN; CREATE TABLE {name} (x int, v text); ALTER TABLE {name} REPLICA IDENTITY FULL; COMMIT"
    )


def inherit(db: Database, chance: random.Random) -> None:
    name = f"child_{db.next_number()}"
    db.execute(f"CREATE TABLE {name} () INHERITS (items)", f"INSERT INTO {name} (id) VALUES (1)")
    db.execute(f"UPDATE {name} SET k = 1")


def generate(db: Database, chance: random.Random) -> None:
    db.execute(f"ALTER TABLE items ADD g{db.next_number()} int GENERATED ALWAYS AS (id + 1) STORED")


def odd_value(db: Database, chance: random.Random) -> None:
    value = chance.choice([f"day = '{chance.choice(ODD_DATES)}'", "amount = 'NaN'"])
    db.execute(f"UPDATE items SET {value} WHERE id BETWEEN {chance.randint(1, 10)} AND {KEYS // 2}")


def truncate(db: Database, chance: random.Random) -> None:
    db.execute(f"TRUNCATE {chance.choice(list(db.tables()))}")


CHANGES: tuple[Change, ...] = (
    widen_type,
    change_to_text,
    change_to_number,
    rename_column,
    rename_named_column,
    drop_named_column,
    add_column,
    drop_column,
    change_key,
    change_identity,
    recreate,
    recreate_with_rows,
    new_table,
    excluded_table,
    drop_table,
    view,
    keyless,
    keyless_identity,
    inherit,
    generate,
    odd_value,
    truncate,
)


def _statements(table: str, columns: list[str], chance: random.Random) -> Iterator[str]:
    for _ in range(chance.randint(1, 6)):
        key, other = chance.randint(1, KEYS), chance.randint(1, KEYS)
        kind = chance.random()
        names = [name for name in columns if name not in ("id", "u")]
        if kind < 0.45:
            values = ", ".join(_value(name, chance) for name in names)
            listed = ", ".join(f'"{name}"' for name in names)
            yield f"INSERT INTO {table} (id, {listed}) VALUES ('{key}', {values}) ON CONFLICT DO NOTHING"
        elif kind < 0.8 and names:
            name = chance.choice(names)
            yield f"""UPDATE {table} SET "{name}" = {_value(name, chance)} WHERE id = '{key}'"""
        elif kind < 0.87:
            yield f"UPDATE {table} SET id = '{other}' WHERE id = '{key}'"
        elif kind < 0.9 and "u" in columns:
            yield f"UPDATE {table} SET u = DEFAULT WHERE id = '{key}'"
        else:
            yield f"DELETE FROM ONLY {table} WHERE id = '{key}'"


def _keyless_statements(table: str, chance: random.Random) -> Iterator[str]:
    for _ in range(chance.randint(1, 4)):
        x = chance.randint(1, 4)
        yield chance.choice(
            [
                f"INSERT INTO {table} VALUES ({x}, 'v'), ({x}, NULL)",
                f"UPDATE {table} SET x = x + 1 WHERE x = {x}",
                f"DELETE FROM {table} WHERE x = {x} AND v IS NULL",
            ]
        )


def _value(name: str, chance: random.Random) -> str:
    if name.startswith("doc"):
        if chance.random() < 0.2:
            return chance.choice(["'short'", "NULL"])
        return f"(SELECT string_agg(md5(j::text || '{chance.random()}'), '') FROM generate_series(1, 100) j)"
    if name in ("day", "born"):
        return f"'20{chance.randint(10, 29)}-03-{chance.randint(10, 28)}'"
    if name == "k":
        return str(chance.randint(0, 2))
    if name.startswith("flag"):
        return str(chance.randint(0, 9))
    # Quoted: the server takes it for a number or for a text, whatever the column has become.
    return chance.choice([f"'{chance.randint(0, 99)}'", f"'{chance.randint(0, 99)}'", "NULL"])
