from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter, ValidationError

from lakefeed.figures import readable_seconds
from lakefeed.pipeline.flush import Flush
from lakefeed.units import (
    Duration,
    Size,
    format_duration,
    format_size,
    parse_duration,
    parse_size,
)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("500ms", 0.5),
        ("5s", 5.0),
        ("10m", 600.0),
        ("2h", 7200.0),
        ("7d", 604800.0),
        ("1.5s", 1.5),
        ("200ms", 0.2),
    ],
)
def test_a_duration_is_read_as_seconds(text: str, seconds: float) -> None:
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "s", "5 parsecs", "-5s", "5S", "1h30m", "5", "0s", "0ms", "inf", "nan"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        parse_duration(text)


def test_a_duration_without_a_unit_is_refused_with_what_to_write() -> None:
    with pytest.raises(ValueError, match="write 5s for seconds"):
        parse_duration("5")


@pytest.mark.parametrize(
    ("text", "size"),
    [("64KB", 65536), ("128MB", 134217728), ("1GB", 1073741824), ("100", 100), ("1.5kb", 1536)],
)
def test_a_size_is_read_as_bytes(text: str, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1 apple", "0", "0.5B", "64KiB"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a"):
        parse_size(text)


@given(st.integers(1, 10**9))
def test_a_duration_survives_being_written_and_read(milliseconds: int) -> None:
    seconds = milliseconds / 1000

    assert parse_duration(format_duration(seconds)) == pytest.approx(seconds, rel=1e-12)


@given(st.integers(1, 2**50))
def test_a_size_survives_being_written_and_read(size: int) -> None:
    assert parse_size(format_size(size)) == size


def test_units_are_written_as_a_person_would() -> None:
    assert [format_duration(each) for each in (0.5, 5, 90, 600, 7200, 604800)] == [
        "500ms",
        "5s",
        "90s",
        "10m",
        "2h",
        "7d",
    ]
    assert [format_size(each) for each in (100, 65536, 134217728, 2**30)] == ["100B", "64KB", "128MB", "1GB"]


def test_a_size_may_be_a_plain_number_of_bytes_but_not_a_boolean() -> None:
    adapter: TypeAdapter[int] = TypeAdapter(Size)

    assert adapter.validate_python(100) == 100
    with pytest.raises(ValidationError, match="expected a size such as 64KB"):
        adapter.validate_python(True)


def test_in_the_schema_units_are_texts_with_a_pattern() -> None:
    assert TypeAdapter(Duration).json_schema()["type"] == "string"
    assert "pattern" in TypeAdapter(Duration).json_schema()
    assert "pattern" in TypeAdapter(Size).json_schema()


def test_a_flush_has_the_documented_defaults_and_takes_texts() -> None:
    flush = Flush.model_validate({"idle": "1s", "bytes": "64KB"})

    assert (flush.interval, flush.rows, flush.bytes, flush.idle) == (5.0, 1_000_000, 65536, 1.0)


def test_in_code_a_duration_may_be_a_number_of_seconds() -> None:
    assert Flush(interval=0.25).interval == 0.25


def test_a_flush_written_out_is_read_back_the_same() -> None:
    flush = Flush(interval=0.25, bytes=1000)

    assert Flush.model_validate(flush.model_dump()) == flush


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.0, "<0.01 s"), (0.004, "<0.01 s"), (0.25, "0.25 s"), (12.34, "12.3 s")]
)
def test_a_short_time_is_never_shown_as_none(seconds: float, text: str) -> None:
    assert readable_seconds(seconds) == text
