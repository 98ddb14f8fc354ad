"""How long to wait before something is tried again: longer each time, and not in step with others."""

from __future__ import annotations

import math
import random


def backoff(failures: int, first: float, longest: float = math.inf) -> float:
    """Seconds to wait after so many failures in a row: about `first` after one, twice that after two."""
    return min(longest, first * 2.0 ** (min(failures, 32) - 1)) * random.uniform(0.8, 1.2)
