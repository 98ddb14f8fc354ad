"""A disk that is full or closed, too few file descriptors: the place is named, and nothing is lost."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from textwrap import dedent

import pytest

from lakefeed import Pipeline, TableError, UsageError
from lakefeed.engine.run_events import RunEvent, SourceTrouble, TableDelayed
from lakefeed.run import run
from support.ledger import assert_each_once, dead_letters, table_ids

PIPELINE = """\
name: shop
sources: {clicks: {type: generate, rows: 1000, bad_ratio: 0.02}}
tables:
  one: {path: one, from: clicks, schema: {event_id: long not null}, commit_retries: 0}
  two: {path: two, from: clicks, schema: {event_id: long not null}, commit_retries: 0}
flush: {rows: 500}
give_up_after: 60s
"""


def shop(folder: Path) -> Path:
    file = folder / "shop.yaml"
    file.write_text(PIPELINE)
    return file


def check(folder: Path, rows: int, *tables: str) -> None:
    letters = dead_letters(folder / "shop_dead_letters")
    for name in tables or ("one", "two"):
        dead = [letter["offset"] for letter in letters if letter["table"] == name]
        assert_each_once(range(rows), table_ids(folder / name), dead)


def call(*command: str | Path) -> None:
    """Run a system command that needs privileges; without them, the test is skipped and says so."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    if done.returncode:
        pytest.skip(f"`{' '.join(map(str, command))}` is not permitted here: {done.stderr.strip()}")


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """A file system of its own in `folder`; what is answered is the file that fills it to the last byte."""
    folder.mkdir(parents=True)
    call("mount", "-t", "tmpfs", "-o", "size=128k", "tmpfs", folder)
    try:
        yield folder / "ballast"
    finally:
        call("umount", "-l", folder)


def fill(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"." * 512)
        except OSError:
            return


class Tidier:
    """Somebody who frees the disk that a message names."""

    def __init__(self, ballasts: dict[str, Path]) -> None:
        self.ballasts = ballasts
        self.messages: list[str] = []

    def __call__(self, event: RunEvent) -> None:
        match event:
            case SourceTrouble(text=text) | TableDelayed(text=text):
                for name, ballast in self.ballasts.items():
                    if name in text and ballast.exists():
                        self.messages.append(text)
                        ballast.unlink()


@pytest.mark.usefixtures("spark")
def test_disk_that_is_full_at_each_step_is_waited_out_and_nothing_is_lost(tmp_path: Path) -> None:
    places = {
        f"{tmp_path}/one: no space left": "one",
        f"{tmp_path}/two: the commit failed 1 times, last with: no space left": "two/_delta_log",
        f"{tmp_path}/shop_dead_letters: no space left": "shop_dead_letters",
        "Spark has no space left for its checkpoints (`state`)": ".lakefeed",
    }
    file = shop(tmp_path)
    with ExitStack() as disks:
        ballasts = {
            told: disks.enter_context(small_disk(tmp_path / handle)) for told, handle in places.items()
        }
        Pipeline.from_file(file).run(once=True)
        # It would be deleted first, which makes room for the next.
        shutil.rmtree(tmp_path / ".lakefeed" / "shop" / "checkpoints")
        for ballast in ballasts.values():
            fill(ballast)
        tidier = Tidier(ballasts)

        run(Pipeline.from_file(file, ["sources.clicks.rows=2000"]), once=True, watch=tidier)

        check(tmp_path, 2000)
    assert len(tidier.messages) == len(places), tidier.messages
    assert all("Free some space; the " in message for message in tidier.messages)


