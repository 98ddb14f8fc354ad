"""Positions move over what tasks have read, and over nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import BatchFailed, Pipeline
from lakefeed.engine.batch.manifest import Manifest, check_covered
from lakefeed.engine.inline import InlineFlow, InlineFlowRun, run_inline
from lakefeed.events import OffsetRange, Offsets, Split

PLANNED = [OffsetRange("0", 0, 100), OffsetRange("1", 50, 60)]


def done(*spans: tuple[str, int, int]) -> Manifest:
    made = Manifest([OffsetRange(*span) for span in spans])
    return Manifest.from_json(made.to_json())


def test_tasks_that_share_a_partition_cover_it_together() -> None:
    check_covered(PLANNED, [done(("0", 40, 100)), done(("1", 50, 60), ("0", 0, 40))])


@pytest.mark.parametrize(
    "manifests",
    [
        pytest.param([], id="nothing came back"),
        pytest.param([done(("0", 0, 100))], id="a partition is missing"),
        pytest.param([done(("0", 0, 40), ("1", 50, 60))], id="the end of a partition is missing"),
        pytest.param([done(("0", 0, 40), ("0", 41, 100), ("1", 50, 60))], id="an event is missing"),
        pytest.param([done(("0", 0, 100), ("1", 50, 60))] * 2, id="every task counted twice"),
        pytest.param([done(("0", 0, 60), ("0", 40, 100), ("1", 50, 60))], id="events read twice"),
        pytest.param([done(("0", 0, 101), ("1", 50, 60))], id="more than was planned"),
    ],
)
def test_batch_that_is_not_the_planned_one_is_not_landed(manifests: list[Manifest]) -> None:
    with pytest.raises(BatchFailed, match="other offsets than planned"):
        check_covered(PLANNED, manifests)


def test_message_names_what_was_planned_and_what_came() -> None:
    with pytest.raises(BatchFailed) as failed:
        check_covered(PLANNED, [done(("0", 0, 40))])

    assert str(failed.value) == (
        "Spark returned a batch with other offsets than planned: 0: 0 to 40, not 0: 0 to 100, 1: 50 to 60; "
        "nothing of it was committed"
    )


class EmptyFirst(InlineFlowRun):
    """A run whose query began with a batch without tasks that ends only after the next was planned."""

    def begin(self, spark: Any, checkpoint: Path) -> None:
        super().begin(spark, checkpoint)
        opened, empty = self.channel.open_to, SimpleNamespace(collect=list)

        def open_to(end: Offsets, tasks: Sequence[Split]) -> None:
            self.take(empty, 0)  # type: ignore[arg-type]
            assert not self._done.is_set()
            opened(end, tasks)

        self.take(empty, 0)  # type: ignore[arg-type]
        self.channel.open_to = open_to  # type: ignore[method-assign]


def test_empty_first_batch_moves_no_position_past_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources:
  clicks: {type: generate, rows: 100}
tables:
  events: {path: events, from: clicks}
flush: {rows: 40}
"""
    )
    monkeypatch.setattr(InlineFlow, "run_kind", EmptyFirst)

    run_inline(Pipeline.from_file(file))

    table = DeltaTable(tmp_path / "events")
    assert table.to_pyarrow_table().num_rows == 100
    assert table.transaction_version("shop/clicks/0") == 99
