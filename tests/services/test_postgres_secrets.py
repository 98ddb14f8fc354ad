"""Logins inside a connection string are secrets, wherever a run or a command shows something."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakefeed.commands.app import app
from lakefeed.engine.inline import run_inline
from lakefeed.errors import SourceError
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources.postgres.connection import connect
from lakefeed.sources.postgres.source import PostgresSource
from lakefeed.watch.state import RunState
from lakefeed.watch.web.page import StatusPage
from support.postgres import PostgresServer

PARTS = ("s3cr3t", "it's me", "p@55 word")
"""What no text may hold: passwords as they are written and as the server gets them."""


def write(folder: Path, server: PostgresServer, database: str) -> Path:
    """A pipeline with a source for each way to write a login."""
    words = f"host=127.0.0.1 port={server.port} dbname={database} user=postgres"
    uri = f"127.0.0.1:{server.port}/{database}"
    connections = {
        "words": f"{words} password='it\\'s me' sslpassword = s3cr3t-ssl",
        "login": f"postgresql://postgres:p%4055%20word@{uri}",
        "query": f"postgresql://{uri}?user=postgres&password=s3cr3t-query&sslpassword=p%4055+s3cr3t",
        "variable": "${DATABASE}",
    }
    sources = "\n".join(
        f'  {name}: {{type: postgres, connection: "{text.replace(chr(92), chr(92) * 2)}", '
        "tables: public.orders, snapshot: only}"
        for name, text in connections.items()
    )
    tables = "\n".join(f"  {name}: {{path: {name}, from: {name}}}" for name in connections)
    file = folder / "shop.yaml"
    file.write_text(f"name: shop\ngive_up_after: 1s\nsources:\n{sources}\ntables:\n{tables}\n")
    return file


def command(*words: str) -> str:
    result = CliRunner().invoke(app, list(words))
    return result.output + repr(result.exception)


def test_a_login_inside_a_connection_is_shown_nowhere(
    postgres: PostgresServer,
    database: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    postgres.execute(
        "CREATE TABLE orders (id int PRIMARY KEY); INSERT INTO orders VALUES (1)", database=database
    )
    words = f"host=127.0.0.1 port={postgres.port} dbname={database} user=postgres password=s3cr3t-variable"
    monkeypatch.setenv("DATABASE", words)
    file = write(tmp_path, postgres, database)
    pipeline = Pipeline.from_file(file)
    state = RunState(pipeline)

    run_inline(pipeline, watch=state.watch)

    page = StatusPage(pipeline, "1").whole(state.view(), "nonce")
    said = [command(*one, str(file)) for one in (["plan"], ["status"], ["doctor"])]
    stored = [one.read_bytes().decode(errors="replace") for one in tmp_path.rglob("*.json")]
    assert "password=***" in page and "postgres:***@127.0.0.1" in page
    assert "connection</i>: &#39;***&#39;" in page
    assert any("commitInfo" in one for one in stored)
    for text in (page, repr(state.view()), repr(pipeline), caplog.text, *said, *stored):
        assert [part for part in PARTS if part in text] == []
        assert words not in text


def test_errors_of_the_server_are_shown_without_the_login(postgres: PostgresServer, database: str) -> None:
    # The server repeats the name of a role that it does not know.
    connection = f"postgresql://s3cr3t-role@127.0.0.1:{postgres.port}/{database}?password=s3cr3t-role"
    source = PostgresSource(connection=connection, tables=("a.b",))

    with pytest.raises(SourceError, match=r'role "\*\*\*" does not exist'):
        connect(source)


@pytest.mark.parametrize("password", ["12/s3cr3t", "s3/cr3t", "s3@cr3t"])
def test_a_uri_whose_password_is_cut_in_two_is_refused_without_it(password: str) -> None:
    source = PostgresSource(connection=f"postgresql://shop:{password}@db:5432/shop", tables=("a.b",))

    with pytest.raises(SourceError, match="write an @ of a password as %40, and a / as %2F") as refused:
        connect(source)

    assert "cr3t" not in str(refused.value)
