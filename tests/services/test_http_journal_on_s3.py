"""A journal in an object store: an object for each write, one writer, read by whoever can reach the store."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.errors import Fenced
from lakefeed.sources.http.journal import journal as journal_module
from lakefeed.sources.http.journal.journal import Journal, writing
from lakefeed.sources.http.journal.keys import Keys
from lakefeed.sources.http.journal.objects import ObjectSegments
from lakefeed.sources.http.journal.scan import scan
from lakefeed.sources.http.journal.segments import epoch_of
from lakefeed.sources.http.receiver.server import receiving
from support.http_source import append, post
from support.ledger import table_ids
from support.processes import wait_until
from support.s3 import S3Server


@pytest.fixture(autouse=True)
def look_around_seldom(monkeypatch: pytest.MonkeyPatch) -> None:
    """A look at the store between two steps of a test would meet what was prepared for the second step."""
    monkeypatch.setattr(journal_module, "_LOOK_AROUND", 600.0)


def new_bucket(s3: S3Server, name: str) -> str:
    s3.create_bucket(name)
    return f"s3://{name}/journal"


@contextmanager
def journal_at(path: str, segments: ObjectSegments) -> Iterator[Journal]:
    with writing(path, segments, Keys(60.0, 100), "shop/api", 10**9, skip_damaged=False) as journal:
        yield journal


def test_events_over_http_by_way_of_a_store(s3: S3Server, tmp_path: Path) -> None:
    bucket = "http-journal"
    s3.create_bucket(bucket)
    source = {
        "type": "http",
        "listen": "127.0.0.1:0",
        "streams": ["orders"],
        "journal": f"s3://{bucket}/journal",
        "storage": s3.storage,
    }
    file = tmp_path / "shop.yaml"
    tables = {"orders": {"path": "orders", "from": "api", "schema": {"id": "long"}}}
    file.write_text(yaml.safe_dump({"name": "shop", "sources": {"api": source}, "tables": tables}))
    pipeline, key = Pipeline.from_file(file), {"Idempotency-Key": "k"}
    for number in range(3):
        with receiving(pipeline, {}, listen=True) as found:
            assert post(found["api"], "/orders", [{"id": 2 * number}, {"id": 2 * number + 1}])[0] == 202
            again = post(found["api"], "/orders", {"id": 100}, key)
            run_inline(pipeline)
            found["api"].journal.acknowledge({"orders": 2 * number + 3})

    assert ("idempotent-replayed" in again[2], again[1]["position"]) == (True, 2)
    assert sorted(table_ids(tmp_path / "orders", "id")) == [0, 1, 2, 3, 4, 5, 100]
    names = s3.keys(bucket)
    assert [name for name in names if "keys" in name] == ["journal/keys-000000000003"]
    assert len([name for name in names if name.endswith(".segment")]) < 6


def test_second_writer_is_noticed_and_takes_nothing_from_the_first(s3: S3Server) -> None:
    path = new_bucket(s3, "http-fence")
    one, other = ObjectSegments(path, s3.storage), ObjectSegments(path, s3.storage)
    with journal_at(path, one) as first:
        append(first, "orders", [b"0"])
        with journal_at(path + "/", other) as second:
            taken = append(second, "orders", [b"1"])
            refused = append(first, "orders", [b"x"])
            again = append(first, "orders", [b"x"])
            later = append(second, "orders", [b"2"])

    assert (taken.first, later.first) == (1, 2)
    assert refused.error is not None and "another run has taken over the journal" in refused.error
    assert again.error == refused.error


def test_writer_that_was_paused_answers_for_nothing_and_leaves_nothing_that_is_read(
    s3: S3Server,
) -> None:
    path = new_bucket(s3, "http-paused")
    paused, next_one = ObjectSegments(path, s3.storage), ObjectSegments(path, s3.storage)
    with journal_at(path, paused) as old:
        append(old, "orders", [b"0"])
        with journal_at(path + "/", next_one) as new:
            for payload in (b"1", b"2", b"3"):
                append(new, "orders", [payload])
            new.acknowledge({"orders": 3})
            wait_until(lambda: len(next_one.numbers()) == 1, 120, lambda: str(next_one.numbers()))
            late = append(old, "orders", [b"nobody reads this"], key="k", digest="", rejected=[], bad=0)

            with pytest.raises(Fenced, match="another run has taken over the journal"):
                old.confirm()
            assert append(new, "orders", [b"4"]).first == 4
    left = next_one.numbers()
    with journal_at(path, ObjectSegments(path, s3.storage)) as journal:
        contents, keys = journal.contents(), len(journal.keys)

    assert late.error is not None and "another run has taken over the journal" in late.error
    assert (contents.next, contents.earliest(), keys) == ({"orders": 5}, {"orders": 3}, 0)
    assert min(left) not in ObjectSegments(path, s3.storage).numbers()


def test_run_that_receives_nothing_notices_the_one_that_has_taken_over(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "_LOOK_AROUND", 0.05)
    path = new_bucket(s3, "http-rolling")
    with journal_at(path, ObjectSegments(path, s3.storage)) as old:
        append(old, "orders", [b"0"])
        with journal_at(path + "/", ObjectSegments(path, s3.storage)) as new:
            wait_until(lambda: bool(old.trouble), 120, lambda: "not noticed")

            with pytest.raises(Fenced):
                old.confirm()
            assert append(new, "orders", [b"1"]).first == 1


class Earlier(ObjectSegments):
    """The writer of an earlier release: it knows no epochs, and ends where its next number is taken."""

    @contextmanager
    def locked(self) -> Iterator[None]:
        yield

    def confirm(self) -> None:
        pass

    def append(self, number: int, at: int, parts: list[bytes]) -> None:
        if number in self.numbers():
            raise self._other()
        super().append(number, at, parts)


def test_run_of_an_earlier_release_ends_when_a_newer_one_takes_over(s3: S3Server) -> None:
    path = new_bucket(s3, "http-upgrade")
    next_one = ObjectSegments(path, s3.storage)
    with journal_at(path, Earlier(path, s3.storage)) as old:
        append(old, "orders", [b"0"])
        with journal_at(path + "/", next_one) as new:
            assert [append(new, "orders", [one]).first for one in (b"1", b"2", b"3")] == [1, 2, 3]
            new.acknowledge({"orders": 4})
            wait_until(lambda: len(next_one.numbers()) == 3, 120, lambda: str(next_one.numbers()))
            late = append(old, "orders", [b"x"])
    with journal_at(path, ObjectSegments(path, s3.storage)) as journal:
        contents = journal.contents()
    with journal_at(path, Earlier(path, s3.storage)) as journal:
        back = append(journal, "orders", [b"4"])

    assert late.error is not None and "another run has taken over the journal" in late.error
    assert (contents.next, contents.earliest()) == ({"orders": 4}, {"orders": 3})
    assert (back.error, back.first) == (None, 4)


class CutOff(ObjectSegments):
    """A store that cannot be reached for a while, from right after a write."""

    away = False

    def confirm(self) -> None:
        if self.away:
            raise OSError("no route to host")
        super().confirm()

    def cut(self, number: int, size: int) -> None:
        if self.away:
            raise OSError("no route to host")
        super().cut(number, size)


def test_write_that_a_later_run_has_read_is_not_taken_back(s3: S3Server) -> None:
    path = new_bucket(s3, "http-cut-off")
    store, next_one = CutOff(path, s3.storage), ObjectSegments(path, s3.storage)
    with journal_at(path, store) as old:
        append(old, "orders", [b"0"])
        store.away = True
        refused = append(old, "orders", [b"in doubt"])
        with journal_at(path + "/", next_one) as new:
            found = new.locate("orders", 1, 2)
            store.away = False
            late = append(old, "orders", [b"2"])

            assert append(new, "orders", [b"3"]).first == 2
            assert b"in doubt" in next_one.read(found[0][0])

    assert refused.error == "no route to host"
    assert late.error is not None and "another run has taken over the journal" in late.error


class Deaf(ObjectSegments):
    """A store whose answer is lost, though it has done what was asked."""

    lost = 0

    def append(self, number: int, at: int, parts: list[bytes]) -> None:
        super().append(number, at, parts)
        if self.lost:
            self.lost -= 1
            raise OSError("operation timed out")


def test_write_without_an_answer_takes_no_number_twice(s3: S3Server) -> None:
    path = new_bucket(s3, "http-deaf")
    store = Deaf(path, s3.storage)
    with journal_at(path, store) as journal:
        append(journal, "orders", [b"0"])
        store.lost = 1
        refused = append(journal, "orders", [b"never told"])
        taken = append(journal, "orders", [b"1"])
    with journal_at(path, ObjectSegments(path, s3.storage)) as journal:
        ends = journal.contents().next

    assert (refused.error, taken.first, ends) == ("operation timed out", 1, {"orders": 2})


class Doubtful(ObjectSegments):
    """A store whose answer is lost once, and a run that pauses before one of its requests."""

    lost = False
    paused_at = ""

    def meanwhile(self) -> None:
        """What happens while the run is paused."""

    def confirm(self) -> None:
        if self.lost:
            self.lost = False
            raise OSError("no answer")
        super().confirm()

    def _take(self, epoch: int) -> bool:
        self._pause("epoch")
        return super()._take(epoch)

    def append(self, number: int, at: int, parts: list[bytes]) -> None:
        self._pause("append")
        super().append(number, at, parts)

    def save_keys(self, data: bytes) -> None:
        self._pause("keys")
        super().save_keys(data)

    def _pause(self, at: str) -> None:
        if self.paused_at == at and not self.lost:
            self.paused_at = ""
            self.meanwhile()


KEY: dict[str, Any] = {"key": "k", "digest": "d", "rejected": [], "bad": 0}


@pytest.mark.parametrize(("paused_at", "is_read"), [("epoch", True), ("append", True), ("nowhere", False)])
def test_write_in_doubt_counts_if_the_next_run_has_read_it(
    s3: S3Server, paused_at: str, is_read: bool
) -> None:
    path = new_bucket(s3, f"http-doubt-{paused_at}")
    doubtful, next_one = Doubtful(path, s3.storage), ObjectSegments(path, s3.storage)
    with ExitStack() as runs, journal_at(path, doubtful) as old:
        append(old, "orders", [b"0"])
        taken_over: list[Journal] = []
        doubtful.meanwhile = lambda: taken_over.append(  # type: ignore[method-assign]
            runs.enter_context(journal_at(path + "/", next_one))
        )
        doubtful.lost, doubtful.paused_at = True, paused_at
        refused = append(old, "orders", [b"precious"], **KEY)
        late = append(old, "orders", [b"late"])
        if not taken_over:
            doubtful.meanwhile()
        (new,) = taken_over
        known = new.contents().next, len(new.keys)
        held = [next_one.read(piece[0]) for piece in new.locate("orders", 1, 2)]
        append(new, "orders", [b"2"])
    with journal_at(path, ObjectSegments(path, s3.storage)) as third:
        again = third.contents().next, len(third.keys)
        left = [next_one.read(piece[0]) for piece in third.locate("orders", 1, 2)]

    assert refused.error == "no answer"
    assert (late.error is None) == (not is_read)
    assert (known, again) == (({"orders": 2}, int(is_read)), ({"orders": 3}, int(is_read)))
    assert held == left and [(b"precious" in data, b"late" in data) for data in held] == [
        (is_read, not is_read)
    ]


def test_write_that_comes_when_two_later_runs_have_forgotten_theirs_counts_for_none(s3: S3Server) -> None:
    path = new_bucket(s3, "http-very-late")
    paused = Doubtful(path, s3.storage)

    def two_runs() -> None:
        for number in (2, 4):
            segments = ObjectSegments(path, s3.storage)
            with journal_at(path + "/", segments) as journal:
                for payload in (b"x", b"y"):
                    append(journal, "orders", [payload])
                journal.acknowledge({"orders": number + 1})
                wait_until(lambda: len(segments.numbers()) == 1, 120, lambda: str(segments.numbers()))  # noqa: B023

    with journal_at(path, paused) as old:
        append(old, "orders", [b"0"])
        paused.meanwhile, paused.paused_at = two_runs, "append"  # type: ignore[method-assign]
        late = append(old, "orders", [b"late"], **KEY)
    came = ObjectSegments(path, s3.storage).numbers()
    with journal_at(path, ObjectSegments(path, s3.storage)) as journal:
        contents, keys = journal.contents(), len(journal.keys)

    assert late.error is not None and len(came) == 2
    assert (contents.next, contents.earliest(), keys) == ({"orders": 5}, {"orders": 4}, 0)


def test_run_that_was_paused_while_it_keeps_keys_takes_those_of_no_other_run(s3: S3Server) -> None:
    path = new_bucket(s3, "http-late-keys")
    paused, next_one = Doubtful(path, s3.storage), ObjectSegments(path, s3.storage)

    def next_run() -> None:
        with journal_at(path + "/", next_one) as new:
            append(new, "orders", [b"1"], **{**KEY, "key": "new"})
            append(new, "orders", [b"2"])
            new.acknowledge({"orders": 3})
            wait_until(lambda: len(next_one.numbers()) == 1, 120, lambda: str(next_one.numbers()))

    with journal_at(path, paused) as old:
        append(old, "orders", [b"0"], **KEY)
        append(old, "orders", [b""])
        paused.meanwhile, paused.paused_at = next_run, "keys"  # type: ignore[method-assign]
        old.acknowledge({"orders": 1})
        wait_until(lambda: not paused.paused_at, 120, lambda: "it keeps no keys")
    with journal_at(path, ObjectSegments(path, s3.storage)) as journal:
        known = [journal.keys.get(f"\norders\n{key}") is not None for key in ("k", "new")]

    assert known == [True, True]


def test_keys_of_segments_that_go_while_the_next_run_begins_are_known_to_it(s3: S3Server) -> None:
    path = new_bucket(s3, "http-keys-meanwhile")
    paused, goes_on = Doubtful(path, s3.storage), threading.Event()

    class Beginning(ObjectSegments):
        def keys(self) -> bytes:
            before = super().keys()
            goes_on.set()
            wait_until(lambda: first not in self.numbers(), 120, lambda: str(self.numbers()))
            return before

    with journal_at(path, paused) as old:
        append(old, "orders", [b"0"], **KEY)
        append(old, "orders", [b"1"])
        first = paused.numbers()[0]
        paused.meanwhile, paused.paused_at = lambda: goes_on.wait(120), "keys"  # type: ignore
        old.acknowledge({"orders": 2})
        wait_until(lambda: not paused.paused_at, 120, lambda: "it keeps no keys")
        with journal_at(path + "/", Beginning(path, s3.storage)) as new:
            known = new.keys.get("\norders\nk")

    assert known is not None and known.first == 0


class Gathering(ObjectSegments):
    """Reads each of some segments for the first time only when eight readers have come."""

    def gather(self, numbers: list[int]) -> None:
        self.gathered, self.readers = set(numbers), threading.Barrier(8)

    def read(self, number: int, start: int = 0, end: int | None = None) -> bytes:
        if number in self.gathered:
            self.gathered.discard(number)
            self.readers.wait(120)
        return super().read(number, start, end)


def test_segments_of_a_run_and_of_many_runs_are_read_in_parallel(s3: S3Server) -> None:
    path = new_bucket(s3, "http-parallel")
    for run in range(9):
        with journal_at(path, ObjectSegments(path, s3.storage)) as journal:
            for _ in range(1 + 17 * (run == 8)):
                append(journal, "orders", [b"{}"])
    segments = Gathering(path, s3.storage)
    numbers = segments.numbers()
    firsts = {epoch_of(number): number for number in reversed(numbers)}
    found = []
    for gathered in (sorted(firsts.values())[1:], numbers[-17:-1]):
        segments.gather(gathered)
        found.append(scan(segments, checked=True).next)

    assert [len(gathered) for gathered in (firsts, numbers)] == [9, 35]
    assert found == [{"orders": 26}] * 2


@pytest.fixture
def away(tmp_path: Path) -> Pipeline:
    file = tmp_path / "shop.yaml"
    storage = {
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_ACCESS_KEY_ID": "k",
        "AWS_SECRET_ACCESS_KEY": "s",
    }
    storage |= {
        "AWS_ALLOW_HTTP": "true",
        "AWS_REGION": "us-east-1",
        "retry_timeout": "1s",
        "max_retries": "0",
    }
    source = {"type": "http", "streams": ["a"], "journal": "s3://no/journal", "storage": storage}
    tables = {"a": {"path": "a", "from": "api"}}
    file.write_text(yaml.safe_dump({"name": "shop", "sources": {"api": source}, "tables": tables}))
    return Pipeline.from_file(file)


def test_store_that_is_away_is_told(away: Pipeline) -> None:
    with (
        pytest.raises(Exception, match="the journal s3://no/journal does not answer"),
        receiving(away, {}, listen=False),
    ):
        pass
