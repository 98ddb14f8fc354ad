"""The journal: what was acknowledged is there, whatever happens to the process or to the disk."""

from __future__ import annotations

import os
import pickle
import random
import threading
import time
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, cast

import pytest

from lakefeed import Pipeline
from lakefeed.errors import DataLoss, Fenced, SourceError
from lakefeed.events import OffsetRange
from lakefeed.handles.progress import TableProgress
from lakefeed.sources.http.client import HttpClient
from lakefeed.sources.http.journal import disk
from lakefeed.sources.http.journal.disk import DiskSegments
from lakefeed.sources.http.journal.frame import Batch, Payloads
from lakefeed.sources.http.journal.journal import Append, Journal, writing
from lakefeed.sources.http.journal.keys import Keys
from lakefeed.sources.http.journal.objects import ObjectSegments
from lakefeed.sources.http.source import HttpSource
from lakefeed.stores.objects import ObjectFiles
from support.http_source import append, journal_of, shop
from support.processes import wait_until


def source_at(folder: Path, options: str = "") -> HttpSource:
    found = Pipeline.from_file(shop(folder.parent, f"journal: {folder}{options}")).sources["api"]
    assert isinstance(found, HttpSource)
    return found


def payloads(source: HttpSource, stream: str, start: int, end: int, cores: int = 1) -> list[bytes | None]:
    client = HttpClient(source, "api")
    tasks = client.splits([OffsetRange(stream, start, end)], cores)
    return [one for task in tasks for events in source.read(task) for one in events.payloads]


