from __future__ import annotations

import datetime as dt
import json
import re
import time

import pytest
from pydantic import ValidationError

from lakefeed.errors import SourceError
from lakefeed.events import ORIGIN, OffsetRange
from lakefeed.sources.generate.source import GenerateSource


def payloads_of(source: GenerateSource, *ranges: OffsetRange) -> list[bytes | None]:
    return [payload for events in source.read(ranges) for payload in events.payloads]


def test_a_row_is_a_shop_event_in_json() -> None:
    source = GenerateSource()

    [payload] = payloads_of(source, OffsetRange("0", 864_001, 864_002))

    event = json.loads(payload or b"")
    assert list(event) == [
        "event_id",
        "event_time",
        "event_type",
        "product_id",
        "category_id",
        "category_code",
        "brand",
        "price",
        "user_id",
        "user_session",
    ]
    assert event["event_id"] == 864_001
    assert event["event_time"] == "2026-01-02T00:00:00.100Z"
    assert re.fullmatch(
        r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-a[0-9a-f]{3}-[0-9a-f]{12}", event["user_session"]
    )
    assert re.search(rb'"price":\d+\.\d\d,', payload or b"")


def test_events_look_like_those_of_a_shop() -> None:
    events = [json.loads(p or b"") for p in payloads_of(GenerateSource(), OffsetRange("0", 0, 20_000))]

    kinds = [event["event_type"] for event in events]
    assert 0.88 < kinds.count("view") / len(kinds) < 0.92
    assert kinds.count("cart") > kinds.count("purchase") > 0
    assert 250 <= sum(len(json.dumps(event)) for event in events) / len(events) <= 310
    assert len({event["user_session"] for event in events}) < len(events) / 4
    assert len({(event["product_id"], event["price"], event["brand"]) for event in events}) == len(
        {event["product_id"] for event in events}
    )
    assert len({(event["user_session"], event["user_id"]) for event in events}) == len(
        {event["user_session"] for event in events}
    )


def test_a_payload_depends_on_seed_and_row_number_only() -> None:
    rows = payloads_of(GenerateSource(seed=7), OffsetRange("0", 0, 1_000))

    spread = GenerateSource(seed=7, partitions=3, rate=10, rows=5_000)
    assert payloads_of(spread, OffsetRange("1", 100, 110)) == [
        rows[offset * 3 + 1] for offset in range(100, 110)
    ]
    assert payloads_of(GenerateSource(seed=8), OffsetRange("0", 0, 1_000)) != rows


def test_a_payload_is_the_same_in_every_release() -> None:
    [payload] = payloads_of(GenerateSource(seed=42), OffsetRange("0", 123_456, 123_457))

    assert payload == (
        b'{"event_id":123456,"event_time":"2026-01-01T03:25:45.600Z","event_type":"view",'
        b'"product_id":1000731,"category_id":2053013555631882656,"category_code":"electronics.audio.headphone",'
        b'"brand":"sony","price":44.65,"user_id":512338572,"user_session":"4c9785bb-8685-4bf8-a606-ea4e1ce3f511"}'
    )


def test_many_small_ranges_come_in_few_events_and_large_ones_in_several() -> None:
    source = GenerateSource(partitions=100)

    small = list(source.read([OffsetRange(str(p), 0, 10) for p in range(100)]))
    large = list(source.read([OffsetRange("0", 0, 120_000), OffsetRange("1", 5, 5)]))

    assert [len(events.payloads) for events in small] == [1_000]
    assert [len(events.payloads) for events in large] == [50_000, 50_000, 20_000]


def test_origin_tells_partition_offset_and_event_time() -> None:
    source = GenerateSource(partitions=4)
    [events] = source.read([OffsetRange("3", 10, 12), OffsetRange("0", 7, 8)])

    origin = events.origin()
    one = events.origin([2])

    assert origin.schema == ORIGIN
    assert origin.column("partition").to_pylist() == [3, 3, 0]
    assert origin.column("offset").to_pylist() == [10, 11, 7]
    assert origin.column("timestamp")[0].as_py() == dt.datetime(2026, 1, 1, 0, 0, 4, 300_000, dt.UTC)
    assert json.loads(events.payloads[0] or b"")["event_time"] == "2026-01-01T00:00:04.300Z"
    assert origin.column("stream").null_count == origin.column("key").null_count == 3
    assert one.to_pylist() == origin.to_pylist()[2:]
    assert events.counts() == {"0": 1, "3": 2}
    assert events.counts([0, 1]) == {"3": 2}


