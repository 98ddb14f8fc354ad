"""The command line without a JVM: help, exit codes, what a user reads, and what nobody may read."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from textwrap import dedent

import jsonschema
import pytest
import typer.main
import yaml

from lakefeed import TableError, __version__
from lakefeed.commands import demo
from lakefeed.commands.app import _last_words, _Leveled, app
from lakefeed.engine.inline import run_inline
from lakefeed.engine.instance import only_instance
from lakefeed.pipeline.pipeline import Pipeline

GOOD = """
    name: shop
    sources: {clicks: {type: generate, rows: 10}}
    tables: {events: {path: events, from: clicks}}
"""


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


@pytest.fixture
def written(tmp_path: Path) -> Callable[[str], Path]:
    def write(text: str) -> Path:
        file = tmp_path / "shop.yaml"
        file.write_text(dedent(text))
        return file

    return write


@pytest.mark.parametrize("group", [(), ("table",), ("dead-letters",)], ids=str)
def test_help_tells_each_command_with_a_whole_sentence(group: tuple[str, ...]) -> None:
    code, out, _ = lakefeed(*group, "--help", env={"COLUMNS": "80"})

    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    told = " ".join(out.split())
    root = typer.main.get_command(app)
    for name in group:
        root = root.commands[name]  # type: ignore[attr-defined]
    for name, command in root.commands.items():  # type: ignore[attr-defined]
        sentence = " ".join(command.help.split("\n\n")[0].split())
        assert f" {name} {sentence.split('. ')[0]}" in told


@pytest.mark.parametrize(
    "words", [["--help"], ["table", "--help"], ["dead-letters", "--help"], ["--version"]]
)
def test_help_of_all_commands_imports_none_of_them(words: list[str]) -> None:
    program = f"""
import sys
from lakefeed.commands.app import app
try:
    app({words!r})
except SystemExit as end:
    assert not end.code, end.code
