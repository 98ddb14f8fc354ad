"""The page on the types of Postgres: every line is tried on a real server, read in both ways."""

from __future__ import annotations

import io
import struct
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv
import pytest

from lakefeed.columns.column_types import type_text
from lakefeed.formats.fit.json_text import json_texts
from lakefeed.sources.postgres.values.casts import cast
from lakefeed.sources.postgres.values.type_catalog import PostgresColumn, TypeCatalog
from lakefeed.sources.postgres.values.types import made, notice
from support.postgres import PostgresServer

PAGE = (Path(__file__).parents[2] / "docs" / "sources" / "postgres-types.md").read_text()
LINES = [
    [cell.strip("`| ") for cell in line.split(" | ")] for line in PAGE.splitlines() if line.startswith("| `")
]
KNOWN = [line for line in LINES if len(line) == 4]
UNFIT = [line for line in LINES if len(line) == 2]
SESSION = (
    "-c timezone=UTC -c datestyle=ISO -c extra_float_digits=1 -c bytea_output=hex -c intervalstyle=iso_8601"
)
TYPES = """
CREATE EXTENSION hstore; CREATE EXTENSION citext; CREATE EXTENSION ltree; CREATE EXTENSION seg;
CREATE TYPE mood AS ENUM ('happy');
CREATE TYPE address AS (street text, number int);
CREATE DOMAIN price AS numeric(8,3);
"""
PLUGIN = "'proto_version', '1', 'publication_names', 'everything'"

Connection = psycopg.Connection[Any]


@pytest.fixture
def connection(postgres: PostgresServer, database: str) -> Any:
    with postgres.connect(database, options=SESSION) as connection:
        connection.execute(TYPES)
        yield connection


def columns_of(connection: Connection, table: str) -> list[PostgresColumn]:
    catalog = TypeCatalog(connection)
    found = connection.execute(
        "SELECT attname, atttypid::bigint, atttypmod, attndims FROM pg_attribute "
        "WHERE attrelid = %s::regclass AND attnum > 0 ORDER BY attnum",
        [table],
    ).fetchall()
    return [PostgresColumn(name, catalog.type_of(oid), typmod, size) for name, oid, typmod, size in found]


def filled(connection: Connection, lines: list[list[str]], value: int) -> None:
    columns = [f"c{place} {line[0]}" for place, line in enumerate(lines)]
    connection.execute(f"CREATE TABLE typed ({', '.join(columns)})")
    connection.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    connection.execute("SELECT pg_create_logical_replication_slot(current_database(), 'pgoutput')")
    connection.execute(f"INSERT INTO typed VALUES ({', '.join(line[value] for line in lines)})")
    connection.execute("INSERT INTO typed DEFAULT VALUES")


def copied(connection: Connection) -> list[pa.StringArray]:
    with connection.cursor().copy("COPY typed TO STDOUT (FORMAT csv)") as copy:
        content = b"".join(map(bytes, copy))
    count = len(columns_of(connection, "typed"))
    names = [str(place) for place in range(count)]
    table = pyarrow.csv.read_csv(
        io.BytesIO(content),
        pyarrow.csv.ReadOptions(column_names=names),
        pyarrow.csv.ParseOptions(newlines_in_values=True),
        pyarrow.csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        ),
    )
    return [column.combine_chunks() for column in table.columns]


def streamed(connection: Connection) -> list[pa.StringArray]:
    changes = connection.execute(
        f"SELECT data FROM pg_logical_slot_peek_binary_changes(current_database(), NULL, NULL, {PLUGIN})"
    ).fetchall()
    rows = [values_of(data) for (data,) in changes if data[:1] == b"I"]
    return [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]


def values_of(insert: bytes) -> list[str | None]:
    (count,) = struct.unpack_from(">h", insert, 6)
    at, found = 8, []
    for _ in range(count):
        size = struct.unpack_from(">i", insert, at + 1)[0] if insert[at : at + 1] == b"t" else None
        found.append(None if size is None else insert[at + 5 : at + 5 + size].decode())
        at += 1 if size is None else 5 + size
    return found


def test_the_values_of_every_type_arrive_as_the_page_says_by_copy_and_by_stream(
    connection: Connection,
) -> None:
    filled(connection, KNOWN, 2)
    columns = columns_of(connection, "typed")

    for texts in (copied(connection), streamed(connection)):
        for line, column, text in zip(KNOWN, columns, texts, strict=True):
            values, refused = cast(text, column)
            values.validate(full=True)
            assert refused is None
            assert values.type == made(column)
            assert [line[0], type_text(values.type), *json_texts(values)] == [
                line[0],
                line[1],
                line[3],
                "null",
            ]


def test_values_that_no_column_holds_are_refused_and_nothing_else_is(connection: Connection) -> None:
    filled(connection, UNFIT, 1)
    columns = columns_of(connection, "typed")

    for texts in (copied(connection), streamed(connection)):
        for line, column, text in zip(UNFIT, columns, texts, strict=True):
            values, refused = cast(text, column)
            assert refused is not None and refused.tolist() == [True, False], line
            assert values.to_pylist() == [None, None]


def test_only_a_type_of_which_nothing_is_known_is_told(connection: Connection) -> None:
    filled(connection, KNOWN, 2)

    told = list(filter(None, map(notice, columns_of(connection, "typed"))))

    what = "nothing is known of the type seg of the extension seg; it comes as its text"
    assert told == [f"column c{len(KNOWN) - 1}: {what}"]


def test_a_type_that_was_dropped_meanwhile_is_text(connection: Connection) -> None:
    dropped = PostgresColumn("gone", TypeCatalog(connection).type_of(4_000_000_000))

    assert cast(pa.array(["x"]), dropped)[0].to_pylist() == ["x"]
    assert notice(dropped) == "column gone: nothing is known of the type unknown; it comes as its text"
