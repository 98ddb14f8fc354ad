"""What the documentation says: its pipelines load, its commands exist, its links lead somewhere."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer.main

from lakefeed.commands.app import app
from lakefeed.pipeline.connectors import connector_class, connector_types
from lakefeed.pipeline.loading.load import load
from lakefeed.tables.verify.finding import KINDS

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = sorted((ROOT / "examples").glob("*.yaml"))
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
INLINE_COMMAND = re.compile(r"`(lakefeed [^`]+)`")
FILE_BESIDE = re.compile(
    r"`([\w.]+)` lies beside the pipeline file:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL
)
VARIABLE = re.compile(r"\$\{([A-Z_]+)")
ANY_NAME = re.compile(r"[^\w\- ]")


def blocks(language: str) -> list[tuple[Path, str]]:
    return [
        (page, text) for page in PAGES for found, text in FENCE.findall(page.read_text()) if found == language
    ]


def name_of(case: object) -> str:
    return str(case.relative_to(ROOT)) if isinstance(case, Path) else ""


def commands() -> list[tuple[Path, str]]:
    """Every `lakefeed ...` of the shell blocks and of the running text."""
    lines = [(page, line) for page, text in blocks("sh") for line in text.splitlines()]
    told = [(page, line) for page in PAGES for line in INLINE_COMMAND.findall(page.read_text())]
    found = [(page, line.partition(" #")[0].removeprefix("$ ")) for page, line in lines + told]
    return [(page, line) for page, line in found if line.startswith("lakefeed ")]


@pytest.mark.parametrize(("page", "text"), blocks("yaml"), ids=name_of)
def test_every_pipeline_in_the_documentation_validates(page: Path, text: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    for name, content in FILE_BESIDE.findall(page.read_text()):
        (tmp_path / name).write_text(content)

    loaded = load(file, environment=dict.fromkeys(VARIABLE.findall(text), "value-of-a-variable"))

    assert loaded.warnings == ()


@pytest.mark.parametrize("file", EXAMPLES, ids=name_of)
def test_every_example_validates(file: Path) -> None:
    needed = re.findall(r"\$\{([A-Z_]+)\}", file.read_text())

    loaded = load(file, environment=dict.fromkeys(needed, "value-of-a-variable"))

    assert loaded.warnings == ()


@pytest.mark.parametrize(("page", "line"), commands(), ids=name_of)
def test_every_command_in_the_documentation_exists_with_its_options(page: Path, line: str) -> None:
    group = typer.main.get_command(app)
    known = getattr(group, "commands", {})
    words = line.split()[1:]

    named = [word for word in words if not word.startswith("-")]
    options = [word.partition("=")[0] for word in words if word.startswith("--")]

    command = known[named[0]] if named and named[0] != "COMMAND" else group
    while getattr(command, "commands", None) and len(named) > 1:
        named = named[1:]
        command = command.commands[named[0]]
    offered = {option for each in (group, command) for parameter in each.params for option in parameter.opts}
    assert set(options) <= offered | {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(FENCE.sub("", page.read_text())):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        found = (page.parent / file).resolve() if file else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found), target


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as they are made from the words of each."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {ANY_NAME.sub("", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", connector_types("format"))
def test_every_code_of_a_refused_payload_is_explained(name: str) -> None:
    page = (ROOT / "docs" / "formats" / f"{name}.md").read_text()

    rows = dict(re.findall(r"^\| `(\w+)` \| (?:decode|schema) \| (.+?) \|$", page, re.MULTILINE))

    assert rows == import_module(connector_class("format", name).__module__).CODES


def test_every_kind_of_finding_is_explained_with_an_example() -> None:
    page = (ROOT / "docs" / "verify.md").read_text()

    rows = dict(re.findall(r"^\| `(\w+)` \| (.+?) \|$", page, re.MULTILINE))

    assert rows == KINDS
    assert set(re.findall(r"^\*\*(\w+)\*\* `", page, re.MULTILINE)) == set(KINDS)


@pytest.mark.parametrize("name", connector_types("format"))
def test_every_format_is_in_the_readme_and_tells_its_options(name: str) -> None:
    page = (ROOT / "docs" / "formats" / f"{name}.md").read_text()
    options = connector_class("format", name).model_fields.keys() - {"type"}

    told = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", page.partition("## Options")[2], re.MULTILINE)

    assert options <= set(re.findall(r"\w+", " ".join(told)))
    assert f"(docs/formats/{name}.md)" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("room", ["source", "format"])
def test_every_connector_has_a_page_from_the_template(room: str) -> None:
    for name in connector_types(room):
        page = (ROOT / "docs" / f"{room}s" / f"{name}.md").read_text()

        headings = re.findall(r"^## (.+)$", page, re.MULTILINE)

        for heading in ("What it reads", "The smallest example", "Options", "Guarantees", "What goes wrong"):
            assert heading in headings, f"{name}: {heading}"


def test_the_map_of_the_house_names_every_folder() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text()
    map_ = page.partition("```\nsrc/lakefeed/")[2].partition("```")[0].split()

    rooms = [file.parent for file in (ROOT / "src" / "lakefeed").rglob("*.py")]

    assert {f"{room.name}/" for room in rooms if room.name != "lakefeed"} - set(map_) == set()


def table_commands() -> dict[str, Any]:
    group: Any = typer.main.get_command(app)
    return dict(group.commands["table"].commands)


@pytest.mark.parametrize("name", sorted(table_commands()))
def test_every_table_command_has_a_page_from_the_template_that_tells_its_options(name: str) -> None:
    page = (ROOT / "docs" / "tables" / f"{name}.md").read_text()
    index = (ROOT / "docs" / "tables" / "index.md").read_text()
    options = {option for parameter in table_commands()[name].params for option in parameter.opts}

    headings = re.findall(r"^## (.+)$", page, re.MULTILINE)
    told = set(re.findall(r"^\| `(--[\w-]+)", page + index, re.MULTILINE))

    wanted = ["What it does", "The smallest example", "Options", "Guarantees", "What goes wrong"]
    assert headings[:5] == wanted
    assert {option for option in options if option.startswith("--")} <= told
    assert f"[{name}]({name}.md)" in index


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150
