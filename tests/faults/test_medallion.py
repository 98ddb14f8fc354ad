"""The medallion example, killed at random points: bronze, silver and gold agree to the row."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from faults.medallion import Medallion


@pytest.mark.timeout(900)
def test_medallion_that_is_killed_at_random_agrees_to_the_row_and_can_be_mended(tmp_path: Path) -> None:
    shop = Medallion(tmp_path / "shop", rows=12_000)

    shop.survive(kills=2, chance=random.Random(15))
    shop.mend()
