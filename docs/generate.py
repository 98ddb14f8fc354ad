"""Writes the pages of this folder that are made from the code: `make docs`."""

from __future__ import annotations

from pathlib import Path

from commands_page import commands_markdown
from reference_page import reference_markdown
from sql_functions_page import sql_functions_markdown

PAGES = {
    "reference.md": reference_markdown,
    "commands.md": commands_markdown,
    "sql-functions.md": sql_functions_markdown,
}

if __name__ == "__main__":
    for name, page in PAGES.items():
        file = Path(__file__).parent / name
        file.write_text(page())
        print(f"wrote {file}")
