"""Steps that belong together: what a life with a focus does often, with kills where they tell most."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from simulation.pipelines import Spec

Step = dict[str, Any]
Cure = Callable[[], Spec]


def draw_scenario(
    random: Random, focus: str, table: str, spec: Spec, events: Callable[[], Step], cure: Cure
) -> list[Step]:
    """The steps of one scenario, for the only table of a life. `cure` are options that many letters need."""
    scenarios = {
        "keys": (_taken_back, _uncertain),
        "letters": (_letters_ahead, _letters_ahead, _uncertain),
        "resent": (_resent,),
        "marks": (_rewritten,),
    }
    return random.choice(scenarios[focus])(random, table, spec, events, cure)


def killed(random: Random, do: str, point: str, **more: Any) -> Step:
    """A step that dies at one of the first times that it passes a point of this name."""
    return {"do": do, **more, "kill": random.choice((1, 1, 2, 3)), "point": point}


def _uncertain(random: Random, _: str, __: Spec, events: Callable[[], Step], ___: Cure) -> list[Step]:
    """A commit is done, its answer is lost, and the log cannot be read to see that it is there."""
    fault = {"fault": random.choice((1, 1, 2, 3)), "point": "committed", "away": random.choice((1, 2, 4, 8))}
    return [events(), {"do": "run", **fault}, {"do": "run"}]


def _taken_back(random: Random, table: str, _: Spec, events: Callable[[], Step], __: Cure) -> list[Step]:
    """What is read again after a rewind must be right after each batch: deletions are forgotten, too."""
    rewind = {"do": "rewind", "table": table, "back": random.choice((1, 2, 3))}
    dies = killed(random, "run", "committed")
    smaller = {"do": "batch", "rows": random.choice((1, 2))}
    begin = [smaller, events(), dies, events(), killed(random, "run", "committed"), {"do": "run"}]
    return [*begin, rewind, dies, dies]


def _letters_ahead(
    random: Random, table: str, spec: Spec, events: Callable[[], Step], __: Cure
) -> list[Step]:
    """Letters of events that no table has read: they stay, are found again, and no batch forgets them."""
    larger, smaller = {"do": "batch", "rows": 10}, {"do": "batch", "rows": random.choice((1, 2))}
    dies = killed(random, "run", "letters_committed")
    rule = {"that": "id > 1", "otherwise": "dead_letter"}
    stricter = {"do": "edit", "table": table, "changes": {"expect": {"first": rule}}}
    # Letters that are new come before those that are known.
    behind = [smaller, *([stricter] if "schema" in spec and "expect" not in spec else []), dies]
    between = random.choice(([], [{"do": "discard", "table": table}], behind, behind))
    return [larger, events(), events(), killed(random, "run", "letters_committed"), *between, {"do": "run"}]


def _resent(random: Random, table: str, spec: Spec, events: Callable[[], Step], cure: Cure) -> list[Step]:
    """Letters become rows by another file, while newer changes of their keys are there already."""
    replay: Step = {"do": "replay", "table": table}
    steps: list[Step] = [events(), events(), {"do": "run"}]
    if "schema" in spec:
        # Values of the wrong type are most of what is refused.
        rule = (spec.get("evolve") or {}).get("new_column", "add")
        plain = {"evolve": {"new_column": rule, "type_change": "rescue"}}
        changes = plain if rule != "dead_letter" and random.random() < 0.7 else cure()
        steps.append({"do": "edit", "table": table, "changes": changes})
    dies = killed(random, "replay", random.choice(("replay_committed", "committed", "write")), table=table)
    meets = {**replay, "at": random.randrange(1, 5), "inside": replay}
    troubled = random.choice(([replay], [dies, replay], [dies, replay], [meets], [meets]))
    back = {"do": "rewind", "table": table, "back": 1}
    return [*steps, *troubled, *random.choice(([], [back], [back, replay]))]


def _rewritten(random: Random, table: str, spec: Spec, events: Callable[[], Step], _: Cure) -> list[Step]:
    """Rows of a file are marked; then it is written again by changes of other rows, or by a compaction."""
    marks, rewrites = (
        {"do": "edit", "table": table, "changes": {"updates": updates}}
        for updates in ("merge_on_read", "copy_on_write")
    )
    run = {"do": "run"}
    compact = {"do": "compact", "table": table, "at": random.randrange(1, 4), "inside": run}
    begin: list[Step] = [{"do": "batch", "rows": 10}, marks, events(), run, events(), run]
    endings = ([rewrites, events(), run], [events(), compact], [events(), run, compact])
    return [*begin, *random.choice(endings)]
