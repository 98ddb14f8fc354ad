"""Dead letters on the page: by table and reason; each reason opens to its newest letters and payloads."""

from __future__ import annotations

from collections.abc import Container

from lakefeed.figures import ago, clock, iso, short
from lakefeed.text import counted
from lakefeed.watch.view import LetterGroup, LetterView, RunView
from lakefeed.watch.web.markup import Markup, tag


def dead_letter_list(view: RunView, opened: Container[str] | None) -> Markup:
    """All dead letters of the run by reason, with letters and payloads of the reasons that are opened.

    None opens all, for a page that may have no script.
    """
    tables = dict.fromkeys(group.table for group in view.letter_groups)
    parts = [_table(view, name, opened) for name in tables]
    body = tag("div", *parts) if parts else tag("p", "None in this run.", cls="quiet")
    return tag("section", tag("h2", "New dead letters"), body, cls="card letters", id="letters")


def _table(view: RunView, name: str, opened: Container[str] | None) -> Markup:
    groups = [group for group in view.letter_groups if group.table == name]
    total = sum(group.letters for group in groups)
    read = next((one.written + one.letters for one in view.tables if one.name == name), 0)
    share = f", {total / read:.1%} of its records" if read else ""
    return tag(
        "div",
        tag("h3", name, tag("small", f"{counted(total, 'new dead letter')}{share}")),
        *(_reason(group, view.now, opened) for group in groups),
        cls="refusals",
        id=f"letters-{name}",
    )


def _reason(group: LetterGroup, now: float, opened: Container[str] | None) -> Markup:
    newest = group.samples[0].error if group.samples else ""
    known_as = f"letters-{group.table}-{group.stage}-{group.code}"
    shown = group.samples if opened is None or known_as in opened else ()
    return tag(
        "details",
        tag(
            "summary",
            tag("code", group.code),
            tag("b", short(group.letters)),
            tag("span", newest, cls="why"),
            tag("small", f"{group.stage} · last {ago(now - group.last)} ago", title=iso(group.last)),
        ),
        *(_letter(one) for one in shown),
        cls="reason",
        id=known_as,
    )


def _letter(letter: LetterView) -> Markup:
    place = f"{letter.source} {letter.partition} at {letter.offset:,}"
    return tag(
        "details",
        tag("summary", tag("small", f"{clock(letter.at)} · {place}"), tag("span", letter.error, cls="why")),
        tag("pre", letter.payload),
        cls="letter",
        id=f"letter-{letter.table}-{letter.source}-{letter.partition}-{letter.offset}-{letter.code}",
    )