heavy = {{"pyspark", "pyarrow", "deltalake", "lakefeed.commands.run"}}
print(*sorted(heavy & sys.modules.keys()), "end")
"""

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)

    assert done.stdout.splitlines()[-1] == "end", done.stderr


def test_help_says_what_lakefeed_is() -> None:
    assert "Streams events into Delta Lake tables, exactly once, on Spark." in lakefeed("--help")[1]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        ("demo", ["[DIRECTORY]", "--rows"]),
        ("validate", ["FILE", "The pipeline file."]),
        ("run", ["FILE", "--once", "--set", "KEY=VALUE", "--master", "--log-format", "--quiet"]),
        ("status", ["FILE", "--json", "--watch"]),
        ("schema", ["Print the JSON Schema"]),
        ("init", ["[DIR]", "--template"]),
        ("test", ["FILE", "--spark", "--json"]),
        ("doctor", ["[FILE]", "--json"]),
        ("plan", ["FILE", "--json"]),
        ("verify", ["FILE", "--deep", "--json"]),
        (
            "rewind",
            ["FILE", "--table", "--to-version", "--to-time", "--yes", "--dry-run", "--undo-others", "--json"],
        ),
        ("dead-letters", ["list", "show", "replay", "discard"]),
    ],
)
def test_help_of_a_command_tells_its_arguments(command: str, told: list[str]) -> None:
    code, out, said = lakefeed(command, "--help")

    assert code == 0, said
    for text in told:
        assert text in out


def test_usage_names_arguments_as_the_reference_does() -> None:
    for arguments, usage in (
        (("run",), "lakefeed run FILE [OPTIONS]"),
        (("init", "--nothing"), "lakefeed init [DIR] [OPTIONS]"),
        (("table", "history"), "lakefeed table history PATH [OPTIONS]"),
        (("dead-letters", "list"), "lakefeed dead-letters list FILE [OPTIONS]"),
    ):
        code, _, said = lakefeed(*arguments)

        assert (code, said.splitlines()[0]) == (2, f"Usage: python -m {usage}")


def test_version_is_printed() -> None:
    assert lakefeed("--version") == (0, f"lakefeed {__version__}\n", "")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["validte", "shop.yaml"], "No such command 'validte'"),
        (["validate"], "Missing argument 'FILE'"),
        (["run", "shop.yaml", "--onec"], "No such option: --onec"),
        (["run", "shop.yaml", "--set", "flush"], "flush"),
    ],
)
def test_wrong_command_line_exits_with_2_and_says_what_is_wrong(
    arguments: list[str], told: str, written: Callable[[str], Path]
) -> None:
    file = written(GOOD)

    code, _, said = lakefeed(*[file if one == "shop.yaml" else one for one in arguments])

    assert code == 2
    assert told in said
    assert "Traceback" not in said


def test_missing_file_exits_with_2_and_names_it(tmp_path: Path) -> None:
    for command in ("validate", "test", "run", "status", "doctor"):
        code, _, said = lakefeed(command, tmp_path / "gone.yaml")

        assert code == 2
        assert str(tmp_path / "gone.yaml") in said
        assert "Traceback" not in said


def test_validate_counts_what_it_found(written: Callable[[str], Path]) -> None:
    file = written(GOOD)

    assert lakefeed("validate", file) == (0, f"{file}: ok (1 source, 1 table)\n", "")


def test_every_problem_is_told_with_its_line_by_validate_and_by_run(written: Callable[[str], Path]) -> None:
    file = written(
        """\
        name: shop
        sources:
          clicks: {type: generate, rwos: 10}
        tables:
          events:
            path: events
            from: click
            schema: {event_id: lnog}
        """
    )

    for command in ("validate", "run", "status"):
        code, out, said = lakefeed(command, file)

        assert (code, out) == (2, "")
        problems = said.splitlines()
        assert [line.split(": ")[0] for line in problems] == [f"{file}:3", f"{file}:7", f"{file}:8"]
        assert "rwos" in problems[0] and "'rows'" in problems[0]
        assert "click" in problems[1] and "'clicks'" in problems[1]
        assert "lnog" in problems[2] and "'long'" in problems[2]
    assert not (file.parent / ".lakefeed").exists()


def test_schema_prints_json_schema_that_describes_a_pipeline() -> None:
    code, out, said = lakefeed("schema")

    assert code == 0
    # Beside the output, for whoever reads it; the output itself is for the editor.
    assert said.splitlines()[-1] == "# yaml-language-server: $schema=lakefeed.schema.json"
    assert "run `lakefeed schema > lakefeed.schema.json`, and begin the pipeline file with" in said
    described = json.loads(out)
    assert described["$schema"].startswith("https://json-schema.org/")
    assert described["required"] == ["name", "sources", "tables"]
    assert "partition_by" in out


def test_schema_accepts_what_validate_accepts_and_refuses_a_misspelt_key() -> None:
    checker = jsonschema.Draft202012Validator(json.loads(lakefeed("schema")[1]))

    for text in (GOOD, SECRET, demo._PIPELINE.format(rows=10)):
        assert list(checker.iter_errors(yaml.safe_load(dedent(text)))) == []
    for wrong in (GOOD.replace("from:", "form:"), GOOD.replace("generate", "genrate"), "name: shop"):
        assert list(checker.iter_errors(yaml.safe_load(dedent(wrong))))


def test_validate_and_status_import_no_pyspark(written: Callable[[str], Path]) -> None:
    file = written(GOOD)
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
    written: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(GOOD)
    monkeypatch.chdir(file.parent)
    run_inline(Pipeline.from_file(file))
    looks = """
import sys
sys.argv = ["lakefeed", sys.argv[1], "shop.yaml"]
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


def test_missing_java_is_told_in_one_sentence(written: Callable[[str], Path], tmp_path: Path) -> None:
    file = written(GOOD)
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


@pytest.mark.parametrize("version", ["11.0.21", "1.8.0_392"])
def test_old_java_is_told_with_its_version(
    version: str, written: Callable[[str], Path], tmp_path: Path
) -> None:
    file = written(GOOD)
    java = tmp_path / "jdk" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\" 2023-10-17' >&2\n")
    java.chmod(0o755)

    code, out, said = lakefeed("run", file, "--once", env={"JAVA_HOME": str(tmp_path / "jdk")})

    major = {"11.0.21": 11, "1.8.0_392": 8}[version]
    assert (code, out) == (1, "")
    assert said.startswith(f"error: Java 17 or newer is needed and {java} is Java {major}: install it")
    assert len(said.splitlines()) == 1


def test_status_tells_tables_that_are_not_there_yet(written: Callable[[str], Path]) -> None:
    file = written(GOOD)

    code, out, said = lakefeed("status", file)
    json_code, json_out, _ = lakefeed("status", file, "--json")

    assert (code, said) == (0, "")
    assert "not created yet" in out
    found = json.loads(json_out)
    assert json_code == 0
    assert found["pipeline"] == "shop"
    assert found["tables"][0]["version"] is None
    assert found["sources"] == {"clicks": None}


def test_an_error_that_was_shown_when_it_happened_is_not_shown_again_at_the_end() -> None:
    told, untold = TableError("table events: refused"), TableError("table events: refused")
    told.told = True

    assert _last_words(told) == "error: a part of the run has stopped; the lines above say why."
    assert _last_words(untold) == "error: table events: refused"


