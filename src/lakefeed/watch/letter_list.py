"""Dead letters on the page: by table and reason; each reason opens to its newest letters and payloads."""

from __future__ import annotations

from lakefeed.pipeline.wording import counted
from lakefeed.watch.figures import ago, clock, iso, short
from lakefeed.watch.markup import Markup, tag
from lakefeed.watch.view import LetterGroup, LetterView, RunView


def letter_list(view: RunView) -> Markup:
    """All dead letters of the run; works without a script."""
    tables = dict.fromkeys(group.table for group in view.letter_groups)
    parts = [_table(view, name) for name in tables]
    body = tag("div", *parts) if parts else tag("p", "None in this run.", cls="quiet")
    return tag("section", tag("h2", "Dead letters"), body, cls="card letters", id="letters")


def _table(view: RunView, name: str) -> Markup:
    groups = [group for group in view.letter_groups if group.table == name]
    total = sum(group.letters for group in groups)
    read = next((one.written + one.letters for one in view.tables if one.name == name), 0)
    share = f", {total / read:.1%} of its records" if read else ""
    return tag(
        "div",
        tag("h3", name, tag("small", f"{counted(total, 'dead letter')}{share}")),
        *(_reason(group, view.now) for group in groups),
        cls="refusals",
        id=f"letters-{name}",
    )


def _reason(group: LetterGroup, now: float) -> Markup:
    newest = group.samples[0].error if group.samples else ""
    return tag(
        "details",
        tag(
            "summary",
            tag("code", group.code),
            tag("b", short(group.letters)),
            tag("span", newest, cls="why"),
            tag("small", f"{group.stage} · last {ago(now - group.last)} ago", title=iso(group.last)),
        ),
        *(_letter(one) for one in group.samples),
        cls="reason",
        id=f"letters-{group.table}-{group.stage}-{group.code}",
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
