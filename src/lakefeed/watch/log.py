"""Log lines on stderr, for people or for programs, without secrets."""

from __future__ import annotations

import logging
import sys
import time

import orjson

from lakefeed.pipeline.secrets import Redactor

_TIME = "%Y-%m-%dT%H:%M:%SZ"


class _Stderr(logging.Handler):
    """Writes to what stderr is at that moment: a live table puts itself in its place, and lines above it."""

    def emit(self, record: logging.LogRecord) -> None:
        """One line."""
        try:
            sys.stderr.write(self.format(record) + "\n")
            sys.stderr.flush()
        except Exception:
            self.handleError(record)


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


def start_logging(
    redactor: Redactor, *, debug: bool = False, quiet: bool = False, json: bool = False
) -> None:
    """Send Lakefeed's log to stderr, one line a record, every secret replaced; `quiet` keeps warnings."""
    handler = _Stderr()
    plain = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", _TIME)
    plain.converter = time.gmtime
    handler.setFormatter(JsonLines(redactor) if json else plain)
    handler.addFilter(redactor)
    log = logging.getLogger("lakefeed")
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(logging.DEBUG if debug else logging.WARNING if quiet else logging.INFO)
    # Libraries that log to nobody would be given a handler that prints: Spark's, when its JVM is killed.
    logging.getLogger().addHandler(logging.NullHandler())
    # The client repeats a lost connection every second; what it means is told once by the flow.
    logging.getLogger("lakefeed.kafka").setLevel(logging.DEBUG if debug else logging.CRITICAL)
