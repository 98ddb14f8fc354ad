"""`lakefeed validate` of a file with SQL, where there is no Java to analyze it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from support.command_line import GOOD, Lakefeed
from support.lakefeed import run


def test_without_java_the_sql_of_a_file_is_not_checked_and_validate_says_so(
    pipeline_file: Callable[[str], Path], tmp_path: Path
) -> None:
    file = pipeline_file(
        """\
        name: shop
        sources:
          orders: {type: generate}
        tables:
          silver: {path: silver, from: orders, where: id > 0}
        """
    )

    # In a process of its own: this one may have a JVM already.
    code, out, said = run("validate", str(file), env={"JAVA_HOME": str(tmp_path / "nowhere")})

    assert (code, out) == (0, f"{file}: ok (1 source, 1 table)\n")
    assert said.startswith("note: the SQL of silver was not checked: Java 17 or newer is needed")


def test_a_file_without_sql_needs_no_java(
    lakefeed: Lakefeed, pipeline_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path / "nowhere"))

    assert lakefeed("validate", pipeline_file(GOOD))[2] == ""
