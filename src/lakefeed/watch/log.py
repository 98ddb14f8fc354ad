"""Log lines on stderr, for people or for programs, without secrets."""

from __future__ import annotations

import logging
import sys
import time

import orjson

from lakefeed.pipeline.secrets import Redactor

_TIME = "%Y-%m-%dT%H:%M:%SZ"


class _Stderr(logging.Handler):
    """Writes to what stderr is at that moment: a live table replaces it, and puts lines above itself."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


class _Default(_Stderr):
    """The handler of a program that has set up no logging."""


def _plain() -> logging.Formatter:
    lines = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", _TIME)
    lines.converter = time.gmtime
    return lines


class JsonLines(logging.Formatter):
    """A record as one line of JSON: time, level, message, and whatever fields it brings."""

    def __init__(self, redactor: Redactor) -> None:
        super().__init__(datefmt=_TIME)
        self.converter = time.gmtime
        self._redactor = redactor

    def format(self, record: logging.LogRecord) -> str:
        """One line, every secret replaced in it, whichever field it is in."""
        line = {
            "time": self.formatTime(record, self.datefmt),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_text:
            line["traceback"] = record.exc_text
        return self._redactor.redact(orjson.dumps(line, default=str).decode())


def log_by_default() -> None:
    """Send Lakefeed's log to stderr where the program has set up no logging that would take it.

    A handler, a level or a NullHandler of the program on "lakefeed", or a handler on the root, is left alone.
    """
    log = logging.getLogger("lakefeed")
    ours = [one for one in log.handlers if isinstance(one, _Default)]
    for one in ours:
        log.removeHandler(one)
    if ours and log.hasHandlers():
        # The program has set up its own meanwhile.
        log.setLevel(logging.NOTSET)
    if log.hasHandlers():
        return
    handler = _Default()
    handler.setFormatter(_plain())
    log.addHandler(handler)
    if log.level == logging.NOTSET:
        log.setLevel(logging.INFO)
    # The client repeats a lost connection every second; what it means is told once by the flow.
    kafka = logging.getLogger("lakefeed.kafka")
    if kafka.level == logging.NOTSET:
        kafka.setLevel(logging.CRITICAL)


def start_logging(
    redactor: Redactor, *, debug: bool = False, quiet: bool = False, json: bool = False
) -> None:
    """Send Lakefeed's log to stderr, one line a record, every secret replaced; `quiet` keeps warnings."""
    handler = _Stderr()
    handler.setFormatter(JsonLines(redactor) if json else _plain())
    handler.addFilter(redactor)
    log = logging.getLogger("lakefeed")
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(logging.DEBUG if debug else logging.WARNING if quiet else logging.INFO)
    # Libraries that log to nobody would be given a handler that prints: Spark's, when its JVM is killed.
    logging.getLogger().addHandler(logging.NullHandler())
    # The client repeats a lost connection every second; what it means is told once by the flow.
    logging.getLogger("lakefeed.kafka").setLevel(logging.DEBUG if debug else logging.CRITICAL)
