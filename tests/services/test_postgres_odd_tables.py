"""One bad table of a database stops only itself: a view, a table without a key, one that was made anew."""

from __future__ import annotations

import logging
import re
import threading
from pathlib import Path
from typing import Any

import pytest

from lakefeed import Pipeline, PipelineFileError
from lakefeed.commands.plan import _lines as plan_lines
from lakefeed.commands.status import _lines as status_lines
from lakefeed.doctor.services import examine
from lakefeed.engine.inline import run_inline
from lakefeed.errors import DataLoss, SourceError, TableError
from lakefeed.pipeline.secrets import Redactor
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.sources.postgres import client as postgres_client
from lakefeed.sources.postgres import connection
from lakefeed.watch.health import reasons, remarks
from lakefeed.watch.web.page import StatusPage
from lakefeed.watch.web.status import status_of
from support.postgres import PostgresServer
from support.postgres_copies import (
    EVERY,
    ITEMS,
    LOG,
    ORDERS,
    RECREATED,
    ROUTE,
    agrees,
    copies,
    eventually,
    running,
)
from support.postgres_shop import PostgresShop
from support.processes import wait_until


@pytest.fixture
def shop(postgres: PostgresServer, database: str, tmp_path: Path) -> PostgresShop:
    """Two plain tables with a row each."""
    shop = PostgresShop(postgres, database, tmp_path)
    shop.execute(ORDERS, ITEMS, "INSERT INTO orders VALUES (1, 'a')", "INSERT INTO items VALUES (1, 'x')")
    return shop


def odd(*more: str) -> list[str]:
    return [
        "CREATE VIEW seen AS SELECT * FROM orders",
        "CREATE MATERIALIZED VIEW kept AS SELECT * FROM orders",
        "CREATE FOREIGN DATA WRAPPER nothing",
        "CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing",
        "CREATE FOREIGN TABLE abroad (id int) SERVER nowhere",
        "CREATE UNLOGGED TABLE fleeting (id int PRIMARY KEY)",
        "CREATE TABLE nameless (id int)",
        "CREATE TABLE whole (id int, v text)",
        "ALTER TABLE whole REPLICA IDENTITY FULL",
        "INSERT INTO whole VALUES (1, 'w')",
        "CREATE TEMPORARY TABLE passing (id int)",
        *more,
    ]


SKIPPED = ["public.abroad", "public.fleeting", "public.kept", "public.nameless", "public.seen"]


