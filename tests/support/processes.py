"""Child processes that die with the test process, whatever kills it."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from socket import socket

# Asks the kernel for SIGKILL when the parent dies, then becomes the command under the same pid. A preexec_fn
# would run Python between fork and exec, beside the threads of librdkafka and Arrow. The user changes here,
# as another one need not reach this Python, and first, as the kernel forgets the wish when the user changes.
_LAUNCHER = """
import ctypes, os, sys
if sys.argv[1]: os.setgroups([]), os.setuid(int(sys.argv[1]))
prctl = getattr(ctypes.CDLL(None), "prctl", None)
if prctl: prctl(1, 9)
os.execvp(sys.argv[2], sys.argv[2:])
"""

# The kernel's "parent" is the thread that forked: a service that a short-lived thread starts would die
# with that thread. One thread that never ends forks for all.
_forker = ThreadPoolExecutor(1, thread_name_prefix="forker")


def spawn(
    command: Sequence[str],
    *,
    stdout: Path,
    stderr: Path | None = None,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    user: int | None = None,
) -> subprocess.Popen[bytes]:
    """Start a command in a session of its own, its output appended to files (stderr's is stdout's).

    As another user where `user` is given, which only root can.
    """
    launcher = [sys.executable, "-S", "-c", _LAUNCHER, "" if user is None else str(user), *command]
    with stdout.open("ab") as out, (stderr or stdout).open("ab") as err:
        return _forker.submit(
            subprocess.Popen,
            launcher,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            cwd=cwd,
            env=env,
            start_new_session=True,
        ).result()


# Below the ports that the kernel gives to connections: one of those could take a port before its server does.
# Each process begins elsewhere, and gives no port twice.
_ports = iter(random.SystemRandom().sample(range(12_000, 32_000), 20_000))


def free_port() -> int:
    """A loopback port that nobody listens on, and that no connection gets."""
    for port in _ports:
        with socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise OSError("no port is free")


def tail(file: Path, lines: int = 30) -> str:
    """The last lines of a log, for an error message."""
    text = file.read_text(errors="replace") if file.exists() else ""
    return "\n".join(text.splitlines()[-lines:]) or "(nothing)"


def wait_until(
    answer: Callable[[], bool], timeout: float, failure: Callable[[], str], every: float = 0.05
) -> None:
    """Ask until the answer is true; AssertionError with the failure's text when the time is over."""
    deadline = time.monotonic() + timeout
    while not answer():
        if time.monotonic() > deadline:
            raise AssertionError(failure())
        time.sleep(every)
