"""Fields set before decoding, and values coerced: by columns and event by event, with the same result."""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lakefeed.columns.column_types import declared_schema
from lakefeed.errors import PipelineFileError
from lakefeed.events import ORIGIN, Events
from lakefeed.formats import Decoded, JsonFormat, Rules
from lakefeed.formats.transform.decoder import TransformingDecoder
from lakefeed.pipeline.table import Table

IGNORE = Rules(new_column="ignore")
DAY = dt.datetime(2021, 11, 11, 22, 11, 58, tzinfo=dt.UTC)
MICROS = 1_636_668_718_000_000


class Messages(Events):
    """Payloads of one partition, from offset 0 on."""

    def __init__(self, payloads: Sequence[bytes | None]) -> None:
        self.payloads = list(payloads)

    def origin(self, rows: Sequence[int] | None = None) -> pa.RecordBatch:
        chosen = range(len(self.payloads)) if rows is None else rows
        moment = DAY.timestamp() * 1_000_000
        made = [
            {"stream": "clicks", "partition": 3, "offset": row, "timestamp": int(moment) + row * 1000}
            for row in chosen
        ]
        return pa.RecordBatch.from_pylist(made, schema=ORIGIN)

    def counts(self, rows: Sequence[int] | None = None) -> Mapping[str, int]:
        return {"clicks-3": len(self.payloads if rows is None else rows)}


def decoder(
    columns: dict[str, str],
    transform: dict[str, str] | None = None,
    rules: Rules = IGNORE,
    *,
    coerces: bool = False,
) -> TransformingDecoder:
    spec = Table(path="/lake/t", from_="s", transform=transform or {})  # type: ignore[call-arg]
    given = Rules(rules.new_column, transforms=tuple(spec.transform.items()), coerces=coerces)
    return TransformingDecoder(JsonFormat(), declared_schema(columns), given)


def events(*payloads: Any) -> Messages:
    return Messages([one if isinstance(one, bytes | None) else json.dumps(one).encode() for one in payloads])


def shown(decoded: Decoded) -> tuple[list[Any], list[tuple[int, str]]]:
    return decoded.rows.to_pylist(), sorted((one.index, one.code) for one in decoded.refused)


def event_by_event(made: TransformingDecoder) -> TransformingDecoder:
    made._columns = None
    return made


def test_transforms_of_the_book_by_columns() -> None:
    columns = {
        "ts": "string",
        "date": "string",
        "meta": "struct<kafka: struct<offset: long, topic: string>, a: int>",
    }
    transform = {
        "date": "substr(ts, `0`, `10`)",
        "meta.kafka.offset": "kafka.offset",
        "meta.kafka.topic": "kafka.topic",
    }
    made = decoder(columns, transform)

    rows, refused = shown(
        made.decode(events({"ts": "2021-03-24T15:06"}, {"ts": "2022-01", "meta": {"a": 1}}))
    )

    assert made._columns is not None
    assert rows == [
        {
            "ts": "2021-03-24T15:06",
            "date": "2021-03-24",
            "meta": {"kafka": {"offset": 0, "topic": "clicks"}, "a": None},
        },
        {"ts": "2022-01", "date": "2022-01", "meta": {"kafka": {"offset": 1, "topic": "clicks"}, "a": 1}},
    ]
    assert not refused


