"""What is left to say when a run has ended: what it did, and where to look further."""

from __future__ import annotations

from lakefeed.figures import ago
from lakefeed.text import counted
from lakefeed.watch.view import RunView


def summary(view: RunView) -> str:
    """`shop: 999,000 rows, 1,000 new dead letters, 8 commits in 13 s`."""
    did = [
        counted(view.rows, "row"),
        counted(view.dead_letters, "new dead letter"),
        counted(view.commits, "commit"),
    ]
    return f"{view.pipeline}: {', '.join(did)} in {ago(view.now - view.began)}"


def where_to_look(view: RunView, called: str) -> list[tuple[str, str]]:
    """Commands that tell more of what a run has done, each with what it tells.

    `called` is the pipeline as a command is given it: the file, quoted, and what was set beside it.
    """
    found = [(f"lakefeed status {called}", "rows, positions and lag of the tables")]
    if view.dead_letters:
        found.append((f"lakefeed dead-letters list {called}", "which records were refused, and why"))
    return found
