"""Files that change while a pipeline that reads them is killed: a model of what must and what may be read."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from support.landing import Landing
from support.source_contract import RUN

POINTS = [
    "batch_planned",
    "files_written:1",
    "files_written:2",
    "letters_committed",
    "table_committed",
    "batch_committed",
]
ADDED_AT = 1_700_000_000


@dataclass
class Version:
    """What a file held for a while: the ids of an older version, and some of its own."""

    path: str
    own: list[int]
    older: Version | None = None
    seen: bool = False
    """Whether a run has come to its end while it was there: then it must have been read."""
    tried: bool = False
    """Whether a run was killed while it was there: then it may have been read."""

    @property
    def ids(self) -> list[int]:
        """Everything that is in the file."""
        return [*(self.older.ids if self.older else []), *self.own]


@dataclass
class FilesModel:
    """A folder, every version that a file in it has had, and what is there now."""

    landing: Landing
    chance: random.Random
    versions: list[Version] = field(default_factory=list)
    there: dict[str, Version] = field(default_factory=dict)
    _ids: int = 0

    def meddle(self) -> None:
        """Change something: add, overwrite, append, rename or delete a file."""
        kinds = [self._add, self._add, self._overwrite, self._append, self._rename, self._delete]
        self.chance.choice(kinds if self.there else [self._add])()

    def run(self) -> None:
        """Read what is there; what changes for a run that ends by itself comes in the next one."""
        self.landing.run()
        self.landing.run()
        for version in self.there.values():
            version.seen = True

    def kill(self) -> None:
        """Begin to read, and die somewhere."""
        environment = {**os.environ, "LAKEFEED_KILL_AT": self.chance.choice(POINTS)}
        environment["PYTHONPATH"] = str(Path(__file__).parent.parent)
        command = [sys.executable, "-c", RUN, str(self.landing.file)]
        ended = subprocess.run(command, env=environment, timeout=120)
        assert ended.returncode in (0, -signal.SIGKILL)
        for version in self.there.values():
            version.tried = True

    def assert_each_version_once(self) -> None:
        """Every version that was there during a whole run is in the table once, and none twice or in part."""
        counts = Counter(self.landing.rows("id"))
        read: dict[int, int] = {}
        for version in reversed(self.versions):
            later = sum(read[id(one)] for one in self.versions if id(one) in read and version in _before(one))
            times = {counts[each] - later for each in version.own}
            assert len(times) == 1, f"a part of {version}"
            read[id(version)] = times.pop()
            allowed = (1,) if version.seen else (0, 1) if version.tried else (0,)
            assert read[id(version)] in allowed, f"{version} is there {read[id(version)]} times"

    def _new_ids(self) -> list[int]:
        count = self.chance.randint(1, 5)
        self._ids += count
        return list(range(self._ids - count, self._ids))

    def _write(self, version: Version, mode: str) -> None:
        file = self.landing.into / version.path
        text = "".join(f'{{"id": {one}}}\n' for one in (version.own if mode == "a" else version.ids))
        with file.open(mode) as opened:
            opened.write(text)
        self.versions.append(version)
        self.there[version.path] = version

    def _add(self) -> None:
        name = f"{10_000 - len(self.versions):05d}.json"
        self._write(Version(name, self._new_ids()), "w")
        os.utime(self.landing.into / name, (ADDED_AT, ADDED_AT))

    def _overwrite(self) -> None:
        self._write(Version(self.chance.choice(list(self.there)), self._new_ids()), "w")

    def _append(self) -> None:
        name = self.chance.choice(list(self.there))
        self._write(Version(name, self._new_ids(), self.there[name]), "a")

    def _rename(self) -> None:
        old = self.chance.choice(list(self.there))
        new, before = f"renamed-{len(self.versions)}.json", self.there.pop(old)
        (self.landing.into / old).rename(self.landing.into / new)
        self._write(Version(new, self._new_ids(), before), "a")

    def _delete(self) -> None:
        name = self.chance.choice(list(self.there))
        (self.landing.into / name).unlink()
        del self.there[name]


def _before(version: Version) -> list[Version]:
    found = []
    older = version.older
    while older is not None:
        found.append(older)
        older = older.older
    return found
