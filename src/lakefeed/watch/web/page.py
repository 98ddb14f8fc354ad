"""The status page: one HTML document, and the part of it that is fetched again while it is looked at."""

from __future__ import annotations

import re
from collections.abc import Container
from importlib.resources import files

import yaml

from lakefeed.figures import ago, clock, iso, per_second, short
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.secrets import masked
from lakefeed.text import counted, listed
from lakefeed.watch.health import DOWN, Concern, concerns, reasons
from lakefeed.watch.view import RunView
from lakefeed.watch.web.dead_letters import dead_letter_list
from lakefeed.watch.web.drawing import chart, drawing
from lakefeed.watch.web.markup import Markup, join, tag
from lakefeed.watch.web.ranges import range_links, range_text
from lakefeed.watch.web.rows import table_rows

_ASSETS = files("lakefeed.watch.web") / "static"
_WAVES = Markup(
    '<svg class="logo" viewBox="0 0 32 32" aria-hidden="true"><path d="M3 11c4.3-5 8.7-5 13 0s8.7 5 13 0"/>'
    '<path d="M3 18c4.3-5 8.7-5 13 0s8.7 5 13 0"/><path d="M3 25c4.3-5 8.7-5 13 0s8.7 5 13 0"/></svg>'
)
_ICON = (
    "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 32 32' fill='none' "
    "stroke='%230b8494' stroke-width='3.4' stroke-linecap='round'%3E%3Cpath d='M3 11c4.3-5 8.7-5 13 0s8.7 5 "
    "13 0M3 18c4.3-5 8.7-5 13 0s8.7 5 13 0M3 25c4.3-5 8.7-5 13 0s8.7 5 13 0'/%3E%3C/svg%3E"
)
_META = Markup('<meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">')
_NOTHING = "Nothing has changed in this run."
_HAPPENINGS_SHOWN = 8
_YAML_KEY = re.compile(r"^(\s*(?:- )?)([\w.$-]+)(:)", re.MULTILINE)


class StatusPage:
    """The page of one pipeline; what does not change while it runs is made once."""

    def __init__(self, pipeline: Pipeline, version: str) -> None:
        self._pipeline = pipeline
        self._version = version
        self._file = _file(pipeline)
        self._style, self._script = Markup(_asset("page.css")), Markup(_asset("page.js"))

    def whole(self, view: RunView, nonce: str) -> str:
        """The whole document. `nonce` is what lets its own style and script run, and nothing else."""
        head = tag(
            "head",
            _META,
            Markup(f'<link rel="icon" href="{_ICON}">'),
            tag("title", f"{view.pipeline} · Lakefeed"),
            tag("style", self._style, nonce=nonce),
        )
        about = f"Lakefeed {self._version} · times are UTC · "
        body = tag(
            "body",
            self.live(view, None),
            self._file,
            tag("footer", about, _link("metrics"), " · ", _link("api/status")),
            tag("script", self._script, nonce=nonce),
        )
        return f'<!doctype html><html lang="en">{head}{body}</html>'

    def live(self, view: RunView, opened: Container[str] | None = ()) -> Markup:
        """The part that changes; the script fetches it every two seconds and puts it in place.

        `opened` are the names of tables, and the ids of reasons, whose details somebody looks at; where there
        are few tables, all of them are told. None is for a page that may have no script.
        """
        found = concerns(view, self._pipeline)
        return tag(
            "main",
            _header(view, self._pipeline, found),
            _concerns(found, view.now),
            _figures(view),
            tag("section", tag("h2", "Pipeline"), drawing(view), cls="card flow"),
            table_rows(view, opened),
            tag("div", dead_letter_list(view, opened), _happenings(view), cls="pair"),
            id="live",
        )


def sign_in(nonce: str, wrong: bool) -> str:
    """What a browser gets that does not know the token."""
    said = "This is not the token." if wrong else "This page asks for the token of the pipeline file."
    form = tag(
        "form",
        tag("h1", "Lakefeed"),
        tag("p", said),
        Markup('<input name="token" type="password" aria-label="token" placeholder="http.token" autofocus>'),
        tag("button", "Look"),
        method="get",
        cls="card sign-in",
    )
    style = tag("style", Markup(_asset("page.css")), nonce=nonce)
    return f'<!doctype html><html lang="en">{tag("head", _META, style)}{tag("body", form)}</html>'


def _header(view: RunView, pipeline: Pipeline, found: list[Concern]) -> Markup:
    state, said = _state(view, pipeline, found)
    return tag(
        "header",
        _WAVES,
        tag("h1", view.pipeline),
        tag("span", said, cls=f"pill {state}", id="state"),
        tag("span", cls="grow"),
        range_links(view.span),
        tag("span", f"runs for {ago(view.now - view.began)}", cls="quiet desk"),
        tag("span", clock(view.now), cls="quiet desk", title=iso(view.now), id="clock"),
        tag("button", "◐", id="theme", title="light or dark", aria_label="light or dark", type="button"),
    )