def test_what_a_pattern_means_and_cannot_be_read_is_skipped_with_one_warning_a_run(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.execute(*odd())
    pipeline = Pipeline.from_file(shop.write(f"{ROUTE}\n{LOG}", EVERY))
    planned, doctor = plan_run(pipeline), list(examine(pipeline))

    for _ in range(2):
        shop.run(f"{ROUTE}\n{LOG}", EVERY)
        shop.execute("UPDATE orders SET v = v || 'b'", "UPDATE whole SET v = 'v'")

    # The log has the table without a key, whose rows an upsert table cannot tell apart.
    assert copies(shop) == ["items", "orders"] and copies(shop, "log") == ["items", "orders", "whole"]
    assert sorted(planned.skipped["db"]) == [*SKIPPED, "public.whole"]
    assert not any(one.refused for one in planned.tables)
    lines = plan_lines(planned)
    assert "db: skips public.seen: it is a view: it has no changes of its own. " in "\n".join(lines)
    assert [one.text for one in doctor if one.state == "fail"] == []
    assert any(
        one.text == "skips public.kept: it is a materialized view: it has no changes of its own"
        for one in doctor
    )
    found = status(pipeline)
    assert found.skipped == planned.skipped
    assert any("skips public.nameless" in line for line in status_lines(found, Redactor([])))
    warned = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    for stream in SKIPPED:
        assert len([one for one in warned if f"{stream} " in one]) == 2, (stream, warned)
    assert len([one for one in warned if "copies skips public.whole" in one]) == 2


def test_names_that_the_file_has_literally_are_not_skipped(shop: PostgresShop) -> None:
    shop.execute(*odd())

    with pytest.raises(SourceError, match=r"public\.seen is a view"):
        shop.run(ROUTE, "tables: [public.orders, public.seen]")
    one = "  seen: {path: seen, from: db, mode: upsert, streams: public.seen}"
    with pytest.raises(TableError, match=r"table seen: public\.seen is a view"):
        shop.run(f"{ROUTE}\n{one}", EVERY)
    with pytest.raises(TableError, match=r"public\.whole has neither a primary key"):
        shop.run("  whole: {path: whole, from: db, mode: upsert, streams: 'public.w*'}", EVERY)

    # The other table of the file went on.
    agrees(shop, "orders", "items")


def test_tables_are_left_out_of_a_source_and_of_a_table(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.execute("CREATE TABLE tmp_1 (id int PRIMARY KEY)", "CREATE TABLE stray (id int PRIMARY KEY)")
    tables = (
        "  copies: {route: 'lake/{_stream}', from: db, mode: upsert, exclude: [public.items, public.s*]}\n"
        "  log: {route: 'log/{_stream}', from: db, streams: ['*.i*', public.orders], exclude: '*.orders'}"
    )
    for _ in range(2):
        shop.run(tables, f"{EVERY}, exclude: [public.tmp_*]")

    assert copies(shop) == ["orders"] and copies(shop, "log") == ["items"]
    untaken = [one.getMessage() for one in caplog.records if "no table of the file takes" in one.getMessage()]
    assert (
        untaken
        == [
            "source db: no table of the file takes public.stray. Add it to `streams` of a table, or to the "
            "source's `exclude`"
        ]
        * 2
    )
    published = shop.query("SELECT tablename::text FROM pg_publication_tables ORDER BY 1")
    assert published == [("items",), ("orders",)]
    assert sorted(plan_run(Pipeline.from_file(shop.file)).skipped["db"]) == ["public.stray"]


@pytest.mark.parametrize(
    ("options", "table", "message"),
    [
        ("tables: public.a, exclude: ['public.*']", "", "public.a is in `tables` and left out by `exclude`"),
        (
            "tables: [public.a, public.b]",
            ", exclude: public.c",
            "no stream of source 'db' is called 'public.c'",
        ),
        ("tables: [public.a]", ", exclude: 'public.*'", "takes nothing of source 'db'"),
        ("tables: public.a, snapshot: never, on_recreate: snapshot", "", "`snapshot: never` reads none"),
    ],
)
def test_a_file_that_leaves_out_what_it_names_is_refused(
    tmp_path: Path, options: str, table: str, message: str
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        f"name: shop\nsources: {{db: {{type: postgres, host: h, {options}}}}}\n"
        f"tables: {{t: {{path: t, from: db{table}}}}}\n"
    )

    with pytest.raises(PipelineFileError) as caught:
        Pipeline.from_file(file)

    assert message in str(caught.value)


def test_a_table_that_was_made_anew_stops_alone_until_its_rows_may_be_replaced(shop: PostgresShop) -> None:
    both = f"{ROUTE}\n{LOG}"
    shop.run(both, EVERY)
    shop.execute(*RECREATED, "INSERT INTO items VALUES (2, 'y')")
    before = shop.table("lake/public.orders", "id", "v")

    for _ in range(2):
        with pytest.raises(DataLoss, match=r"public\.orders is not the table that was read before"):
            shop.run(both, EVERY)
        shop.execute("UPDATE orders SET v = 'newer' WHERE id = 3", "UPDATE items SET v = 'z' WHERE id = 2")

    pipeline = Pipeline.from_file(shop.file)
    failed = [one for one in examine(pipeline) if one.state == "fail"]
    planned = {one.name: one.refused for one in plan_run(pipeline).tables}
    assert "on_recreate: snapshot" in failed[0].remedy and "public.orders" in failed[0].text
    assert planned["copies/public.orders"] and not planned["copies/public.items"]
    assert shop.table("lake/public.orders", "id", "v") == before == [(1, "a")]
    assert shop.table("lake/public.items", "id", "v") == [(1, "x"), (2, "z")]

    shop.run(both, f"{EVERY}, on_recreate: snapshot")
    agrees(shop, "orders", "items")
    log = shop.table("log/public.orders", "_lsn", "_ordinal", "_op")
    assert [op for *_, op in log] == ["read", "truncate", "read", "read"]
    shop.execute("DELETE FROM orders WHERE id = 2")
    shop.run(both, EVERY)
    agrees(shop, "orders", "items")


@pytest.mark.parametrize("point", ["files_written", "table_committed:1"])
def test_a_kill_while_the_rows_of_a_new_table_replace_the_old_loses_nothing(
    shop: PostgresShop, point: str
) -> None:
    shop.run(ROUTE, EVERY)
    shop.execute(*RECREATED, "INSERT INTO items VALUES (2, 'y')")
    shop.write(ROUTE, f"{EVERY}, on_recreate: snapshot")

    shop.run_until_killed(point)
    shop.execute("INSERT INTO orders VALUES (4, 'later')", "DELETE FROM orders WHERE id = 3")
    shop.run(ROUTE, f"{EVERY}, on_recreate: snapshot")

    agrees(shop, "orders", "items")


def test_nothing_of_a_new_table_is_committed_before_the_run_has_seen_that_it_is_one(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a publication of all tables, its changes are in the stream at once."""
    shop.execute("CREATE PUBLICATION every FOR ALL TABLES WITH (publish_via_partition_root = true)")
    shop.run(ROUTE, "publication: every")
    shop.execute("UPDATE orders SET v = 'b'", "UPDATE items SET v = 'y'")
    splits, latest = postgres_client.PostgresClient.splits, postgres_client.PostgresClient.latest

    def recreate(self: Any, *given: Any) -> Any:
        tasks = splits(self, *given)
        shop.execute(*RECREATED)
        return tasks

    def beyond(self: Any) -> Any:
        """So that the batch has what comes while it is read."""
        return {name: at + 2**30 if ":" not in name else at for name, at in latest(self).items()}

    monkeypatch.setattr(postgres_client.PostgresClient, "splits", recreate)
    monkeypatch.setattr(postgres_client.PostgresClient, "until", beyond)
    shop.run(ROUTE, "publication: every")

    assert shop.table("lake/public.orders", "id", "v") == [(1, "b")]


def test_a_table_that_is_made_anew_while_a_start_checks_others_is_not_taken_for_the_old_one(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With many tables in a store, that takes longer than from one look for tables to the next."""
    tables = "\n".join(
        f"  {one}: {{path: lake/public.{one}, from: db, mode: upsert, streams: public.{one}}}"
        for one in ("orders", "items")
    )
    shop.run(tables, EVERY)
    monkeypatch.setattr(postgres_client, "_LOOK_EVERY", 0.0)
    check = postgres_client.PostgresClient.check

    def recreate(self: Any, positions: Any, marks: Any) -> Any:
        if "public.items" in positions and shop.query("SELECT id FROM orders WHERE id = 1"):
            shop.execute(*RECREATED)
        return check(self, positions, marks)

    monkeypatch.setattr(postgres_client.PostgresClient, "check", recreate)
    with pytest.raises(DataLoss, match=r"public\.orders is not the table that was read before"):
        shop.run(tables, EVERY)
    monkeypatch.undo()
    shop.run(tables, f"{EVERY}, on_recreate: snapshot")

    agrees(shop, "orders", "items")


def test_a_table_that_is_made_anew_before_its_rows_are_copied_is_not_copied_as_the_old_one(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan_part, calls = postgres_client.plan_part, 0

    def recreate(*given: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == 1:
            shop.execute(*RECREATED)
        return plan_part(*given)

    monkeypatch.setattr(postgres_client, "plan_part", recreate)
    shop.run(ROUTE, EVERY)
    shop.execute("UPDATE orders SET v = 'b' WHERE id = 2")
    shop.run(ROUTE, EVERY)

    agrees(shop, "orders", "items")


def test_a_drop_table_that_waits_for_a_snapshot_does_not_wait_for_ever(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are copied by a session that would wait for the lock that DROP TABLE waits for."""
    monkeypatch.setattr(connection, "LOCK_SECONDS", 0.5)
    plan_part, dropping = postgres_client.plan_part, threading.Thread(target=lambda: shop.execute(*RECREATED))
    waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'"

    def plan_and_drop(*given: Any) -> Any:
        part = plan_part(*given)
        if not dropping.ident:
            dropping.start()
            wait_until(lambda: bool(shop.query(waits)), 120, lambda: "nothing waits")
        return part

    monkeypatch.setattr(postgres_client, "plan_part", plan_and_drop)
    shop.run(ROUTE, EVERY)
    dropping.join(120)
    shop.run(ROUTE, EVERY)

    agrees(shop, "orders", "items")


def test_a_run_reads_new_tables_and_goes_on_beside_bad_ones(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_client, "_LOOK_EVERY", 0.3)
    role = f"reader_{shop.database}"
    shop.execute(
        f"CREATE ROLE {role} LOGIN REPLICATION",
        f"GRANT SELECT ON orders, items TO {role}",
        "CREATE PUBLICATION every FOR ALL TABLES WITH (publish_via_partition_root = true)",
    )
    owner, shop.connection = shop.connection, shop.server.dsn(shop.database, role)
    try:
        with running(shop, ROUTE, "publication: every") as state:
            eventually(shop, "orders", "items")
            shop.execute(
                "CREATE VIEW seen AS SELECT * FROM items",
                "CREATE TABLE nameless (id int)",
                "CREATE TABLE secret (id int PRIMARY KEY, v text)",
                "INSERT INTO secret VALUES (1, 's')",
                *RECREATED,
                f"GRANT SELECT ON orders, nameless TO {role}",
                ITEMS.replace("items", "later"),
                f"GRANT SELECT ON later TO {role}",
                "INSERT INTO later VALUES (1, 'l')",
                "INSERT INTO items VALUES (2, 'y')",
            )
            eventually(shop, "items", "later")

            def is_told() -> bool:
                # A table that was just read is told as waiting until the source is looked at again.
                source = state.view().sources[0]
                return bool(source.lost) and source.skipped.keys() == {"public.secret", "public.nameless"}

            wait_until(is_told, 120, lambda: str(state.view().sources[0]))
            view = state.view()
            pipeline = Pipeline.from_file(shop.file)
            red, yellow = "\n".join(reasons(view, pipeline)), "\n".join(remarks(view))
            served, page = status_of(view).skipped["db"], StatusPage(pipeline, "1").live(view)
            shop.execute(f"GRANT SELECT ON secret TO {role}")
            eventually(shop, "secret")
        assert verify(pipeline).sound
    finally:
        shop.connection = owner
        shop.execute(f"DROP OWNED BY {role}")
        shop.server.execute(f"DROP ROLE {role}")

    assert "table copies/public.orders" in red and "is not the table that was read before" in red
    assert "skips public.secret" in yellow and "skips public.nameless" in yellow
    assert "may not be read by the role" in served["public.secret"]
    assert shop.table("lake/public.orders", "id", "v") == [(1, "a")]
    assert "seen" not in copies(shop)
    assert (
        "source db skips 2 of its streams" in page and "public.secret: public.secret may not be read" in page
    )


def test_a_run_publishes_tables_that_come(shop: PostgresShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a table of the file that is dropped and made anew is replaced, where the file says so."""
    monkeypatch.setattr(postgres_client, "_LOOK_EVERY", 0.3)
    options = "tables: [public.orders, 'public.l*', public.items], on_recreate: snapshot"
    with running(shop, ROUTE, options) as state:
        eventually(shop, "orders", "items")
        shop.execute(
            ITEMS.replace("items", "later"), "INSERT INTO later VALUES (1, 'l')", "DROP TABLE orders"
        )
        eventually(shop, "later")

        def shown() -> str:
            return str(state.view().sources[0])

        wait_until(lambda: "public.orders" in state.view().sources[0].lost, 120, shown)
        shop.execute(*RECREATED[1:], "INSERT INTO items VALUES (2, 'y')", "UPDATE later SET v = 'm'")
        eventually(shop, "orders", "items", "later")
        wait_until(lambda: not state.view().sources[0].lost, 120, shown)

    assert verify(Pipeline.from_file(shop.file)).sound


def test_a_transaction_that_stays_open_holds_up_only_tables_that_come(
    shop: PostgresShop, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_client, "_LOOK_EVERY", 0.3)
    shop.execute(ITEMS.replace("items", "busy"))
    with running(shop, ROUTE, f"{EVERY}, on_recreate: snapshot") as state:

        def skipped() -> str:
            return state.view().sources[0].skipped.get("public.later", "")

        eventually(shop, "orders", "items", "busy")
        with shop.server.connect(shop.database, autocommit=False) as other:
            other.execute("INSERT INTO busy VALUES (1, 'open')")
            shop.execute(ITEMS.replace("items", "later"), "INSERT INTO later VALUES (1, 'l')")
            wait_until(lambda: "is read when transactions" in skipped(), 120, skipped)
            shop.execute("INSERT INTO items VALUES (2, 'y')")
            eventually(shop, "items")
            assert "later" not in copies(shop)
            other.commit()
        eventually(shop, "later", "busy")
        with shop.server.connect(shop.database, autocommit=False) as other:
            shop.execute("ALTER PUBLICATION lakefeed_shop_db DROP TABLE later")
            # The stream does not have this change, and no snapshot sees it yet.
            other.execute("INSERT INTO later VALUES (2, 'unpublished')")
            wait_until(lambda: "is read when transactions" in skipped(), 120, skipped)
            other.commit()
        eventually(shop, "later")

    assert verify(Pipeline.from_file(shop.file)).sound


def test_tables_that_inherit_are_tables_of_their_own(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    shop.execute(
        "CREATE TABLE child (extra int) INHERITS (orders)",
        "INSERT INTO child VALUES (1, 'of the child', 5), (7, 'of the child', 5)",
    )
    shop.run(ROUTE, "tables: [public.orders, public.items]")
    # The server would refuse it if the child were published.
    shop.execute("UPDATE child SET v = 'still'", "UPDATE orders SET v = v || 'b' WHERE id = 1")
    shop.run(ROUTE, "tables: [public.orders, public.items]")

    agrees(shop, "orders", "items")
    assert shop.query("SELECT tablename::text FROM pg_publication_tables ORDER BY 1") == [
        ("items",),
        ("orders",),
    ]
    assert "public.orders is inherited by public.child, whose rows are not among those" in caplog.text
    assert "add to `tables`: public.child" in caplog.text

    shop.execute("ALTER PUBLICATION lakefeed_shop_db ADD TABLE ONLY child")
    found = [one for one in examine(Pipeline.from_file(shop.file)) if "is inherited by" in one.text]
    remedy = found[0].remedy.partition("leave them alone: ")[2]
    assert remedy == 'ALTER PUBLICATION "lakefeed_shop_db" DROP TABLE ONLY public.child;'
    shop.execute(remedy, "UPDATE child SET v = 'again'")
    shop.execute("ALTER TABLE child ADD PRIMARY KEY (id)")
    shop.run(ROUTE, EVERY)
    agrees(shop, "orders", "items", "child")


def slots(shop: PostgresShop) -> dict[str, str]:
    return dict(shop.query("SELECT slot_name::text, database::text FROM pg_replication_slots"))


def test_no_two_sources_have_one_slot_whatever_their_names_are(
    shop: PostgresShop, postgres: PostgresServer, tmp_path: Path
) -> None:
    long = "d" * 60
    names = ["db-1", "db_1", f"{long}a", f"{long}b"]
    sources = [f"  {one}: {{type: postgres, connection: '{shop.connection}', {EVERY}}}" for one in names]
    tables = [
        f"  t{at}: {{route: 't{at}/{{_stream}}', from: {one}, mode: upsert}}" for at, one in enumerate(names)
    ]
    shop.file.write_text(
        "name: names\nsources:\n" + "\n".join(sources) + "\ntables:\n" + "\n".join(tables) + "\n"
    )
    for _ in range(2):
        run_inline(Pipeline.from_file(shop.file))
        shop.execute("UPDATE orders SET v = v || 'b'")
    run_inline(Pipeline.from_file(shop.file))

    for at in range(len(names)):
        agrees(shop, "orders", path=f"t{at}")
    own = [one for one, database in slots(shop).items() if database == shop.database]
    assert len(own) == 4
    publications = shop.query("SELECT pubname::text FROM pg_publication ORDER BY 1")
    assert publications == [(one,) for one in sorted(own)]

    # Another database of the server, with the same names of pipeline and source.
    shop.run(ROUTE, EVERY)
    with postgres.database() as other:
        second = PostgresShop(postgres, other, tmp_path / "second")
        second.folder.mkdir()
        second.execute(ORDERS, "INSERT INTO orders VALUES (5, 'other')")
        for _ in range(2):
            second.run(ROUTE, EVERY)
            second.execute("UPDATE orders SET v = v || 'b'")
        found = {name for name, database in slots(shop).items() if database == other}
        second.execute(*(f"SELECT pg_drop_replication_slot('{one}')" for one in found))
    assert len(found) == 1 and next(iter(found)).startswith("lakefeed_shop_db_")
    assert slots(shop)["lakefeed_shop_db"] == shop.database
    assert second.table("lake/public.orders", "id", "v") == [(5, "otherb")]


def joined(shop: PostgresShop, publication: str = "") -> list[Pipeline]:
    """Two pipelines whose names are one when they are joined with that of their source."""
    found = []
    for pipeline, source in (("shop_eu", "db"), ("shop", "eu_db")):
        file = shop.folder / f"{source}.yaml"
        named = f", publication: {publication}" if publication else ""
        file.write_text(
            f"name: {pipeline}\nsources: {{{source}: {{type: postgres, connection: '{shop.connection}', "
            f"{EVERY}{named}}}}}\ntables:\n"
            f"  t: {{route: '{source}/{{_stream}}', from: {source}, mode: upsert}}\n"
        )
        found.append(Pipeline.from_file(file))
    return found


def test_a_source_keeps_its_publication_and_slot_when_that_of_another_is_retired(shop: PostgresShop) -> None:
    retired, other = joined(shop)
    run_inline(retired)
    run_inline(other)
    ((hashed,),) = shop.query(
        "SELECT pubname::text FROM pg_publication WHERE pubname <> 'lakefeed_shop_eu_db'"
    )
    shop.execute(
        "DROP PUBLICATION lakefeed_shop_eu_db",
        "SELECT pg_drop_replication_slot('lakefeed_shop_eu_db')",
        "UPDATE orders SET v = v || 'b'",
    )

    run_inline(other)

    agrees(shop, "orders", path="eu_db")
    assert [one for one, database in slots(shop).items() if database == shop.database] == [hashed]
    assert shop.query("SELECT pubname::text FROM pg_publication") == [(hashed,)]


@pytest.mark.parametrize("is_named", [True, False])
def test_sources_that_read_one_publication_have_a_slot_each(shop: PostgresShop, is_named: bool) -> None:
    role = f"reader_{shop.database}"
    shop.execute(
        f"CREATE ROLE {role} LOGIN REPLICATION",
        f"GRANT SELECT ON orders, items TO {role}",
        "CREATE PUBLICATION lakefeed_shop_eu_db FOR TABLE orders",
    )
    shop.connection = shop.server.dsn(shop.database, role)
    pipelines = joined(shop, "lakefeed_shop_eu_db" if is_named else "")
    for one in pipelines:
        run_inline(one)
    with shop.server.connect(shop.database) as owner:
        owner.execute("UPDATE orders SET v = v || 'b'")
        for one in pipelines:
            run_inline(one)
        rows = owner.execute("SELECT id, v FROM orders ORDER BY id").fetchall()
        own = owner.execute("SELECT slot_name FROM pg_replication_slots WHERE database = current_database()")
        assert len(own.fetchall()) == 2
        owner.execute(f"DROP OWNED BY {role}".encode())
        owner.execute(f"DROP ROLE {role}".encode())

    assert shop.table("db/public.orders", "id", "v") == rows
    assert shop.table("eu_db/public.orders", "id", "v") == rows


def test_a_slot_and_a_publication_of_an_earlier_version_are_used_on(shop: PostgresShop) -> None:
    """They have the plain name, and no comment, also where that is not exactly the name of the source."""
    shop.execute(
        "CREATE PUBLICATION lakefeed_my_shop_db FOR ALL TABLES WITH (publish_via_partition_root = true)",
        "SELECT pg_create_logical_replication_slot('lakefeed_my_shop_db', 'pgoutput')",
    )
    shop.file.write_text(shop.write(ROUTE, EVERY).read_text().replace("name: shop", "name: my-shop"))
    run_inline(Pipeline.from_file(shop.file))

    agrees(shop, "orders", "items")
    assert [one for one, database in slots(shop).items() if database == shop.database] == [
        "lakefeed_my_shop_db"
    ]
    assert shop.query("SELECT obj_description(oid, 'pg_publication') FROM pg_publication") == [
        ("lakefeed: pipeline my-shop, source db",)
    ]


def test_a_pattern_skips_tables_that_belong_to_another_role(
    shop: PostgresShop, caplog: pytest.LogCaptureFixture
) -> None:
    role = f"owner_{shop.database}"
    shop.execute(
        f"CREATE ROLE {role} LOGIN REPLICATION",
        f"GRANT CREATE ON DATABASE {shop.database} TO {role}",
        f"ALTER TABLE orders OWNER TO {role}",
        f"GRANT SELECT ON items TO {role}",
        "INSERT INTO orders VALUES (9, 'a')",
    )
    owner, shop.connection = shop.connection, shop.server.dsn(shop.database, role)
    try:
        shop.run(ROUTE, EVERY)
        agrees(shop, "orders")
        assert f"public.items is not owned by the role {role}, which cannot publish it" in caplog.text
        (statement,) = re.findall(r"(ALTER PUBLICATION .*items;) -- as a superuser", caplog.text)
        shop.execute(statement)
        shop.run(ROUTE, EVERY)
        agrees(shop, "orders", "items")
    finally:
        shop.connection = owner
        shop.execute(f"REASSIGN OWNED BY {role} TO postgres", f"DROP OWNED BY {role}")
        shop.server.execute(f"DROP ROLE {role}")
