"""Spark's own Delta: what a session needs for it, fetched only when a pipeline asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from lakefeed.errors import TableError
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources.spark.source import SparkSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
"""The build of Delta for the Spark that Lakefeed comes with."""
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def needs_delta(pipeline: Pipeline, *, once: bool = False) -> bool:
    """Whether a query or a source of Spark's is to read tables, or one is to be looked after by Spark.

    A run that ends by itself (`once`) looks after those with `upkeep.once`.
    """
    if any(table.query for table in pipeline.tables.values()):
        return True
    if any(isinstance(one, SparkSource) and one.format == "delta" for one in pipeline.sources.values()):
        return True
    all_upkeep = [pipeline.upkeep_for(name) for name in pipeline.tables] + [pipeline.dead_letters_upkeep]
    wanted = [upkeep for upkeep in all_upkeep if upkeep is not None and (upkeep.once or not once)]
    return any(upkeep.engine == "spark" for upkeep in wanted)


def delta_settings(conf: Mapping[str, str]) -> dict[str, str]:
    """The settings of a session with Delta: `conf`, and whatever it does not say itself.

    Jars that `conf` names already (`spark.jars` with a Delta jar in it) are taken; otherwise Spark fetches
    the package from Maven, once for each machine.
    """
    settings = dict(conf)
    if "delta-spark" not in f"{conf.get('spark.jars', '')} {conf.get('spark.jars.packages', '')}":
        settings["spark.jars.packages"] = _with(conf.get("spark.jars.packages"), PACKAGE)
    settings["spark.sql.extensions"] = _with(conf.get("spark.sql.extensions"), _EXTENSION)
    settings.setdefault("spark.sql.catalog.spark_catalog", _CATALOG)
    # A query over whole tables must not keep the batches of a stream waiting.
    settings.setdefault("spark.scheduler.mode", "FAIR")
    return settings


def is_fetched(conf: Mapping[str, str]) -> bool:
    """Whether Delta is on this machine already, so that a start does not have to fetch it."""
    if "delta-spark" in conf.get("spark.jars", ""):
        return True
    folder = conf.get("spark.jars.ivy")
    homes = [Path(folder)] if folder else list(Path.home().glob(".ivy2*"))
    organisation, name, version = PACKAGE.split(":")
    return any((home / "jars" / f"{organisation}_{name}-{version}.jar").exists() for home in homes)


def require_delta(spark: SparkSession, what: str = "`engine: spark`") -> None:
    """Raise TableError when a session that somebody else has made lacks Delta, which `what` needs."""
    if _EXTENSION not in str(spark.conf.get("spark.sql.extensions", "")).split(","):
        raise TableError(
            f"{what} needs Delta in the Spark session, and the one of this program has none.\n"
            f"Start it with spark.jars.packages={PACKAGE} and spark.sql.extensions={_EXTENSION}."
        )


def _with(given: str | None, value: str) -> str:
    parts = [part.strip() for part in (given or "").split(",") if part.strip()]
    return ",".join(parts if value in parts else [*parts, value])
