"""A pipeline whose changes are applied by executors, one of which is killed in the middle of a rewrite.

Run as `python -m support.killed_executor MARK run FILE --once`, which is `lakefeed run FILE --once`: at the
first file that is written again, the executor is killed, and its pid is in the file MARK.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow.fs as pafs

from lakefeed.commands import app
from lakefeed.engine.spark import spread
from lakefeed.tables.write.keyed import copy_on_write


def work_and_die(work: Callable[..., Any], mark: str, store: pafs.FileSystem, item: Any) -> Any:
    """On a worker: do the work, and then kill the executor before it can tell, once."""
    done = work(store, item)
    try:
        os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return done
    # The worker is a fork of a daemon, which is a child of the executor.
    executor = int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])
    assert b"CoarseGrainedExecutorBackend" in Path(f"/proc/{executor}/cmdline").read_bytes()
    Path(mark).write_text(str(executor))
    os.kill(executor, signal.SIGKILL)
    # Nobody reads what it would answer.
    os._exit(1)


def main() -> None:
    """Run `lakefeed` with the arguments behind the first."""
    mark = sys.argv.pop(1)
    spread._WORTH = spread.AT_ONCE = 0
    real = spread.OnSpark.__call__

    def spreading(self: spread.OnSpark, store: Any, work: Any, items: Sequence[Any], size: int) -> Any:
        rewrites = getattr(work, "func", work).__module__ == copy_on_write.__name__
        return real(self, store, partial(work_and_die, work, mark) if rewrites else work, items, size)

    spread.OnSpark.__call__ = spreading  # type: ignore[method-assign]
    app.main()


if __name__ == "__main__":
    # Workers must find the same functions, by this name and not by that of the program.
    from support import killed_executor

    killed_executor.main()
