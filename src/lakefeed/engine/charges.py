"""The charges of upkeep: which tables of a run it looks after, how, and with which engine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from lakefeed.engine.lake import Lake, Place
from lakefeed.pipeline.table import Table
from lakefeed.pipeline.upkeep import Cluster, Compact, DeleteAfter, Upkeep, Vacuum
from lakefeed.tables.rewrites import DeltaRewrites, Rewrites

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True)
class Charge:
    """A table that upkeep looks after, and how."""

    place: Place
    upkeep: Upkeep
    rewrites: Rewrites
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


def charges_of(lake: Lake, spark: SparkSession | None) -> Iterator[Charge]:
    """Every table of the run whose upkeep is on, the dead letters last."""
    for place in (*lake.places.values(), lake.letters):
        if place.upkeep is not None:
            yield Charge(
                place,
                place.upkeep,
                _rewrites(place, place.upkeep, lake.pipeline.name, spark),
                place.spec.target_file_size if place.spec else _default("target_file_size"),
                place.spec.cluster_by if place.spec else (),
            )


def _rewrites(place: Place, upkeep: Upkeep, pipeline: str, spark: SparkSession | None) -> Rewrites:
    return DeltaRewrites(
        place.path,
        place.storage,
        place.store,
        compression=place.spec.compression if place.spec else _default("compression"),
        account={"pipeline": pipeline},
    )


def _default(key: str) -> Any:
    """What a table has that says nothing else; dead letters have no section of their own for it."""
    return Table.model_fields[key].default
