"""Random lives of random pipelines beside their model: `make simulate SEED=7 MINUTES=5`."""

from __future__ import annotations

import argparse
import logging
import random
import time
from collections.abc import Iterator, Sequence

from simulation.cases import Case
from simulation.checks import Wrong
from simulation.shrink import as_test, shrink
from simulation.sources import LIVES, draw, play

_EVERY = 30.0
"""Seconds between two lines about how far it has come."""


def findings(
    first: int, seconds: float, sources: Sequence[str] = tuple(LIVES), *, quiet: bool = False
) -> Iterator[tuple[Case, Wrong]]:
    """Play the cases of one seed after the other for a while, of one at least; yields those that fail."""
    began = told = time.monotonic()
    cpu, lives, steps = time.process_time(), 0, 0
    for seed in range(first, first + 10**9):
        now = time.monotonic()
        is_over = lives > 0 and now - began > seconds
        if now - told > _EVERY or is_over:
            told, busy = now, time.process_time() - cpu
        if not quiet and told == now:
            rate = steps / max(busy, 1e-9)
            print(
                f"seeds {first} to {seed - 1}: {lives:,} lives, {steps:,} steps, {rate:.0f} a second of CPU",
                flush=True,
            )
        if is_over:
            return
        for source in sources:
            case = draw(seed, source)
            wrong = play(case)
            lives, steps = lives + 1, steps + len(case.steps)
            if wrong is not None:
                yield case, wrong


def tell(case: Case, wrong: Wrong) -> None:
    """Print what was found, and the smallest case that shows it."""

    def fails(smaller: Case) -> bool:
        try:
            found = play(smaller)
        except Exception:
            # Options that a table cannot do without.
            return False
        return found is not None and found.kind == wrong.kind

    print(f"\nseed {case.seed} of {case.kind}: {wrong}\n\nshrinking ...", flush=True)
    smaller = shrink(case, fails)
    print(f"{play(smaller)}\n\n{as_test(smaller)}\n", flush=True)


def _main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--source", choices=list(LIVES), help="only lives of this source")
    given = parser.parse_args()
    logging.getLogger("lakefeed").setLevel(logging.CRITICAL)
    print(f"seed {given.seed}, {given.minutes:g} minutes", flush=True)
    sources = [given.source] if given.source else list(LIVES)
    kinds: dict[str, int] = {}
    for case, wrong in findings(given.seed, given.minutes * 60, sources):
        kinds[wrong.kind] = kinds.get(wrong.kind, 0) + 1
        if kinds[wrong.kind] == 1:
            tell(case, wrong)
    print(f"{sum(kinds.values())} lives failed: {kinds}" if kinds else "0 findings")
    return 1 if kinds else 0


if __name__ == "__main__":
    raise SystemExit(_main())
