"""A real headless Chromium, and what a test does with it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, expect, sync_playwright

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
    # Five seconds by default, which a busy machine may need for a page.
    expect.set_options(timeout=60_000)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=program, args=_ARGUMENTS, env={**os.environ, **environment}, timeout=180_000
        )
        try:
            yield browser
        finally:
            browser.close()
