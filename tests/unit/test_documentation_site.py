"""The documentation as a whole: nothing is left out, nothing is stale, and what can be run runs."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
import yaml
from typer.testing import CliRunner

from commands_page import commands_markdown
from lakefeed import errors
from lakefeed.commands.app import app
from sql_functions_page import sql_functions_markdown

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))
SOURCE = sorted((ROOT / "src" / "lakefeed").rglob("*.py"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
NAMED = re.compile(r"[Ss]ave this as `([\w.\-]+)`[^\n]*\n+\Z")
OFFLINE = {"init", "validate", "test", "schema", "--version", "--help"}


def hook() -> Any:
    """What mkdocs calls while it builds the site."""
    found = importlib.util.spec_from_file_location("docs_site", DOCS / "site.py")
    assert found and found.loader
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def nav() -> Any:
    text = re.sub(r"!!python/\S+", "", (ROOT / "mkdocs.yml").read_text())
    return yaml.safe_load(text)["nav"]


def flat(entries: Any) -> list[str]:
    if isinstance(entries, str):
        return [entries]
    return [
        page for each in (entries.values() if isinstance(entries, dict) else entries) for page in flat(each)
    ]


def test_every_page_is_in_the_navigation_once() -> None:
    listed = flat(hook().expanded(nav(), DOCS))

    pages = [str(page.relative_to(DOCS)) for page in PAGES]

    made = ["changelog.md", "examples.md", "index.md"]
    assert sorted(listed) == sorted([*pages, *made])


def test_navigation_takes_new_pages_of_a_folder_and_leaves_out_missing_ones(tmp_path: Path) -> None:
    for name in ("a.md", "new.md", "tables/index.md", "tables/vacuum.md", "lost/page.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()

    found = hook().expanded(
        [
            {"A": "a.md"},
            {"B": ["later.md?", "*"]},
            {"C": ["tables/index.md?", "tables/*"]},
            {"D": ["none/*"]},
        ],
        tmp_path,
    )

    assert found == [{"A": "a.md"}, {"B": ["new.md"]}, {"C": ["tables/index.md", "tables/vacuum.md"]}]


def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    # Not with --quiet: mkdocs does not count warnings then.
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mkdocs",
            "build",
            "--strict",
            "--site-dir",
            str(tmp_path / "site"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )

    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    built = {file.relative_to(tmp_path / "site") for file in (tmp_path / "site").rglob("*.html")}
    assert {page.relative_to(DOCS).with_suffix(".html") for page in PAGES} <= built
    for page in built:
        text = (tmp_path / "site" / page).read_text()
        assert not re.search(r"<(script|img|iframe)[^>]+src=\"(https?:)?//", text), page
        assert not re.search(r"<link[^>]+href=\"(https?:)?//", text), page


def test_the_page_of_the_command_line_is_up_to_date() -> None:
    assert (DOCS / "commands.md").read_text() == commands_markdown(), "run: make docs"


def test_the_page_of_sql_functions_is_up_to_date() -> None:
    assert (DOCS / "sql-functions.md").read_text() == sql_functions_markdown(), "run: make docs"


def test_every_command_is_told_on_a_page_that_was_written_by_hand() -> None:
    told = "\n".join(page.read_text() for page in PAGES if page.name != "commands.md")

    names = re.findall(r"^## (lakefeed .+)$", commands_markdown(), re.MULTILINE)

    assert len(names) >= len(getattr(typer.main.get_command(app), "commands", {}))
    assert [name for name in names if not re.search(rf"{name}\b", told)] == []


def test_every_metric_is_documented() -> None:
    told = "\n".join(page.read_text() for page in PAGES)

    metrics = {
        name
        for file in (ROOT / "src" / "lakefeed" / "watch").glob("*.py")
        for name in re.findall(r"[\"'](lakefeed_[a-z_]+)[\"']", file.read_text())
    }

    assert {name for name in metrics if name not in told} == set()


def test_every_class_of_error_is_explained() -> None:
    page = (DOCS / "troubleshooting.md").read_text()

    classes = [
        name
        for name, found in vars(errors).items()
        if isinstance(found, type) and issubclass(found, errors.LakefeedError)
    ]

    assert [name for name in classes if f"`{name}`" not in page] == []


def literals() -> Iterator[str]:
    """Every text of the source as one line; `...` stands for what is put in."""
    for file in SOURCE:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = [each.value if isinstance(each, ast.Constant) else "..." for each in node.values]
                yield "".join(map(str, parts)).replace("\n", " ")
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value.replace("\n", " ")


def explained() -> list[str]:
    rows = re.findall(r"^\| (`.+?`) \| .+ \| .+ \|$", (DOCS / "troubleshooting.md").read_text(), re.MULTILINE)
    cells = [cell for row in rows for cell in re.findall(r"`` (.+?) ``|`([^`]+)`", row)]
    return [one or other for one, other in cells if (one or other) not in vars(errors)]


def test_every_message_that_is_explained_is_one_that_is_told() -> None:
    texts = list(literals())

    def is_told(message: str) -> bool:
        pieces = [piece.strip() for piece in message.split("...")]
        pattern = re.compile(".*".join(re.escape(piece) for piece in pieces))
        return any(pattern.search(text) for text in texts)

    assert len(explained()) > 80
    assert [message for message in explained() if not is_told(message)] == []


def written_files(text: str) -> dict[str, str]:
    """The files that a page tells its reader to save."""
    files = {}
    for block in FENCE.finditer(text):
        named = NAMED.search(text[: block.start()])
        if named:
            files[named[1]] = block[2]
    return files


def runnable() -> list[Any]:
    """Every command of a shell block that needs no service, with the files that its page has."""
    found = []
    for page in [ROOT / "README.md", *PAGES]:
        text = page.read_text()
        files = written_files(text)
        for language, block in FENCE.findall(text):
            for line in block.splitlines() if language == "sh" else ():
                words = line.partition(" #")[0].split()
                needed = [word for word in words if word.endswith(".yaml")]
                if (
                    words[:1] == ["lakefeed"]
                    and words[1:2]
                    and words[1] in OFFLINE
                    and set(needed) <= set(files)
                ):
                    found.append(pytest.param(words[1:], files, id=f"{page.name}: {line}"))
    return found


@pytest.mark.parametrize(("arguments", "files"), runnable())
def test_commands_of_the_documentation_that_need_no_service_run(
    arguments: list[str], files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, text in files.items():
        Path(name).write_text(text)

    done = CliRunner().invoke(app, arguments)

    assert done.exit_code == 0, done.output


def test_some_commands_of_the_documentation_run() -> None:
    assert {"init", "test", "--version"} <= {case.values[0][0] for case in runnable()}


def python_blocks() -> list[Any]:
    return [
        pytest.param(text, written_files(page.read_text()), id=page.name)
        for page in [ROOT / "README.md", *PAGES]
        for language, text in FENCE.findall(page.read_text())
        if language == "python"
    ]


@pytest.mark.parametrize(("text", "files"), python_blocks())
def test_python_of_the_documentation_runs_as_far_as_it_needs_no_service(
    text: str, files: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in files.items():
        Path(name).write_text(content)
    tree = ast.parse(text)
    # What reads a table that a run has filled can only be looked at; what is defined or imported is there.
    tree.body = [
        node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom | ast.FunctionDef)
    ]
    names: dict[str, Any] = {}

    exec(compile(tree, "block", "exec"), names)

    for name, value in names.items():
        if name.startswith("test_"):
            value(tmp_path)
