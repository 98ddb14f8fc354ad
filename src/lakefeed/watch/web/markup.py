"""HTML that cannot be broken by what is put into it."""

from __future__ import annotations

from functools import cache
from html import escape


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, *inside: str | Markup, **attributes: str | float | bool | None) -> Markup:
    """An element; text inside is escaped unless it is Markup.

    `cls` is written `class`, an underscore is written as a dash, None and False leave an attribute out.
    """
    written = name
    for key, value in attributes.items():
        if value is True:
            written += f" {_name(key)}"
        elif value is not None and value is not False:
            written += f' {_name(key)}="{escape(str(value))}"'
    return Markup(f"<{written}>{join(*inside)}</{name}>")


def join(*parts: str | Markup) -> Markup:
    """Parts one after the other."""
    return Markup("".join([part if isinstance(part, Markup) else escape(part) for part in parts]))


@cache
def _name(key: str) -> str:
    return "class" if key == "cls" else key.rstrip("_").replace("_", "-")
