"""A database whose schema changes at random, and tables that follow it while their runs live and are killed.

After each round, every row of every copy equals its row in the database, or the newest change of the row is a
dead letter, or `status` says that the table is outdated. In the last case the remedy is tried: the file is
corrected where it names a column that is gone, and `lakefeed snapshot` reads the table anew.
"""

from __future__ import annotations

import faulthandler
import logging
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import psycopg

from faults.living_copies import Copy, differences, letters_of
from faults.schema_changes import CHANGES, Change, ChangingDatabase
from lakefeed import Pipeline
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.flow import Flow
from lakefeed.engine.inline import InlineFlow, run_inline
from lakefeed.engine.run_events import unwatched
from lakefeed.engine.spark.analyzer import analyze_here
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.supervisor import Supervisor
from lakefeed.errors import LakefeedError
from lakefeed.handles.tables import Tables
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.snapshot import reading_anew
from support.faultpoints import POINTS
from support.forks import start
from support.postgres import PostgresServer

RUN_SECONDS = 240.0
HEAD = """\
name: {name}
give_up_after: 20s
sources:
  db:
    type: postgres
    connection: "{dsn}"
    tables: public.*
    exclude: public.tmp_*
    on_recreate: snapshot
    before: true
flush: {{rows: 50, interval: 100ms}}
dead_letters: {{path: {name}_dead_letters, stop_above: 100%}}
sync: false
tables:
"""
LIVING = """\
  copies: {{route: "lake/{{_stream}}", from: db, mode: upsert}}
  merged: {{path: merged, from: db, mode: upsert, updates: merge_on_read, streams: public.items}}
  past: {{route: "past/{{_stream}}", from: db, mode: history, streams: [public.items, public.people]}}
  renamed: {{path: renamed, from: db, mode: upsert, streams: public.items, rename: {{{doc}: document}}}}
  shaped: {{path: shaped, from: db, mode: upsert, streams: public.items, python: "living_code:shaped"}}
  log: {{route: "log/{{_stream}}", from: db, streams: [public.people, "public.bag_*", "public.new_*"]}}
"""
SQL = """\
  small: {{path: small, from: db, mode: upsert, streams: public.items, where: "{where}"}}
  ruled: {{path: ruled, from: db, mode: upsert, streams: public.items, expect: {{few: "{rule}"}}}}
  chosen: {{path: chosen, from: db, mode: upsert, streams: public.items,
           select: [id, k, u, length({doc}) AS more]}}
"""
"""Tables that a run needs a JVM for."""
CODE = """\
import pyarrow as pa
import pyarrow.compute as pc

def shaped(batch):
    names = [name for name in batch.schema.names if name in ("id", "k", "u") or name.startswith("_")]
    more = pc.add(batch.column("k"), pa.scalar(1, pa.int32()))
    return batch.select(names).append_column("more", more)
"""


