"""A journal in an object store: an object for each write, one writer, read by whoever can reach the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.sources.http.journal.journal import Journal, writing
from lakefeed.sources.http.journal.keys import Keys
from lakefeed.sources.http.journal.objects import ObjectSegments
from lakefeed.sources.http.receiver.server import receiving
from support.http_source import append, post
from support.ledger import table_ids
from support.s3 import S3Server


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
            found["api"].journal.acknowledge({"orders": 2})

    assert ("idempotent-replayed" in again[2], again[1]["position"]) == (True, 2)
    assert sorted(table_ids(tmp_path / "orders", "id")) == [0, 1, 2, 3, 4, 5, 100]
    names = s3.keys(bucket)
    assert "journal/keys" in names and "journal/000000000001.segment" not in names


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
    assert refused.error is not None and "another run writes the journal" in refused.error
    assert again.error == refused.error


class Deaf(ObjectSegments):
    """A store whose answer is lost, though it has done what was asked."""

    lost = 0

    def append(self, number: int, at: int, parts: list[bytes]) -> None:
        super().append(number, at, parts)
        if self.lost:
            self.lost -= 1
            self._unsure.add(__import__("hashlib").blake2b(b"".join(parts), digest_size=16).digest())
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