def segments(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.segment"))


def test_numbers_go_on_after_a_restart_and_every_event_is_read_by_its_number(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    with journal_of(folder) as journal:
        append(journal, "orders", [b"0", b"1"])
        append(journal, "clicks", [b"a"])
    with journal_of(folder) as journal:
        made = append(journal, "orders", [b"2", b"", b"4"])
        ends = journal.contents().next

    assert (made.first, ends) == (2, {"orders": 5, "clicks": 1})
    assert payloads(source_at(folder), "orders", 1, 5) == [b"1", b"2", b"", b"4"]


def test_requests_that_wait_for_the_disk_become_one_write(tmp_path: Path) -> None:
    writes = []
    with journal_of(tmp_path / "journal") as journal:
        gate, done = threading.Event(), threading.Semaphore(0)
        write = journal._segments.append
        journal._segments.append = lambda *given: (gate.wait(120), writes.append(given), write(*given))
        journal.settled = lambda group: [done.release() for _ in group]
        for number in range(20):
            journal.append(Append(Batch.of("orders", Payloads.of([b"%d" % number]), 0, {})))
        gate.set()
        assert all(done.acquire(timeout=120) for _ in range(20))

    assert len(writes) <= 2


def test_segments_go_when_all_tables_have_them_and_numbers_stay(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    with journal_of(folder, quota=8_000) as journal:
        for _ in range(30):
            append(journal, "orders", [b"x" * 100])
        before = len(segments(folder))
        journal.acknowledge({"orders": 20})
        append(journal, "clicks", [b"c"])
        append(journal, "clicks", [b"c"])
        kept = journal.contents().earliest()["orders"]
        journal.acknowledge({"orders": 30, "clicks": 0})
        append(journal, "clicks", [b"d"])
    with journal_of(folder) as journal:
        first = append(journal, "orders", [b"next"]).first

    assert before >= 5 and 0 < kept <= 20
    assert len(segments(folder)) < before
    assert first == 30


def test_segment_with_events_of_a_stream_that_a_table_lacks_stays(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    with journal_of(folder, quota=8_000) as journal:
        for _ in range(30):
            append(journal, "orders", [b"x" * 100])
            append(journal, "clicks", [b"c"])
        journal.acknowledge({"orders": 30})
        append(journal, "orders", [b"last"])
        assert journal.contents().earliest() == {"orders": 0, "clicks": 0}


@pytest.mark.parametrize("seed", range(8))
def test_tail_that_was_cut_off_anywhere_is_dropped_and_all_before_it_stays(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    folder = tmp_path / "journal"
    with journal_of(folder) as journal:
        for number in range(10):
            append(journal, "orders", [b"%d" % number])
    (file,) = segments(folder)
    whole = file.stat().st_size
    with journal_of(folder) as journal:
        append(journal, "orders", [b"never acknowledged" * 10, b"neither"])
    torn = bytearray(file.read_bytes())
    # A power cut leaves a part of the last write: shorter, with holes, or with zeros behind it.
    at = chance.randrange(whole + 1, len(torn))
    torn[at:] = chance.choice([b"", bytes(len(torn) - at), os.urandom(len(torn) - at)])
    file.write_bytes(torn)

    with journal_of(folder) as journal:
        made = append(journal, "orders", [b"10"])

    assert made.first == 10
    assert payloads(source_at(folder), "orders", 0, 11) == [b"%d" % number for number in range(11)]


def test_write_whose_middle_is_missing_was_not_acknowledged_and_goes_whole(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    with journal_of(folder) as journal:
        append(journal, "orders", [b"0"])
        size = journal.size
        group = [Append(Batch.of("orders", Payloads.of([b"x" * 50]), 0, {})) for _ in range(3)]
        journal._write(group)
    (file,) = segments(folder)
    data = bytearray(file.read_bytes())
    data[size + 20] ^= 1
    file.write_bytes(data)

    with journal_of(folder) as journal:
        assert journal.contents().next == {"orders": 1}


@pytest.mark.parametrize("torn", [True, False])
def test_payload_that_looks_like_a_frame_is_never_taken_for_one(tmp_path: Path, torn: bool) -> None:
    folder = tmp_path / "journal"
    far = 1_152_921_504_606_846_976
    inside = Batch("orders", 1, 0, b"", Payloads.of([b"forged"]).lengths + b"forged")
    forged = b"x" * 100 + b"".join(inside.framed(far, far, ends=True)) + b"x" * 100
    sent = [b"LFj1", forged, b"[" + forged + b"]", b"LF", b"j1"]
    with journal_of(folder) as journal:
        append(journal, "orders", [b"0"])
        size = journal.size
        append(journal, "orders", sent)
        append(journal, "orders", [forged])
    assert payloads(source_at(folder), "orders", 0, 7) == [b"0", *sent, forged]
    (file,) = segments(folder)
    data = bytearray(file.read_bytes())
    assert forged not in data
    data[size + 20] ^= 1
    file.write_bytes(data[: data.index(b"LFj1", size + 4)] if torn else data)

    if torn:
        with journal_of(folder) as journal:
            assert journal.contents().next == {"orders": 1}
    else:
        found = payloads(source_at(folder, ", on_data_loss: skip"), "orders", 0, 7)
        assert found == [b"0", *[None] * 5, forged]


@pytest.mark.parametrize("last", [True, False])
def test_damage_to_what_was_acknowledged_is_told_and_skipped_only_when_asked(
    tmp_path: Path, last: bool
) -> None:
    folder = tmp_path / "journal"
    with journal_of(folder, quota=10**9 if last else 2_000) as journal:
        for number in range(10):
            append(journal, "orders", [b"event number %d" % number])
    file = segments(folder)[0]
    data = file.read_bytes()
    file.write_bytes(data.replace(b"event number 1", b"event nimber 1"))

    with (
        pytest.raises(SourceError, match=r"is damaged: segment 0, bytes .*\n.*on_data_loss: skip"),
        journal_of(folder),
    ):
        pass
    with pytest.raises(SourceError, match="has lost the events 1 to 1 of stream orders"):
        payloads(source_at(folder), "orders", 0, 10)
    found = payloads(source_at(folder, ", on_data_loss: skip"), "orders", 0, 10)

    assert found == [None if number == 1 else b"event number %d" % number for number in range(10)]


def test_second_writer_is_refused_by_name(tmp_path: Path) -> None:
    with (
        journal_of(tmp_path / "journal"),
        pytest.raises(Fenced, match=r"is in use by another run.\nStop that run first"),
        journal_of(tmp_path / "journal"),
    ):
        pass


def test_journal_of_another_source_is_refused(tmp_path: Path) -> None:
    with journal_of(tmp_path / "journal", owner="shop/one"):
        pass

    with (
        pytest.raises(SourceError, match="belongs to shop/one, and this is shop/two"),
        journal_of(tmp_path / "journal", owner="shop/two"),
    ):
        pass


class Failing(DiskSegments):
    """A disk that fails at a write, and leaves a part of it."""

    fails = 0

    def append(self, number: int, at: int, parts: list[bytes]) -> None:
        if self.fails:
            self.fails -= 1
            super().append(number, at, [b"".join(parts)[:30]])
            raise OSError(28, "No space left on device")
        super().append(number, at, parts)


def test_write_that_fails_takes_no_number_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It would show by itself that the disk can be written to again.
    monkeypatch.setattr("lakefeed.sources.http.journal.journal._RETRY", 600.0)
    folder = tmp_path / "journal"
    with journal_of(folder) as journal:
        journal._segments = disk = Failing(str(folder))
        append(journal, "orders", [b"0"])
        disk.fails = 1
        refused = append(journal, "orders", [b"lost"])
        trouble = journal.trouble
        taken = append(journal, "orders", [b"1"])

    assert (refused.error, trouble) == ("No space left on device",) * 2
    assert (taken.first, journal.trouble) == (1, "")
    assert payloads(source_at(folder), "orders", 0, 2) == [b"0", b"1"]


class Undeletable(DiskSegments):
    """A disk that is so full that not even the keys of segments that go can be kept."""

    is_full = True

    def save_keys(self, data: bytes) -> None:
        if self.is_full:
            raise OSError(28, "No space left on device")
        super().save_keys(data)


def test_segments_that_a_full_disk_kept_go_when_there_is_space_though_no_event_comes(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    with journal_of(folder, quota=4_000) as journal:
        journal._segments = disk = Undeletable(str(folder))
        append(journal, "orders", [b"x"], key="k", digest="d", rejected=[], bad=0)
        for _ in range(30):
            append(journal, "orders", [b"x" * 100])
        journal.acknowledge({"orders": 31})
        wait_until(lambda: journal._undeleted, 120, lambda: "it could delete")
        before = len(segments(folder))
        disk.is_full = False

        wait_until(lambda: len(segments(folder)) == 1, 120, lambda: f"{len(segments(folder))} of {before}")


def test_store_that_fails_in_an_unknown_way_keeps_no_request_waiting(tmp_path: Path) -> None:
    folder = tmp_path / "journal"

    class Unknown(DiskSegments):
        def delete(self, number: int) -> None:
            raise ValueError("no credentials")

    with journal_of(folder, quota=4_000) as journal:
        journal._segments = Unknown(str(folder))
        for _ in range(30):
            append(journal, "orders", [b"x" * 100])
        journal.acknowledge({"orders": 31})
        wait_until(lambda: journal._undeleted, 120, lambda: "it could delete")
        assert append(journal, "orders", [b"y"]).error is None


def test_large_range_is_read_in_pieces_and_by_several_tasks(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    with journal_of(folder) as journal:
        for number in range(0, 120_000, 1000):
            append(journal, "orders", [b"%0200d" % one for one in range(number, number + 1000)])
            append(journal, "clicks", [b"c"])
        pieces = journal.locate("orders", 0, 120_000)

    assert len(pieces) > 2
    source = source_at(folder)
    found = payloads(source, "orders", 777, 119_999, cores=2)
    assert found == [b"%0200d" % one for one in range(777, 119_999)]


def test_keys_outlive_the_segments_that_they_came_with(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    with journal_of(folder, quota=4_000) as journal:
        append(journal, "orders", [b"x"], key="k", digest="d", rejected=[], bad=0)
        for _ in range(30):
            append(journal, "orders", [b"x" * 100])
        journal.acknowledge({"orders": 31})
    with journal_of(folder) as journal:
        gone = journal.contents().earliest()["orders"]
        known = journal.keys.get("\norders\nk")

    assert gone > 0
    assert known is not None and (known.first, known.count, known.digest) == (0, 1, "d")


def test_keys_are_forgotten_by_count_and_by_time() -> None:
    keys = Keys(window=60.0, most=2)
    now = 10**16
    for number in range(3):
        keys.note("s", {"key": str(number), "digest": "", "rejected": [], "bad": 0}, number, 1, now)
    keys.note("s", {"key": "old", "digest": "", "rejected": [], "bad": 0}, 9, 1, 0)

    assert [keys.get(f"\ns\n{key}") is not None for key in ("0", "1", "2", "old")] == [
        False,
        False,
        True,
        False,
    ]


def test_keys_of_deleted_segments_are_older_than_those_of_the_journal() -> None:
    saved, keys = Keys(window=60.0, most=2), Keys(window=60.0, most=2)
    for known, names in ((saved, "ab"), (keys, "bc")):
        for name in names:
            known.note("s", {"key": name, "digest": name, "rejected": [], "bad": 0}, 0, 1, 10**16)
    keys.load(saved.dump())

    assert [keys.get(f"\ns\n{key}") is not None for key in "abc"] == [False, True, True]


def test_journal_that_was_replaced_is_noticed(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    with journal_of(folder) as journal:
        append(journal, "orders", [b"0", b"1"])
    marks = HttpClient(source_at(folder), "api").marks()
    for file in folder.iterdir():
        file.unlink()
    with journal_of(folder) as journal:
        append(journal, "orders", [b"2", b"3", b"4"])

    with pytest.raises(DataLoss, match="the journal was deleted or replaced since"):
        HttpClient(source_at(folder), "api").check({"orders": 2}, marks)
    skipping = HttpClient(source_at(folder, ", on_data_loss: skip"), "api")
    assert skipping.check({"orders": 2}, marks) == {"orders": 0, "clicks": 0}


def test_journal_from_a_backup_is_noticed_however_many_events_came_since(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    source = source_at(folder)
    with journal_of(folder) as journal:
        append(journal, "orders", [b"0"])
        marks = HttpClient(source, "api").marks()
    backup = {file: file.read_bytes() for file in segments(folder)}
    with journal_of(folder) as journal:
        append(journal, "orders", [b"1", b"2"])
    for file, data in backup.items():
        file.write_bytes(data)

    with journal_of(folder) as journal:
        append(journal, "orders", [b"x"] * 10)
        with pytest.raises(DataLoss, match="it is older than the table"):
            HttpClient(source, "api").check({"orders": 3}, marks)


def test_events_behind_a_position_that_was_given_out_are_no_loss(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    source = source_at(folder)
    with journal_of(folder) as journal:
        append(journal, "orders", [b"x"] * 10)
        client = HttpClient(source, "api")
        client.splits([OffsetRange("orders", 0, 10)], 1)

        assert client.check({"orders": 10}, client.marks()) == {"orders": 10, "clicks": 0}


def test_others_may_look_while_the_journal_is_written_and_forgotten(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    source, troubles, stop = source_at(folder), [], threading.Event()

    def look() -> None:
        try:
            while not stop.is_set():
                client = HttpClient(source, "api")
                client.check({}, client.marks())
                client.age(client.latest())
                client.splits([OffsetRange("orders", client.start()["orders"], client.latest()["orders"])], 2)
        except Exception as error:
            troubles.append(error)

    with journal_of(folder, quota=8_000) as journal:
        threads = [threading.Thread(target=look) for _ in range(3)]
        for thread in threads:
            thread.start()
        for number in range(400):
            append(journal, "orders", [b"x" * 300])
            journal.acknowledge({"orders": number})
        stop.set()
        for thread in threads:
            thread.join(120)

    assert troubles == []


def test_first_write_that_never_began_leaves_a_journal_that_opens(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "journal"

    def full(*given: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(SourceError, match="No space left on device"), journal_of(folder):
            pass
    assert [file.stat().st_size for file in segments(folder)] == [0]

    with journal_of(folder) as journal:
        assert append(journal, "orders", [b"0"]).first == 0


def test_two_writes_in_a_row_that_were_cut_off_are_no_damage(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    with journal_of(folder) as journal:
        append(journal, "orders", [b"0"])
    (file,) = segments(folder)

    def leave(*pieces: slice) -> None:
        """Write two requests at once, of which only some bytes reach the disk."""
        with journal_of(folder) as journal:
            size = journal.size
            journal._write([Append(Batch.of("orders", Payloads.of([b"x" * 50]), 0, {})) for _ in range(2)])
        data = bytearray(file.read_bytes())
        written = data[size:]
        for piece in pieces:
            written[piece] = bytes(len(written[piece]))
        file.write_bytes(data[:size] + written)

    leave(slice(-20, None))
    leave(slice(10, 30))

    with journal_of(folder) as journal:
        assert journal.contents().next == {"orders": 1}
        assert append(journal, "orders", [b"1"]).first == 1
    assert payloads(source_at(folder), "orders", 0, 2) == [b"0", b"1"]


def test_folders_above_the_journal_outlive_a_power_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(disk, "sync", synced.extend)
    with journal_of(tmp_path / "a" / "b" / "journal"):
        pass

    assert {tmp_path, tmp_path / "a", tmp_path / "a" / "b"} <= set(synced)


def test_store_that_may_overwrite_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    unsafe = ObjectSegments("s3://lake/j", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    with pytest.raises(SourceError, match="Remove AWS_S3_ALLOW_UNSAFE_RENAME"), unsafe.locked():
        pass
    monkeypatch.setattr(ObjectFiles, "put_new", lambda *given: None)
    monkeypatch.setattr(ObjectFiles, "delete_file", lambda *given: None)
    elsewhere = {"AWS_ENDPOINT_URL": "http://127.0.0.1:9", "AWS_ALLOW_HTTP": "true"}
    ignoring = ObjectSegments("s3://lake/j", elsewhere)

    with pytest.raises(SourceError, match="ignores conditional writes"), ignoring.locked():
        pass


def test_tasks_have_no_secrets_of_senders(tmp_path: Path) -> None:
    secret = "token: SECRET-TOKEN, hmac: {preset: github, secret: SECRET-HMAC}"
    source = source_at(tmp_path / "journal", f", {secret}")

    assert b"SECRET" in pickle.dumps(source)
    assert b"SECRET" not in pickle.dumps(source.for_workers())
    assert source.for_workers().journal == source.journal


def test_events_are_kept_that_a_table_reads_anew_after_a_jump_back(tmp_path: Path) -> None:
    folder = tmp_path / "journal"
    source = source_at(folder, ", on_data_loss: skip")
    with journal_of(folder, quota=8_000) as journal:
        for number in range(5):
            append(journal, "orders", [b"%d" % number + b"x" * 900])
        client = HttpClient(source, "api")
        at = {"orders": client.check({"orders": 120}, {"orders": journal.id - 1})["orders"]}
        jumps = {"orders": (120, at["orders"])}
        progress = TableProgress(cast(Any, None), at, {"orders": 119}, {}, {}, {}, jumps=jumps)
        tasks = client.splits([OffsetRange("orders", 0, 5)], 1)

        client.acknowledge(progress.recorded)
        append(journal, "orders", [b"more"])
        found = [one[:1] for task in tasks for events in source.read(task) for one in events.payloads if one]

    assert found == [b"0", b"1", b"2", b"3", b"4"]
    progress.extend(OffsetRange("orders", 0, 5), 5, 0)
    progress.rest(idle=False)
    progress.logged = {"orders": 4}
    assert progress.recorded == {"orders": 5}


def test_stream_that_no_table_takes_any_more_is_given_up_only_when_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "journal"
    with journal_of(folder, quota=8_000) as journal:
        append(journal, "clicks", [b"c"] * 3)
        append(journal, "orders", [b"o"])

    def without_clicks(*, skip: bool = False) -> AbstractContextManager[Journal]:
        keys, at = Keys(3600.0, 1000), str(folder)
        takes = "orders".__eq__
        return writing(at, DiskSegments(at), keys, "shop/items", 8_000, skip_damaged=skip, takes=takes)

    with pytest.raises(SourceError, match="holds 3 events of stream clicks, which no"), without_clicks():
        pass
    with without_clicks(skip=True):
        assert "they are given up" in caplog.text
    with without_clicks() as journal:
        for _ in range(3):
            append(journal, "orders", [b"x" * 900])
        journal.acknowledge({"orders": 4})
        append(journal, "orders", [b"o"])
        append(journal, "orders", [b"o"])
        assert "clicks" not in journal.contents().index.earliest()
        assert journal.contents().next["clicks"] == 3


def test_requests_do_not_wait_for_all_segments_that_go(tmp_path: Path) -> None:
    folder, order = tmp_path / "journal", []
    with journal_of(folder, quota=800) as journal:
        for _ in range(35):
            append(journal, "orders", [b"x" * 100])
        delete, write = journal._segments.delete, journal._segments.append
        gate = threading.Event()
        journal._segments.delete = lambda number: (gate.wait(120), order.append("delete"), delete(number))
        journal._segments.append = lambda *given: (order.append("write"), write(*given))
        journal.acknowledge({"orders": 35})
        made = Append(Batch.of("orders", Payloads.of([b"y"]), 0, {}))
        done = threading.Event()
        journal.settled = lambda group: done.set()
        journal.append(made)
        gate.set()
        assert done.wait(120)
        deadline = time.monotonic() + 120
        while len(segments(folder)) > 2 and time.monotonic() < deadline:
            time.sleep(0.01)

    assert order.index("write") <= 10
    assert order.count("delete") >= 33


def test_an_acknowledgement_that_comes_while_the_disk_is_in_trouble_is_not_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The thread that writes may have waited long enough at just that moment."""
    monkeypatch.setattr("lakefeed.sources.http.journal.journal._RETRY", 0.05)
    told: list[dict[str, int]] = []
    with journal_of(tmp_path / "journal") as journal:
        append(journal, "orders", [b"0"])
        monkeypatch.setattr(journal, "_forget", lambda positions: told.append(dict(positions)))
        monkeypatch.setattr(journal, "_trouble", "the disk is full")
        monkeypatch.setattr(journal, "_commit", lambda group: None)
        with journal._condition:
            journal._condition.notify_all()
        time.sleep(0.02)
        with journal._condition:
            time.sleep(0.2)
            journal.acknowledge({"orders": 1})
        wait_until(lambda: {"orders": 1} in told, 120, lambda: f"{told}")
        monkeypatch.undo()
