"""Ctrl-C: once ends a run well, twice ends it at once."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

PROGRAM = """
import threading, time
from lakefeed.commands.run import stopped_by_signals

stop = stopped_by_signals()
print("ready", flush=True)
stop.wait()
print("stopping", flush=True)
try:
    time.sleep(60)
finally:
    # What ends at once waits for nobody.
    time.sleep(60)
"""


def test_a_second_signal_ends_the_process_at_once_whatever_it_waits_for() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "ready\n"
        process.send_signal(signal.SIGINT)
        assert process.stdout.readline() == "stopping\n"
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        code = process.wait(50)
        said = process.stderr.read()

    assert code == 128 + signal.SIGINT
    assert time.monotonic() - began < 40
    assert said.strip() == "ended at once; the running batch is dropped whole, the next start reads it again"
