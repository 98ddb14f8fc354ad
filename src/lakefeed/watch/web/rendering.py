"""The templates of the page, rendered with Jinja2: everything that is put into them is escaped."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from jinja2.ext import Extension
from markupsafe import Markup

from lakefeed.figures import ago, clock, iso, per_second, readable_seconds, readable_size, short, thousands
from lakefeed.reports.status import PartitionStatus
from lakefeed.text import counted, listed
from lakefeed.watch.web.ranges import RANGES

_LINE_BREAKS = re.compile(r"(?<=[>}])\s*\n\s*|\s*\n\s*(?=[<{])")


class _JoinedLines(Extension):
    """Leaves out line breaks and indentation beside a tag: templates read well, and pages stay small."""

    def preprocess(self, source: str, name: str | None, filename: str | None = None) -> str:
        return _LINE_BREAKS.sub("", source)


def render(name: str, **values: Any) -> str:
    """A template with these values, each of them escaped unless it is Markup."""
    return _environment().get_template(name).render(values)


@cache
def asset(name: str) -> Markup:
    """A file of `static`, to be written into the page as it is."""
    return Markup((files("lakefeed.watch.web") / "static" / name).read_text("utf-8"))


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("lakefeed.watch.web"),
        autoescape=True,
        undefined=StrictUndefined,
        auto_reload=False,
        extensions=[_JoinedLines],
    )
    for one in (
        ago,
        clock,
        counted,
        iso,
        listed,
        per_second,
        readable_seconds,
        readable_size,
        short,
        thousands,
    ):
        made.filters[one.__name__] = one
    made.filters |= {"line": _line, "furthest_behind": _furthest_behind}
    made.globals |= {"ranges": RANGES}
    return made


def _furthest_behind(
    offsets: Mapping[str, Mapping[str, PartitionStatus]],
) -> list[tuple[str, PartitionStatus]]:
    """Each partition of each source by its name."""
    named = [(f"{source} {one}", at) for source, own in offsets.items() for one, at in own.items()]
    return sorted(named, key=lambda pair: -(pair[1].lag or 0))


def _line(points: list[float]) -> str:
    return _path(tuple(points))


@lru_cache(maxsize=512)
def _path(points: tuple[float, ...]) -> str:
    """Points change every ten seconds, and are looked at more often than that."""
    top = max([*points, 1e-9])
    step = 100 / max(1, len(points) - 1)
    at = [f"{number * step:.1f} {22 - 20 * value / top:.1f}" for number, value in enumerate(points)]
    return "M" + "L".join(at) if len(at) > 1 else "M0 22L100 22"
