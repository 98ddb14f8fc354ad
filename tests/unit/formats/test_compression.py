"""Compressed payloads: whole, cut off, damaged, and larger than anybody wants."""

from __future__ import annotations

import gzip
import json
import zlib

import pyarrow as pa
import pytest

from lakefeed.columns.column_types import declared_schema
from lakefeed.errors import PipelineFileError
from lakefeed.formats.bytes import BytesFormat
from lakefeed.formats.compression import gunzip, unzstd
from lakefeed.formats.json.format import JsonFormat
from lakefeed.formats.text import TextFormat
from support.decoding import decode, refusal


def streamed(content: bytes) -> bytes:
    """A zstd frame that does not say how large its content is."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    packed: bytes = sink.getvalue().to_pybytes()
    return packed


def zstd(content: bytes) -> bytes:
    packed: bytes = pa.Codec("zstd").compress(content, asbytes=True)
    return packed


@pytest.mark.parametrize("size", [0, 1, 255, 256, 300, 70_000, 3_000_000])
def test_compressed_content_comes_back_whole(size: int) -> None:
    content = (b"0123456789abcdef" * (size // 16 + 1))[:size]

    assert gunzip(gzip.compress(content, mtime=0), size or 1) == content
    assert unzstd(zstd(content), size or 1) == content
    assert unzstd(streamed(content), size or 1) == content


def test_members_and_frames_that_follow_each_other_are_one_content() -> None:
    members = (
        gzip.compress(b"a", mtime=0) + gzip.compress(b"", mtime=0) + gzip.compress(b"b", mtime=0) + b"\0" * 9
    )
    frames = zstd(b"a") + zstd(b"") + streamed(b"b") + zstd(b"c")

    assert gunzip(members, 10) == b"ab"
    assert unzstd(frames, 10) == b"abc"


def test_many_small_members_take_no_more_than_their_time() -> None:
    assert gunzip(gzip.compress(b"a", mtime=0) * 50_000, 50_000) == b"a" * 50_000


TEXT = {"data": "string"}


@pytest.mark.parametrize(
    ("kind", "payload", "code", "error"),
    [
        ("gzip", b"", "bad_compression", "expected gzip, got an empty payload"),
        ("gzip", gzip.compress(b"hello", mtime=0)[:-3], "bad_compression", "cut off after 22 bytes of gzip"),
        (
            "gzip",
            b"plain text",
            "bad_compression",
            "byte 1 and after: not gzip: Error -3 while decompressing data: incorrect header check",
        ),
        (
            "gzip",
            gzip.compress(b"hello", mtime=0) + b"junk",
            "bad_compression",
            "byte 26 and after: not gzip: Error -3 while decompressing data: incorrect header check",
        ),
        ("gzip", gzip.compress(b"x" * 2000, mtime=0), "too_large", "1KB"),
        ("gzip", gzip.compress(b"x" * 600, mtime=0) * 2, "too_large", "1KB"),
        ("zstd", b"", "bad_compression", "expected zstd, got an empty payload"),
        ("zstd", zstd(b"hello" * 9)[:-3], "bad_compression", "not zstd: Truncated compressed stream"),
        ("zstd", streamed(b"hello")[:-3], "bad_compression", "not zstd: Truncated compressed stream"),
        (
            "zstd",
            zlib.compress(b"hello"),
            "bad_compression",
            "not zstd: ZSTD decompress failed: Unknown frame descriptor",
        ),
        (
            "zstd",
            zstd(b"hello") + b"junk",
            "bad_compression",
            "not zstd: ZSTD decompress failed: Unknown frame descriptor",
        ),
        ("zstd", zstd(b"x" * 2000), "too_large", "1KB"),
        ("zstd", streamed(b"x" * 2000), "too_large", "1KB"),
        ("zstd", zstd(b"x" * 600) * 2, "too_large", "1KB"),
    ],
)
def test_compression_that_is_broken_or_a_bomb_is_refused(
    kind: str, payload: bytes, code: str, error: str
) -> None:
    if code == "too_large":
        error = f"more than {error} when decompressed; set `max_payload` higher if that is meant"
    form = TextFormat.model_validate({"decompress": kind, "max_payload": "1KB"})

    assert refusal(form, TEXT, payload) == (code, error)


def test_a_payload_is_at_most_64_mb_unless_said_otherwise() -> None:
    bomb = gzip.compress(bytes(64 * 1024**2 + 1), 1)

    small = decode(BytesFormat(decompress="gzip"), {"size": "long"}, bomb)
    large = decode(
        BytesFormat.model_validate({"decompress": "gzip", "max_payload": "65MB"}), {"size": "long"}, bomb
    )

    assert [one.code for one in small.refused] == ["too_large"]
    assert large.rows.column("size").to_pylist() == [64 * 1024**2 + 1]


def test_payloads_that_grow_beyond_what_is_decoded_together_keep_their_order() -> None:
    names = [json.dumps({"name": letter * 30_000_000, letter: 1}).encode() for letter in "abcde"]
    packed: list[bytes | None] = [gzip.compress(name, 1, mtime=0) for name in names]
    payloads = [packed[0], b"broken", *packed[1:], None, gzip.compress(b"{", mtime=0)]

    decoded = JsonFormat(decompress="gzip").decoder(declared_schema({"name": "string"})).decode(payloads)

    assert [(one.index, one.code) for one in decoded.refused] == [
        (1, "bad_compression"),
        (6, "null_payload"),
        (7, "bad_json"),
    ]
    assert [row["name"][0] for row in decoded.rows.to_pylist()] == list("abcde")
    assert decoded.unknown is not None
    assert decoded.unknown.names == list("abcde")


def test_an_option_of_a_format_may_be_left_out_in_code() -> None:
    assert TextFormat().max_payload is None
    with pytest.raises(PipelineFileError, match="max_payload has an effect only with `decompress`"):
        TextFormat(max_payload=1)
