"""What is found in a database before its first byte is read: each with the statement that repairs it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lakefeed import SourceError
from lakefeed.doctor.services import source
from lakefeed.sources import Finding
from lakefeed.sources.postgres.checks.findings import findings, tell_findings
from lakefeed.sources.postgres.source import PostgresSource
from support.postgres import PostgresServer


@pytest.fixture
def shop(postgres: PostgresServer, database: str) -> Iterator[str]:
    """A database with tables, and a role that owns none of them."""
    role = f"reader_{database}"
    postgres.execute(
        f"""
        CREATE TABLE orders (id int PRIMARY KEY, note text);
        CREATE TABLE "Odd log" (line text);
        CREATE TABLE nothing (id int PRIMARY KEY); ALTER TABLE nothing REPLICA IDENTITY NOTHING;
        CREATE UNLOGGED TABLE fleeting (id int PRIMARY KEY);
        CREATE TABLE secret (id int PRIMARY KEY); ALTER TABLE secret ENABLE ROW LEVEL SECURITY;
        CREATE TABLE days (day date PRIMARY KEY) PARTITION BY RANGE (day);
        CREATE TABLE all_days PARTITION OF days DEFAULT;
        INSERT INTO orders VALUES (99); INSERT INTO "Odd log" VALUES ('one'); INSERT INTO days VALUES (now());
        CREATE VIEW views AS SELECT 1 AS one;
        CREATE SCHEMA hidden; CREATE TABLE hidden.rows (id int PRIMARY KEY);
        CREATE ROLE {role} LOGIN;
        GRANT SELECT ON secret TO {role}
        """,
        database=database,
    )
    yield role
    postgres.execute(f"DROP OWNED BY {role}", database=database)
    postgres.execute(f"DROP ROLE {role}")


def look(
    server: PostgresServer, database: str, *tables: str, user: str = "postgres", publication: str = "pub"
) -> list[Finding]:
    with server.connect(database, user) as connection:
        return findings(connection, publication, "slot", tables)


def told(found: list[Finding]) -> dict[str, str]:
    """What fails, with its remedy."""
    return {each.text: each.remedy for each in found if each.state == "fail"}


def test_a_table_that_can_be_read_has_no_finding_but_that_wal_is_kept_without_end(
    postgres: PostgresServer, database: str, shop: str
) -> None:
    assert look(postgres, database, "public.orders") == [
        Finding(
            "warn",
            "max_slot_wal_keep_size is not set: WAL that is not read yet is kept until the disk is full",
            "ALTER SYSTEM SET max_slot_wal_keep_size = '50GB'; SELECT pg_reload_conf();",
        )
    ]


def test_each_table_that_cannot_be_read_is_told_with_what_repairs_it(
    postgres: PostgresServer, database: str, shop: str
) -> None:
    names = ["Odd log", "nothing", "fleeting", "views", "ordres"]

    assert told(look(postgres, database, *(f"public.{name}" for name in names))) == {
        "public.Odd log has no primary key: once it is published, the server refuses every UPDATE and DELETE "
        "of it": 'ALTER TABLE public."Odd log" REPLICA IDENTITY FULL; '
        "-- or give it a primary key, which upsert tables need",
        "public.nothing has REPLICA IDENTITY NOTHING: once it is published, the server refuses every UPDATE "
        "and DELETE of it": "ALTER TABLE public.nothing REPLICA IDENTITY DEFAULT;",
        "public.fleeting is unlogged: its changes are not in the log": "ALTER TABLE "
        "public.fleeting SET LOGGED;",
        "public.views is a view: it has no changes of its own": "Name the tables that it reads; "
        "`exclude` leaves it out.",
        f"there is no table public.ordres in {database}, did you mean 'public.orders'?": "Correct `tables`",
    }
    assert told(look(postgres, database, "sales.*")) == {
        f"no table of {database} is one of sales.*": "Correct `tables`"
    }


def test_every_right_that_a_role_lacks_is_told_and_the_statements_give_them(
    postgres: PostgresServer, database: str, shop: str
) -> None:
    tables = ["public.orders", "public.secret", "hidden.rows"]
    bypass = f'ALTER ROLE "{shop}" BYPASSRLS;'

    found = told(look(postgres, database, *tables, user=shop))

    assert found == {
        f"the role {shop} has no right to replicate": f'ALTER ROLE "{shop}" REPLICATION; '
        f'-- RDS: GRANT rds_replication TO "{shop}";',
        f"the publication pub is missing, and the role {shop} does not own hidden.rows, public.orders and "
        "public.secret": 'CREATE PUBLICATION "pub" FOR TABLE hidden.rows, public.orders, public.secret; '
        "-- as the owner of the tables",
        f"public.orders may not be read by the role {shop}": "GRANT SELECT ON TABLE public.orders "
        f'TO "{shop}";',
        f"public.secret hides rows from the role {shop} by row-level security": bypass,
        f"hidden.rows is in a schema that the role {shop} may not use": 'GRANT USAGE ON SCHEMA "hidden" '
        f'TO "{shop}";',
    }
    for remedy in found.values():
        postgres.execute(remedy, database=database)
    left = told(look(postgres, database, *tables, user=shop))
    assert list(left) == [f"hidden.rows may not be read by the role {shop}"]


def test_doctor_tells_a_missing_right_once_with_the_statement_that_gives_it(
    postgres: PostgresServer, database: str, shop: str
) -> None:
    spec = PostgresSource(connection=postgres.dsn(database, shop), tables=("public.orders",))

    failed = [one for one in source("shop", "db", spec) if one.state != "warn"]

    assert [one.text.partition(",")[0] for one in failed] == [
        f"the role {shop} has no right to replicate",
        "the publication lakefeed_shop_db is missing",
        f"public.orders may not be read by the role {shop}",
    ]
    assert all(one.remedy for one in failed)


def test_a_source_that_fails_is_not_said_to_be_fine_as_well(
    postgres: PostgresServer, database: str, shop: str
) -> None:
    names = ("public.orders", "public.views", "public.ordres")
    spec = PostgresSource(connection=postgres.dsn(database), tables=names)

    found = [one for one in source("shop", "db", spec) if one.state != "warn"]

    assert [one.state for one in found] == ["fail", "fail"]
    with pytest.raises(SourceError, match=r"did you mean 'public.orders'\?\nCorrect `tables`"):
        tell_findings("db", look(postgres, database, *names), lambda _: True, set())


def test_what_a_publication_does_not_cover_is_told(
    postgres: PostgresServer, database: str, shop: str
) -> None:
    postgres.execute(
        "CREATE PUBLICATION pub FOR TABLE orders (id) WHERE (id > 5), days WITH (publish = 'insert')",
        database=database,
    )

    found = look(postgres, database, "public.orders", "public.days", "public.Odd log", user="postgres")

    assert [(one.state, one.text, one.remedy) for one in found[1:]] == [
        (
            "warn",
            "the publication pub does not publish update, delete and truncate: they never arrive",
            "ALTER PUBLICATION \"pub\" SET (publish = 'insert, update, delete, truncate');",
        ),
        (
            "fail",
            "the publication pub publishes partitions under their own names",
            'ALTER PUBLICATION "pub" SET (publish_via_partition_root = true);',
        ),
        (
            "ok",
            "the publication pub publishes of public.orders only the columns id and only rows with (id > 5)",
            "",
        ),
    ]
    bypass = f'ALTER ROLE "{shop}" BYPASSRLS;'
    postgres.execute(f"ALTER ROLE {shop} REPLICATION; GRANT SELECT ON orders TO {shop}", database=database)
    assert told(look(postgres, database, "public.secret", "public.orders", user=shop)) == {
        "the publication pub does not cover public.secret": 'ALTER PUBLICATION "pub" '
        "ADD TABLE public.secret;",
        f"public.secret hides rows from the role {shop} by row-level security": bypass,
    }
    assert told(look(postgres, database, publication="other")) == {
        "the publication other does not exist, and `tables` names none": "Name the tables, or correct "
        "`publication`"
    }


def test_a_server_that_is_set_otherwise_is_told() -> None:
    settings = {
        "wal_level": "replica",
        "max_replication_slots": "1",
        "max_wal_senders": "0",
        "max_slot_wal_keep_size": "100MB",
        "idle_session_timeout": "1h",
        "old_snapshot_threshold": "10min",
    }
    with PostgresServer(settings) as server:
        server.execute("SELECT pg_create_physical_replication_slot('taken')")
        found = [(one.state, one.text) for one in look(server, "postgres", "public.*")]

    assert found == [
        ("fail", "wal_level is replica: changes of rows are not in the log"),
        ("fail", "no replication slot is free, 1 of 1 in use; nobody reads taken"),
        ("warn", "no WAL sender is free, 0 of 0 in use: large transactions cannot be streamed"),
        ("warn", "max_slot_wal_keep_size is 100 MB: a pipeline that is behind by more loses its slot"),
        ("warn", "idle_session_timeout is 1h: the server ends sessions of the pipeline"),
        ("warn", "old_snapshot_threshold is 10min: a snapshot of a large table that takes longer fails"),
        ("fail", "no table of postgres is one of public.*"),
    ]


def test_a_transaction_that_a_new_slot_waits_for_is_told(
    postgres: PostgresServer, database: str, shop: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lakefeed.sources.postgres.checks.examined.LONG_OPEN", "0 seconds")
    with postgres.connect(database, autocommit=False) as other:
        other.execute("INSERT INTO orders VALUES (1)")
        pid = other.info.backend_pid

        found = [one.text for one in look(postgres, database, "public.orders")]

    assert found[0].startswith("a transaction has been open for ")
    assert found[0].endswith(f"(PID {pid}): the slot slot is there only when it has ended")


def test_a_slot_of_another_kind_is_told(postgres: PostgresServer, database: str, shop: str) -> None:
    postgres.execute("SELECT pg_create_logical_replication_slot('slot', 'test_decoding')", database=database)

    found = told(look(postgres, database, "public.orders"))

    assert found == {
        f"the slot slot is another one: logical, test_decoding, database {database}": "Set `slot` to a name "
        "that is free"
    }


def test_a_standby_is_told_to_be_none_that_can_be_read(postgres: PostgresServer, database: str) -> None:
    with postgres.standby() as standby:
        found = told(look(standby, database, "public.*"))

    assert (
        "the server is a standby, and gives no transaction ids, by which rows and changes are parted",
        "Connect to the primary: options: {target_session_attrs: read-write}",
    ) in found.items()