class LivingDatabase:
    """The database, its changes and the pipelines. `note` gets the name of each kind of change."""

    def __init__(
        self,
        server: PostgresServer,
        database: str,
        folder: Path,
        note: Callable[[str], None] = lambda _: None,
        *,
        sql: bool = True,
    ) -> None:
        self._db, self._folder, self._note = ChangingDatabase(server, database), folder, note
        self._dsn, self._sql = server.dsn(database), sql
        self._log = folder / "runs.log"
        (folder / "living_code.py").write_text(CODE)
        self._files = self._write_files()
        self._db.write_rows(random.Random(0))
        if sql:
            # A new table whose SQL names a column that is gone refuses the whole file.
            self._run(self._files[-1])

    def round(self, chance: random.Random, changes: Sequence[Change] = ()) -> None:
        """Change the schema and the rows while runs live and are killed, and then read the rest."""
        living = None
        for change in changes or chance.choices(CHANGES, k=4):
            if living is None and chance.random() < 0.7:
                living = self._start(self._files[0], _kill_point(chance) if chance.random() < 0.4 else None)
            self._change(change, chance)
            self._db.write_rows(chance)
            if living:
                time.sleep(chance.uniform(0, 0.6))
                if chance.random() < 0.4:
                    living = self._end(living, chance)
            elif chance.random() < 0.4:
                self._run(self._files[0], _kill_point(chance))
        if living:
            self._end(living, chance)
        for file in self._files:
            if chance.random() < 0.2:
                self._run(file, _kill_point(chance))
            self._run(file)

    def check(self) -> None:
        """Compare every table with the database; one that differs has said so, and the remedy repairs it."""
        outdated = {file: self._outdated(file) for file in self._files}
        where = self._named["where"]
        self._write_files()
        if self._sql and self._named["where"] != where:
            # Another condition decides about rows that are written from now on, and not about earlier ones.
            outdated[self._files[-1]].add("public.items")
        for file, streams in outdated.items():
            for stream in sorted(streams):
                self._note("remedy tried")
                self._run(file, snapshot=stream)
            if streams:
                left = [one for copy in self._copies(file) for one in self._differences(file, copy)]
                assert not left, f"after a new snapshot: {left}\n{self._said()}"
            report = verify(Pipeline.from_file(file), deep=True)
            assert report.sound, [one for table in report.tables for one in table.findings]
        self._log.unlink(missing_ok=True)

    def replay(self) -> None:
        """Send every dead letter again, which makes no copy worse."""
        found = replay(Pipeline.from_file(self._files[0]), DeadLetterFilter(), who="test")
        if any(one.rows for one in found):
            self._note("dead letters replayed")

    def _outdated(self, file: Path) -> set[str]:
        """The streams that are said to be outdated; AssertionError where another one differs."""
        tables = {one.path: one for one in status(Pipeline.from_file(file)).tables}
        outdated, said = set(), self._said()
        assert "a defect in Lakefeed" not in said, said
        for copy in self._copies(file):
            told = tables.get(str(copy.path))
            texts = [*told.outdated, told.error or ""] if told else []
            stopped = f"Nothing more of {copy.stream} is written"
            is_outdated = any(copy.stream in text for text in texts) or stopped in said
            if found := self._differences(file, copy):
                assert is_outdated, f"{found} and no word of it: {texts}\n{said}"
            if is_outdated:
                outdated.add(copy.stream)
        return outdated

    def _differences(self, file: Path, copy: Copy) -> list[str]:
        letters = letters_of(self._folder / f"{file.stem}_dead_letters")
        try:
            return differences(copy, self._db, letters.get((copy.name, copy.stream), ()))
        except psycopg.errors.UndefinedColumn as error:
            return [f"{copy.name} reads a column that is gone: {error}"]

    def _copies(self, file: Path) -> Iterator[Copy]:
        """By the names that the file has: where it names a column that is gone, that has been said by now."""
        folder, names = self._folder, self._named
        if file.stem == "sql":
            select = {"id": "id", "k": "k", "u": "u", "more": f"length({names['doc']})"}
            yield Copy("small", folder / "small", "items", where=names["where"])
            yield Copy("ruled", folder / "ruled", "items")
            yield Copy("chosen", folder / "chosen", "items", select=select)
            return
        for table, key in self._db.tables().items():
            stream = f"public.{table}"
            if key:
                yield Copy("copies", folder / "lake" / stream, table)
            if table in ("items", "people"):
                yield Copy("past", folder / "past" / stream, table, "history")
            if table != "items":
                yield Copy("log", folder / "log" / stream, table, "append")
        yield Copy("merged", folder / "merged", "items")
        yield Copy("renamed", folder / "renamed", "items", rename={names["doc"]: "document"})
        select = {"id": "id", "k": "k", "u": "u", "more": "k + 1"}
        yield Copy("shaped", folder / "shaped", "items", select=select)

    def _write_files(self) -> list[Path]:
        """The files of the pipelines, with the names that columns have now."""
        doc, flag = self._db.column("doc"), self._db.column("flag")
        where, rule = (f"{flag} < 5 OR {doc} = 'short'", f"{flag} > 1") if flag else ("id % 4 > 0", "id > 1")
        self._named = {"doc": str(doc), "where": where, "rule": rule}
        files = {"living": LIVING, "sql": SQL} if self._sql else {"living": LIVING}
        for name, tables in files.items():
            text = (HEAD + tables).format(name=name, dsn=self._dsn, **self._named)
            (self._folder / f"{name}.yaml").write_text(text)
        return [self._folder / f"{name}.yaml" for name in files]

    def _change(self, change: Change, chance: random.Random) -> None:
        name = change.__name__.replace("_", " ")
        try:
            change(self._db, chance)
        except (psycopg.Error, IndexError) as error:
            # What an earlier change has left no room for, such as a column that is gone.
            self._note(f"{name} refused by the server")
            assert not isinstance(error, psycopg.OperationalError), error
        else:
            self._note(name)

    def _start(
        self, file: Path, kill_at: str | None = None, snapshot: str | None = None, lives: bool = True
    ) -> Any:
        return start(_inline, file, self._log, snapshot, lives, env={"LAKEFEED_KILL_AT": kill_at or ""})

    def _end(self, living: Any, chance: random.Random) -> None:
        """Kill a run that lives, or ask it to end."""
        killed = chance.random() < 0.7
        living.kill() if killed else living.terminate()
        self._note("living run killed" if killed else "living run stopped")
        self._join(living)

    def _run(self, file: Path, kill_at: str | None = None, snapshot: str | None = None) -> None:
        self._join(self._start(file, kill_at, snapshot, lives=False))
        if kill_at:
            self._note("run killed")

    def _join(self, process: Any) -> None:
        process.join(RUN_SECONDS)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise AssertionError(f"a run did not end within {RUN_SECONDS:.0f} s:\n{self._said()}")
        assert process.exitcode in (0, -signal.SIGKILL, -signal.SIGTERM), self._said()

    def _said(self) -> str:
        return self._log.read_text() if self._log.exists() else ""


def _kill_point(chance: random.Random) -> str:
    return f"{chance.choice(POINTS)}:{chance.randint(1, 6)}"


def _inline(file: Path, log: Path, snapshot: str | None, lives: bool) -> None:
    logging.basicConfig(filename=log, level=logging.WARNING)
    if not lives:
        # A run that hangs says where.
        faulthandler.dump_traceback_later(RUN_SECONDS - 10, file=log.open("a"))
    pipeline = Pipeline.from_file(file)
    if snapshot:
        pipeline, _ = reading_anew(pipeline, "db", [snapshot])
    try:
        if lives:
            _live(pipeline)
        else:
            run_inline(pipeline)
    except LakefeedError as error:
        logging.getLogger("lakefeed").error("%s", error)


def _live(pipeline: Pipeline) -> None:
    """Read what there is and what comes, until the process is asked to end."""
    stop = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    checkpoints = Path(pipeline.state) / pipeline.name / "checkpoints"
    with LocalTasks() as tasks:
        here: Any = tasks
        flow: Flow = InlineFlow(
            Tables(pipeline, analyze_here), "db", here, checkpoints, unwatched, once=False
        )
        Supervisor(pipeline, [flow], unwatched, stop).run()
