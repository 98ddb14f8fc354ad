"""Records of JSON files that are not one object per line: arrays, and objects over several lines.

Each record is a slice of the file's bytes, so no number loses a digit.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence

import numpy as np
import orjson

from lakefeed.sources.files.reading.lines import LONGEST_LINE, MARK, Records
from lakefeed.sources.files.reading.opening import Unreadable
from lakefeed.sources.json_array import SPACE, ArrayScan
from lakefeed.text import few

_AT_A_TIME = 50_000
_KEY = re.compile(rb'\s*("(?:[^"\\]|\\.)*")\s*:\s*', re.DOTALL)
_NAMED = 8
"""Keys of an object that an error names."""

Bounds = tuple[int, int]
"""The first byte of a value and the byte after its last."""


def is_array(beginning: bytes) -> bool:
    """Whether the text is an array."""
    return beginning.removeprefix(MARK).lstrip(SPACE).startswith(b"[")


def may_have_values(beginning: bytes) -> bool:
    """Whether the first line is no whole object, so that the text may be other than one object per line."""
    line = beginning.removeprefix(MARK).lstrip(SPACE).partition(b"\n")[0].rstrip(SPACE)
    if not line.startswith(b"{"):
        return line.startswith(b"[")
    scan = ArrayScan(line)
    return scan.starts != [0] or scan.ends != [len(line) - 1]


def has_values(text: bytes) -> bool:
    """Whether the text is values rather than lines. `text` is the file, or its first 64 MB.

    A line that is cut off is no object either. So the first value must be JSON, and either span lines or be
    followed by values only.
    """
    if is_array(text):
        return True
    scan = ArrayScan(text)
    if scan.end is None or not _is_json(text[scan.start : scan.end + 1]):
        return False
    if b"\n" in text[scan.start : scan.end]:
        return True
    try:
        return len(_outermost(text)) > 0
    except Unreadable:
        return len(text) >= LONGEST_LINE


def values(text: bytes, path: Sequence[str] = ()) -> Iterator[Records]:
    """The records of a file, each with the byte at which it begins. Raises Unreadable.

    Records are the elements of one array, or objects. With `path`, they are the elements of the array at
    these keys of each object.
    """
    bounds = _outermost(text)
    if is_array(text) and len(bounds) > 1:
        raise Unreadable("bad_json", f"byte {bounds[1][0] + 1:,}: something follows the end of the array")
    for start, end in bounds:
        if path:
            start, end = _at_path(text, (start, end), path)
        if text[start : start + 1] == b"[":
            yield from _elements(text[start:end], start)
        elif end > start:
            yield [text[start:end]], np.array([start])


def _outermost(text: bytes) -> list[Bounds]:
    scan = ArrayScan(text)
    if len(scan.ends) < len(scan.starts):
        what = "the array" if is_array(text) else "the last object"
        raise Unreadable("bad_json", f"{what} has no end: the file is cut off, or is no JSON")
    bounds = [(start, end + 1) for start, end in zip(scan.starts, scan.ends, strict=False)]
    after = len(MARK) if text.startswith(MARK) else 0
    for start, end in [*bounds, (len(text), len(text))]:
        if between := text[after:start].strip(SPACE):
            got = between[:20].decode(errors="replace")
            raise Unreadable("bad_json", f"byte {after + 1:,}: expected an object or an array, got {got}")
        after = end
    return bounds


def _elements(text: bytes, first_byte: int) -> Iterator[Records]:
    starts, ends = ArrayScan(text).bounds()
    if len(starts) == 1 and not text[starts[0] : ends[0]].strip(SPACE):
        return
    for first in range(0, len(starts), _AT_A_TIME):
        some = slice(first, first + _AT_A_TIME)
        parts = [text[start:end] for start, end in zip(starts[some], ends[some], strict=True)]
        before = [len(part) - len(part.lstrip(SPACE)) for part in parts]
        yield [part.strip(SPACE) for part in parts], first_byte + np.array(starts[some]) + np.array(before)


def _at_path(text: bytes, bounds: Bounds, path: Sequence[str]) -> Bounds:
    """The array at a path of keys; empty bounds where it is null."""
    for depth, name in enumerate(path):
        members = _members(text, bounds, path[:depth])
        if name not in members:
            keys = few(members, _NAMED)
            raise Unreadable(
                "bad_json", f"records: no key {'.'.join(path[: depth + 1])}; the object has {keys}"
            )
        bounds = members[name]
    value = text[slice(*bounds)]
    if value == b"null":
        return bounds[0], bounds[0]
    if not value.startswith(b"["):
        got = value[:20].decode(errors="replace")
        raise Unreadable("bad_json", f"records: expected an array at {'.'.join(path)}, got {got}")
    _refuse_rest(value, bounds[0], ArrayScan(value))
    return bounds


def _members(text: bytes, bounds: Bounds, path: Sequence[str]) -> dict[str, Bounds]:
    """The values of an object by their keys."""
    first, content = bounds[0], text[slice(*bounds)]
    where = ".".join(path) or "the outermost value"
    if not content.startswith(b"{"):
        got = content[:20].decode(errors="replace")
        raise Unreadable("bad_json", f"records: expected an object at {where}, got {got}")
    scan, members = ArrayScan(content), dict[str, Bounds]()
    _refuse_rest(content, first, scan)
    for start, end in zip(*scan.bounds(), strict=True):
        key = _KEY.match(content, start, end)
        if key is None:
            if content[start:end].strip(SPACE):
                raise Unreadable("bad_json", f"byte {first + start + 1:,}: expected a key and a colon")
            continue
        name = json.loads(key[1])
        if name in members:
            raise Unreadable("duplicate_key", f"the object has the key {name} twice")
        members[name] = first + key.end(), first + start + len(content[start:end].rstrip(SPACE))
    return members


def _refuse_rest(value: bytes, first_byte: int, scan: ArrayScan) -> None:
    """Raise Unreadable for a value that is an array or an object and something else: it would not be read."""
    if scan.end != len(value) - 1:
        at = first_byte + (len(value) if scan.end is None else scan.end + 2)
        raise Unreadable("bad_json", f"byte {at:,}: expected a comma or the end of the object")


def _is_json(text: bytes) -> bool:
    try:
        orjson.loads(text)
    except orjson.JSONDecodeError:
        return False
    return True