@pytest.mark.parametrize(("ratio", "bad"), [(0.0, 0), (0.01, 100), (0.3, 3_000), (1.0, 10_000)])
def test_bad_ratio_cuts_exactly_that_share_of_payloads(ratio: float, bad: int) -> None:
    source = GenerateSource(bad_ratio=ratio, partitions=3)
    whole = GenerateSource(partitions=3)
    ranges = [OffsetRange("0", 0, 3_334), OffsetRange("1", 0, 3_333), OffsetRange("2", 0, 3_333)]

    found, expected = payloads_of(source, *ranges), payloads_of(whole, *ranges)

    cut = [(f or b"", e or b"") for f, e in zip(found, expected, strict=True) if f != e]
    assert len(cut) == bad
    assert all(f == e[: len(e) // 2] for f, e in cut)


def test_latest_of_a_source_with_rows_is_where_each_partition_ends() -> None:
    client = GenerateSource(rows=10, partitions=4).client("shop", "clicks")

    assert client.start() == {"0": 0, "1": 0, "2": 0, "3": 0}
    assert client.latest() == {"0": 3, "1": 3, "2": 2, "3": 2}


def test_an_empty_source_has_no_rows() -> None:
    client = GenerateSource(rows=0).client("shop", "clicks")

    assert client.latest() == {"0": 0}


def test_with_a_rate_rows_appear_with_time_from_where_the_table_is(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1_000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    client = GenerateSource(rate=100, rows=5_400, partitions=2).client("shop", "clicks")

    positions = client.check({"0": 2_500, "1": 2_500}, {})
    at_once = client.latest()
    now[0] += 1.5
    later = client.latest()
    now[0] += 60
    at_last = client.latest()

    assert positions == {"0": 2_500, "1": 2_500}
    assert at_once == {"0": 2_500, "1": 2_500}
    assert later == {"0": 2_575, "1": 2_575}
    assert at_last == {"0": 2_700, "1": 2_700}


def test_with_a_rate_several_tables_go_on_from_the_one_that_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 5.0)
    client = GenerateSource(rate=1).client("shop", "clicks")

    ahead, behind = client.check({"0": 900}, {}), client.check({"0": 100}, {})

    assert (ahead, behind) == ({"0": 900}, {"0": 100})
    assert client.latest() == {"0": 900}


def test_without_rows_and_rate_there_is_always_more() -> None:
    client = GenerateSource(partitions=2).client("shop", "clicks")
    client.check({"0": 7_000_000}, {})

    first, second = client.latest(), client.latest()

    assert first == {"0": 8_000_000, "1": 1_000_000}
    assert second == {"0": 9_000_000, "1": 2_000_000}


def test_check_adds_partitions_that_a_table_has_not_read_yet() -> None:
    client = GenerateSource(partitions=2, rows=10).client("shop", "clicks")

    assert client.check({"1": 3}, client.marks()) == {"0": 0, "1": 3}


def test_a_changed_option_that_makes_other_rows_is_refused() -> None:
    before = GenerateSource(seed=3, partitions=2, bad_ratio=0.01).client("shop", "clicks").marks()
    reseeded = GenerateSource(seed=4, partitions=2, bad_ratio=0.01).client("shop", "clicks")
    spread = GenerateSource(seed=3, partitions=4, bad_ratio=0.01).client("shop", "clicks")
    mended = GenerateSource(seed=3, partitions=2).client("shop", "clicks")

    with pytest.raises(SourceError) as seed:
        reseeded.check({"0": 5}, before)
    with pytest.raises(SourceError, match="partitions changed from 2 to 4"):
        spread.check({"0": 5}, before)
    with pytest.raises(SourceError, match=r"bad_ratio changed from 0.01 to 0, so"):
        mended.check({"0": 5}, before)

    assert str(seed.value) == (
        "source clicks: seed changed from 3 to 4, so this source makes other rows than those that "
        "the table holds\n"
        "Set seed: 3 again, or write to another path."
    )


def test_a_partition_that_does_not_exist_any_more_is_refused() -> None:
    client = GenerateSource(partitions=2).client("shop", "clicks")

    with pytest.raises(SourceError, match="the table has read partition 7, but partitions is 2"):
        client.check({"0": 5, "7": 5}, {})


def test_marks_fit_into_a_transaction_of_the_log() -> None:
    client = GenerateSource(seed=2**63 - 1, bad_ratio=1).client("shop", "clicks")

    assert all(0 <= value < 2**63 for value in client.marks().values())


@pytest.mark.parametrize(
    "options", [{"rows": -1}, {"rate": 0}, {"partitions": 0}, {"bad_ratio": 1.5}, {"seed": -1}, {"row": 5}]
)
def test_options_out_of_range_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValidationError):
        GenerateSource.model_validate({"type": "generate", **options})
