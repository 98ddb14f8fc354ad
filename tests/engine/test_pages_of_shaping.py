"""The pages about shaping: every example does what its tests and its output say."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from lakefeed.engine.inline import run_inline
from lakefeed.errors import TableError
from lakefeed.pipeline.loading.load import load
from lakefeed.testing import check
from support.lakefeed import run

DOCS = Path(__file__).parents[2] / "docs"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BESIDE = re.compile(
    r"`([\w.]+)` lies beside the pipeline file:\n\n```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL
)


def examples() -> list[Any]:
    """Every pipeline with tests, named by its page and the first line that tells it from the others."""
    return [
        pytest.param(page, text, id=f"{page}-{number}")
        for page in ("shaping.md", "expectations.md", "medallion.md")
        for number, (kind, text) in enumerate(FENCE.findall((DOCS / page).read_text()))
        if kind == "yaml" and "\ntests:" in text
    ]


@pytest.mark.parametrize(("page", "text"), examples())
def test_every_example_passes_its_tests(page: str, text: str, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(text)
    for name, content in BESIDE.findall((DOCS / page).read_text()):
        (tmp_path / name).write_text(content)

    if "query:" in text:
        # A process of its own: the session of these tests has no Delta.
        code, out, said = run("test", str(file))
        assert code == 0, (out, said)
        return
    verdicts = list(check(load(file).pipeline))

    assert verdicts
    assert [one for one in verdicts if not one.passed] == []


def test_a_rule_that_fails_says_what_the_page_shows(tmp_path: Path) -> None:
    blocks = FENCE.findall((DOCS / "expectations.md").read_text())
    (text,) = [text for kind, text in blocks if kind == "yaml" and "\ntests:" not in text]
    (shown,) = [text for kind, text in blocks if not kind]
    file = tmp_path / "shop.yaml"
    file.write_text(text)

    with pytest.raises(TableError) as stopped:
        run_inline(load(file).pipeline)

    assert f"error: {stopped.value}\n" == shown
