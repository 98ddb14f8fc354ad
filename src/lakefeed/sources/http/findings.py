"""What could surprise the owner of an HTTP source: a journal that does not survive, a port that is taken."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from lakefeed.figures import readable_size
from lakefeed.pipeline.http import is_loopback, port_state, split_address
from lakefeed.sources import Finding
from lakefeed.sources.http.source import HttpSource
from lakefeed.units import format_size

_MOUNTS = Path("/proc/self/mountinfo")
_FORGETFUL = {
    "tmpfs": "in memory (tmpfs): a restart of the machine loses it",
    "ramfs": "in memory (ramfs): a restart of the machine loses it",
    "overlay": "inside of the container: it goes with the container",
}
_EMPTY_DIR = "kubernetes.io~empty-dir"
_REMEDY = "Put `journal` on a disk or a volume that stays: events in it exist nowhere else"


def findings(source: HttpSource) -> Iterator[Finding]:
    """What is worth knowing before a run."""
    if "://" not in source.journal:
        yield from _journal(source)
    yield from _port(source.listen)
    host, _ = split_address(source.listen)
    if not is_loopback(host) and source.token and not source.tls:
        text = f"tokens are sent to {source.listen} without encryption"
        yield Finding("warn", text, "Set `tls`, or let a proxy that has TLS stand in front")


def _journal(source: HttpSource) -> Iterator[Finding]:
    folder = Path(source.journal)
    lies = forgetful(folder)
    if lies:
        yield Finding("warn", f"the journal {folder} lies {lies}", _REMEDY)
    nearest = next(each for each in (folder, *folder.parents) if each.exists())
    if not os.access(nearest, os.W_OK):
        yield Finding("fail", f"the journal {folder} cannot be written", "Set `journal` to a folder that can")
    free = shutil.disk_usage(nearest).free
    if free < source.quota:
        quota = format_size(source.quota)
        text = f"{readable_size(free)} free on the disk of the journal, and its quota is {quota}"
        yield Finding("warn", text, "Free some space, or set `quota` lower: a full disk is 503 as well")


def forgetful(folder: Path, mounts: Path = _MOUNTS) -> str:
    """Where a folder lies that would not survive; empty where it would, or nobody knows."""
    resolved = os.path.realpath(folder)
    found = ("", "", "")
    try:
        lines = mounts.read_text().splitlines()
    except OSError:
        return ""
    for line in lines:
        # Fields of proc(5): the root of the mount, where it is, and behind a dash the kind of file system.
        before, _, after = line.partition(" - ")
        root, mounted = before.split()[3:5]
        inside = resolved == mounted or resolved.startswith(mounted.rstrip("/") + "/")
        if inside and len(mounted) >= len(found[0]):
            found = mounted, root, after.split()[0]
    if _EMPTY_DIR in found[1]:
        return "in an emptyDir: it goes with the pod"
    return _FORGETFUL.get(found[2], "")


def _port(listen: str) -> Iterator[Finding]:
    free, text = port_state(listen, "/", lambda answer: answer.read().startswith(b'{"status":'))
    yield Finding(
        "ok" if free else "fail", text, "" if free else "Set `listen` to a free port of this machine"
    )
