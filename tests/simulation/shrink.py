"""A case that fails becomes a smaller one that fails in the same way, and a test that can be kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, replace
from typing import Any

from simulation.cases import Case, Step
from simulation.events import EVERYWHERE, Event, is_misfit
from simulation.pipelines import loose_fields

Fails = Callable[[Case], bool]
_MOST = 600
"""Lives that shrinking may take."""


def shrink(case: Case, fails: Fails, most: int = _MOST) -> Case:
    """The smallest case found that still fails, with fewer steps, tables, options, events and fields."""
    tries = 0
    while True:
        for smaller in _smaller(case):
            if tries >= most:
                return case
            tries += 1
            if is_in_scope(smaller) and fails(smaller):
                case = smaller
                break
        else:
            return case


def is_in_scope(case: Case) -> bool:
    """Whether every value has one meaning: a misfit needs a declared type in all tables.

    And whether each table has the options without which its mode is nothing.
    """
    needed = {"history": ("keys", "sequence_by"), **dict.fromkeys(("upsert", "deduplicate"), ("keys",))}
    if any(name not in spec for spec in case.tables.values() for name in needed.get(spec.get("mode"), ())):
        return False
    loose = loose_fields(case.tables | {name: one for name, one in case.derived.items() if "route" in one})
    events = [event for step in case.steps for event in step.get("events", ())]
    return bool(case.tables) and all(
        name in loose or not is_misfit(name, text) for event in events for name, text in event.values.items()
    )


def _smaller(case: Case) -> Iterator[Case]:
    """Smaller cases, those with the most left out first."""
    for steps in _without_parts(case.steps):
        yield replace(case, steps=steps)
    if case.shared:
        yield replace(case, shared=None)
    for name in case.derived:
        yield replace(case, derived={other: spec for other, spec in case.derived.items() if other != name})
    for name in case.tables:
        tables = {other: spec for other, spec in case.tables.items() if other != name}
        yield replace(case, tables=tables, steps=[one for one in case.steps if one.get("table") != name])
    for number, step in enumerate(case.steps):
        for smaller in _smaller_steps(step):
            yield replace(case, steps=[*case.steps[:number], smaller, *case.steps[number + 1 :]])
    for name, spec in case.derived.items():
        for smaller in _smaller_specs(spec):
            yield replace(case, derived={**case.derived, name: smaller})
    for name, spec in case.tables.items():
        for smaller in _smaller_specs(spec):
            yield replace(case, tables={**case.tables, name: smaller})
    for name in case.source:
        if name not in ("type", "path", "format", "settle", "on_change"):
            yield replace(case, source={other: one for other, one in case.source.items() if other != name})


def _without_parts(items: list[Any]) -> Iterator[list[Any]]:
    size = len(items) // 2
    while size:
        for begin in range(0, len(items), size):
            yield items[:begin] + items[begin + size :]
        size //= 2


def _smaller_steps(step: Step) -> Iterator[Step]:
    events = step.get("events", [])
    for fewer in _without_parts(events):
        yield {**step, "events": fewer}
    for number, event in enumerate(events):
        for smaller in _smaller_events(event):
            yield {**step, "events": [*events[:number], smaller, *events[number + 1 :]]}
    for part in ("statements", "meet"):
        for fewer in _without_parts(step.get(part, [])):
            yield {**step, part: fewer}
    for option in ("kill", "fault", "inside", "seconds", "form"):
        if option in step:
            yield {name: value for name, value in step.items() if name not in (option, "at", "point")}


def _smaller_events(event: Event) -> Iterator[Event]:
    for name in event.values:
        if name not in EVERYWHERE:
            yield replace(event, values={one: text for one, text in event.values.items() if one != name})
    for plain in ({"gap": 0}, {"key": None}, {"headers": ()}, {"milliseconds": 0}):
        if any(getattr(event, name) != value for name, value in plain.items()):
            yield replace(event, **plain)


def _smaller_specs(spec: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for name, value in spec.items():
        if name not in ("path", "from", "route"):
            yield {other: one for other, one in spec.items() if other != name}
        for key in value if isinstance(value, Mapping) and len(value) > 1 else ():
            yield {**spec, name: {other: one for other, one in value.items() if other != key}}


def as_test(case: Case) -> str:
    """The case as the text of a test."""
    lines = [f"def test_seed_{case.seed}() -> None:", f"    tables = {case.tables!r}", "    steps = ["]
    for step in case.steps:
        if "events" in step:
            about = ", ".join(f"{name!r}: {one!r}" for name, one in step.items() if name != "events")
            lines.append(f"        {{{about}, 'events': [")
            lines += [f"            {_event(event)}," for event in step["events"]]
            lines.append("        ]},")
        else:
            lines.append(f"        {step!r},")
    given = [f"{case.seed}", "tables", "steps", f"batch={case.batch}", f"key={case.key!r}"]
    given += [] if case.kind == "kafka" else [f"kind={case.kind!r}", f"source={case.source!r}"]
    given += [] if case.format == "json" else [f"format={case.format!r}"]
    more = {"derived": case.derived, "shared": case.shared}
    given += [f"{name}={value!r}" for name, value in more.items() if value]
    lines += ["    ]", "", f"    assert play(Case({', '.join(given)})) is None"]
    return "\n".join(lines)


def _event(event: Event) -> str:
    given = [
        f"{one.name}={getattr(event, one.name)!r}"
        for one in fields(event)
        if one.name == "partition" or getattr(event, one.name) != getattr(Event(0), one.name)
    ]
    return f"Event({', '.join(given)})"
