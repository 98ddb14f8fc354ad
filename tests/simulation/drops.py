"""A folder of files in a world: what a case puts there, and the records that each content stands for."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from simulation.events import Event
from simulation.model import OutOfScope

FORMS = ("lines", "lines", "array", "crlf")
CODECS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}
_FIRST_MOMENT = 1_700_000_000_000
_CSV = ("id", "seq", "op", "name", "amount", "flag")


@dataclass(frozen=True)
class Content:
    """One content that a path has had."""

    path: str
    size: int
    modified: int
    """In microseconds."""
    records: tuple[Event, ...]
    """Each with its offset in the file."""

    @property
    def identity(self) -> tuple[str, int, int]:
        """What tells it from any other content, as a disk shows it."""
        return self.path, self.size, self.modified


class Drops:
    """The folder, with a clock of its own: each file that is put there is a second younger."""

    def __init__(self, folder: Path, source: Mapping[str, Any]) -> None:
        self.folder, self.source = folder / "landing", source
        self.folder.mkdir()
        self.contents: dict[tuple[str, int, int], Content] = {}
        self.there: dict[str, Content] = {}
        """What lies at each path, as far as the case has had a hand in it."""
        self.taken_out: dict[str, tuple[Content, bytes]] = {}
        """What the case has removed last from each path, to bring it back."""
        self._moment = _FIRST_MOMENT

    def put(self, name: str, events: Sequence[Event], form: str, seconds: int) -> None:
        """Write a file anew."""
        path = self.folder / name
        # Two contents of one path and one moment are told apart by nothing but their sizes.
        is_taken = any(one[0] == str(path) and one[2] == self._moment * 1000 for one in self.contents)
        self._moment += 1000 * max(seconds, int(is_taken))
        is_plain = path.suffix not in CODECS
        if self.source["format"] == "json":
            text, records = _json(events, form, is_plain=is_plain, key=self.source.get("records"))
        else:
            text, records = _csv(events)
        content = text if is_plain else CODECS[path.suffix](text)
        self._write(path, content, self._moment)
        about: dict[str, Any] = {"topic": str(path), "milliseconds": self._moment}
        about["headers"] = (("file", path.name.encode()), ("size", str(len(content)).encode()))
        made = tuple(replace(one, **about) for one in records)
        self._know(Content(str(path), len(content), self._moment * 1000, made))

    def remove(self, name: str) -> None:
        """Take a file out, whatever has been read of it."""
        path = self.folder / name
        if path.is_file():
            self.taken_out[name] = self.there.pop(str(path)), path.read_bytes()
            path.unlink()

    def restore(self, name: str) -> None:
        """Bring back a file that was taken out, as it was."""
        path = self.folder / name
        if name in self.taken_out and not path.exists():
            content, data = self.taken_out.pop(name)
            self._write(path, data, content.modified // 1000)
            self._know(content)

    def rename(self, name: str, new: str) -> None:
        """Give a file another name in the folder: it is another file."""
        path, target = self.folder / name, self.folder / new
        if not path.is_file() or target.exists() or path.suffix != target.suffix:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        path.rename(target)
        content = self.there.pop(str(path))
        headers = (("file", target.name.encode()), content.records[0].headers[1]) if content.records else ()
        records = (replace(one, topic=str(target), headers=headers) for one in content.records)
        self._know(replace(content, path=str(target), records=tuple(records)))

    def counts(self, path: str) -> bool:
        """Whether the source means a file."""
        name = str(Path(path).relative_to(self.folder))
        if Path(path).stat().st_size == 0 or any(part.startswith((".", "_")) for part in name.split("/")):
            return False
        if "/" in name and not self.source.get("recursive", True):
            return False
        return fnmatch(Path(path).name, self.source.get("pattern") or "*") and not name.endswith(".tmp")

    def _know(self, content: Content) -> None:
        self.contents[content.identity] = self.there[content.path] = content

    def _write(self, path: Path, content: bytes, moment: int) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        part = path.with_name(f".{path.name}.part")
        part.write_bytes(content)
        os.utime(part, ns=(moment * 1_000_000,) * 2)
        part.rename(path)


def _json(
    events: Sequence[Event], form: str, *, is_plain: bool, key: str | None
) -> tuple[bytes, list[Event]]:
    """A file of JSON, and its records."""
    if key is None and (not events or events[0].code is not None):
        raise OutOfScope("a file whose first line is no object")
    if form == "array" or key is not None:
        events = [one for one in events if one.code is None]
        head = b"[" if key is None else b'{"next": null, "%s": [' % key.encode()
        tail, between = (b"]" if key is None else b"]}"), b",\n "
    else:
        head, tail, between = b"", b"\n", b"\r\n" if form == "crlf" else b"\n"
    text, records = head, []
    for number, event in enumerate(events):
        payload = event.payload or b""
        text += between if number else b""
        if payload:
            records.append(replace(event, shown=len(text) if is_plain else number))
        text += payload
    return text + tail, records


def _csv(events: Sequence[Event]) -> tuple[bytes, list[Event]]:
    """A file of CSV with a header, and its records: a dead letter has the header."""
    fields = [name for name in _CSV if any(name in one.values for one in events)] or ["id"]
    header = ",".join(fields)
    text, records, number = header.encode() + b"\n", [], 0
    for event in events:
        if event.code is not None:
            continue
        line = ",".join(_field(event.values.get(name, "null")) for name in fields)
        values = {name: one for name, one in event.values.items() if _field(one) and name in fields}
        if not line:
            continue
        text += line.encode() + b"\n"
        records.append(replace(event, values=values, text=f"{header}\n{line}", shown=number))
        number += 1
    return text, records


def _field(text: str) -> str:
    """A value of JSON as a field."""
    value = json.loads(text)
    if value is None:
        return ""
    if not isinstance(value, str):
        return text
    return '"' + value.replace('"', '""') + '"' if value and (set(value) & set(',"\n')) else value
