"""Records cut out of files: however a file is parted among tasks and chunks, each record comes once."""

from __future__ import annotations

import csv
import io
import json
import random
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest

from lakefeed.sources import json_array
from lakefeed.sources.files.reading import csv as csv_files
from lakefeed.sources.files.reading import json_values, lines

TEXTS = [1, 2.5, None, True, 'a"b\\', '[{,]}\\\\"', "", "ü\n"]


def value(chance: random.Random, depth: int = 0) -> Any:
    kind = chance.random()
    if depth > 3 or kind < 0.3:
        return chance.choice(TEXTS)
    parts = [value(chance, depth + 1) for _ in range(chance.randint(0, 3))]
    return parts if kind < 0.65 else {chance.choice('abc"\\'): part for part in parts}


@pytest.mark.parametrize("chunk", [1, 2, 7, 4 << 20])
def test_elements_of_an_array_are_its_values_each_at_its_byte(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_array, "_CHUNK", chunk)
    chance = random.Random(chunk)

    for _ in range(200):
        wanted = [value(chance) for _ in range(chance.randint(0, 5))]
        text = b"\xef\xbb\xbf " + json.dumps(wanted, indent=chance.choice([None, 2])).encode() + b"\n"
        found = [
            pair
            for payloads, places in json_values.values(text)
            for pair in zip(payloads, places, strict=True)
        ]

        assert [json.loads(payload) for payload, _ in found] == wanted
        assert all(text[at : at + len(payload)] == payload for payload, at in found)


@pytest.mark.parametrize("chunk", [1, 3, 10, 1 << 20])
def test_lines_of_ranges_that_follow_each_other_are_all_lines_once(
    chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "CHUNK", chunk)
    chance = random.Random(chunk)

    for _ in range(200):
        text = b"\n".join(chance.choice([b"", b"ab", b"c\r", b"x" * 9]) for _ in range(chance.randint(0, 9)))
        cuts = sorted({0, len(text), *(chance.randint(0, len(text)) for _ in range(3))})
        found = [
            (start, end, payload, at)
            for start, end in pairwise(cuts)
            for payloads, places in lines.byte_lines(pa.BufferReader(text), start, end)
            for payload, at in zip(payloads, places, strict=True)
        ]
        wanted = [line for each in text.split(b"\n") if (line := each.removesuffix(b"\r"))]

        assert [payload for _, _, payload, _ in found] == wanted
        assert all(start <= at < end and text[at:].startswith(payload) for start, end, payload, at in found)
        numbered = [payload for payloads, _ in lines.numbered_lines(io.BytesIO(text)) for payload in payloads]
        assert numbered == wanted


@pytest.mark.parametrize("chunk", [1, 3, 10, 1 << 20])
def test_records_of_csv_are_those_that_python_reads(chunk: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_files, "CHUNK", chunk)
    chance = random.Random(chunk)

    for _ in range(200):
        fields = ["a", 'b"c', "x\ny", "", "1,2"]
        rows = [["0", *(chance.choice(fields) for _ in range(3))] for _ in range(chance.randint(0, 6))]
        out = io.StringIO()
        csv.writer(out, lineterminator=chance.choice(["\n", "\r\n"])).writerows([["h", "i", "j", "k"], *rows])
        found = [
            list(csv.reader(io.StringIO(payload.decode(), newline="")))
            for payloads, _ in csv_files.csv_records(
                io.BytesIO(out.getvalue().encode()), ",", '"', header=True
            )
            for payload in payloads
        ]

        assert found == [[["h", "i", "j", "k"], row] for row in rows]


@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
@pytest.mark.parametrize(("delimiter", "quote"), [(",", '"'), (";", "'"), ("\u00a6", '"'), (",", "\u00b4")])
def test_quote_inside_of_a_field_ends_no_record_and_opens_none(
    delimiter: str, quote: str, chunk: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv_files, "CHUNK", chunk)
    chance = random.Random(chunk)
    fields = ["a", "5Q", "Q5Q", "QxDyQ", "QxNyQ", "QxQQNQQyQ", "", "QQ", " Qb", "bQQb", "QxNyQ Qz"]

    for _ in range(300):
        lines = ["D".join(chance.choice(fields) for _ in range(3)) for _ in range(chance.randint(1, 6))]
        text = "N".join(lines).replace("Q", quote).replace("D", delimiter).replace("N", "\n")
        wanted = list(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, quotechar=quote))
        found = [
            next(csv.reader([payload.decode()], delimiter=delimiter, quotechar=quote))
            for payloads, _ in csv_files.csv_records(
                io.BytesIO(text.encode()), delimiter, quote, header=False
            )
            for payload in payloads
        ]

        assert found == [row for row in wanted if row]
