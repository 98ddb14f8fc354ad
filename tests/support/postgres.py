"""A real Postgres server on loopback, in a folder of its own."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, LiteralString, cast
from uuid import uuid4

import psutil
import psycopg

from support.postgres_programs import postgres_programs, postgres_version
from support.processes import free_port, spawn, tail, wait_until
from support.servers import STOP_SECONDS, RestartableServer

START_SECONDS = 180
USER = "postgres"

SETTINGS = {
    "wal_level": "logical",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "max_prepared_transactions": "10",
    # Nothing that a test looks at depends on these, and they are most of what a small server costs.
    "fsync": "off",
    "shared_buffers": "64MB",
    "autovacuum": "off",
    "jit": "off",
}


class PostgresServer(RestartableServer):
    """A server whose data and port outlive `stop` and `kill`, until `close`.

    It lets everybody in from this machine, as `postgres` (a superuser) or as a role that a test makes.
    `start` returns when it answers. It dies with the test process, whatever ends that.
    """

    def __init__(self, settings: Mapping[str, str] | None = None, version: str | None = None) -> None:
        self.version = version or postgres_version()
        self._programs, libraries = postgres_programs(self.version)
        self._environment = {**os.environ, **libraries, "LC_ALL": "C.UTF-8", "TZ": "UTC"}
        self._user = _unprivileged()
        self.settings = {**SETTINGS, **(settings or {})}
        self.port = free_port()
        # Short: the path of a socket may have 107 bytes.
        self.folder = Path(tempfile.mkdtemp(prefix="lakefeed-pg-"))
        self.data = self.folder / "data"
        if self._user is not None:
            os.chown(self.folder, self._user, -1)

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    def dsn(self, database: str = "postgres", user: str = USER) -> str:
        """How to connect, as a URI."""
        return f"postgresql://{user}@127.0.0.1:{self.port}/{database}"

    def connect(self, database: str = "postgres", user: str = USER, **words: Any) -> psycopg.Connection[Any]:
        """A connection of the test's own, each statement a transaction unless `autocommit=False` is said."""
        return psycopg.connect(self.dsn(database, user), **{"autocommit": True, **words})

    def execute(self, sql: str, *values: Any, database: str = "postgres") -> list[tuple[Any, ...]]:
        """Run SQL on a connection of its own; the rows of its last statement, where it has some."""
        with self.connect(database) as connection:
            cursor = connection.execute(cast(LiteralString, sql), values or None)
            while cursor.nextset():
                pass
            return cursor.fetchall() if cursor.description else []

    @contextmanager
    def database(self) -> Iterator[str]:
        """A fresh database; it goes at the end, with its slots and whoever is connected to it."""
        name = f"test_{uuid4().hex[:12]}"
        self.execute(f"CREATE DATABASE {name}")
        try:
            yield name
        finally:
            self.drop(name)

    def drop(self, database: str) -> None:
        """Drop a database with its slots and whoever is connected to it."""
        self.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", database)
        slots = "FROM pg_replication_slots WHERE database = %s"
        wait_until(
            lambda: not self.execute(f"SELECT 1 {slots} AND active", database),
            STOP_SECONDS,
            lambda: f"a slot of {database} is still in use",
        )
        self.execute(f"SELECT pg_drop_replication_slot(slot_name) {slots}", database)
        self.execute(f"DROP DATABASE {database} WITH (FORCE)")

    def start(self) -> None:
        assert self._process is None, "the server is running already"
        if not self.data.exists():
            self.run("initdb", "-D", str(self.data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-sync")
        listen = ["-h", "127.0.0.1", "-p", str(self.port), "-k", str(self.folder)]
        settings = [word for name, value in self.settings.items() for word in ("-c", f"{name}={value}")]
        self._process = spawn(
            [str(self._programs / "postgres"), "-D", str(self.data), *listen, *settings],
            stdout=self.log,
            cwd=self.folder,
            env=self._environment,
            user=self._user,
        )
        try:
            wait_until(self._answers, START_SECONDS, lambda: f"Postgres does not answer:\n{tail(self.log)}")
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Shut down in order, without waiting for those who are connected."""
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """SIGKILL to every process of it, as when the power goes: what was committed is kept."""
        if self._process is None:
            return
        if self._process.poll() is None:
            postmaster = psutil.Process(self._process.pid)
            # It makes no further process while it is stopped.
            postmaster.suspend()
            processes = [*postmaster.children(recursive=True), postmaster]
            for process in processes:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            self._process.wait()
            # One that is still there keeps the memory that they share, and the next start would end at once.
            wait_until(lambda: all(map(_is_gone, processes)), STOP_SECONDS, lambda: "Postgres does not die")
        self._process = None

    def restart(self, settings: Mapping[str, str] | None = None) -> None:
        """Stop and start, with other settings if there are some."""
        self.stop()
        self.settings.update(settings or {})
        self.start()

    def standby(self, settings: Mapping[str, str] | None = None) -> PostgresServer:
        """A copy of this server that follows it, not started yet."""
        copy = PostgresServer({**self.settings, **(settings or {})}, self.version)
        # By hand: not every version that the tests have comes with pg_basebackup. The last word makes the
        # checkpoint before it a fast one, which is else spread over minutes.
        begin, end = "pg_backup_start('copy', true)", "pg_backup_stop()"
        if int(self.version) < 15:
            begin, end = "pg_start_backup('copy', true, false)", "pg_stop_backup(false, false)"
        left_out = shutil.ignore_patterns("postmaster.*", "pg_wal", "pg_replslot", "pgsql_tmp*")
        with self.connect() as connection:
            connection.execute(cast(LiteralString, f"SELECT {begin}"))
            shutil.copytree(self.data, copy.data, ignore=left_out, copy_function=_copied)
            label = connection.execute(cast(LiteralString, f"SELECT labelfile FROM {end}")).fetchone()
        assert label is not None
        (copy.data / "pg_replslot").mkdir(mode=0o700)
        shutil.copytree(self.data / "pg_wal", copy.data / "pg_wal", copy_function=_copied)
        (copy.data / "backup_label").write_text(label[0])
        (copy.data / "standby.signal").touch()
        with (copy.data / "postgresql.auto.conf").open("a") as file:
            file.write(f"primary_conninfo = 'host=127.0.0.1 port={self.port} user={USER} dbname=postgres'\n")
        if copy._user is not None:
            for path in (copy.data, *copy.data.rglob("*")):
                os.chown(path, copy._user, -1)
        return copy

    def promote(self) -> None:
        """A standby becomes a server of its own, on a timeline of its own."""
        self.execute("SELECT pg_promote()")

    def run(self, program: str, *words: str) -> str:
        """Run one of Postgres' programs as the server's user, and return what it prints."""
        done = subprocess.run(
            [str(self._programs / program), *words],
            cwd=self.folder,
            env=self._environment,
            user=self._user,
            capture_output=True,
            text=True,
            timeout=START_SECONDS,
        )
        assert done.returncode == 0, f"{program} ended with code {done.returncode}: {done.stderr}"
        return done.stdout

    def close(self) -> None:
        """End the server and delete its data."""
        # At once, but by itself: it gives its shared memory back, which a killed one cannot.
        self._end(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _answers(self) -> bool:
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"Postgres ended with code {code}:\n{tail(self.log)}"
        try:
            self.execute("SELECT 1")
        except psycopg.OperationalError:
            return False
        return True


def _copied(source: str, target: str) -> None:
    """Copy a file of a server that runs: one that is gone meanwhile was of no more use."""
    with suppress(FileNotFoundError):
        shutil.copy2(source, target)


def _is_gone(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def _unprivileged() -> int | None:
    """Whom the server runs as, since Postgres refuses to run as root; None for whoever runs the tests."""
    return pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
