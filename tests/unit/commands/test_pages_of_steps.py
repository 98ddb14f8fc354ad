"""Pages that lead through several commands: each is run, in order, and says what the page shows."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.offline import drain

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shows(said: str, wanted: str) -> bool:
    """Whether a line of the output is the wanted one; `...` stands for anything."""
    pattern = ".*".join(map(re.escape, wanted.split("...")))
    return any(re.fullmatch(pattern, line) for line in said.splitlines())


def run(command: str, folder: Path) -> str:
    """The output of a command; a run is one without a JVM, which lands the same."""
    words = shlex.split(command)
    if words[:2] == ["lakefeed", "run"]:
        drain(folder / words[2])
        return ""
    if words[0] == "mv":
        shutil.move(folder / words[1], folder / words[2])
        return ""
    done = subprocess.run(
        [sys.executable, "-m", *words], cwd=folder, capture_output=True, text=True, timeout=120
    )
    # A plan that says that a table would stop may end with 1.
    assert done.returncode == 0 or words[1] == "plan", (command, done)
    return done.stdout


@pytest.mark.parametrize("page", ["change-a-type.md", "move-a-table.md"])
def test_the_commands_of_the_page_work_in_its_order(page: str, tmp_path: Path) -> None:
    said = ""
    for kind, text in BLOCK.findall((DOCS / page).read_text()):
        if kind == "yaml":
            (tmp_path / "shop.yaml").write_text(text)
        elif kind == "sh":
            said = "".join(run(command, tmp_path) for command in text.splitlines())
        else:
            assert [line for line in text.splitlines() if not shows(said, line)] == [], said
