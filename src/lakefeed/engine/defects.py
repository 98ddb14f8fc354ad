"""Defects: what nobody foresaw. It is told as Lakefeed's mistake, and kept for whoever repairs it."""

from __future__ import annotations

import datetime as dt
import logging
import platform
import traceback
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed import __version__
from lakefeed.errors import Defect
from lakefeed.pipeline.secrets import Redactor

if TYPE_CHECKING:
    from lakefeed.pipeline.pipeline import Pipeline

_log = logging.getLogger("lakefeed")
_LARGEST_LOG = 2**20
_LONGEST_TRACEBACK = 20_000
_LONGEST_TEXT = 300


def defect_of(error: BaseException, doing: str = "") -> Defect:
    """The error as one that the user can report; it takes its traceback along."""
    if isinstance(error, Defect):
        return error
    frames = traceback.extract_tb(error.__traceback__)
    line = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    said = " ".join(traceback.format_exception_only(error)[-1].split())[:_LONGEST_TEXT]
    while_doing = f" while it {doing}" if doing else ""
    trace = "".join(traceback.format_exception(error))[-_LONGEST_TRACEBACK:]
    return Defect(_plain(f"a defect in Lakefeed{while_doing}: {said}{line}"), _plain(trace))


def kept(pipeline: Pipeline, source: str, found: Defect) -> Defect:
    """Write the traceback down, without secrets, and say where it is."""
    _log.debug("source %s: a defect in Lakefeed\n%s", source, found.traceback)
    file = Path(pipeline.state) / pipeline.name / "defects.log"
    head = (
        f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H:%M:%SZ} lakefeed {__version__}, "
        f"Python {platform.python_version()}, {platform.system()}, source {source}"
    )
    text = Redactor.of(pipeline).redact(f"{head}\n{found}\n{found.traceback}\n")
    advice = "Please report it with the output of `lakefeed --debug run`, which has the traceback."
    with suppress(OSError):
        file.parent.mkdir(parents=True, exist_ok=True)
        long = file.exists() and file.stat().st_size > _LARGEST_LOG
        with file.open("w" if long else "a", encoding="utf-8") as log:
            log.write(text)
        advice = f"Please report it with {file}, which has the traceback."
    return Defect(f"source {source}: {found}\n{advice}", traceback=found.traceback)


def _plain(text: str) -> str:
    """What may hold a piece of an event is made fit for JSON and for files."""
    return text.encode("utf-8", "backslashreplace").decode()
