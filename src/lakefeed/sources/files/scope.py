"""Which files a path means: those of a folder, those that a glob matches, or one file."""

from __future__ import annotations

import re
from dataclasses import dataclass
from fnmatch import translate
from functools import cached_property, lru_cache

_MAGIC = re.compile(r"[*?\[]")
_CHOICE = re.compile(r"\[!?[^\]]+\]\Z")
_ANY_FOLDERS = "(?:[^/]+/)*"
_NEVER = (".tmp", ".crc")
LOG = "_delta_log"


@dataclass(frozen=True)
class Scope:
    """The folder below which files are looked for, and which of them are meant."""

    base: str
    glob: str = ""
    """Below `base`, segment by segment; `**` stands for any number of folders. Empty: everything."""
    pattern: str | None = None
    """What the name of a file must match."""
    recursive: bool = True

    @classmethod
    def of(cls, path: str, pattern: str | None = None, *, recursive: bool = True) -> Scope:
        """Cut a path where its first wild card is."""
        steps = path.split("/")
        first = next((at for at, step in enumerate(steps) if _MAGIC.search(step)), len(steps))
        return cls("/".join(steps[:first]) or "/", "/".join(steps[first:]), pattern, recursive)

    def enters(self, folder: str) -> bool:
        """Whether there may be files in a folder of that name, somewhere below the base."""
        return not _is_hidden(folder) and (self.recursive or bool(self.glob))

    def takes(self, path: str) -> bool:
        """Whether a file counts, by its path below the base."""
        folder, _, name = path.rpartition("/")
        if name.startswith((".", "_")) or name.endswith(_NEVER) or _lies_hidden(folder):
            return False
        if self._name is not None and not self._name.match(name):
            return False
        if self._glob is None:
            return self.recursive or not folder
        return self._glob.match(path) is not None

    @cached_property
    def _name(self) -> re.Pattern[str] | None:
        return None if self.pattern is None else re.compile(translate(self.pattern))

    @cached_property
    def _glob(self) -> re.Pattern[str] | None:
        """What the glob matches: files, and everything in folders that it matches."""
        if not self.glob:
            return None
        *folders, last = self.glob.split("/")
        text = "".join(_ANY_FOLDERS if step == "**" else _segment(step) + "/" for step in folders)
        text += ".+" if last == "**" else _segment(last)
        return re.compile(f"(?s:{text}{'(?:/.*)?' if self.recursive else ''})\\Z")


def _segment(text: str) -> str:
    """A wild card for one segment of a path as a regular expression."""
    signs = {"*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*|\?|\[!?[^\]]+\])", text)
    plain = (_choice(part) if _CHOICE.match(part) else signs.get(part, re.escape(part)) for part in parts)
    return "".join(plain)


def _choice(text: str) -> str:
    """`[abc]` and `[!abc]`; what else a regular expression would see in them is a character."""
    inside = text[1:-1].replace("\\", "\\\\").replace("[", "\\[").replace("^", "\\^")
    return f"[^{inside[1:]}]" if inside.startswith("!") else f"[{inside}]"


@lru_cache(1024)
def _lies_hidden(folders: str) -> bool:
    """Whether one of some folders is not for data. Many files in a row lie in the same ones."""
    return any(map(_is_hidden, folders.split("/")))


def _is_hidden(folder: str) -> bool:
    """Whether a folder is not for data; one of a partition column is, however its name begins."""
    return folder.startswith(".") or (folder.startswith("_") and "=" not in folder)
