"""What every source keeps, as tests that run over each of them; without Spark."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, PipelineFileError
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.pipeline.connectors import connector_class
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from support.ledger import dead_letters, table_ids

RUN = "import sys; from support.folder_source import register; from support.source_contract import run; "
RUN += "register(); run(sys.argv[1])"
POINTS = ["files_written:2", "letters_committed", "table_committed:2"]


def run(file: str | Path) -> None:
    """Read what is there now."""
    run_inline(Pipeline.from_file(Path(file)))


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

    @property
    def file(self) -> Path:
        """The pipeline file, written anew."""
        file = self.folder / "shop.yaml"
        file.write_text(
            f"""\
name: shop
sources: {{items: {{type: {self.type}, {self.options(self.items)}}}}}
tables: {{rows: {{path: rows, from: items, schema: {{{self.schema}}}, evolve: {self.evolve}}}}}
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
        environment = {**os.environ, "LAKEFEED_KILL_AT": point}
        environment["PYTHONPATH"] = str(Path(__file__).parent.parent)
        killed = subprocess.run([sys.executable, "-c", RUN, str(case.file)], env=environment, timeout=120)
        case.grow()
        run(case.file)

        assert killed.returncode == -signal.SIGKILL
        case.assert_each_item_once()

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
        file.write_text(f"{head}\ntables: {{{tables}}}\n{rest.partition(chr(10))[2]}")
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