def test_every_function_and_everything_that_kafka_tells() -> None:
    columns = {
        **dict.fromkeys(("s", "ms", "us", "cut", "text"), "string"),
        **dict.fromkeys(("m", "type", "p", "at"), "long"),
        "moment": "timestamp",
        "arrived": "timestamp",
    }
    transform = {
        "s": "epoch_seconds_to_iso8601(n.s)",
        "ms": "epoch_millis_to_iso8601(n.ms)",
        "us": "epoch_micros_to_iso8601(n.us)",
        "m": "epoch_millis_to_micro(n.ms)",
        "cut": "substr(epoch_micros_to_iso8601(n.us), `0`, `10`)",
        "moment": "epoch_millis_to_iso8601(n.ms)",
        "type": "kafka.timestamp_type",
        "p": "kafka.partition",
        "at": "kafka.timestamp",
        "arrived": "kafka.timestamp",
        "text": "join('-', [a, b])",
    }
    event = {"n": {"s": 1626823098, "ms": 1626823098519, "us": 1626823098519950}, "a": "x", "b": "y"}
    expected = {
        "s": "2021-07-20T23:18:18Z",
        "ms": "2021-07-20T23:18:18.519Z",
        "us": "2021-07-20T23:18:18.519950Z",
        "m": 1626823098519000,
        "cut": "2021-07-20",
        "moment": dt.datetime(2021, 7, 20, 23, 18, 18, 519000, tzinfo=dt.UTC),
        "type": 0,
        "p": 3,
        "at": MICROS,
        "arrived": DAY,
    }

    slow = decoder(columns, transform)
    del columns["text"], transform["text"]
    fast = decoder(columns, transform)

    assert slow._columns is None and fast._columns is not None
    assert shown(fast.decode(events(event))) == ([expected], [])
    (row,), _ = shown(slow.decode(events(event)))
    assert row == {**expected, "text": "x-y"}


def test_all_transforms_see_the_event_as_it_came() -> None:
    made = decoder({"a": "string", "b": "string"}, {"a": "b", "b": "a"})

    for each in (made, event_by_event(decoder({"a": "string", "b": "string"}, {"a": "b", "b": "a"}))):
        assert shown(each.decode(events({"a": "1", "b": "2"}, {"a": "1"}))) == (
            [{"a": "2", "b": "1"}, {"a": "1", "b": "1"}],
            [],
        )


def test_a_field_may_be_set_from_itself_in_another_type() -> None:
    made = decoder({"ts": "timestamp"}, {"ts": "epoch_millis_to_iso8601(ts)"})

    rows, refused = shown(made.decode(events({"ts": 1626823098519}, {"ts": 0})))

    assert made._columns is not None
    assert [row["ts"].year for row in rows] == [2021, 1970] and not refused


def test_a_transform_that_fails_makes_a_dead_letter_of_its_event_only() -> None:
    made = decoder({"date": "string", "n": "int"}, {"date": "substr(ts, `0`, `10`)"})

    decoded = made.decode(
        events({"ts": "2021-03-24", "n": 1}, {"n": 2}, {"ts": 5, "n": 3}, b"no", None, {"ts": "x", "n": "y"})
    )

    assert decoded.rows.to_pylist() == [{"date": "2021-03-24", "n": 1}]
    assert [(one.index, one.code) for one in decoded.refused] == [
        (1, "bad_transform"),
        (2, "bad_transform"),
        (3, "bad_json"),
        (4, "null_payload"),
        (5, "wrong_type"),
    ]
    assert "transform date: substr(ts, `0`, `10`): " in decoded.refused[0].error


def test_a_column_that_is_not_null_may_be_made_by_a_transform() -> None:
    made = decoder({"date": "string not null", "o": "long not null"}, {"date": "day", "o": "kafka.offset"})

    assert shown(made.decode(events({"day": "mon"}, {"x": 1}))) == (
        [{"date": "mon", "o": 0}],
        [(1, "missing_value")],
    )


def test_a_new_column_is_proposed_from_what_a_transform_makes() -> None:
    made = decoder({}, {"meta.offset": "kafka.offset", "at": "kafka.timestamp"}, Rules())

    unknown = made.decode(events({"a": 1})).unknown

    assert unknown is not None and set(unknown.names) == {"a", "meta", "at"}
    assert unknown.field("at").type == pa.timestamp("us", "UTC")