@contextmanager
def closed(folder: Path) -> Iterator[None]:
    """A directory that nobody may write to: root ignores permissions, so for root it is made immutable."""
    if os.geteuid() == 0:
        call("chattr", "+i", folder)
        undo = ["chattr", "-i", folder]
    else:
        call("chmod", "500", folder)
        undo = ["chmod", "700", folder]
    try:
        yield
    finally:
        call(*undo)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    call("mount", "--bind", folder, folder)
    try:
        call("mount", "-o", "remount,ro,bind", folder, folder)
        yield
    finally:
        call("umount", "-l", folder)


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("close", "told"),
    [
        (closed, "permission denied\nGive the user that runs Lakefeed the right to write there."),
        (read_only, "the file system is read-only\nMake it writable, or choose another path."),
    ],
    ids=["permission denied", "read-only"],
)
def test_table_that_may_not_be_written_stops_alone_and_goes_on_when_it_may(
    close: object, told: str, tmp_path: Path
) -> None:
    file = shop(tmp_path)
    Pipeline.from_file(file).run(once=True)
    more = Pipeline.from_file(file, ["sources.clicks.rows=2000"])

    with close(tmp_path / "one"), pytest.raises(TableError) as refused:  # type: ignore[operator]
        more.run(once=True)
    check(tmp_path, 2000, "two")
    held = len(table_ids(tmp_path / "one"))
    more.run(once=True)

    assert str(refused.value) == f"{tmp_path / 'one'}: {told}"
    assert not refused.value.retryable
    assert held == 980
    check(tmp_path, 2000)


def test_state_that_may_not_be_written_is_refused_before_anything_starts(tmp_path: Path) -> None:
    file = shop(tmp_path)
    (tmp_path / ".lakefeed").mkdir()

    with closed(tmp_path / ".lakefeed"), pytest.raises(UsageError) as refused:
        Pipeline.from_file(file).run(once=True)

    assert "/.lakefeed/shop cannot be written: " in str(refused.value)
    assert "Set `state` to a folder that can." in str(refused.value)
    assert not (tmp_path / "one").exists()


def test_writer_out_of_file_descriptors_says_so_and_leaves_nothing_behind(tmp_path: Path) -> None:
    code = """
        import resource, sys
        import pyarrow as pa
        from lakefeed.errors import StoreUnavailable
        from lakefeed.files.parquet import FileTarget, TableWriter
        from lakefeed.stores import open_store

        rows = pa.record_batch({"p": [str(n) for n in range(60)], "id": list(range(60))})
        writer = TableWriter(open_store(sys.argv[1], {}), FileTarget(rows.schema, ("p",)))
        writer.write(rows)
        resource.setrlimit(resource.RLIMIT_NOFILE, (30, 30))
        try:
            writer.close()
        except StoreUnavailable as error:
            print(error)
        writer.abort()
    """

    done = subprocess.run(
        [sys.executable, "-c", dedent(code), str(tmp_path)], capture_output=True, text=True, timeout=120
    )

    assert done.stdout == (
        f"{tmp_path}: too many open files\n"
        "Raise the limit of this user (`ulimit -n`); the write is tried again.\n"
    ), done.stderr
    assert not list(tmp_path.rglob("*.parquet"))


@pytest.mark.usefixtures("spark")
def test_driver_out_of_file_descriptors_tries_again_and_then_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shop(tmp_path)
    gates = threading.Semaphore(1)
    from lakefeed.engine.spark import offset_channel

    made = offset_channel.tempfile.mkdtemp

    def mkdtemp(*args: object, **named: object) -> str:
        if gates.acquire(blocking=False):
            raise OSError(24, "Too many open files")
        return str(made(*args, **named))  # type: ignore[call-overload]

    monkeypatch.setattr(offset_channel.tempfile, "mkdtemp", mkdtemp)
    troubles: list[str] = []

    def watch(event: RunEvent) -> None:
        if isinstance(event, SourceTrouble) and event.text:
            troubles.append(event.text)

    run(Pipeline.from_file(file), once=True, watch=watch)

    told = "a batch could not be run on this machine: [Errno 24] Too many open files"
    assert troubles == [told]
    check(tmp_path, 1000)
