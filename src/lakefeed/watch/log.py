"""Log lines on stderr, without secrets."""

from __future__ import annotations

import logging
import sys
import time

from lakefeed.pipeline.secrets import Redactor


def start_logging(redactor: Redactor, *, debug: bool = False) -> None:
    """Send Lakefeed's log to stderr, one line a record, every secret replaced."""
    handler = logging.StreamHandler(sys.stderr)
    formatter = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%Y-%m-%dT%H:%M:%SZ")
    formatter.converter = time.gmtime
    handler.setFormatter(formatter)
    handler.addFilter(redactor)
    log = logging.getLogger("lakefeed")
    log.handlers[:] = [handler]
    log.propagate = False
    log.setLevel(logging.DEBUG if debug else logging.INFO)
    # The client repeats a lost connection every second; what it means is told once by the flow.
    logging.getLogger("lakefeed.kafka").setLevel(logging.DEBUG if debug else logging.CRITICAL)
