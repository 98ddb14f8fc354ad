"""Writes the pages of this folder that are made from the code: `make docs`."""

from __future__ import annotations

from pathlib import Path

from lakefeed.pipeline.reference import reference_markdown

REFERENCE = Path(__file__).parent / "reference.md"

if __name__ == "__main__":
    REFERENCE.write_text(reference_markdown())
    print(f"wrote {REFERENCE}")
