"""The charges of upkeep: which tables of a run it looks after, how, and with which engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lakefeed.handles.tables import Lake, Place
from lakefeed.pipeline.upkeep import Cluster, Compact, DeleteAfter, Upkeep, Vacuum
from lakefeed.tables.rewrite.compact import TARGET_FILE_SIZE
from lakefeed.upkeep.rewriter import DeltaRewriter, Rewriter
from lakefeed.upkeep.spark_rewriter import SparkRewriter

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Charge:
    """A table that upkeep looks after, and how."""

    place: Place
    upkeep: Upkeep
    rewriter: Rewriter
    target_file_size: int
    cluster_by: tuple[str, ...]

    def intervals(self) -> dict[str, float]:
        """The operations of this table, and how often each is due."""
        found = {}
        if isinstance(self.upkeep.delete_after, DeleteAfter):
            found["delete"] = self.upkeep.delete_after.every
        if isinstance(self.upkeep.compact, Compact):
            found["compact"] = self.upkeep.compact.every
        if isinstance(self.upkeep.cluster, Cluster) and self.cluster_by:
            found["cluster"] = self.upkeep.cluster.every
        if isinstance(self.upkeep.vacuum, Vacuum):
            found["vacuum"] = self.upkeep.vacuum.every
        return found


def charges_of(
    lake: Lake, spark: SparkSession | None, stopping: Callable[[], bool] = lambda: False
) -> Iterator[Charge]:
    """Every table of the run whose upkeep is on, the dead letters last."""
    for place in (*lake.places.values(), lake.letters):
        if place.upkeep is not None:
            yield Charge(
                place,
                place.upkeep,
                _rewriter(place, place.upkeep, lake.pipeline.name, spark, stopping),
                place.spec.target_file_size if place.spec else TARGET_FILE_SIZE,
                place.spec.cluster_by if place.spec else (),
            )


class Charges:
    """The charges of a run; tables that a route has made since the last look are among them."""

    def __init__(
        self, lake: Lake, spark: SparkSession | None, stopping: Callable[[], bool] = lambda: False
    ) -> None:
        self._lake, self._spark, self._stopping = lake, spark, stopping
        self._known: dict[str, Charge] = {}

    def __call__(self) -> list[Charge]:
        """All of them; what is known of a table already stays."""
        for charge in charges_of(self._lake, self._spark, self._stopping):
            self._known.setdefault(charge.place.name, charge)
        return list(self._known.values())


def _rewriter(
    place: Place, upkeep: Upkeep, pipeline: str, spark: SparkSession | None, stopping: Callable[[], bool]
) -> Rewriter:
    if upkeep.engine == "spark" and spark is not None:
        return SparkRewriter(spark, place, pipeline)
    return DeltaRewriter(place, pipeline, stopping)
