"""Random lives of the sources that are not Kafka, with fixed seeds."""

from __future__ import annotations

import pytest

from simulation.shrink import as_test
from simulation.sources import LIVES, draw, play

_LIVES = 10
"""Lives of a test. Together they take about twenty seconds of one idle core."""


@pytest.mark.parametrize("kind", [kind for kind in LIVES if kind != "kafka"])
@pytest.mark.parametrize("first", (0, _LIVES))
def test_random_lives_end_as_their_model_says(kind: str, first: int) -> None:
    for seed in range(first, first + _LIVES):
        assert play(draw(seed, kind)) is None, f"make simulate SEED={seed} MINUTES=0.01 SOURCE={kind}"


@pytest.mark.parametrize("kind", list(LIVES))
def test_case_of_a_seed_is_the_same_and_printed_as_a_test(kind: str) -> None:
    case = draw(7, kind)

    assert draw(7, kind) == case != draw(8, kind)
    compile(as_test(case), "test", "exec")
