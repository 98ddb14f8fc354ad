"""Where what was fetched once is kept: `.cache` in the repository, or where the environment says."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def cache(name: str) -> Path:
    """The folder of one kind of things, such as `jars`, which `LAKEFEED_JARS` puts elsewhere."""
    repository = Path(__file__).resolve().parents[2]
    folder = Path(os.environ.get(f"LAKEFEED_{name.upper()}") or repository / ".cache" / name).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """One process at a time fills such a folder."""
    with (folder / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
