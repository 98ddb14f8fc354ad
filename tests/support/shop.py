"""A pipeline in a folder of its own, that feeds one table, and what its runs leave there."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from textwrap import indent
from typing import Any

from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.reports.verify import verify
from support.ledger import assert_each_once, dead_letters, table_ids
from support.offline import close_consumers, drain


class Shop:
    """The file `shop.yaml`, its table `events`, and its dead letters."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "shop.yaml"
        self.table, self.letters = folder / "events", folder / "shop_dead_letters"

    def save(
        self,
        source: str,
        table: str = "",
        more: str = "",
        *,
        name: str = "shop",
        sources: Sequence[str] = ("clicks",),
    ) -> None:
        """Write the file: sources that are alike, the lines of the table, and the lines of the rest."""
        listed = "\n".join(f"  {one}: {{{source}}}" for one in sources)
        feeding = sources[0] if len(sources) == 1 else f"[{', '.join(sources)}]"
        self.file.write_text(
            f"""\
name: {name}
sources:
{listed}
tables:
  events:
    path: events
    from: {feeding}
{indent(table, "    ")}
{more}
"""
        )

    @property
    def pipeline(self) -> Pipeline:
        return Pipeline.from_file(self.file)

    def run(self) -> None:
        """Read all that waits, with the Spark session of the tests."""
        self.pipeline.run(once=True)

    def read(self) -> None:
        """Read all that waits, by the flows of a run, without Spark."""
        try:
            run_inline(self.pipeline)
        finally:
            close_consumers()

    def drain(self, batch: int = 1_000_000) -> Pipeline:
        """Read all that waits, without Spark."""
        return drain(self.file, batch)

    def delta(self) -> DeltaTable:
        return DeltaTable(self.table)

    def ids(self) -> list[int]:
        return sorted(table_ids(self.table))

    def accounts(self, table: Path | None = None) -> list[dict[str, Any]]:
        """What Lakefeed keeps in the commit info of each version, oldest first."""
        history = DeltaTable(table or self.table).history()
        return [json.loads(one["lakefeed"]) for one in reversed(history)]

    def findings(self, *, deep: bool = True) -> list[str]:
        """What `verify` finds in the tables."""
        proof = verify(self.pipeline, deep=deep)
        told = [str(one) for table in (*proof.tables, proof.dead_letters) for one in table.findings]
        assert proof.sound == (not told)
        return told

    def assert_ledger(self, rows: int) -> None:
        """Each of so many generated events of two partitions is there once, and `verify` says so too."""
        dead = [one["offset"] * 2 + one["partition"] for one in dead_letters(self.letters)]
        assert_each_once(range(rows), table_ids(self.table), dead)
        assert self.findings() == []
