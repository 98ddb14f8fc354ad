"""`lakefeed schema`: prints the JSON Schema of the pipeline file."""

from __future__ import annotations

import json

import typer

from lakefeed.pipeline.json_schema import json_schema

_IN_AN_EDITOR = (
    "VS Code, with the YAML extension (redhat.vscode-yaml): run `lakefeed schema > lakefeed.schema.json`, "
    "and begin the pipeline file with\n# yaml-language-server: $schema=lakefeed.schema.json"
)


def schema() -> None:
    """Print the JSON Schema of the pipeline file, for editors.

    With it, an editor completes keys, explains them and marks mistakes. How to use it in VS Code is printed
    on stderr.
    """
    typer.echo(json.dumps(json_schema(), indent=2))
    typer.echo(_IN_AN_EDITOR, err=True)
