"""The first page that a user reads: its commands, typed one after the other, print what it shows."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.kafka import Broker
from support.lakefeed import run

PAGE = Path(__file__).parents[2] / "docs" / "getting-started.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SAVED = re.compile(r"[Ss]ave this as `([\w.]+)`:\n\n\Z")
VARIES = {
    r"\d{4}-\d\d-\d\dT[\d:.]+Z": "TIME",
    r"\b\d[\d.,]* (bytes|KB|MB)": "SIZE",
    r"committed in \d+ ms": "committed in MS",
    r"\b(\d+ s|\d+ min)\b": "SECONDS",
    r"[ ]+": " ",
}


def told(text: str, folder: Path) -> list[str]:
    """Lines without what differs from run to run: times, sizes and the reader's home."""
    text = text.replace(str(folder), "/home/me")
    for pattern, word in VARIES.items():
        text = re.sub(pattern, word, text)
    lines = [line.rstrip() for line in text.splitlines()]
    # Only a machine that has never run Spark before makes the archive.
    return [line for line in lines if "Spark's classes" not in line]


def steps() -> Iterator[tuple[list[str], str]]:
    """The commands of each shell block, and the output that the page shows after it."""
    blocks = FENCE.findall(PAGE.read_text())
    for at, (language, text) in enumerate(blocks):
        if language == "sh" and "pip install" not in text:
            shown = next((block for kind, block in blocks[at + 1 :] if kind in ("", "sh")), "")
            # What runs in the background is a script, all other lines are commands.
            yield [text] if "&" in text else text.splitlines(), shown if blocks[at + 1][0] == "" else ""


def saved() -> dict[str, str]:
    """The files that the page tells its reader to save."""
    text = PAGE.read_text()
    found = ((SAVED.search(text[: block.start()]), block[2]) for block in FENCE.finditer(text))
    return {named[1]: content for named, content in found if named}


def typed(command: list[str], here: Path, env: dict[str, str]) -> str:
    """What a command prints, where `python` and `lakefeed` are those of this environment.

    To a file: what a script leaves behind for a moment would keep a pipe open.
    """
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    with (here / "typed.txt").open("w+") as out:
        subprocess.run(
            command, cwd=here, env=os.environ | env | {"PATH": path}, stdout=out, check=True, timeout=120
        )
        out.seek(0)
        return out.read()


@pytest.fixture
def events(broker: Broker) -> Iterator[None]:
    """The page creates its topic itself."""
    yield
    broker.delete_topic("events")


@pytest.mark.usefixtures("events")
def test_commands_of_the_first_page_print_what_it_shows(broker: Broker, tmp_path: Path) -> None:
    here, env = tmp_path, {"KAFKA_BROKERS": broker.address}
    compared = 0

    for commands, shown in steps():
        printed = ""
        for command in commands:
            words = [] if "&" in command else shlex.split(command)
            if not words:
                printed += typed(["bash", "-c", command], here, env)
            elif words[0] == "cd":
                here = here / words[1]
                for name, content in saved().items():
                    (here / name).write_text(content)
            elif words[0] == "python":
                printed += typed([sys.executable, *words[1:]], here, env)
            else:
                code, out, said = run(*words[1:], cwd=here, env=env)
                assert code == 0, said
                printed += out + said
        if shown:
            assert told(printed, tmp_path) == told(shown, tmp_path), commands
            compared += 1

    assert compared >= 10


def test_sending_without_a_broker_ends_with_what_the_first_page_says(tmp_path: Path) -> None:
    (tmp_path / "send.py").write_text(saved()["send.py"].replace("timeout=10", "timeout=1"))

    env = os.environ | {"KAFKA_BROKERS": "localhost:9"}
    ended = subprocess.run([sys.executable, "send.py"], cwd=tmp_path, env=env, capture_output=True, text=True)

    assert ended.returncode == 1
    # Beside it, the client's own log lines come whenever they want.
    said = [line for line in ended.stderr.splitlines() if not line.startswith("%")][-1]
    assert said.replace("localhost:9:", "localhost:9092:") in PAGE.read_text()


def test_mistake_that_the_first_page_shows_is_told_so(tmp_path: Path) -> None:
    run("init", "shop", cwd=tmp_path)
    file = tmp_path / "shop" / "shop.yaml"
    file.write_text(file.read_text().replace("brokers:", "broker:"))

    code, _, said = run("validate", "shop.yaml", cwd=file.parent)

    assert code == 2
    assert said in PAGE.read_text()
