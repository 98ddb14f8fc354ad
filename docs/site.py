"""What the site has beside the pages of this folder; called by mkdocs while it builds.

The README is the home page, the changelog and the examples are pages, and patterns in `nav` take what exists.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#]+)(#[^)\s]*)?\)")
OUTSIDE = {"../README.md": "index.md", "../CHANGELOG.md": "changelog.md", "../examples": "examples.md"}
"""Where files of the repository are on the site, as seen from this folder."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages that are there into `nav`."""
    config.nav = expanded(config.nav, ROOT / "docs")
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of other files of the repository."""
    made = {
        "index.md": (ROOT / "README.md").read_text(),
        "changelog.md": (ROOT / "CHANGELOG.md").read_text(),
        "examples.md": _examples(),
    }
    for name, text in made.items():
        home = "" if name == "examples.md" else "../"
        files.append(File.generated(config, name, content=_relinked(text, home, "")))
    return files


def on_page_markdown(markdown: str, page: Any, config: MkDocsConfig, files: Files) -> str:
    """Turn links to files outside of this folder into links to their pages."""
    return _relinked(markdown, posixpath.dirname(page.file.src_uri), posixpath.dirname(page.file.src_uri))


def expanded(nav: Any, docs: Path) -> list[Any]:
    """`nav` with pages in the place of patterns.

    `folder/*` stands for what is there and not listed; `page.md?` is left out while it is missing.
    """
    pages = sorted(str(file.relative_to(docs)) for file in docs.rglob("*.md"))
    listed = {name.removesuffix("?") for name in _names(nav) if not name.endswith("*")}

    def expand(entry: Any) -> list[Any]:
        if isinstance(entry, dict):
            ((title, below),) = entry.items()
            inside = [each for one in below for each in expand(one)] if isinstance(below, list) else below
            return [{title: inside}] if inside else []
        if entry.endswith("*"):
            folder = entry.removesuffix("*").removesuffix("/")
            return [page for page in pages if posixpath.dirname(page) == folder and page not in listed]
        return [] if entry.endswith("?") and entry[:-1] not in pages else [entry.removesuffix("?")]

    return [each for entry in nav for each in expand(entry)]


def _names(nav: Any) -> list[str]:
    if isinstance(nav, str):
        return [nav]
    below = nav.values() if isinstance(nav, dict) else nav
    return [name for each in below for name in _names(each)]


def _relinked(text: str, written_in: str, shown_in: str) -> str:
    """The links of a text that was written in one folder, seen from this one, and is shown in another."""

    def link(match: re.Match[str]) -> str:
        words, target, anchor = match[1], match[2], match[3] or ""
        if "://" in target:
            return match[0]
        place = posixpath.normpath(posixpath.join(written_in, target))
        inside = place.removeprefix("../docs/")
        if place.startswith("../examples/"):
            return (
                f"[{words}]({posixpath.relpath('examples.md', shown_in or '.')}#{_anchor(Path(place).name)})"
            )
        if place in OUTSIDE:
            return f"[{words}]({posixpath.relpath(OUTSIDE[place], shown_in or '.')}{anchor})"
        if place != inside:
            return f"[{words}]({posixpath.relpath(inside, shown_in or '.')}{anchor})"
        # Other files, such as the license, are not on the site.
        return words if place.startswith("../") else match[0]

    return LINK.sub(link, text)


def _anchor(name: str) -> str:
    return re.sub(r"[^\w\-]", "", name.lower())


def _examples() -> str:
    parts = [
        "# Examples",
        "",
        "Pipelines, an Airflow DAG and a Dagster asset, in the folder `examples`. The tests run them.",
        "",
    ]
    for language, pattern in (("yaml", "*.yaml"), ("python", "*.py")):
        for file in sorted((ROOT / "examples").glob(pattern)):
            parts += [f"## {file.name}", "", f"```{language}", file.read_text().rstrip(), "```", ""]
    return "\n".join(parts)
