"""What the ledgers of `files` sources tell: what became of each file. Starts no JVM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.events import lowest
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources import PARTITION
from lakefeed.sources.files.filter import FileFilter, ledgers
from lakefeed.sources.files.known import READ, WAITING
from lakefeed.sources.files.ledger import Ledger
from lakefeed.sources.files.offset import file_number
from lakefeed.tables.positions import positions_of
from lakefeed.tables.table import LakeTable


@dataclass
class LedgerReport:
    """The ledger of one source, and the rows of it that were asked for."""

    source: str
    ledger: str
    rows: pa.Table
    all: int
    """Files that the ledger has."""


def found_files(pipeline: Pipeline, source: str | None, wanted: FileFilter) -> Iterator[LedgerReport]:
    """What each ledger has, in the states that the positions of the tables prove."""
    for name, spec in ledgers(pipeline, source).items():
        ledger = Ledger(spec.ledger_location(pipeline.name, name))
        rows = _with_positions(ledger.rows, _passed(pipeline, name))
        assert spec.ledger is not None
        yield LedgerReport(name, spec.ledger, wanted.chosen(rows), rows.num_rows)


def _with_positions(rows: pa.Table, passed: int) -> pa.Table:
    """A file that every table has passed is read, though a run ended before it could tell the ledger."""
    told = pc.and_(pc.equal(rows["state"], WAITING), pc.less(rows["number"], passed))
    at = rows.schema.get_field_index("state")
    return rows.set_column(at, rows.schema.field(at), pc.if_else(told, READ, rows["state"]))


def _passed(pipeline: Pipeline, source: str) -> int:
    """The number up to which every table of a source has read; 0 while one has not begun."""
    tables = Tables(pipeline)
    tables.find_routed()
    held = []
    for name, spec in pipeline.tables_of(source).items():
        own = [handle for handle in tables.handles.values() if handle.spec is spec or handle.name == name]
        opened = [LakeTable.open(one.name, one.path, one.storage, one.store) for one in own]
        found = [positions_of(one.transactions, pipeline.name, source) for one in opened if one]
        held.append(lowest(found).get(PARTITION, 0))
    return file_number(min(held, default=0))
