"""How values and near names are shown in messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from difflib import get_close_matches

_SHOWN_CHARACTERS = 60
_PLAIN_YAML = re.compile(r"[A-Za-z_][\w().]*")
_YAML_WORDS = ("true", "false", "yes", "no", "on", "off", "null")
"""What YAML takes for a value of another kind."""
_PLAIN_NAME = re.compile(r"[a-z_][a-z0-9_]*")


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean 'topics'?` for a near name, else the empty string; ready to be appended."""
    by_folded = {name.casefold(): name for name in known}
    near = get_close_matches(word.casefold(), by_folded, n=1, cutoff=0.6)
    return f", did you mean '{by_folded[near[0]]}'?" if near else ""


def sentence(text: str) -> str:
    """A text with a full stop, unless it ends with a sign of its own."""
    return text if text.endswith((".", "?", "!")) else f"{text}."


def suggestion(word: str, known: Iterable[str]) -> str:
    """The near name if there is one, else the list of all that is known; ready to be appended."""
    names = list(known)
    return did_you_mean(word, names) or f"; known are {listed(names)}"


def listed(names: Iterable[str]) -> str:
    """`a, b and c`."""
    words = list(names)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else "none"


def few(names: Iterable[str], most: int = 3) -> str:
    """`a, b, c and 42 more`; all of them where there are not many."""
    words = list(names)
    return listed(words) if len(words) <= most + 1 else listed([*words[:most], f"{len(words) - most:,} more"])


def pattern_of(name: str, text: str) -> str:
    """A text with `*` for each whole occurrence of a name: the same text about two names has one pattern."""
    return re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "*", text)


def without_name(name: str, text: str) -> str:
    """A text about a table behind its name, such as `it is a view` for `public.v is a view`."""
    return f"it {text.removeprefix(f'{name} ')}" if text.startswith(f"{name} ") else text


def sql_name(stream: str) -> str:
    """`schema.table` as statements name it: each part in quotes that needs them."""
    parts = (one if _PLAIN_NAME.fullmatch(one) else quoted_name(one) for one in stream.split(".", 1))
    return ".".join(parts)


def quoted_name(name: str) -> str:
    """A name in the quotes of SQL."""
    return '"' + name.replace('"', '""') + '"'


def one_of(names: Iterable[str]) -> str:
    """`a, b or c`."""
    words = list(names)
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def in_backticks(name: str) -> str:
    """The name of a column or a table in SQL, whatever characters and case it has."""
    return "`" + name.replace("`", "``") + "`"


def yaml_mapping(pairs: Mapping[str, str]) -> str:
    """`{id: long, price: "decimal(10,2)"}`: names and texts as a mapping of YAML on one line."""
    words = (f"{_yaml_word(name)}: {_yaml_word(text)}" for name, text in pairs.items())
    return f"{{{', '.join(words)}}}"


def _yaml_word(text: str) -> str:
    is_plain = _PLAIN_YAML.fullmatch(text) and text.lower() not in _YAML_WORDS
    return text if is_plain else json.dumps(text, ensure_ascii=False)


def counted(number: int, noun: str, many: str = "") -> str:
    """`1 table`, `2 tables`, `1,000 rows`; `many` is the plural where it is not the noun with an `s`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {many or noun + 's'}"


def first_line(error: Exception | str, most: int = 120) -> str:
    """What an error is about: the first line of what it says, and of that only the beginning."""
    said = str(error).strip()
    return said.splitlines()[0].strip()[:most] if said else "no reason given"


def shown(value: object) -> str:
    """A value as the reader of the file would call it; only scalars are printed, and only their beginning."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, dict):
        return "keys and values"
    if isinstance(value, list | tuple | set | frozenset):
        return "a list"
    if not isinstance(value, str):
        return str(value) if isinstance(value, int | float) else type(value).__name__
    cut = value if len(value) <= _SHOWN_CHARACTERS else value[:_SHOWN_CHARACTERS] + "..."
    return repr(cut)
