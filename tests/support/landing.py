"""A folder of files and a pipeline that reads it, without Spark."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from copy import copy
from pathlib import Path
from typing import Any

from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.inline import InlineFlow, run_inline
from lakefeed.engine.run_events import Watcher, unwatched
from lakefeed.engine.spark.local_tasks import LocalTasks
from lakefeed.engine.supervisor import Supervisor
from lakefeed.handles.tables import Tables
from lakefeed.reports.found_files import found_files
from lakefeed.reports.verify import verify
from lakefeed.sources.files.filter import FileFilter
from support.ledger import dead_letters

FILE = """\
name: shop
sources: {{drops: {{type: files, path: {path}, settle: 1ms, {options}}}}}
tables: {{rows: {{path: rows, from: drops, {table}}}}}
flush: {{rows: 1000}}
"""


class Landing:
    """Files are put into a folder; `run` reads what is there."""

    def __init__(
        self, folder: Path, options: str = "format: json", table: str = "evolve: add", path: str = "in"
    ) -> None:
        self.folder = folder
        self.file = folder / "shop.yaml"
        self.into = folder / "in"
        self.into.mkdir(exist_ok=True)
        self.set(options, table, path)

    def set(self, options: str, table: str = "evolve: add", path: str = "in") -> None:
        """Write the pipeline file anew."""
        self.file.write_text(FILE.format(path=path, options=options, table=table))

    def moved_to(self, folder: Path) -> Landing:
        """The same project in another folder."""
        self.folder.rename(folder)
        there = copy(self)
        there.folder, there.file, there.into = folder, folder / "shop.yaml", folder / "in"
        return there

    def put(self, name: str, content: bytes | str, at: float | None = None) -> Path:
        """Write a file, of a given time."""
        file = self.into / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
        if at is not None:
            os.utime(file, (at, at))
        return file

    def run(self) -> None:
        """Read what is there now."""
        run_inline(Pipeline.from_file(self.file))

    @contextmanager
    def running(self, watch: Watcher = unwatched) -> Iterator[None]:
        """Read what comes until the end of the block."""
        pipeline, stop = Pipeline.from_file(self.file), threading.Event()
        flow = InlineFlow(Tables(pipeline), "drops", LocalTasks(), self.folder, watch, once=False)
        thread = threading.Thread(target=Supervisor(pipeline, [flow], watch, stop).run)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join(120)

    def rows(self, *columns: str) -> list[Any]:
        """The rows of the table, sorted; of one column, its values."""
        table = DeltaTable(self.folder / "rows").to_pyarrow_table()
        if len(columns) == 1:
            return sorted(table[columns[0]].to_pylist(), key=str)
        return sorted(table.select(list(columns) or table.column_names).to_pylist(), key=str)

    def letters(self) -> list[dict[str, Any]]:
        """The dead letters."""
        return dead_letters(self.folder / "shop_dead_letters")

    def ledger(self) -> list[dict[str, Any]]:
        """What `files list` knows, one for each number."""
        (report,) = found_files(Pipeline.from_file(self.file), None, FileFilter())
        found: list[dict[str, Any]] = report.rows.to_pylist()
        return found

    def states(self) -> dict[str, str]:
        """The state of each number, with the name of its file."""
        return {f"{one['number']} {Path(one['path']).name}": one["state"] for one in self.ledger()}

    @property
    def is_sound(self) -> bool:
        """Whether the logs prove what was read."""
        return verify(Pipeline.from_file(self.file)).sound