def _state(view: RunView, pipeline: Pipeline, found: list[Concern]) -> tuple[str, str]:
    down = [one for one in found if one.level == DOWN]
    if down:
        return "down", f"{len(down)} need{'s' if len(down) == 1 else ''} you"
    if reasons(view, pipeline):
        return "new", "starting"
    if found:
        return "warn", "flows, with dead letters"
    return "up", "waiting for events" if view.waiting else "flows"


def _concerns(found: list[Concern], now: float) -> Markup:
    return tag(
        "section",
        *(
            tag(
                "article",
                tag("h3", one.what, *([tag("small", f"for {ago(now - one.since)}")] if one.since else [])),
                tag("p", one.text),
                tag("p", one.remedy, cls="remedy"),
                cls=f"concern {one.level}",
            )
            for one in found
        ),
        cls="concerns",
        aria_label="what needs attention",
    )


def _figures(view: RunView) -> Markup:
    letters, lag = view.dead_letters, view.lag
    rows = f"{short(view.rows)} {'row' if view.rows == 1 else 'rows'} in this run"
    age, of_what = _freshness(view)
    return tag(
        "section",
        _figure(view, "rows a second", per_second(view.rate), rows, view.rate_points),
        _figure(view, "lag", "?" if lag is None else short(lag), _waiting(view), view.lag_points),
        _figure(view, "freshness", age, of_what, None),
        _figure(
            view,
            "new dead letters",
            short(letters),
            "in this run",
            view.letter_points,
            "warn" if letters else "",
        ),
        _figure(view, "commits", short(view.commits), f"to {counted(len(view.tables), 'table')}", None),
        cls="figures",
    )


def _waiting(view: RunView) -> str:
    silent = [one.name for one in view.sources if one.trouble]
    if not silent:
        return "events wait"
    return f"unknown: {listed(silent)} {'does' if len(silent) == 1 else 'do'} not answer"


def _freshness(view: RunView) -> tuple[str, str]:
    """How old the newest event is of the table that is furthest behind, of those that get events.

    A table that gets none is as old as its source is quiet, and nobody need look at it.
    """
    known = [one for one in view.tables if one.newest is not None and not one.stopped]
    fed = [one for one in known if one.rate or one.lag]
    if fed:
        oldest = min(fed, key=lambda one: one.newest or 0.0)
        return ago(view.now - (oldest.newest or 0.0)), f"since the newest event of {oldest.name}"
    if known:
        newest = max(known, key=lambda one: one.newest or 0.0)
        return ago(view.now - (newest.newest or 0.0)), f"no events now; the newest is in {newest.name}"
    return "-", ""


def _figure(
    view: RunView, name: str, value: str, about: str, points: list[float] | None, cls: str = ""
) -> Markup:
    label = f"{name}, {range_text(view.span)}"
    drawn = Markup("") if points is None else chart(points, label, "chart")
    return tag(
        "div",
        tag("span", name, cls="label"),
        tag("b", value, data_figure=name),
        tag("small", about),
        drawn,
        cls=f"card figure {cls}".strip(),
    )


def _happenings(view: RunView) -> Markup:
    rows = [
        tag(
            "li",
            tag("p", tag("b", one.what), f" {one.text}"),
            tag("small", f"{clock(one.at)} · {one.kind}"),
            cls=one.kind,
        )
        for one in view.happenings
    ]
    older = rows[_HAPPENINGS_SHOWN:]
    body = [tag("ul", *rows[:_HAPPENINGS_SHOWN])] if rows else [tag("p", _NOTHING, cls="quiet")]
    if older:
        body.append(
            tag("details", tag("summary", f"{len(older)} older"), tag("ul", *older), id="older", cls="older")
        )
    return tag(
        "section", tag("h2", "Changes, upkeep and troubles"), *body, cls="card happenings", id="happenings"
    )


def _file(pipeline: Pipeline) -> Markup:
    text = yaml.safe_dump(masked(pipeline), sort_keys=False, allow_unicode=True, width=100)
    marked = _YAML_KEY.sub(r"\1<i>\2</i>\3", join(text))
    return tag(
        "details",
        tag("summary", "The pipeline file, with its defaults and without its secrets"),
        tag("pre", Markup(marked)),
        cls="card file",
        id="file",
    )


def _link(path: str) -> Markup:
    return tag("a", f"/{path}", href=path)


def _asset(name: str) -> str:
    return (_ASSETS / name).read_text("utf-8")
