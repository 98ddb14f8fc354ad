"""Health: what is wrong with a run, in words, and what to do about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from lakefeed.dead_letters.unapplied import unapplied_remedy, unapplied_words
from lakefeed.engine.retries import spark_output
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.text import counted, few, listed
from lakefeed.units import format_duration
from lakefeed.watch.alike import line_pattern
from lakefeed.watch.view import RunView, SourceView, TableView

DOWN = "down"
WARN = "warn"
_MOST_NAMED = 3
_OTHERS = "The other tables continue now."


@dataclass(frozen=True)
class Concern:
    """Something that somebody should look at. `down` makes the run not ready, `warn` does not."""

    level: str
    what: str
    text: str
    remedy: str
    since: float | None = None


def concerns(view: RunView, pipeline: Pipeline) -> list[Concern]:
    """Everything that is wrong, the worst first."""
    found = [
        *(one for source in view.sources for one in _of_source(source, pipeline)),
        *_alike((table.name, _refused(table)) for table in view.tables if table.stopped),
        *_alike((table.name, _delayed(table, pipeline)) for table in view.tables if table.trouble),
        *_refusing(view.tables, view.dead_letter_table.path),
        *(
            Concern(WARN, f"table {one.name}", *_parts(one.outdated, ""))
            for one in view.tables
            if one.outdated
        ),
        *(_unapplied(table, pipeline) for table in view.tables if table.unapplied),
        *(
            Concern(WARN, f"table {one.name}", *_parts(text, ""))
            for one in view.tables
            for text in one.backwards.values()
        ),
    ]
    return sorted(found, key=lambda one: one.level != DOWN)


def reasons(view: RunView, pipeline: Pipeline) -> list[str]:
    """Why the run is not ready, a line each; empty when it is."""
    waiting = [one.name for one in view.sources if one.seen_at is None and not (one.trouble or one.stopped)]
    starting = [f"starting: source {name} has not been read yet" for name in waiting]
    return starting + [f"{one.what}: {one.text}" for one in concerns(view, pipeline) if one.level == DOWN]


def remarks(view: RunView) -> list[str]:
    """What does not keep the run from being ready and should be known, a line each."""
    refusing = [table for table in view.tables if table.refusing]
    behind = [table for table in view.tables if table.catching_up and not table.stopped]
    told = [one for one in view.sources if one.remark and one.answers]
    return [
        *(f"source {one.name}: {_parts(one.remark, '')[0]}" for one in told),
        *(f"source {one.name}: skips {stream}" for one in view.sources for stream in sorted(one.skipped)),
        *(f"table {one.name}: {_parts(one.refusing, '')[0]}" for one in refusing),
        *(f"table {one.name}: {'; '.join(_parts(one.outdated, ''))}" for one in view.tables if one.outdated),
        *(f"table {one.name}: {unapplied_words(one.unapplied)}" for one in view.tables if one.unapplied),
        *(f"table {one.name}: {_parts(s, '')[0]}" for one in view.tables for s in one.backwards.values()),
    ] + [
        f"table {one.name}: catching up with source {listed(one.catching_up)}, {_lag(one)}" for one in behind
    ]


def _lag(table: TableView) -> str:
    if table.lag is None:
        return "its lag is not known"
    return f"{table.lag_words or counted(table.lag, 'event')} behind"


def _of_source(source: SourceView, pipeline: Pipeline) -> Iterator[Concern]:
    what = f"source {source.name}"
    if source.stopped:
        text, remedy = _parts(source.stopped, what)
        remedy = (
            remedy
            or "Correct what is wrong, then start the pipeline again: it continues at the "
            "positions in the tables."
        )
        yield Concern(DOWN, what, f"has stopped: {text}", remedy, source.stopped_at)
    elif source.trouble:
        text, remedy = _parts(source.trouble, what)
        kept = "The source goes on by itself then." if source.waits else _kept(pipeline)
        yield Concern(DOWN, what, text, f"{remedy or _advice(text, pipeline)} {kept}", source.trouble_since)
    elif source.remark:
        yield Concern(WARN, what, *_parts(source.remark, what))
    for stream, said in source.lost.items():
        text, remedy = _parts(said, what)
        yield Concern(DOWN, what, f"{stream} is not read any more: {text}", f"{remedy} {_OTHERS}".strip())
    if source.refusing:
        yield Concern(DOWN, what, *_parts(source.refusing, what))
    limit = pipeline.ready.max_lag
    lag = source.lag_together or 0
    if limit is not None and lag > limit:
        about = "about " if source.lag_words else ""
        text = f"{about}{counted(lag, 'event')} are waiting, more than ready.max_lag: {limit:,}"
        remedy = "Give the pipeline more cores (--master), or larger batches (flush.rows, flush.bytes)."
        yield Concern(DOWN, what, text, remedy)


def _alike(found: Iterable[tuple[str, Concern]]) -> Iterator[Concern]:
    """What is told of each table; one for all where it is the same but for their names."""
    groups: dict[tuple[str, str], list[tuple[str, Concern]]] = {}
    for name, one in found:
        key = line_pattern(name, one.text), line_pattern(name, one.remedy)
        groups.setdefault(key, []).append((name, one))
    for (text, remedy), alike in groups.items():
        if len(alike) <= _MOST_NAMED:
            yield from (one for _, one in alike)
            continue
        since = min((one.since for _, one in alike if one.since is not None), default=None)
        about = f"{text} ({few(name for name, _ in alike)})"
        yield Concern(DOWN, f"{len(alike)} tables", about, remedy, since)


def _refused(table: TableView) -> Concern:
    text, remedy = _parts(table.stopped, f"table {table.name}")
    again = (
        "Then start the pipeline again: the table continues at its position. The other tables continue now."
    )
    said = f"takes no events: {text}"
    return Concern(DOWN, f"table {table.name}", said, f"{remedy} {again}".strip(), table.stopped_at)


def _refusing(tables: Sequence[TableView], path: str) -> Iterator[Concern]:
    """One for all tables of which the same is told: what one producer breaks is broken in each of them."""
    for said in dict.fromkeys(table.refusing for table in tables if table.refusing):
        alike = [table for table in tables if table.refusing == said]
        names = listed(table.name for table in alike)
        what = f"table {names}" if len(alike) == 1 else f"tables {names}"
        if len(alike) > _MOST_NAMED:
            what = f"{len(alike)} tables"
        text, remedy = _parts(said, "")
        kept = (
            f"The other events are written. Each dead letter is in {path} with its bytes, its place and the "
            f"reason."
        )
        correct = remedy or "Correct the producer or the table's schema, then replay the dead letters."
        yield Concern(WARN, what, text, f"{kept} {correct}", min(table.refusing_since for table in alike))


def _unapplied(table: TableView, pipeline: Pipeline) -> Concern:
    remedy = unapplied_remedy(pipeline.file_argument, table.name.partition("/")[0])
    return Concern(WARN, f"table {table.name}", unapplied_words(table.unapplied), remedy)


def _delayed(table: TableView, pipeline: Pipeline) -> Concern:
    what = f"table {table.name}"
    text, remedy = _parts(table.trouble, what)
    if table.query:
        every = format_duration(pipeline.tables[table.name].refresh_every)
        kept = f"Its rows stay as they are; it is tried again after {every} (`refresh`)."
        return Concern(DOWN, what, text, f"{remedy} {kept}".strip(), table.trouble_since)
    kept = f"{_kept(pipeline)} The other tables continue now."
    return Concern(DOWN, what, text, f"{remedy or _advice(text, pipeline)} {kept}", table.trouble_since)


def _kept(pipeline: Pipeline) -> str:
    patience = format_duration(pipeline.give_up_after)
    return f"Nothing is lost: it is tried again until it works, for at most {patience}."


def _parts(text: str, what: str) -> tuple[str, str]:
    """What happened and what to do: messages say the one in their first line, the other in the rest."""
    first, _, rest = text.partition("\n")
    return first.removeprefix(f"{what}: ").rstrip("."), " ".join(rest.split())


def _advice(text: str, pipeline: Pipeline) -> str:
    if "Spark lost a batch" in text:
        output = spark_output(pipeline)
        return f"The batch runs again; {output} says more." if output else "The batch runs again."
    return "Check that it runs, and that this machine reaches it."
