"""Random lives of random pipelines with fixed seeds, and the tools that draw, check and shrink them."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed.pipeline.section import Section
from simulation.cases import Case, draw, play
from simulation.checks import Wrong
from simulation.events import Event
from simulation.mutants import ALL
from simulation.registry import ELSEWHERE, MODELS, missing, unknown
from simulation.shrink import as_test, is_in_scope, shrink

LIVES = 11
"""Lives of a test. Together they take about half a minute of one idle core."""


@pytest.mark.parametrize("first", range(0, 5 * LIVES, LIVES))
def test_random_lives_end_as_their_model_says(first: int) -> None:
    for seed in range(first, first + LIVES):
        assert play(draw(seed)) is None, f"make simulate SEED={seed} MINUTES=0.01"


def test_same_seed_is_the_same_life() -> None:
    assert draw(7) == draw(7)
    assert draw(7) != draw(8)
    assert all(is_in_scope(draw(seed)) for seed in range(200))


def test_every_mutant_is_code_that_the_product_has() -> None:
    assert len({one.name for one in ALL}) == len(ALL) >= 30
    for one in ALL:
        compile(one.text(), str(one.file), "exec")


@pytest.mark.parametrize("model", MODELS, ids=lambda model: model.__name__)
def test_every_option_is_drawn_or_has_a_reason(model: type[Section]) -> None:
    names = missing(model)

    assert not names, (
        f"{model.__name__} has options that no simulated life knows: {', '.join(names)}. Draw them in "
        "tests/simulation/pipelines.py (DRAWN) and say in model.py what they do to a row; or say in "
        "registry.py (NO_DIFFERENCE) why they do nothing to rows, or (ELSEWHERE) which test tries them."
    )
    assert unknown(model) == [], "registry.py names what is no option, or one twice"
    tests = Path(__file__).parents[1]
    assert [path for path in ELSEWHERE[model].values() if not (tests.parent / path).exists()] == []


def test_case_that_fails_becomes_small_and_a_test_that_runs() -> None:
    case = draw(3)

    def fails(smaller: Case) -> bool:
        return any(
            "null" in event.values.values() for step in smaller.steps for event in step.get("events", ())
        )

    small = shrink(case, fails)

    assert len(small.tables) == len(small.steps) == 1
    (event,) = small.steps[0]["events"]
    assert isinstance(event, Event) and len(event.values) <= 3
    space: dict[str, object] = {
        "Case": Case,
        "Event": Event,
        "play": lambda _: None,
    }
    exec(as_test(small), space)
    space["test_seed_3"]()  # type: ignore[operator]


def test_wrong_row_is_told_with_the_step_after_which_it_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("simulation.model._fitted", lambda kind, value: value if kind == "long" else None)
    wrong = filter(None, (play(draw(seed)) for seed in range(10)))
    found = next(one for one in wrong if one.kind.startswith("rows"))

    assert isinstance(found, Wrong)
    assert "after step 1 (run)" in str(found)
    assert " 1 x {" in str(found)
