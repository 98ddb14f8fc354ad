"""Files that change while a pipeline that reads them is killed: a model of what must and what may be read."""

from __future__ import annotations

import os
import random
import signal
from dataclasses import dataclass, field
from pathlib import Path

from support.forks import run_and_kill
from support.landing import Landing

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
        assert run_and_kill(self.landing.file, self.chance.choice(POINTS)) in (0, -signal.SIGKILL)
        for version in self.there.values():
            version.tried = True

    def assert_each_file_is_one_of_its_versions(self) -> None:
        """Of each path the table has all rows of one version: the last one that a run saw, or a later one."""
        rows: dict[str, list[int]] = {}
        for row in self.landing.rows("id", "_file"):
            rows.setdefault(Path(row["_file"]).name, []).append(row["id"])
        for path in {version.path for version in self.versions}:
            own = [version for version in self.versions if version.path == path]
            seen = max((at for at, version in enumerate(own) if version.seen), default=-1)
            allowed = [sorted(one.ids) for one in own[max(seen, 0) :] if one.seen or one.tried]
            allowed += [[]] if seen < 0 else []
            assert sorted(rows.pop(path, [])) in allowed, f"{path}: {own}"
        assert not rows

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
