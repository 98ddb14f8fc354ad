from __future__ import annotations

from support.postgres import PostgresServer


def test_a_killed_server_keeps_what_was_committed_and_a_standby_follows_it() -> None:
    with PostgresServer() as server:
        server.execute("CREATE TABLE kept (id int); INSERT INTO kept VALUES (1)")

        server.kill()
        server.start()
        with server.standby() as standby:
            server.execute("INSERT INTO kept VALUES (2)")
            standby.promote()

            assert server.execute("SELECT id FROM kept") == [(1,), (2,)]
            assert standby.execute("SELECT pg_is_in_recovery()") == [(False,)]
        server.restart({"wal_level": "replica"})
        assert server.execute("SHOW wal_level") == [("replica",)]


def test_each_test_has_a_database_of_its_own_and_no_slot_is_left(postgres: PostgresServer) -> None:
    with postgres.database() as name:
        postgres.execute("SELECT pg_create_logical_replication_slot('left', 'pgoutput')", database=name)
        postgres.execute("CREATE EXTENSION hstore", database=name)

    assert postgres.execute("SELECT 1 FROM pg_replication_slots WHERE slot_name = 'left'") == []
    assert postgres.execute("SELECT 1 FROM pg_database WHERE datname = %s", name) == []
