"""`lakefeed schema`: prints the JSON Schema of the pipeline file."""

from __future__ import annotations

import json

import typer

from lakefeed.pipeline.json_schema import json_schema


def schema() -> None:
    """Print the JSON Schema of the pipeline file, for editors."""
    typer.echo(json.dumps(json_schema(), indent=2))