def test_coercions_of_kafka_delta_ingest() -> None:
    columns = {
        "s": "string",
        "t": "timestamp",
        "n": "struct<s: string, t: timestamp>",
        "l": "array<string>",
        "ts": "array<timestamp>",
        "o": "array<struct<s: string, i: int>>",
    }
    made = decoder(columns, coerces=True)
    given = events(
        {
            "s": "a",
            "t": MICROS,
            "n": {"s": {"x": "x", "y": [1.10]}, "t": "2021-11-11T22:11:58Z"},
            "l": ["a", {"a": 1}],
        },
        {"s": {"a": "a"}, "t": "2021-11-11T22:11:58-00:00", "ts": ["2021-11-11T22:11:58Z", MICROS]},
        {"s": None, "o": [{"s": 2, "i": 1}, {"s": None}, None]},
        {"s": True, "t": "This definitely is not a timestamp"},
        {"o": [{"i": "no"}]},
    )

    rows, refused = shown(made.decode(given))

    def row(**values: Any) -> dict[str, Any]:
        return {**dict.fromkeys(columns), **values}

    assert rows == [
        row(s="a", t=DAY, n={"s": '{"x":"x","y":[1.1]}', "t": DAY}, l=["a", '{"a":1}']),
        row(s='{"a":"a"}', t=DAY, ts=[DAY, DAY]),
        row(o=[{"s": "2", "i": 1}, {"s": None, "i": None}, None]),
    ]
    assert refused == [(3, "bad_timestamp"), (4, "wrong_type")]


def test_without_coercions_the_same_values_are_refused() -> None:
    made = decoder({"s": "string", "t": "timestamp"}, {"s": "s"})

    _, refused = shown(made.decode(events({"s": 1}, {"t": MICROS}, {"s": "fine"})))

    assert refused == [(0, "wrong_type"), (1, "bad_timestamp")]


@pytest.mark.parametrize(
    ("transform", "problem"),
    [
        ({"a": "substring(b, `0`)"}, "a: there is no function 'substring', did you mean 'substr'?"),
        ({"a": "b..c"}, "a: not a JMESPath expression"),
        ({"a..b": "c"}, "'a..b' is no way to a field"),
        ({"a": "kafka.ofset"}, "did you mean 'kafka.offset'?"),
    ],
)
def test_mistakes_are_told_when_the_file_is_read(transform: dict[str, str], problem: str) -> None:
    with pytest.raises(PipelineFileError, match="transform") as caught:
        Table(path="/lake/t", from_="s", transform=transform)  # type: ignore[call-arg]

    assert problem in str(caught.value)


VALUES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**52),
    st.floats(-1e6, 1e6).map(lambda x: round(x, 3)),
    st.sampled_from(["", "2021-11-11T22:11:58Z", "2021-11-11", "x" * 12, "1626823098"]),
    st.dictionaries(st.sampled_from("ab"), st.integers(0, 9), max_size=2),
    st.lists(st.integers(0, 9), max_size=2),
)
OBJECTS = st.dictionaries(st.sampled_from(["t", "s", "i", "m", "made"]), VALUES, max_size=5)
COLUMNS = {"t": "timestamp", "s": "string", "i": "long", "m": "struct<a: long, b: string>", "made": "string"}
TRANSFORMS = [
    {},
    {"made": "substr(s, `1`, `4`)"},
    {"made": "s"},
    {"m.a": "i"},
    {"m.b": "kafka.topic", "i": "kafka.offset"},
    {"t": "epoch_micros_to_iso8601(i)"},
    {"t": "epoch_millis_to_micro(i)", "made": "epoch_seconds_to_iso8601(i)"},
]


@settings(max_examples=200, deadline=None)
@given(st.lists(OBJECTS, min_size=1, max_size=8), st.sampled_from(TRANSFORMS), st.booleans())
def test_by_columns_and_event_by_event_agree(
    objects: list[dict[str, Any]], transform: dict[str, str], coerces: bool
) -> None:
    given_events = events(*objects)
    fast = decoder(COLUMNS, transform, coerces=coerces)
    slow = event_by_event(decoder(COLUMNS, transform, coerces=coerces))

    assert shown(fast.decode(given_events)) == shown(slow.decode(given_events))


