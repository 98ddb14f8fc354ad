"""Two Postgres tables that four writers change at random, and five tables that follow them through kills."""

from __future__ import annotations

import multiprocessing
import os
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from support.faultpoints import POINTS
from support.lakefeed import Process, start
from support.postgres import PostgresServer

WRITERS = 4
KEYS = 60
RUN_SECONDS = 120.0
ROWS = "CREATE TABLE rows (id int PRIMARY KEY, n int NOT NULL, v text, large text)"
OTHERS = "CREATE TABLE others (id text PRIMARY KEY, n text, v bigint)"
"""Columns of the same names with other types."""
PIPELINE = """\
name: world
give_up_after: 60s
sources: {{db: {{type: postgres, connection: "{dsn}", tables: [public.rows, public.others]}}}}
tables:
  latest: {{path: latest, from: db, mode: upsert, streams: public.rows}}
  log: {{path: log, from: db, streams: public.rows}}
  history: {{path: history, from: db, mode: history, streams: public.rows}}
  copies: {{route: "lake/{{_stream}}", from: db, mode: upsert}}
flush: {{rows: 50}}
sync: false
"""
FAULTS = {
    "kill": "run on Postgres killed",
    "connections": "connections to Postgres ended",
    "server": "Postgres killed",
    "worker": "Python workers of a run on Postgres killed",
    "none": "four writers and nothing else",
}
_CHANCES = ("kill", "kill", "kill", "connections", "server", "worker", "none")
_ON_SPARK = ("--set", "flush.interval=100ms", "--set", "upkeep=off", "--set", "give_up_after=120s")
_MOST_WORKERS = 4
_TASKS, _BATCHES = "pyspark.worker", "pyspark.sql.streaming.python_streaming_source_runner"
_PEEK = """
SELECT count(*) FROM pg_logical_slot_peek_binary_changes(
    'lakefeed_world_db', NULL, NULL, 'proto_version', '1', 'publication_names', 'lakefeed_world_db')
"""
_TERMINATE = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'lakefeed'"

State = dict[Any, tuple[Any, ...]]

# A server that forks processes which have imported everything: a start costs milliseconds, and no thread of
# this process is in them.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["lakefeed.engine.inline", "lakefeed.sources.postgres.client", "deltalake"])


