"""Pages that lead through several commands: each is run, in order, and says what the page shows."""

from __future__ import annotations

import re
import shlex
import shutil
from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.commands.rebuild import rebuild_lines
from lakefeed.engine.inline import run_inline
from lakefeed.reprocess.rebuild import rebuild
from support.command_line import Lakefeed

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
        run_inline(Pipeline.from_file(folder / words[2]))
        return ""
    if words[:2] == ["lakefeed", "rebuild"] and "--yes" in words:
        return "\n".join(rebuild_lines(rebuild(Pipeline.from_file(folder / words[2]), words[4], run_inline)))
    if words[0] == "mv":
        shutil.move(folder / words[1], folder / words[2])
        return ""
    if words[0] == "echo":
        file = folder / words[3]
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{words[1]}\n")
        return ""
    code, out, said = lakefeed(*words[1:])
    # A plan that says that a table would stop may end with 1.
    assert code == 0 or words[1] == "plan", (command, said)
    return out


@pytest.mark.parametrize("page", ["change-a-type.md", "correct-a-file.md", "move-a-table.md", "rebuild.md"])
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
        elif not kind:
            # A `text` is of another pipeline than the one that the page leads through.
            assert [line for line in text.splitlines() if not shows(said, line)] == [], said
