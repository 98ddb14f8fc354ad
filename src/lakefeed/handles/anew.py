"""The commands that make tables anew from their sources, with the tables that they feed, in their order."""

from __future__ import annotations

from collections.abc import Iterable
from shlex import quote

from lakefeed.handles.shaping_digest import rebuild_problem
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.table import Table
from lakefeed.sources import Source, source_of

_READABLE = ("delta", "files", "generate", "kafka")
"""Sources that keep events after they were read."""


def gives_once(source: Source) -> str | None:
    """Why a source does not give all its events again, in words; None where it does."""
    if source.type not in _READABLE:
        return f"a source of type {source.type} gives each event once"
    if getattr(source, "after", "keep") != "keep":
        return "`after` deletes or moves files that were read"
    return None


def commands_to_make_anew(tables: Tables, names: Iterable[str]) -> tuple[str, ...]:
    """What makes tables anew, one command after the other, before the next run; empty where nothing does.

    Tables that are fed from them come after them, but for those that follow their changes.
    """
    found = [_commands(tables, name) for name in _with_fed(tables, names)]
    return tuple(command for commands in found for command in commands) if all(found) else ()


def _with_fed(tables: Tables, names: Iterable[str]) -> list[str]:
    """Tables and those that stop when these are made anew, each behind the ones that feed it."""
    pipeline, wanted = tables.pipeline, set[str]()
    graph, waiting = pipeline.graph, list(names)
    while waiting:
        name = waiting.pop()
        wanted.add(name)
        waiting += [fed for fed in graph.fed_from(name) if fed not in wanted and _stops(tables, fed, name)]
    order: list[str] = []

    def add(name: str) -> None:
        if name in order:
            return
        for source in pipeline.tables[name].from_:
            if (feeder := graph.table_read_by(source)) in wanted and feeder != name:
                add(feeder)
        order.append(name)

    for name in pipeline.tables:
        if name in wanted:
            add(name)
    return order


def _stops(tables: Tables, fed: str, table: str) -> bool:
    """Whether a table has rows of another one that a rebuild of that leaves or doubles."""
    pipeline, spec = tables.pipeline, tables.pipeline.tables[fed]
    read = [one for one in spec.from_ if pipeline.graph.table_read_by(one) == table]
    return not spec.query and any(not source_of(pipeline, one).is_change_feed for one in read)


def _commands(tables: Tables, name: str) -> list[str]:
    """Of one table: a rebuild, or that all its tables are dropped; empty where its events are gone then."""
    pipeline, spec = tables.pipeline, tables.pipeline.tables[name]
    if any(gives_once(source_of(pipeline, one)) for one in spec.from_):
        return []
    if rebuild_problem(spec) is None:
        return [f"lakefeed rebuild {pipeline.file_argument} --table {quote(name)} --yes"]
    return [f"lakefeed table drop {quote(path)} --yes" for path in _paths(tables, name, spec)]


def _paths(tables: Tables, name: str, spec: Table) -> list[str]:
    """The tables of a name that may be dropped: of a route all, as of one alone no event is read again."""
    if spec.app_id or spec.share or spec.query:
        return []
    if spec.route:
        return sorted(handle.path for handle in tables.routed_handles(name).values())
    return [tables.handles[name].path]