class PostgresWorld:
    """The database, its writers and the pipeline. `note` is told each fault."""

    def __init__(
        self,
        server: PostgresServer,
        database: str,
        folder: Path,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._server, self._database, self.folder, self._note = server, database, folder, note
        self.file = folder / "world.yaml"
        self.file.write_text(PIPELINE.format(dsn=server.dsn(database)))
        self._states: list[tuple[int, State]] = []
        self._execute(ROWS, OTHERS, "ALTER TABLE rows ALTER large SET STORAGE EXTERNAL")
        self._execute(f"INSERT INTO rows SELECT i, 0, 'old', {_large('i')} FROM generate_series(1, {KEYS}) i")
        self._execute("ANALYZE rows")

    def round(self, chance: random.Random, fault: str | None = None, transactions: int = 12) -> None:
        """Writers write, a run follows them, and something befalls one of them; then a run reads the rest."""
        fault = fault or chance.choice(_CHANCES)
        if fault == "worker":
            self._kill_workers(chance, transactions)
        else:
            with self._writing(chance, transactions):
                self._befall(fault, chance)
            self._settle(chance)
            self._note(FAULTS[fault])
        if _run(self.file):
            assert self._server_is_stuck(), "the run that was to read the rest did not come to its end"
            self.begin_anew()

    def check(self) -> None:
        """All tables tell the same as the database, now and the history at every earlier check."""
        state, end = self._truth()
        others = self._select("SELECT id, n, v FROM others")
        self._states.append((end, state))
        _agree("latest", _latest(self.folder / "latest"), state)
        _agree("copy of rows", _latest(self.folder / "lake/public.rows"), state)
        copied = {row["id"]: (row["n"], row["v"]) for row in _rows(self.folder / "lake/public.others")}
        _agree("copy of others", copied, {row[0]: row[1:] for row in others})
        _agree("log", _replayed(self.folder / "log"), state)
        history = _rows(self.folder / "history")
        for lsn, past in self._states:
            _agree(f"history at {lsn}", _at(history, lsn), past)
        report = verify(Pipeline.from_file(self.file))
        assert report.sound, report

    def _truth(self) -> tuple[State, int]:
        rows = self._select("SELECT id, n, v, large FROM rows")
        # Something behind all that the tables have, so that no row of theirs begins at this very LSN.
        self._execute("SELECT pg_logical_emit_message(true, 'check', '')")
        ((end,),) = self._server.execute("SELECT pg_current_wal_insert_lsn() - '0/0'")
        return {row[0]: row[1:] for row in rows}, int(end)

    def _server_is_stuck(self) -> bool:
        """Whether the server itself fails at the changes of the slot, as 15.20 does once in a while."""
        try:
            self._execute(_PEEK)
        except psycopg.errors.InternalError_:
            return True
        return False

    def begin_anew(self) -> None:
        """Do what the run has said: another slot, and all rows once more."""
        self._note("Postgres fails to decode its own WAL")
        self._execute("SELECT pg_drop_replication_slot('lakefeed_world_db')")
        usual = self.file.read_text()
        self.file.write_text(usual.replace("type: postgres,", "type: postgres, on_slot_loss: snapshot,"))
        assert _run(self.file) == 0, "the run that was to read all rows anew did not come to its end"
        self.file.write_text(usual)

    def _befall(self, fault: str, chance: random.Random) -> None:
        if fault == "kill":
            _run(self.file, f"{chance.choice(POINTS)}:{chance.randint(1, 4)}")
            return
        process = _started(self.file)
        if fault == "connections":
            process.join(chance.uniform(0.05, 0.6))
            self._server.execute(_TERMINATE)
        elif fault == "server":
            process.join(chance.uniform(0.05, 0.6))
            self._server.kill()
            self._server.start()
        _ended(process)

    def _kill_workers(self, chance: random.Random, transactions: int) -> None:
        """On Spark: workers die while rows arrive, and the run goes on by itself until it has all of them."""
        with start("run", str(self.file), *_ON_SPARK) as process:
            # The first rows are read by the first worker, which may die at it.
            self._kill_worker(process, chance)
            with self._writing(chance, transactions):
                for _ in range(chance.randint(1, _MOST_WORKERS)):
                    threading.Event().wait(chance.uniform(0, 0.5))
                    self._kill_worker(process, chance)
            self._settle(chance)
            process.wait_for(self._is_read, RUN_SECONDS)
            process.terminate()
            code = process.wait()
            assert code == 0, f"the run on Spark ended with code {code}:\n{process.stderr}"
            assert "Traceback" not in process.stderr, process.stderr

    def _kill_worker(self, process: Process, chance: random.Random) -> None:
        """Kill one of the Python workers that Spark has started for the run."""
        kind = chance.choice((_TASKS, _TASKS, _BATCHES))
        process.wait_for(lambda: bool(_workers(process, kind)), RUN_SECONDS)
        # It may have ended by itself meanwhile.
        with suppress(psutil.NoSuchProcess, IndexError):
            chance.choice(_workers(process, kind)).kill()
            self._note(FAULTS["worker"])

    def _is_read(self) -> bool:
        """Whether the tables have what the database has, as far as rows tell."""
        state = {row[0]: row[1:] for row in self._select("SELECT id, n, v, large FROM rows")}
        paths = [self.folder / "latest", self.folder / "lake/public.rows"]
        return all((path / "_delta_log").exists() and _latest(path) == state for path in paths)

    def _settle(self, chance: random.Random) -> None:
        self._finish_prepared(chance)
        # Commits that did not wait for the disk are read once they are there.
        self._execute("SELECT pg_logical_emit_message(true, 'flush', '')")

    @contextmanager
    def _writing(self, chance: random.Random, transactions: int) -> Iterator[None]:
        seeds = [chance.random() for _ in range(WRITERS)]
        writers = [threading.Thread(target=self._write, args=(seed, transactions)) for seed in seeds]
        for writer in writers:
            writer.start()
        try:
            yield
        finally:
            for writer in writers:
                writer.join(RUN_SECONDS)

    def _write(self, seed: float, transactions: int) -> None:
        chance, connection = random.Random(seed), None
        for _ in range(transactions):
            try:
                if connection is None or connection.closed or connection.broken:
                    connection = self._server.connect(self._database, options="-c lock_timeout=2s")
                _transaction(connection, chance)
            except psycopg.Error:
                # A key that is taken, a deadlock, a server that is away: an abort, as others have them.
                if connection is not None and not connection.broken and not connection.closed:
                    connection.rollback()
                else:
                    connection = None
                    threading.Event().wait(0.1)
        if connection is not None:
            connection.close()

    def _finish_prepared(self, chance: random.Random) -> None:
        left = self._server.execute("SELECT gid FROM pg_prepared_xacts WHERE database = %s", self._database)
        for (name,) in left:
            self._execute(f"{chance.choice(['COMMIT', 'ROLLBACK'])} PREPARED '{name}'")

    def _select(self, query: str) -> list[tuple[Any, ...]]:
        return self._server.execute(query, database=self._database)

    def _execute(self, *statements: str) -> None:
        for one in statements:
            self._server.execute(one, database=self._database)


def _transaction(connection: psycopg.Connection[Any], chance: random.Random) -> None:
    """Some changes, with savepoints that are undone, then a commit, an abort, or a commit in two phases."""
    connection.execute(b"BEGIN")
    if chance.random() < 0.2:
        connection.execute(b"SET LOCAL synchronous_commit = off")
    for _ in range(chance.randint(1, 6)):
        if chance.random() < 0.2:
            connection.execute(b"SAVEPOINT one")
            connection.execute(_change(chance).encode())
            connection.execute(b"ROLLBACK TO one" if chance.random() < 0.5 else b"RELEASE one")
        else:
            connection.execute(_change(chance).encode())
    end = chance.random()
    if end < 0.1:
        connection.execute(b"ROLLBACK")
    elif end < 0.2:
        name = f"p{os.getpid()}_{chance.random()}"
        connection.execute(f"PREPARE TRANSACTION '{name}'".encode())
        connection.execute(f"{chance.choice(['COMMIT', 'ROLLBACK'])} PREPARED '{name}'".encode())
    else:
        connection.execute(b"COMMIT")


def _change(chance: random.Random) -> str:
    key, other = chance.randint(1, KEYS), chance.randint(1, KEYS)
    if chance.random() < 0.2:
        return _change_of_others(key, other, chance.random())
    kind = chance.random()
    if kind < 0.3:
        return f"INSERT INTO rows VALUES ({key}, 0, 'new', {_large(str(key))}) ON CONFLICT DO NOTHING"
    if kind < 0.5:
        return f"UPDATE rows SET n = n + 1, v = 'v{other}' WHERE id = {key}"
    if kind < 0.6:
        return f"UPDATE rows SET n = n + 1, large = {_large('n')} WHERE id = {key}"
    if kind < 0.65:
        return f"UPDATE rows SET n = n + 1, large = NULL WHERE id BETWEEN {key} AND {key + 3}"
    if kind < 0.8:
        return f"UPDATE rows SET n = n + 1, id = {other} WHERE id = {key} AND id <> {other}"
    if kind < 0.98:
        return f"DELETE FROM rows WHERE id = {key}"
    if kind < 0.99:
        return "TRUNCATE rows"
    return f"ALTER TABLE rows ADD COLUMN IF NOT EXISTS c{key % 4} int"


def _change_of_others(key: int, other: int, kind: float) -> str:
    if kind < 0.6:
        update = f"ON CONFLICT (id) DO UPDATE SET n = others.n || '+', v = {other}"
        return f"INSERT INTO others VALUES ('key {key}', 'first', {other}) {update}"
    if kind < 0.7:
        return f"UPDATE others SET id = 'key {other}' WHERE id = 'key {key}'"
    return f"DELETE FROM others WHERE id = 'key {key}'" if kind < 0.98 else "TRUNCATE others"


def _large(seed: str) -> str:
    return f"(SELECT string_agg(md5(j::text || {seed}), '') FROM generate_series(1, 100) j)"


def _inline(file: str, kill_at: str | None) -> None:
    if kill_at:
        os.environ["LAKEFEED_KILL_AT"] = kill_at
    run_inline(Pipeline.from_file(file))


def _started(file: Path, kill_at: str | None = None) -> Any:
    process = _FORKS.Process(target=_inline, args=(str(file), kill_at))
    process.start()
    return process


def _ended(process: Any) -> int:
    process.join(RUN_SECONDS)
    if process.exitcode is None:
        process.kill()
        process.join()
        raise AssertionError(f"a run was still going on after {RUN_SECONDS:.0f} s")
    return int(process.exitcode)


def _run(file: Path, kill_at: str | None = None) -> int:
    return _ended(_started(file, kill_at))


def _workers(process: Process, kind: str) -> list[psutil.Process]:
    """The Python processes that Spark has started for tasks of a run, or to ask for its batches."""
    found = []
    for one in _descendants(process):
        with suppress(psutil.NoSuchProcess):
            words, parent = one.cmdline(), one.parent()
            # A worker is a fork of a daemon that has the same words.
            is_fork = parent is not None and parent.cmdline() == words
            if kind in words and is_fork == (kind == _TASKS):
                found.append(one)
    return found


def _descendants(process: Process) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


def _rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        # The first writers may have left nothing to be read.
        return []
    rows: list[dict[str, Any]] = DeltaTable(str(path)).to_pyarrow_table().to_pylist()
    return rows


def _agree(name: str, found: State, wanted: State) -> None:
    """AssertionError with the rows in which they differ, their large values cut."""
    keys = sorted(key for key in found.keys() | wanted.keys() if found.get(key) != wanted.get(key))
    rows = [f"{key}: {_short(found.get(key))} instead of {_short(wanted.get(key))}" for key in keys]
    assert not rows, f"{name}: {len(rows)} rows differ\n" + "\n".join(rows[:20])


def _short(row: tuple[Any, ...] | None) -> str:
    return "nothing" if row is None else str([str(value)[:8] for value in row])


def _values(row: dict[str, Any]) -> tuple[Any, ...]:
    return row["n"], row["v"], row["large"]


def _latest(path: Path) -> State:
    rows = _rows(path)
    state = {row["id"]: _values(row) for row in rows}
    assert len(state) == len(rows), "a key is in the table more than once"
    return state


def _at(history: list[dict[str, Any]], lsn: int) -> State:
    """The rows that held right before an LSN."""
    found: State = {}
    for row in history:
        begin, end = row["valid_from"], row["valid_to"]
        if begin["_lsn"] < lsn and (end is None or end["_lsn"] >= lsn):
            assert row["id"] not in found, f"two states of {row['id']} at {lsn}"
            found[row["id"]] = _values(row)
    return found


def _replayed(path: Path) -> State:
    """What the changes make of nothing, one after the other; each must fit the state before it."""
    state: State = {}
    seen = set()
    before: tuple[Any, ...] = ()
    for row in sorted(_rows(path), key=lambda row: (row["_lsn"], row["_ordinal"])):
        key, op, silent = row["id"], row["_op"], row["_unchanged"] or []
        place = (row["_lsn"], row["_ordinal"], op, key)
        assert place not in seen, f"a change more than once: {place}"
        seen.add(place)
        if op == "truncate":
            state.clear()
        elif op == "delete":
            before = state.pop(key)
        elif op == "update":
            assert row["n"] == state[key][0] + 1, f"{place}: {state[key][0]} became {row['n']}"
            state[key] = (row["n"], row["v"], state[key][2] if "large" in silent else row["large"])
        else:
            assert key not in state, f"{place}: it was there already"
            if op == "insert" and silent:
                row["large"] = before[2]
            state[key] = _values(row)
    return state
