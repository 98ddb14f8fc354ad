"""`${NAME}` and `${NAME:-default}` in the values of a pipeline file."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

_REFERENCE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?::-(?P<default>[^}]*))?\}|\$\{")


@dataclass(frozen=True)
class Substitution:
    """A text of the file after its variables were put in."""

    raw: str
    text: str
    values: tuple[tuple[str, str], ...] = ()
    """Every variable by name, with its value; defaults stand in the file itself, so they are left out."""

    problems: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether a variable was put in."""
        return bool(self.values)

    @property
    def whole(self) -> bool:
        """Whether the text is one variable and nothing else."""
        return len(self.values) == 1 and self.text == self.values[0][1]


def substitute(raw: str, environment: Mapping[str, str]) -> Substitution:
    """Put the variables in. An unset or empty variable gives its default; without one, unset is a problem."""
    values: list[tuple[str, str]] = []
    problems: list[str] = []

    def put_in(match: re.Match[str]) -> str:
        name = match["name"]
        if match[0] == "$${":
            return "${"
        if name is None:
            problems.append(
                "'${' must be followed by a name and '}'; write '$${' for the characters themselves"
            )
            return match[0]
        value = environment.get(name)
        if value is not None and (value or match["default"] is None):
            values.append((name, value))
            return value
        if match["default"] is None:
            problems.append(
                f"variable ${{{name}}} is not set; export {name}=..., or write ${{{name}:-default}}"
            )
            return match[0]
        return str(match["default"])

    return Substitution(raw, _REFERENCE.sub(put_in, raw), tuple(values), tuple(problems))
