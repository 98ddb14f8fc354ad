"""What only a process shows: what is imported, which Java is found, ports, and the installed command."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from lakefeed import TableError, __version__
from lakefeed.commands.app import _final_line, _WithLevel
from lakefeed.engine.inline import run_inline
from lakefeed.engine.instance import only_instance
from lakefeed.pipeline.pipeline import Pipeline
from support.command_line import GOOD


def lakefeed(
    *arguments: str | Path, env: Mapping[str, str] | None = None, timeout: float = 60
) -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "lakefeed", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, "COLUMNS": "200", **(env or {})},
    )
    return done.returncode, done.stdout, done.stderr


def test_validate_and_status_import_no_pyspark(pipeline_file: Callable[[str], Path]) -> None:
    file = pipeline_file(GOOD)
    looks = f"""
import sys
sys.argv = ["lakefeed", sys.argv[1], {str(file)!r}]
from lakefeed.commands.app import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(sorted(name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j", "pandas")))
"""

    for command in ("validate", "status"):
        done = subprocess.run([sys.executable, "-c", looks, command], capture_output=True, text=True)

        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "[]"


def test_validate_and_status_load_no_more_than_they_need(
    pipeline_file: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = pipeline_file(GOOD)
    monkeypatch.chdir(file.parent)
    run_inline(Pipeline.from_file(file))
    looks = """
import sys
sys.argv = ["lakefeed", sys.argv[1], "pipeline.yaml"]
from lakefeed.commands.app import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(*sorted({"pandas", "pyarrow.dataset", "lakefeed.formats.json.block"} & sys.modules.keys()), "end")
"""

    for command, said in (("validate", "1 table"), ("status", "10")):
        done = subprocess.run([sys.executable, "-c", looks, command], capture_output=True, text=True)

        assert done.returncode == 0, done.stderr
        assert said in done.stdout
        assert done.stdout.splitlines()[-1] == "end"


def test_missing_java_is_told_in_one_sentence(pipeline_file: Callable[[str], Path], tmp_path: Path) -> None:
    file = pipeline_file(GOOD)
    nowhere = tmp_path / "empty"
    nowhere.mkdir()

    told = lakefeed("run", file, "--once", env={"PATH": str(nowhere), "JAVA_HOME": ""})
    told_home = lakefeed("run", file, "--once", env={"JAVA_HOME": str(nowhere)})

    sentence = (
        "error: Java 17 or newer is needed and was not found: install it, for example with "
        "`apt-get install openjdk-17-jre-headless`, or set JAVA_HOME.\n"
    )
    assert told == (1, "", sentence)
    assert told_home == (1, "", sentence)


def test_missing_folder_of_files_is_told_before_java_is_looked_for(
    pipeline_file: Callable[[str], Path], tmp_path: Path
) -> None:
    text = """\
name: shop
sources:
  drops: {type: files, path: landing, format: json}
tables:
  orders: {path: lake/orders, from: [drops]}
"""
    other = text.replace("tables:", "  made: {type: generate, rows: 1}\ntables:").replace(
        "[drops", "[drops, made"
    )
    glob = text.replace("landing", "landing/*.json")
    java = {"JAVA_HOME": str(tmp_path / "nowhere")}

    missing = lakefeed("run", pipeline_file(text), env=java)
    of_a_glob = lakefeed("run", pipeline_file(glob), env=java)
    beside_another = lakefeed("run", pipeline_file(other), env=java)
    (pipeline_file(text).parent / "landing").mkdir()
    empty = [lakefeed("run", pipeline_file(one), env=java) for one in (text, glob)]

    folder = pipeline_file(text).parent / "landing"
    sentence = f"error: source drops: the folder {folder} does not exist.\nCreate it, or correct `path`.\n"
    assert missing == of_a_glob == (1, "", sentence)
    assert all("Java 17 or newer is needed" in said for _, _, said in (beside_another, *empty))


@pytest.mark.parametrize("version", ["11.0.21", "1.8.0_392"])
def test_old_java_is_told_with_its_version(
    version: str, pipeline_file: Callable[[str], Path], tmp_path: Path
) -> None:
    file = pipeline_file(GOOD)
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2023-10-17' >&2\n")
    java.chmod(0o755)

    code, out, said = lakefeed("run", file, "--once", env={"JAVA_HOME": str(tmp_path / "jdk")})

    major = {"11.0.21": 11, "1.8.0_392": 8}[version]
    assert (code, out) == (1, "")
    assert said.startswith(f"error: Java 17 or newer is needed and {java} is Java {major}: install it")
    assert len(said.splitlines()) == 1


def test_an_error_that_was_shown_when_it_happened_is_not_shown_again_at_the_end() -> None:
    told, untold = TableError("table events: refused"), TableError("table events: refused")
    told.reported = True

    assert _final_line(told) == "error: a part of the run has stopped; the lines above say why."
    assert _final_line(untold) == "error: table events: refused"


def test_run_on_a_port_that_is_taken_ends_before_spark_starts(pipeline_file: Callable[[str], Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        file = pipeline_file(GOOD + f"    http: {{listen: {taken}}}\n")

        plain = lakefeed("run", file, "--once")
        as_json = lakefeed("run", file, "--once", "--log-format", "json")

    told = (
        f"http: another program listens on {taken} already.\n"
        "Stop it, or choose another address: --set http.listen=127.0.0.1:0 takes a free port.\n"
    )
    assert (plain[0], plain[1]) == (2, "")
    assert plain[2].endswith(told)
    assert as_json[0] == 2
    assert json.loads(as_json[2].splitlines()[-1])["message"] == told.rstrip("\n")
    assert [path.name for path in (file.parent / ".lakefeed" / "shop").iterdir()] == ["lock"]


def test_second_instance_hears_that_one_is_running_and_not_that_its_port_is_taken(
    pipeline_file: Callable[[str], Path],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as page_of_the_first:
        file = pipeline_file(GOOD + f"    http: {{listen: 127.0.0.1:{page_of_the_first.getsockname()[1]}}}\n")

        with only_instance(Pipeline.from_file(file)):
            code, _, said = lakefeed("run", file, "--once")

    assert code == 1
    assert "error: pipeline shop is already running on this machine as process " in said
    assert "another program" not in said


def test_installed_command_and_module_are_the_same() -> None:
    command = Path(sys.executable).parent / "lakefeed"
    if not command.exists():
        command = Path(shutil.which("lakefeed") or "")

    done = subprocess.run([str(command), "--version"], capture_output=True, text=True)

    assert done.stdout == f"lakefeed {__version__}\n"


def test_what_is_logged_without_a_log_says_its_level() -> None:
    record = logging.LogRecord("lakefeed", logging.WARNING, "", 0, "%s", ("a secret is in the file",), None)

    assert _WithLevel().format(record) == "warning: a secret is in the file"
