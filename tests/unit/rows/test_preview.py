"""The beginning of a payload, as people read it."""

from __future__ import annotations

import pytest

from lakefeed.rows.dead_letter import preview


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (None, "(no payload)"),
        (b"", ""),
        (b'{"a": 1}\n', '{"a": 1}\n'),
        ("größe".encode(), "größe"),
        (b"a\x00b", "a\ufffdb"),
        (b"\x00\xff\x10", "00 ff 10"),
        (b"x" * 2500, "x" * 2000 + "\n(2,000 of 2,500 bytes)"),
        (b"x" + "ö".encode() * 1500, "x" + "ö" * 999 + "\n(2,000 of 3,001 bytes)"),
        (b"\xff" * 501, " ".join(["ff"] * 500) + "\n(500 of 501 bytes)"),
    ],
)
def test_text_is_shown_as_text_and_bytes_as_numbers(payload: bytes | None, text: str) -> None:
    assert preview(payload) == text
