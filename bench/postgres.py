"""A Postgres database into an append table: decoding, the whole client, the snapshot, and the same by hand.

A row has ten columns. CPU is that of our process, without its start: it has run a small pipeline of the kind
before, so that its modules are loaded. The server's CPU is not in it. `python postgres.py` reads names of
pipeline files from its input, runs each once, and prints a line of JSON for it.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]

from debezium import Debezium  # noqa: E402
from figure import Asked, Figure, say  # noqa: E402

CHANGES, ROWS = 500_000, 1_000_000
PER_TRANSACTION = 100
STEP = 10_000
DECODING, CLIENT = 1.5, 3.5
"""Microseconds that a row may cost: to decode, and in all."""
SHARE_OF_SERVER = 0.8
SNAPSHOT = 300_000
"""Rows of a snapshot in a second of CPU."""
RATE, SECONDS, P50_MS = 1_000, 60, 500
"""Changes in a second, for how long, and how soon half of them must be readable."""
WARM_UP, TAIL, START_SECONDS = 5.0, 5.0, 180.0
TABLE = """
CREATE TABLE {} (id bigint PRIMARY KEY, name text, price numeric(12,2), at timestamptz, ok boolean,
    meta jsonb, uid uuid, ratio float8, day date, count int)
"""
FILLED = """
INSERT INTO {} SELECT i, 'name of ' || i, (i % 100000) / 100.0,
    '2026-11-17 10:00:00+00'::timestamptz + i * '1 ms'::interval, i % 3 = 0,
    jsonb_build_object('k', i, 'tags', 'a'), ('00000000-0000-4000-8000-' || lpad(to_hex(i), 12, '0'))::uuid,
    i / 7.0, '2026-01-01'::date + (i % 365)::int, i % 1000
FROM generate_series({}::bigint, {}::bigint) i
"""
PEEK = "pg_logical_slot_peek_binary_changes(%s, NULL, NULL, 'proto_version', '1', 'publication_names', %s)"
PIPELINE = """\
name: bench
sources:
  db: {{type: postgres, connection: "{dsn}", tables: public.{table}, snapshot: {snapshot}, slot: bench}}
