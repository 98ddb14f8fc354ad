"""A real headless Chromium, and what a test does with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, sync_playwright

from support.debian import chromium

# Without these it looks for its maker's hosts at every start, and refuses to be run by root.
_ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--no-first-run",
]


@contextmanager
def browsing() -> Iterator[Browser]:
    program, environment = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=_ARGUMENTS, env={**os.environ, **environment}, timeout=60_000
        )
        try:
            yield browser
        finally:
            browser.close()
