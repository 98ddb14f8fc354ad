"""What every source keeps, as tests that run over each of them; without Spark."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, PipelineFileError, TableError
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.pipeline.connectors import connector_class
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from support.folder_source import register
from support.forks import run_until_killed
from support.ledger import dead_letters, table_ids

POINTS = ["files_written:2", "letters_committed", "table_committed:2"]


def run(file: str | Path) -> None:
    """Read what is there now."""
    run_inline(Pipeline.from_file(Path(file)))


def run_registered(file: Path) -> None:
    """Read what is there now, also from a folder."""
    register()
    run(file)


@dataclass
class SourceCase:
    """A source with 200 items at first, some of them bad, that grows by as many each time.

    A good item has its number in `event_id`.
    """

    type: str
    folder: Path
    options: Callable[[int], str]
    """Makes so many items, and returns the options of the source."""
    schema: str = "event_id: long"
    evolve: str = "ignore"
    items: int = 200
    pipeline: str = "shop"
    source: str = "items"
    more: str = ""
    """More options of the table, each behind a comma."""

    @property
    def file(self) -> Path:
        """The pipeline file, written anew."""
        file = self.folder / "shop.yaml"
        file.write_text(
            f"""\
name: {self.pipeline}
sources: {{{self.source}: {{type: {self.type}, {self.options(self.items)}}}}}
tables:
  rows: {{path: rows, from: {self.source}, schema: {{{self.schema}}}, evolve: {self.evolve}{self.more}}}
flush: {{rows: 60}}
"""
        )
        return file

    def grow(self) -> None:
        """Let more items come."""
        self.items += 200

    def assert_each_item_once(self) -> None:
        """Every item is one row or one dead letter, and the logs prove it."""
        ids = table_ids(self.folder / "rows")
        letters = [(one["topic"], one["partition"], one["offset"]) for one in self.dead_letters()]
        assert letters and len(set(letters)) == len(letters)
        assert len(set(ids)) == len(ids) and set(ids) <= set(range(self.items))
        assert len(ids) + len(letters) == self.items
        assert verify(Pipeline.from_file(self.file)).sound

    def commits(self) -> list[str]:
        """The entries of the logs of all Delta tables."""
        return sorted(str(entry) for entry in self.folder.rglob("_delta_log/*.json"))

    def dead_letters(self) -> list[dict[str, object]]:
        """What became no row."""
        return dead_letters(self.folder / "shop_dead_letters")


class SourceContract:
    """Subclasses have a fixture `case`."""

    def test_restart_continues_and_repeats_nothing(self, case: SourceCase) -> None:
        """A second run reads what has come since."""
        run(case.file)
        case.grow()
        run(case.file)
        run(case.file)

        case.assert_each_item_once()

    @pytest.mark.parametrize("point", POINTS)
    def test_kill_loses_and_repeats_nothing(self, case: SourceCase, point: str) -> None:
        """Wherever the process dies, the next one goes on from the tables."""
        run_until_killed(case.file, point, run_registered)
        case.grow()
        run(case.file)

        case.assert_each_item_once()

    def test_table_created_again_takes_every_item_that_fits_now(self, case: SourceCase) -> None:
        """Dead letters of the dropped table hide no row, also after a kill, and are not there twice."""
        schema = case.schema
        case.schema = schema.replace("event_id: long", "event_id: date")
        run(case.file)
        before = len(case.dead_letters())
        shutil.rmtree(case.folder / "rows")
        case.schema = schema
        run_until_killed(case.file, "letters_committed", run_registered)
        run(case.file)

        assert before == case.items
        case.assert_each_item_once()

    @pytest.mark.parametrize("renamed", ["source", "pipeline"])
    def test_other_name_is_refused_before_anything_is_committed(self, case: SourceCase, renamed: str) -> None:
        """Neither a table nor what the source keeps for itself knows the new name; `plan` says the same."""
        run(case.file)
        case.grow()
        setattr(case, renamed, "other")
        file = case.file
        before = case.commits()

        for _ in range(2):
            with pytest.raises(TableError, match=f"{renamed} 'other' (would|may) write them a second time"):
                run(file)
        assert case.commits() == before
        (planned,) = plan_run(Pipeline.from_file(file)).tables
        assert planned.refused is not None and "a second time" in planned.refused
        setattr(case, renamed, "shop" if renamed == "pipeline" else "items")
        run(case.file)
        case.assert_each_item_once()

    def test_other_name_feeds_a_table_that_is_shared(self, case: SourceCase) -> None:
        """With `share: true` each name has a copy of the events."""
        run(case.file)
        rows = len(table_ids(case.folder / "rows"))
        case.source, case.more = "other", ", share: true"
        run(case.file)

        assert len(table_ids(case.folder / "rows")) == 2 * rows

    def test_bad_input_becomes_a_dead_letter_that_holds_it(self, case: SourceCase) -> None:
        """With bytes to replay, and the position that it came from."""
        run(case.file)

        letters = case.dead_letters()
        assert letters
        assert all(one["payload"] and one["offset"] is not None and one["error"] for one in letters)

    def test_replayed_row_has_the_metadata_that_a_run_writes(self, case: SourceCase) -> None:
        """Whatever a letter keeps of its event, nobody can tell its row from the others."""
        table = "from: items, schema: {other: long}, metadata: true, evolve:"
        tables = f"run: {{path: run, {table} ignore}}, replayed: {{path: replayed, {table} dead_letter}}"
        file = case.file
        head, _, rest = file.read_text().partition("\ntables:")
        flush = rest.partition("\nflush: ")[2]
        file.write_text(f"{head}\ntables: {{{tables}}}\nflush: {flush}")
        run(file)
        file.write_text(file.read_text().replace("dead_letter", "ignore"))
        replay(Pipeline.from_file(file), DeadLetterFilter(table="replayed"))

        by_run, by_replay = (
            sorted(DeltaTable(case.folder / name).to_pyarrow_table().to_pylist(), key=repr)
            for name in ("run", "replayed")
        )
        assert by_run and by_replay == by_run

    def test_unknown_option_is_refused_by_its_name(self, case: SourceCase) -> None:
        """No option is ignored in silence."""
        text = case.file.read_text().replace(f"type: {case.type},", f"type: {case.type}, colour: red,")
        (case.folder / "other.yaml").write_text(text)

        with pytest.raises(PipelineFileError, match=r"sources\.items\.colour"):
            Pipeline.from_file(case.folder / "other.yaml")

    def test_docstring_names_item_parallelism_and_guarantee(self, case: SourceCase) -> None:
        """So that whoever chooses a source knows what it does."""
        told = connector_class("source", case.type).__doc__ or ""

        assert [word for word in ("item", "parallel", "guarantee") if word not in told.lower()] == []
