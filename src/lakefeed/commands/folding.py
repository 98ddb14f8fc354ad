"""Lines of a report that are the same for many tables or partitions, as one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

MOST_ALIKE = 4
"""So many equal lines are printed each; more of them are one."""


def fold(named: Iterable[tuple[str, str]], *, everything: bool) -> list[tuple[list[str], str]]:
    """Names with the same text together, in the order of the first; few of them, or `everything`: each."""
    found: dict[str, list[str]] = {}
    pairs = list(named)
    for name, text in pairs:
        found.setdefault(text, []).append(name)
    folded: list[tuple[list[str], str]] = []
    for name, text in pairs:
        names = found[text]
        if everything or len(names) <= MOST_ALIKE:
            folded.append(([name], text))
        elif name == names[0]:
            folded.append((names, text))
    return folded


def shared_end(lists: Sequence[Sequence[str]]) -> int:
    """How many items many lists end with, all of them the same."""
    if len(lists) <= MOST_ALIKE:
        return 0
    shortest = min(map(len, lists))
    return next((at for at in range(shortest) if len({one[-at - 1] for one in lists}) > 1), shortest)
