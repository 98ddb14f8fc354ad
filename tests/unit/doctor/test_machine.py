"""What the doctor says about a machine."""

from __future__ import annotations

import json
from importlib.metadata import Distribution, distributions
from pathlib import Path

import pytest

from lakefeed.doctor.machine import java, memory, open_files, packages, state
from support.command_line import Lakefeed


def installed(folder: Path, name: str, version: str, *requires: str) -> Distribution:
    """A package as pip would have installed it, as far as its description goes."""
    about = folder / f"{name}-{version}.dist-info" / "METADATA"
    about.parent.mkdir()
    lines = [f"Name: {name}", f"Version: {version}", *(f"Requires-Dist: {each}" for each in requires)]
    about.write_text("\n".join(["Metadata-Version: 2.1", *lines, "", ""]))
    return Distribution.at(about.parent)


def test_packages_of_this_environment_fit_together() -> None:
    found = packages(list(distributions()))

    assert found.state == "ok", found
    assert "pyspark 4.2.0" in found.text


def test_package_of_the_wrong_version_and_a_missing_one_are_told_with_the_command(tmp_path: Path) -> None:
    lakefeed = installed(
        tmp_path, "lakefeed", "0.1.0", "pandas>=2.2,<3", "orjson>=3.10", 'ruff; extra == "dev"'
    )
    pandas = installed(tmp_path, "pandas", "3.0.1")

    found = packages([lakefeed, pandas])

    assert (found.state, found.text) == (
        "fail",
        "pandas is 3.0.1, required is <3,>=2.2; orjson is missing, required is >=3.10",
    )
    assert found.remedy == "Install what fits: pip install 'pandas<3,>=2.2' 'orjson>=3.10'"


def test_memory_counts_java_and_a_worker_for_each_core() -> None:
    enough, scarce = memory(8 * 1024**3, "2g", 4), memory(8 * 1024**3, "2g", 32)

    assert (enough.state, enough.text) == ("ok", "8.0 GB free, 3.0 GB needed for Java and 4 workers")
    assert (scarce.state, scarce.text) == ("warn", "8.0 GB free, 10 GB needed for Java and 32 workers")
    assert "local[2]" in scarce.remedy


def test_few_open_files_are_a_warning_with_the_command() -> None:
    found = open_files(256)

    assert (found.state, found.text) == ("warn", "a process may open 256")
    assert "ulimit -n 4096" in found.remedy
    assert open_files(1024).state == open_files(-1).state == "ok"


def test_state_that_cannot_be_made_fails_and_is_not_made(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")

    assert state(file / "state").state == "fail"
    assert state(tmp_path / "new" / "state").state == "ok"
    assert list(tmp_path.iterdir()) == [file]


def test_missing_java_fails_with_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    found = java()

    assert (found.state, found.text) == ("fail", "Java 17 or newer is needed and was not found")
    assert found.remedy.startswith("Install it, for example with `apt-get install openjdk-17-jre-headless`")


def test_command_exits_with_3_when_something_fails_and_tells_programs_the_same(
    tmp_path: Path, lakefeed: Lakefeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    code, words, _ = lakefeed("doctor")
    code_of_json, told, _ = lakefeed("doctor", "--json")

    assert (code, code_of_json) == (3, 3)
    assert words.splitlines()[0] == "fail  Java: Java 17 or newer is needed and was not found"
    assert words.splitlines()[1].startswith("      Install it, for example with")
    assert json.loads(told)[0]["state"] == "fail"
    assert {each["check"] for each in json.loads(told)} == {
        "Java",
        "Python",
        "packages",
        "memory",
        "open files",
    }
