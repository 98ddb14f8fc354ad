"""Verdicts: the tests of a pipeline, run and compared."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lakefeed.engine.run_events import RunEvent, SchemaInferred, Starting, all_of
from lakefeed.engine.spark.delta import delta_settings
from lakefeed.engine.spark.session import spark_session
from lakefeed.errors import LakefeedError
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.test_file import Case, ExpectedLetter, ExpectedTable
from lakefeed.testing.difference import Cell, Difference, differences, shown
from lakefeed.testing.landed import Landed, read_rows, send
from lakefeed.testing.queries import queries_for
from lakefeed.testing.values import row_cells
from lakefeed.text import listed


@dataclass(frozen=True)
class Verdict:
    """The result of one test. `error` is why its run failed; the tables are compared all the same."""

    name: str
    differences: tuple[Difference, ...] = ()
    error: str | None = None
    columns: dict[str, list[str]] = field(default_factory=dict)
    """By table, for every column that nobody declared: its type, and what was seen of it."""

    @property
    def passed(self) -> bool:
        """Whether everything is as expected."""
        return not self.differences and self.error is None


def check(
    pipeline: Pipeline, *, spark: bool = False, starting: Callable[[str], None] = lambda why: None
) -> Iterator[Verdict]:
    """Run the tests of a pipeline one after the other, each on tables of its own.

    Spark is started for the first test that needs it, with `spark` for all; `starting` is told why.
    """
    with tempfile.TemporaryDirectory(prefix="lakefeed-test-") as folder, ExitStack() as opened:
        session = _Session(pipeline, Path(folder) / "spark.log", opened, starting)
        for number, (name, case) in enumerate(pipeline.tests.items()):
            if spark or session.is_wanted:
                session.open("")
            elif queries := queries_for(pipeline, case.tables):
                session.open(f"a query computes {listed(sorted(queries))}")
            yield _verdict(pipeline, name, case, Path(folder) / str(number), spark, session)


def assert_rows(
    path: str | Path, expected: Sequence[Mapping[str, Any]], storage: Mapping[str, str] | None = None
) -> None:
    """Fail unless a Delta table holds exactly these rows, in any order.

    Only the columns that a row names are compared. Values are written as in a pipeline's tests, or as
    Python's own: a decimal as `"9.90"` or `Decimal("9.90")`.
    """
    schema, got = read_rows(str(path), storage)
    found = list(_rows(str(path), ExpectedTable(rows=tuple(map(dict, expected))), schema, got))
    if found:
        raise AssertionError("\n".join([f"{path} does not hold what is expected", *map(str, found)]))


@dataclass
class _Session:
    """One Spark session for all tests, opened for the first that needs one."""

    pipeline: Pipeline
    log: Path
    opened: ExitStack
    starting: Callable[[str], None]
    is_open: bool = False
    is_wanted: bool = False

    def watch(self, event: RunEvent) -> None:
        """Tell that a table has SQL that only Spark runs; from the next test on, all share one session."""
        if isinstance(event, Starting) and not self.is_open and not self.is_wanted:
            self.is_wanted = True
            self.starting("a table has SQL that only Spark runs; `lakefeed plan` says why")

    def open(self, why: str) -> None:
        """Open it, unless it is."""
        if self.is_open:
            return
        self.is_open = True
        spark = self.pipeline.spark
        conf = delta_settings(spark.conf) if self.pipeline.queries() else spark.conf
        if why:
            self.starting(why)
        self.opened.enter_context(spark_session(self.pipeline.name, spark.master, conf, self.log))


def _verdict(
    pipeline: Pipeline, name: str, case: Case, folder: Path, spark: bool, session: _Session
) -> Verdict:
    error: str | None = None
    inferred: dict[str, list[str]] = {}

    def keep(event: RunEvent) -> None:
        if isinstance(event, SchemaInferred):
            inferred.setdefault(event.table, []).extend(event.lines)

    watch = all_of(keep, session.watch)
    try:
        send(pipeline, case.events, folder, spark=spark, watch=watch, tables=case.tables.keys())
    except LakefeedError as failed:
        error = str(failed)
    landed = Landed.of(pipeline, folder)
    found = [
        difference
        for table, expected in case.tables.items()
        for difference in _compared(landed, table, expected)
    ]
    return Verdict(name, tuple(found), error, inferred)


def _compared(landed: Landed, table: str, expected: ExpectedTable) -> Iterator[Difference]:
    schema, rows = read_rows(landed.path(table))
    yield from _rows(table, expected, schema, rows)
    letters = landed.dead_letters(table)
    yield from differences(table, "dead letter", expected.dead_letters, letters, _letter_cells, _letter)
    if expected.filtered is not None and (got := landed.filtered(table)) != expected.filtered:
        yield Difference(table, "filtered", "events", str(expected.filtered), str(got))


def _rows(
    table: str, expected: ExpectedTable, schema: Any, rows: list[dict[str, Any]]
) -> Iterator[Difference]:
    def compare(one: dict[str, Any], other: dict[str, Any] | None) -> list[Cell]:
        return row_cells(schema, one, other)

    yield from differences(table, "row", expected.rows, rows, compare, _without_nulls)


def _without_nulls(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if value is not None} or row


def _letter_cells(expected: ExpectedLetter, got: dict[str, Any] | None) -> list[Cell]:
    cells = []
    for name in ("code", "stage", "error"):
        wanted = getattr(expected, name)
        if wanted is not None:
            found = None if got is None else got[name]
            equal = found is not None and (wanted in found if name == "error" else wanted == found)
            cells.append(Cell(name, shown(wanted), shown(found), equal))
    return cells


def _letter(letter: dict[str, Any]) -> dict[str, Any]:
    return {name: letter[name] for name in ("code", "error", "payload")}