tables: {{rows: {{path: {path}, from: db}}}}
"""


def measure(asked: Asked) -> Iterator[Figure]:
    """The stream of changes, the snapshot, and how soon a change is readable."""
    from support.postgres import PostgresServer

    with tempfile.TemporaryDirectory(prefix="lakefeed-postgres-") as folder, PostgresServer() as server:
        if asked.wants("changes"):
            with _Runner() as runner:
                yield from _changes(asked.of(CHANGES, STEP), server, Path(folder), runner)
        if asked.wants("snapshot"):
            with _Runner() as runner:
                yield from _snapshot(asked.of(ROWS, STEP), server, Path(folder), runner)
        if asked.wants("latency"):
            yield from _latency(asked.of(SECONDS, 10), server, Path(folder))


def _changes(count: int, server: Any, folder: Path, runner: _Runner) -> Iterator[Figure]:
    server.execute(TABLE.format("changed"))
    _write(folder / "changes.yaml", server, "changed", "never")
    runner.run(folder / "changes.yaml")
    # The first batch that shows columns is read twice: the table is there when it is measured.
    server.execute(FILLED.format("changed", -9, 0))
    runner.run(folder / "changes.yaml")
    debezium = Debezium(server, "changed")
    say(f"{count:,} changes in transactions of {PER_TRANSACTION} ...")
    with server.connect() as connection:
        for start in range(1, count + 1, PER_TRANSACTION):
            connection.execute(FILLED.format("changed", start, start + PER_TRANSACTION - 1).encode())
    alone, streamed = min(_alone(server) for _ in range(3)), min(_streamed(server) for _ in range(2))
    messages = _peeked(server)
    decoding = min(_decoding(server, messages) for _ in range(3)) / count * 1e6
    yield Figure("decoding a row", decoding, "us", goal=f"at most {DECODING}", reached=decoding <= DECODING)
    by_hand = _cpu(lambda: _by_hand(_peeked(server), folder / "by_hand")) / count * 1e6
    ran = runner.run(folder / "changes.yaml")
    client = ran["cpu"] / count * 1e6
    yield Figure(
        "a change into an append table",
        client,
        "us CPU",
        by_hand / client,
        "as cheap as psycopg and deltalake by hand",
        f"at most {CLIENT}",
        client <= CLIENT,
    )
    share = alone / ran["wall"]
    yield Figure(
        "changes read in a second",
        count / ran["wall"],
        "rows",
        share,
        "what the server alone decodes",
        f"at least {SHARE_OF_SERVER}",
        share >= SHARE_OF_SERVER,
    )
    yield Figure(
        "changes that pg_recvlogical reads in a second",
        count / streamed,
        "rows",
        streamed / ran["wall"],
        "of it is what we read",
    )
    yield from debezium.figures(count, ran, folder)


def _snapshot(count: int, server: Any, folder: Path, runner: _Runner) -> Iterator[Figure]:
    server.execute(TABLE.format("few"))
    server.execute(FILLED.format("few", 1, 10))
    _write(folder / "few.yaml", server, "few", "only")
    runner.run(folder / "few.yaml")
    server.execute(TABLE.format("copied"))
    server.execute(FILLED.format("copied", 1, count) + "; ANALYZE copied")
    _write(folder / "snapshot.yaml", server, "copied", "only")
    ran = runner.run(folder / "snapshot.yaml")
    rate = count / ran["cpu"]
    yield Figure(
        "rows of a snapshot in a second of CPU",
        rate,
        "rows",
        goal=f"at least {SNAPSHOT:,}",
        reached=rate >= SNAPSHOT,
    )
    yield Figure("rows of a snapshot in a second", count / ran["wall"], "rows")


def _latency(seconds: int, server: Any, folder: Path) -> Iterator[Figure]:
    """From the commit in Postgres until the log of the Delta table has it, in a run on Spark."""
    import numpy as np
    import pyarrow.parquet as pq
    from contender import Log, running

    server.execute(TABLE.format("fresh"))
    server.execute(FILLED.format("fresh", -99, 0))
    file = folder / "fresh.yaml"
    _write(file, server, "fresh", "initial")
    file.write_text(file.read_text() + f"flush: {{interval: 200ms}}\nstate: {folder / 'state'}\n")
    log = Log(file.with_suffix(".delta"))
    say(f"{RATE:,} changes a second for {seconds} s ...")
    with running([sys.executable, "-m", "lakefeed", "run", str(file)], folder / "said") as run:
        log.follow_to_rows(100, START_SECONDS, run)
        stop = threading.Event()
        writer = threading.Thread(target=_trickle, args=(server, stop), daemon=True)
        writer.start()
        first = time.time() + WARM_UP
        last = first + seconds
        log.follow(lambda: time.time() > last + TAIL, START_SECONDS + seconds, run)
        stop.set()
        writer.join()
    took, numbers = [], []
    for version, moment in enumerate(log.seen):
        for add in log.adds(version):
            rows = pq.read_table(log.table / add["path"], columns=["id", "_commit_time"], partitioning=None)
            committed = rows["_commit_time"].cast("int64").fill_null(0).to_numpy() / 1e6
            within = (committed >= first) & (committed < last)
            took.append((moment - committed[within]) * 1000)
            numbers.append(rows["id"].to_numpy()[within])
    ids = np.sort(np.concatenate(numbers))
    assert len(ids) and (np.diff(ids) == 1).all(), "changes were lost or repeated"
    p50, p95 = np.percentile(np.concatenate(took), [50, 95])
    what = f"commit to readable at {RATE:,} changes/s"
    yield Figure(f"{what}, p50", p50, "ms", goal=f"under {P50_MS} ms", reached=bool(p50 < P50_MS))
    yield Figure(f"{what}, p95", p95, "ms")
    yield Figure("changes that were followed", len(ids), f"in {seconds} s")


def _trickle(server: Any, stop: threading.Event) -> None:
    """Transactions of as many rows as the rate says, evenly."""
    began, at = time.monotonic(), 1
    with server.connect() as connection:
        while not stop.is_set():
            connection.execute(FILLED.format("fresh", at, at + PER_TRANSACTION - 1).encode())
            at += PER_TRANSACTION
            stop.wait(max(0.0, began + at / RATE - time.monotonic()))


def _alone(server: Any) -> float:
    """How long the server takes to decode all changes of the slot when nobody reads them."""
    with server.connect() as connection:
        began = time.monotonic()
        connection.execute(f"SELECT count(*) FROM {PEEK}".encode(), ["bench", "lakefeed_bench_db"]).fetchone()
        return time.monotonic() - began


def _streamed(server: Any) -> float:
    """How long the server takes to send them to a program that throws them away."""
    with server.connect() as connection:
        row = connection.execute("SELECT pg_current_wal_flush_lsn()::text").fetchone()
        copy = "SELECT pg_copy_logical_replication_slot('bench', 'streamed')"
        connection.execute(copy.encode())
        asked = ["-o", "proto_version=1", "-o", "publication_names=lakefeed_bench_db", "-f", "/dev/null"]
        began = time.monotonic()
        where = ["-d", server.dsn(), "-S", "streamed", "--start", "-E", row[0], "--no-loop"]
        server.run("pg_recvlogical", *where, *asked)
        took = time.monotonic() - began
        connection.execute("SELECT pg_drop_replication_slot('streamed')")
        return took


def _peeked(server: Any) -> list[bytes]:
    """All messages of the slot."""
    with server.connect() as connection, connection.cursor(binary=True) as cursor:
        cursor.execute(f"SELECT data FROM {PEEK}".encode(), ["bench", "lakefeed_bench_db"])
        return [row[0] for row in cursor.fetchall()]


def _decoding(server: Any, messages: list[bytes]) -> float:
    from lakefeed.sources.postgres.replication.pgoutput import Decoder
    from lakefeed.sources.postgres.values.table_columns import TableColumns
    from lakefeed.sources.postgres.values.type_catalog import TypeCatalog

    with server.connect() as connection:
        tables, decoder = TableColumns(TypeCatalog(connection)), Decoder({"public.changed": ("id",)})

        def decode() -> None:
            for at in range(0, len(messages), STEP):
                for changes in decoder.decode(messages[at : at + STEP]):
                    tables.cast(changes.relation, changes.texts, _nothing(len(changes.ops)))

        return _cpu(decode)


def _nothing(count: int) -> list[Any]:
    import pyarrow as pa

    from lakefeed.sources.postgres.events import METADATA

    return [pa.nulls(count, field.type) for field in METADATA]


def _by_hand(messages: list[bytes], path: Path) -> None:
    """What three dozen lines do: a loop over messages, lists, Arrow, and a commit for each 100,000 rows."""
    import struct

    import pyarrow as pa
    import pyarrow.compute as pc
    from deltalake import write_deltalake

    rows: list[list[str | None]] = []

    def write() -> None:
        texts = [pa.array(column, pa.string()) for column in zip(*rows, strict=True)]
        kinds = [pa.int64(), pa.string(), pa.decimal128(12, 2), pa.timestamp("us", "UTC"), None]
        kinds += [pa.string(), pa.string(), pa.float64(), pa.date32(), pa.int32()]
        columns = [
            pc.equal(text, "t") if kind is None else text.cast(kind)
            for text, kind in zip(texts, kinds, strict=True)
        ]
        write_deltalake(str(path), pa.table(columns, names=[f"c{at}" for at in range(10)]), mode="append")
        rows.clear()

    for message in messages:
        if message[:1] != b"I":
            continue
        at, row = 8, []
        for _ in range(10):
            if message[at : at + 1] == b"t":
                (size,) = struct.unpack_from(">i", message, at + 1)
                row.append(message[at + 5 : at + 5 + size].decode())
                at += 5 + size
            else:
                row.append(None)
                at += 1
        rows.append(row)
        if len(rows) == 100_000:
            write()
    if rows:
        write()


def _write(file: Path, server: Any, table: str, snapshot: str) -> None:
    path = file.with_suffix(".delta")
    file.write_text(PIPELINE.format(dsn=server.dsn(), table=table, snapshot=snapshot, path=path))


class _Runner:
    """A process that runs pipelines, one after the other."""

    def __enter__(self) -> _Runner:
        command = [sys.executable, str(HERE / "postgres.py")]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate(timeout=START_SECONDS)

    def run(self, file: Path) -> dict[str, float]:
        """Seconds of CPU and of the clock that a run takes."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(f"{file}\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"the run of {file} failed"
        found: dict[str, float] = json.loads(line)
        return found


def _cpu(work: Callable[[], None]) -> float:
    def used() -> float:
        now = resource.getrusage(resource.RUSAGE_SELF)
        return now.ru_utime + now.ru_stime

    before = used()
    work()
    return used() - before


def _main() -> None:
    from lakefeed import Pipeline
    from lakefeed.engine.inline import run_inline

    for line in sys.stdin:
        pipeline = Pipeline.from_file(line.strip())
        began = time.monotonic()
        cpu = _cpu(partial(run_inline, pipeline))
        print(json.dumps({"cpu": cpu, "wall": time.monotonic() - began}), flush=True)


if __name__ == "__main__":
    _main()