def test_numbers_and_depths_beyond_the_fast_parser_are_dead_letters_or_rows() -> None:
    made = decoder({"id": "long", "n": "long", "s": "string"}, {"n": "length(s)"}, coerces=True)
    deep = b'{"id":1,"s":"a","x":' + b"[" * 300 + b"]" * 300 + b"}"

    rows, refused = shown(
        made.decode(
            events(
                b'{"id":1,"s":"a","x":1e400}',
                deep,
                b'{"id":3,"s":"abc","x":12345678901234567890123}',
                {"id": 4, "s": "ab"},
            )
        )
    )

    assert rows == [{"id": 3, "n": 3, "s": "abc"}, {"id": 4, "n": 2, "s": "ab"}]
    assert refused == [(0, "bad_transform"), (1, "too_deep")]


def test_key_that_comes_twice_is_refused_also_where_an_escape_hides_a_colon() -> None:
    made = decoder({"id": "long", "n": "long", "s": "string"}, {"n": "length(s)"})

    rows, refused = shown(
        made.decode(
            events(b'{"id":1,"id":2,"s":"a"}', b'{"id":1,"s":"a","s":"\\u003a"}', b'{"id":3,"s":"\\u003a"}')
        )
    )

    assert rows == [{"id": 3, "n": 1, "s": ":"}]
    assert refused == [(0, "duplicate_key"), (1, "duplicate_key")]


def test_sum_beyond_64_bits_is_written_exactly_or_refused() -> None:
    payload = {"all": [2**63 - 1, 2**63 - 1, 2**63 - 1]}

    exact = decoder({"total": "decimal(38,0)"}, {"total": "sum(all)"}).decode(events(payload))
    long = decoder({"total": "long"}, {"total": "sum(all)"}).decode(events(payload))

    assert [int(row["total"]) for row in exact.rows.to_pylist()] == [3 * (2**63 - 1)]
    assert len(long.refused) == 1


def test_field_inside_of_a_map_or_a_text_column_is_set() -> None:
    inside = decoder({"id": "long", "tags": "map<string,string>"}, {"tags.x": "other"})
    text = decoder({"id": "long", "meta": "string"}, {"meta.x": "other"}, coerces=True)

    rows, refused = shown(
        inside.decode(events({"id": 1, "other": "v"}, {"id": 2, "other": "w", "tags": {"a": "b"}}))
    )
    assert [row["tags"] for row in rows] == [[("x", "v")], [("a", "b"), ("x", "w")]]
    assert not refused
    rows, refused = shown(text.decode(events({"id": 1, "other": "v", "meta": {"a": 1}})))
    assert rows == [{"id": 1, "meta": '{"a":1,"x":"v"}'}]
    assert not refused


def test_two_fields_of_one_object_do_not_change_each_other() -> None:
    made = decoder({"a": "json", "b": "json"}, {"a": "p", "b": "p", "a.x": "q"})

    rows, _ = shown(made.decode(events({"p": {"y": 1}, "q": 2})))

    assert [{name: json.loads(text) for name, text in row.items()} for row in rows] == [
        {"a": {"y": 1, "x": 2}, "b": {"y": 1}}
    ]


def test_path_keeps_every_digit_also_beside_a_function_that_goes_event_by_event() -> None:
    made = decoder({"a": "decimal(38,18)", "n": "long"}, {"a": "p.a", "n": "length(k)"})

    rows, refused = shown(made.decode(events(b'{"p":{"a":0.123456789012345678},"k":"x"}')))

    assert [(str(row["a"]), row["n"]) for row in rows] == [("0.123456789012345678", 1)]
    assert not refused
