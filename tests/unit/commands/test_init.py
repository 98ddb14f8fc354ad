"""`lakefeed init`: what it writes validates and passes its own tests, and nothing is overwritten."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lakefeed.commands.app import app
from lakefeed.commands.init import init
from lakefeed.errors import UsageError
from lakefeed.pipeline.connectors import connector_class, connector_types
from lakefeed.pipeline.loading.load import load
from lakefeed.testing import check

TEMPLATES = ("files", "generate", "http", "kafka", "medallion", "postgres")


@pytest.mark.parametrize(
    ("template", "source"),
    [
        ("files", "files"),
        ("generate", "generate"),
        ("http", "http"),
        ("kafka", "kafka"),
        ("medallion", "generate"),
    ],
)
def test_pipeline_that_is_written_validates_and_passes_its_tests(
    template: str, source: str, tmp_path: Path
) -> None:
    init(tmp_path / "my shop", template)

    file = tmp_path / "my shop" / "my-shop.yaml"
    loaded = load(file, environment={}, with_tests=True)
    assert loaded.warnings == ()
    assert loaded.pipeline.name == "my-shop"
    assert [one.type for one in loaded.pipeline.sources.values()] == [source]
    assert len(loaded.pipeline.tests) >= 2
    if template != "medallion":
        # Its tests need Spark: they run with those of the engine.
        verdicts = list(check(loaded.pipeline))
        assert all(verdict.passed for verdict in verdicts), verdicts
    comments = [line for line in file.read_text().splitlines() if "#" in line]
    assert len(comments) > 10
    assert "NAME" not in file.read_text() and "FILE" not in file.read_text()


def test_template_of_files_says_where_to_put_them_and_how_to_see_what_was_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    init(tmp_path / "shop", "files")

    _, _, steps = capsys.readouterr().out.partition("Try next:\n")
    first, *_, last = steps.splitlines()
    assert first == f"  mkdir {tmp_path}/shop/landing, and put files there"
    assert last == f"  lakefeed files list {tmp_path}/shop/shop.yaml"


def test_comments_of_the_kafka_template_name_every_format(tmp_path: Path) -> None:
    init(tmp_path / "shop", "kafka")

    (line,) = [
        line for line in (tmp_path / "shop" / "shop.yaml").read_text().splitlines() if "format:" in line
    ]
    every = [name for name in connector_types("format") if not connector_class("format", name).of_files]
    assert [name for name in every if name not in line.partition("#")[2]] == []


def test_command_tells_what_to_type_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(app, ["init", "shop", "--template", "generate"])

    assert done.exit_code == 0, done.output
    assert done.output.splitlines() == [
        "wrote shop/shop.yaml and shop/shop.test.yaml",
        "",
        "Try next:",
        "  lakefeed test shop/shop.yaml",
        "  lakefeed doctor shop/shop.yaml",
        "  lakefeed run shop/shop.yaml --once",
    ]


@pytest.mark.parametrize("suffix", [".yaml", ".test.yaml"])
def test_file_that_is_there_is_not_overwritten(suffix: str, tmp_path: Path) -> None:
    file = tmp_path / f"{tmp_path.name}{suffix}"
    file.write_text("mine")

    with pytest.raises(UsageError, match="exists and is not overwritten"):
        init(tmp_path, "kafka")

    assert [path.read_text() for path in tmp_path.iterdir()] == ["mine"]


@pytest.mark.parametrize("template", ["oracle", "kafak"])
def test_template_that_is_not_there_is_refused_with_those_that_are(template: str, tmp_path: Path) -> None:
    with pytest.raises(
        UsageError,
        match=f"no template '{template}'; there are files, generate, http, kafka, medallion and postgres",
    ):
        init(tmp_path, template)

    assert list(tmp_path.iterdir()) == []


def test_directory_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(UsageError, match="cannot be written: Not a directory"):
        init(tmp_path / "file" / "shop", "kafka")


def test_help_names_every_template() -> None:
    told = CliRunner().invoke(app, ["init", "--help"], env={"COLUMNS": "200"}).output

    for template in TEMPLATES:
        assert template in told
