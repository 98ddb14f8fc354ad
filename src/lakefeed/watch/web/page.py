"""The status page: one HTML document, and the part of it that is fetched again while it is looked at."""

from __future__ import annotations

import re
from collections.abc import Container
from typing import Any

import yaml
from markupsafe import Markup, escape

from lakefeed.figures import ago
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import masked
from lakefeed.text import counted, listed
from lakefeed.watch.health import DOWN, Concern, concerns, reasons
from lakefeed.watch.view import DeadLetterGroup, RunView
from lakefeed.watch.web.drawing import drawings
from lakefeed.watch.web.ranges import range_text
from lakefeed.watch.web.rendering import asset, render
from lakefeed.watch.web.routes import folded, rows

_YAML_KEY = re.compile(r"^(\s*(?:- )?)([\w.$-]+)(:)", re.MULTILINE)


class StatusPage:
    """The page of one pipeline; what does not change while it runs is made once."""

    def __init__(self, pipeline: Pipeline, version: str) -> None:
        self._pipeline = pipeline
        self._fixed = {
            "version": version,
            "file": _file(pipeline),
            "style": asset("page.css"),
            "script": asset("page.js"),
        }

    def whole(self, view: RunView, nonce: str) -> str:
        """The whole document. `nonce` is what lets its own style and script run, and nothing else."""
        return render("page.html", nonce=nonce, **self._fixed, **self._changing(view, None))

    def live(self, view: RunView, opened: Container[str] = ()) -> str:
        """The part that changes; the script fetches it every two seconds and puts it in place.

        `opened` are the names of tables, and the ids of reasons, whose details somebody looks at.
        """
        return render("live.html", **self._changing(view, opened))

    def _changing(self, view: RunView, opened: Container[str] | None) -> dict[str, Any]:
        """What the templates need of a moment; without `opened`, for a page that may have no script."""
        found = concerns(view, self._pipeline)
        state, text = _state(view, self._pipeline, found)
        return {
            "view": view,
            "opened": opened,
            "concerns": found,
            "state": state,
            "state_text": text,
            "range_text": range_text(view.span),
            "waiting": _waiting(view),
            "freshness": _freshness(view),
            "rows": rows(view),
            "drawings": drawings(folded(view)),
            "dead_letters": _dead_letters(view),
        }


def sign_in(nonce: str, wrong: bool) -> str:
    """What a browser gets that does not know the token."""
    return render("sign_in.html", nonce=nonce, style=asset("page.css"), wrong=wrong)


def _state(view: RunView, pipeline: Pipeline, found: list[Concern]) -> tuple[str, str]:
    down = [one for one in found if one.level == DOWN]
    if down:
        return "down", counted(len(down), "problem")
    if reasons(view, pipeline):
        return "new", "starting"
    if found:
        return "warn", f"running, {counted(len(found), 'warning')}"
    return "up", "waiting for events" if view.waiting else "running"


def _waiting(view: RunView) -> str:
    silent = [one.name for one in view.sources if one.trouble]
    if not silent:
        files = sum(one.outstanding.files or 0 for one in view.sources if one.outstanding)
        if files:
            return f"events wait, in {counted(files, 'file')}"
        return "events wait" if view.lag_words is None else "to be read"
    return f"unknown: {listed(silent)} {'does' if len(silent) == 1 else 'do'} not answer"


def _freshness(view: RunView) -> tuple[str, str]:
    """How old the newest event is of the table that is furthest behind, of those that get events.

    A table that gets none is as old as its source is quiet, and nobody need look at it.
    """
    known = [(one.newest, one) for one in view.tables if one.newest is not None and not one.stopped]
    fed = [(newest, one) for newest, one in known if one.rate or one.lag]
    if fed:
        newest, table = min(fed, key=lambda pair: pair[0])
        return ago(view.now - newest), f"since the newest event of {table.name}"
    if known:
        newest, table = max(known, key=lambda pair: pair[0])
        return ago(view.now - newest), f"no events now; the newest is in {table.name}"
    return "-", ""


def _dead_letters(view: RunView) -> list[tuple[str, int, str, list[DeadLetterGroup]]]:
    """For each table with dead letters: its name, how many, which share of its records, and the reasons."""
    read = {one.name: one.written + one.dead_letters for one in view.tables}
    found = []
    for name in dict.fromkeys(group.table for group in view.dead_letter_groups):
        groups = [group for group in view.dead_letter_groups if group.table == name]
        total = sum(group.count for group in groups)
        share = f", {total / read[name]:.1%} of its records" if read.get(name) else ""
        found.append((name, total, share, groups))
    return found


def _file(pipeline: Pipeline) -> Markup:
    text = yaml.safe_dump(masked(pipeline), sort_keys=False, allow_unicode=True, width=100)
    return Markup(_YAML_KEY.sub(r"\1<i>\2</i>\3", str(escape(text))))
