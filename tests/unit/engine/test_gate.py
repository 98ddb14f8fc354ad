from __future__ import annotations

import threading

from lakefeed.engine.gate import Gate
from support.processes import wait_until


def test_closed_gate_leaves_no_thread_behind() -> None:
    before = set(threading.enumerate())
    gate = Gate({"0": 0})

    gate.close()

    wait_until(lambda: not set(threading.enumerate()) - before, 5, lambda: str(threading.enumerate()))
