"""`lakefeed plan`: what a run would do, without doing it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import typer

from lakefeed.columns.inferred import inferred_from
from lakefeed.columns.naming import cleaned_text
from lakefeed.commands.folding import fold, shared_end
from lakefeed.commands.options import Everything, Json, Overrides, PipelineFile
from lakefeed.commands.output import opened, print_report, printable, skipped_lines
from lakefeed.reports.plan.plan import ROUTE, PlannedPartition, PlannedRun, PlannedTable, plan_run
from lakefeed.text import counted, few, pattern_of


def plan(
    file: PipelineFile, overrides: Overrides = None, as_json: Json = False, everything: Everything = False
) -> None:
    """Show what a run would create, alter and read.

    Shows where each source continues and its lag, and warns about likely problems. Changes nothing. The exit
    code is 1 if a run would stop at a table, or if a source does not answer within some seconds: the plan is
    incomplete then. What is the same for many tables is one line, unless `--all` is given.
    """
    with opened(file, overrides) as (pipeline, redactor):
        found = plan_run(pipeline)
    print_report(found, _lines(found, everything=everything), redactor, as_json)
    if any(found.sources.values()) or any(one.refused for one in found.tables):
        raise typer.Exit(1)


def _lines(found: PlannedRun, *, everything: bool = True) -> list[str]:
    lines = _tables(found.tables, everything)
    lines += skipped_lines(found.skipped, everything=everything)
    errors = [error for error in found.sources.values() if error]
    missing = "The plan is incomplete: the offsets of a source that does not answer are unknown."
    return [*lines, *errors, *([missing] if errors else []), "Nothing was changed."]


def _tables(tables: Sequence[PlannedTable], everything: bool) -> list[str]:
    """What happens to each table; what is the same for many is told once."""
    made = [one for one in tables if one.action == "create" and one.columns and not one.refused]
    metadata = [[column for column in one.columns if column.startswith("_")] for one in made]
    shared = 0 if everything else shared_end(metadata)
    blocks = {one.name: _table(one, everything) for one in tables}
    for one, columns in zip(made[1:], metadata[1:], strict=False) if shared else ():
        shown, hidden = _columns(one), _columns(replace(one, columns=columns[-shared:]))
        if shown[-len(hidden) :] == hidden:
            listing = ", ".join(column.partition(" ")[0] for column in columns[-shared:])
            at = blocks[one.name].index(shown[0]) + len(shown) - len(hidden)
            blocks[one.name][at : at + len(hidden)] = [f"    + {listing}, as in {made[0].name}"]
    named = (
        (one.name, pattern_of(one.name.partition("/")[2] or one.name, "\n".join(blocks[one.name])))
        for one in tables
    )
    lines = []
    for names, pattern in fold(named, everything=everything):
        alike = len(names) > 1
        first, *rest = pattern.splitlines() if alike else blocks[names[0]]
        lines += [f"{few(names)}: {first.partition(': ')[2]}" if alike else first, *rest]
    return lines


def _table(one: PlannedTable, everything: bool = True) -> list[str]:
    what = {
        "create": f"create at {one.path}",
        "alter": "alter",
        "nothing": "nothing to change",
        ROUTE: f"a table for each {'stream' if '{_stream}' in one.path else 'value'}",
    }[one.action]
    lines = [f"{one.name}: {what}" if not one.refused else f"{one.name}: would stop: {one.refused}"]
    if one.columns:
        kind = "columns" if one.action == "create" else "new columns"
        lines.append(f"  {kind}{_origin(one) if one.inferred else ''}:")
        lines += _columns(one)
    elif one.action == "create" and one.refresh:
        lines.append("  columns: those of the query")
    elif one.action == "create" and not one.refused:
        lines.append("  columns: inferred from the first events" + _waiting(one))
    lines += [f"  {text}" for text in one.widened]
    lines += [f"  {cleaned_text(one.names)}"] if one.names else []
    lines += [f"  property {name} = {value}" for name, value in one.properties.items()]
    lines += [f"  {one.replaces}"] if one.replaces else []
    lines += [f"  reads {name}: {text}" for name, text in one.reads.items()]
    lines += [f"  the query {one.refresh}"] if one.refresh else []
    for source, partitions in one.resumes.items():
        places = ((name, _resume(at)) for name, at in partitions.items())
        lines += [f"  {source} {few(names)}: {at}" for names, at in fold(places, everything=everything)]
    lines += [f"  {text}" for text in (*one.gone, *one.young, *one.shaping)]
    lines += [f"  {one.way}"] if one.way else []
    if one.sampled_filtered:
        lines.append(f"  of {one.sampled:,} sampled events would be left out: {one.sampled_filtered:,}")
    if one.sampled_dead_letters:
        dead = ", ".join(f"{count:,} {code}" for code, count in one.sampled_dead_letters.items())
        lines.append(f"  of {one.sampled:,} sampled events would be dead letters: {dead}")
        lines += [f"    {code}: {printable(error)}" for code, error in one.sampled_errors.items()]
    return lines + [f"  warning: {text}" for text in one.warnings]


def _origin(one: PlannedTable) -> str:
    """What the columns are inferred from; a schema that comes with the events is no guess."""
    if not one.seen_in:
        return f", from {counted(one.sampled, 'waiting event')}"
    return f", {inferred_from(one.seen_in, 'waiting event')}"


def _waiting(one: PlannedTable) -> str:
    """Why no event shows a column."""
    if one.resumes and not one.lag:
        return "; there are none yet"
    guessed = any(at.lag_words for partitions in one.resumes.values() for at in partitions.values())
    lag = one.sampled if guessed else one.lag
    waits = "waits" if lag == 1 else "wait"
    return f"; {counted(lag, 'event')} {waits}, none has a column with a value" if one.sampled else ""


def _columns(one: PlannedTable) -> list[str]:
    """Each column, with what the events hold where nobody declared it; what is inside comes below."""
    seen = [(f"{line.partition(' ')[0].replace('[]', '')}.", line) for line in one.seen]
    lines = []
    for column in one.columns:
        name = column.partition(" ")[0]
        found = [line for path, line in seen if path.startswith(f"{name}.")] or [column]
        lines += [f"    {'+' if at == 0 else ' '} {line}" for at, line in enumerate(found)]
    return lines


def _resume(at: PlannedPartition) -> str:
    how = "begins at" if at.begins else "continues at"
    following, end = at.next_place or f"{at.next:,}", at.end_place or f"{at.end:,}"
    return f"{how} {following}, end {end}, lag {at.lag_words or f'{at.lag:,}'}"
