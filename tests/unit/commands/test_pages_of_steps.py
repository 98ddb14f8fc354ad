"""Pages that lead through several commands: each is run, in order, and says what the page shows."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from support.command_line import Lakefeed
from support.offline import drain

DOCS = Path(__file__).parents[3] / "docs"
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def shows(said: str, wanted: str) -> bool:
    """Whether a line of the output is the wanted one; `...` stands for anything."""
    pattern = ".*".join(map(re.escape, wanted.split("...")))
    return any(re.fullmatch(pattern, line) for line in said.splitlines())


def run(command: str, folder: Path, lakefeed: Lakefeed) -> str:
    """The output of a command; a run is one without a JVM, which lands the same."""
    words = shlex.split(command)
    if words[:2] == ["lakefeed", "run"]:
        drain(folder / words[2])
        return ""
    if words[0] == "mv":
        shutil.move(folder / words[1], folder / words[2])
        return ""
    code, out, said = lakefeed(*words[1:])
    # A plan that says that a table would stop may end with 1.
    assert code == 0 or words[1] == "plan", (command, said)
    return out


@pytest.mark.parametrize("page", ["change-a-type.md", "move-a-table.md"])
def test_the_commands_of_the_page_work_in_its_order(
    page: str, tmp_path: Path, lakefeed: Lakefeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    said = ""
    for kind, text in BLOCK.findall((DOCS / page).read_text()):
        if kind == "yaml":
            (tmp_path / "shop.yaml").write_text(text)
        elif kind == "sh":
            said = "".join(run(command, tmp_path, lakefeed) for command in text.splitlines())
        else:
            assert [line for line in text.splitlines() if not shows(said, line)] == [], said
