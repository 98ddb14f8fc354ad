"""The arguments that every `lakefeed table` command takes."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

At = Annotated[
    str,
    typer.Argument(
        metavar="PATH",
        help="The path of the table: a local path, s3://..., gs://... or az://...; with --file, its name in "
        "that file.",
        show_default=False,
    ),
]
File = Annotated[
    Path | None,
    typer.Option("--file", help="A pipeline file: PATH is the name of one of its tables, or dead_letters."),
]
Storage = Annotated[
    list[str] | None,
    typer.Option(
        "--storage",
        metavar="KEY=VALUE",
        help="An option of the object store. Keys may be in the environment.",
    ),
]
