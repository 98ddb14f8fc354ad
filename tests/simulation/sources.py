"""Every source that lives are played with: what draws its cases, and what plays them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from simulation import cases, file_lives, postgres_lives
from simulation.cases import Case, Player
from simulation.checks import Wrong
from simulation.model import OutOfScope
from simulation.world import World

LIVES: Mapping[str, tuple[Callable[[int], Case], type[Player]]] = {
    "kafka": (cases.draw, Player),
    "files": (file_lives.draw, file_lives.FilesPlayer),
    "postgres": (postgres_lives.draw, postgres_lives.PostgresPlayer),
}


def draw(seed: int, kind: str) -> Case:
    """The case of a seed and a source: `files`, or `kafka:keys` for lives that are about changes of keys."""
    kind, _, about = kind.partition(":")
    return cases.draw(seed, about=about) if about else LIVES[kind][0](seed)


def play(case: Case) -> Wrong | None:
    """What is wrong with a case; None where the model agrees, or says that it cannot know."""
    with World() as world:
        try:
            LIVES[case.kind][1](case, world).play()
        except Wrong as wrong:
            return wrong
        except OutOfScope:
            return None
    return None
