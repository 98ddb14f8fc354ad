"""`lakefeed init`: writes a commented pipeline file, with tests next to it, to start from."""

from __future__ import annotations

import re
from importlib.resources import files
from pathlib import Path
from typing import Annotated

import typer

from lakefeed.errors import UsageError
from lakefeed.text import did_you_mean, listed

_TESTS = ".test.yaml"


def init(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIR]", help="The directory for the files; the pipeline gets its name.")
    ] = Path(),
    template: Annotated[
        str, typer.Option(help="What to start from: kafka, files, postgres, http, generate or medallion.")
    ] = "kafka",
) -> None:
    """Write a commented pipeline that validates, and tests for it. Overwrites nothing."""
    name = _name(directory)
    folder = files("lakefeed.commands") / "templates"
    known = sorted(file.name.removesuffix(_TESTS) for file in folder.iterdir() if file.name.endswith(_TESTS))
    if template not in known:
        near = did_you_mean(template, known)
        raise UsageError(f"there is no template '{template}'; there are {listed(known)}{near}")
    texts = {
        directory / f"{name}{suffix}": (folder / f"{template}{suffix}").read_text()
        for suffix in (".yaml", _TESTS)
    }
    taken = next((file for file in texts if file.exists()), None)
    if taken:
        raise UsageError(
            f"{taken} exists and is not overwritten.\nChoose another directory, or remove the file."
        )
    pipeline, tests = _write(directory, name, texts)
    typer.echo(f"wrote {pipeline} and {tests}\n\nTry next:")
    if template == "files":
        # A run refuses a folder that is not there: it may be mounted later, or its name may be wrong.
        typer.echo(f"  mkdir {directory / 'landing'}, and put files there")
    # A run that ends by itself does not listen.
    run = f"run {pipeline}" if template == "http" else f"run {pipeline} --once"
    look = [f"files list {pipeline}"] if template == "files" else []
    for command in (f"test {pipeline}", f"doctor {pipeline}", run, *look):
        typer.echo(f"  lakefeed {command}")


def _write(directory: Path, name: str, texts: dict[Path, str]) -> list[Path]:
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for file, text in texts.items():
            # Only where there is none: it may have come since we looked.
            with file.open("x") as opened:
                opened.write(text.replace("NAME", name).replace("FILE", f"{name}.yaml"))
    except OSError as error:
        raise UsageError(
            f"{error.filename or directory} cannot be written: {error.strerror}.\nChoose another directory."
        ) from error
    return list(texts)


def _name(directory: Path) -> str:
    """The name of the directory, as far as a pipeline can have it."""
    return (
        re.sub(r"[^A-Za-z0-9_\-]+", "-", directory.absolute().resolve().name).strip("-")[:100] or "pipeline"
    )