def test_status_that_watches_looks_again_until_it_is_interrupted(written: Callable[[str], Path]) -> None:
    command = [sys.executable, "-m", "lakefeed", "status", str(written(GOOD)), "--watch", "--json"]

    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        lines = [process.stdout.readline() for _ in range(2)]
        process.send_signal(signal.SIGINT)
        said = process.stderr.read()
        code = process.wait(30)

    assert [json.loads(line)["pipeline"] for line in lines] == ["shop", "shop"]
    assert (code, said) == (0, "")


def test_status_counts_what_a_table_that_is_not_there_yet_would_read(written: Callable[[str], Path]) -> None:
    file = written(GOOD)

    _, out, _ = lakefeed("status", file)

    assert "events <- clicks 0: next 0, end 10, lag 10" in out


def test_run_on_a_port_that_is_taken_ends_before_spark_starts(written: Callable[[str], Path]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        file = written(GOOD + f"    http: {{listen: {taken}}}\n")

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
    written: Callable[[str], Path],
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as page_of_the_first:
        file = written(GOOD + f"    http: {{listen: 127.0.0.1:{page_of_the_first.getsockname()[1]}}}\n")

        with only_instance(Pipeline.from_file(file)):
            code, _, said = lakefeed("run", file, "--once")

    assert code == 1
    assert "error: pipeline shop is already running on this machine as process " in said
    assert "another program" not in said


CANARIES = {
    "KAFKA_PASSWORD": "canary-kafka-password",
    "ACCESS_KEY": "canary-access-key",
    "SECRET_KEY": "canary-secret-key",
}
SECRET = """
    name: shop
    sources:
      clicks:
        type: kafka
        brokers: 127.0.0.1:9
        topics: [clicks]
        format: json
        options:
          sasl.mechanism: PLAIN
          security.protocol: SASL_PLAINTEXT
          sasl.username: user
          sasl.password: ${KAFKA_PASSWORD}
    tables:
      events: {path: "s3://lake/events", from: clicks}
    storage:
      AWS_ENDPOINT_URL: "http://127.0.0.1:9"
      AWS_ALLOW_HTTP: "true"
      AWS_REGION: us-east-1
      AWS_ACCESS_KEY_ID: ${ACCESS_KEY}
      AWS_SECRET_ACCESS_KEY: ${SECRET_KEY}
      retry_timeout: 1s
      max_retries: "1"
"""


def assert_no_canary(*texts: str) -> None:
    for text in texts:
        for canary in CANARIES.values():
            assert canary not in text


@pytest.mark.parametrize(
    "wrong",
    ["sasl.mechanism: PLAIN", "retry_timeout: 1s", "topics: [clicks]"],
)
def test_no_secret_is_shown_by_validate(wrong: str, written: Callable[[str], Path]) -> None:
    good, bad = written(SECRET), SECRET.replace(wrong, "no_such_key: [canary]")

    code, out, said = lakefeed("validate", good, env=CANARIES)
    bad_code, bad_out, bad_said = lakefeed("validate", written(bad), env=CANARIES)

    assert code == 0, said
    assert bad_code == 2
    assert_no_canary(out, said, bad_out, bad_said)


def test_status_of_what_cannot_be_reached_ends_soon_and_shows_no_secret(
    written: Callable[[str], Path],
) -> None:
    file = written(SECRET)
    began = time.monotonic()

    code, out, said = lakefeed("status", file, env=CANARIES, timeout=90)
    took = time.monotonic() - began

    assert code == 1, said
    assert took < 60
    assert "127.0.0.1:9 does not answer" in out
    assert "Traceback" not in said
    assert_no_canary(out, said)


def test_option_that_the_client_refuses_is_told_without_its_value_from_a_variable(
    written: Callable[[str], Path],
) -> None:
    file = written(SECRET.replace("sasl.username: user", "broker.address.family: ${KAFKA_PASSWORD}"))

    told = [lakefeed("status", file, *more, env=CANARIES, timeout=90) for more in ([], ["--json"])]

    for code, out, said in told:
        assert (code, said) == (1, "")
        assert "broker.address.family" in out
        assert_no_canary(out)


def test_installed_command_and_module_are_the_same() -> None:
    command = Path(sys.executable).parent / "lakefeed"
    if not command.exists():
        command = Path(shutil.which("lakefeed") or "")

    done = subprocess.run([str(command), "--version"], capture_output=True, text=True)

    assert done.stdout == f"lakefeed {__version__}\n"


def test_what_is_logged_without_a_log_says_its_level() -> None:
    record = logging.LogRecord("lakefeed", logging.WARNING, "", 0, "%s", ("a secret is in the file",), None)

    assert _Leveled().format(record) == "warning: a secret is in the file"
