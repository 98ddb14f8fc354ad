"""`lakefeed demo`: generated shop events into a Delta table, and a look at its rows."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.dataset as ds
import typer
from deltalake import DeltaTable
from rich.console import Console
from rich.table import Table

from lakefeed.commands.output import width
from lakefeed.commands.run import run_pipeline
from lakefeed.pipeline.http import Http
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reports.status import status
from lakefeed.stores import open_store
from lakefeed.text import counted

_PIPELINE = """\
# A shop's clickstream, made up row by row: the same rows for the same seed, one in a thousand cut off in
# the middle.
name: demo
sources:
  shop:
    type: generate
    rows: {rows}
    partitions: 4
    bad_ratio: 0.001
tables:
  events:
    path: events
    from: shop
    partition_by: [event_type]
    schema:
      event_id: long not null
      event_time: timestamp
      event_type: string
      product_id: long
      category_id: long
      category_code: string
      brand: string
      price: decimal(10,2)
      user_id: long
      user_session: string
flush: {{rows: 250000}}
"""
_COLUMNS = ["event_id", "event_time", "event_type", "product_id", "brand", "price", "user_id"]


def demo(
    directory: Annotated[
        Path, typer.Argument(metavar="[DIRECTORY]", help="The directory of the demo.")
    ] = Path("lakefeed-demo"),
    rows: Annotated[int, typer.Option(min=1, help="How many events to generate.")] = 1_000_000,
) -> None:
    """Stream generated shop events into a Delta table and show the rows. Needs no service."""
    file = directory / "demo.yaml"
    directory.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        file.write_text(_PIPELINE.format(rows=rows))
    typer.echo(
        f"Streaming made-up shop events into {directory / 'events'} (Spark takes some seconds to start) ..."
    )
    pipeline = Pipeline.from_file(file)
    if pipeline.http is None:
        # Any free port: another program may have the default one.
        pipeline = pipeline.model_copy(update={"http": Http(listen="127.0.0.1:0")})
    run_pipeline(pipeline, once=True)
    _show(pipeline, file)


def _show(pipeline: Pipeline, file: Path) -> None:
    found = status(pipeline)
    table = found.tables[0]
    where = os.path.relpath(table.path)
    held = f"{counted(table.rows, 'row')} in {counted(table.files, 'file')}"
    typer.echo(f"\n{where}: {held}, version {table.version}")
    letters, many = os.path.relpath(found.dead_letters.path), counted(found.dead_letters.rows, "dead letter")
    typer.echo(f"{letters}: {many}, each with its bytes and the reason\n")
    # With delta-rs's own file system, which calls back into Python, the process may abort at its end.
    store = open_store(table.path, {})
    data: ds.Dataset = DeltaTable(table.path).to_pyarrow_dataset(filesystem=store)
    first = data.filter(ds.field("event_id") < 10).to_table(columns=_COLUMNS).sort_by("event_id")
    _print_rows(first.slice(0, 5))
    command = os.path.relpath(sys.argv[0]) if os.sep in sys.argv[0] else "lakefeed"
    typer.echo("\nTry next:")
    typer.echo(f"  {command} status {file}")
    typer.echo(f"  {command} run {file} --once --set sources.shop.rows=2000000")
    typer.echo(f"  {command} demo        # again: nothing is read twice")


def _print_rows(rows: pa.Table) -> None:
    shown = Table(box=None, pad_edge=False)
    for name in rows.column_names:
        shown.add_column(name, no_wrap=True)
    for row in rows.to_pylist():
        shown.add_row(
            *(
                f"{value:%Y-%m-%dT%H:%M:%S}" if name == "event_time" else str(value)
                for name, value in row.items()
            )
        )
    Console(width=width()).print(shown)
