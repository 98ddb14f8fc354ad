"""Spark's own Delta: what a session needs for it, fetched only when a pipeline asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from lakefeed.errors import TableError
from lakefeed.pipeline.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
"""The build of Delta for the Spark that Lakefeed comes with."""
_EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
_CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"


def needs_delta(pipeline: Pipeline) -> bool:
    """Whether a table of the pipeline is to be looked after by Spark."""
    wanted = [pipeline.upkeep_for(name) for name in pipeline.tables] + [pipeline.dead_letters_upkeep]
    return any(upkeep is not None and upkeep.engine == "spark" for upkeep in wanted)


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
    return settings


def require_delta(spark: SparkSession) -> None:
    """Raise TableError when a session that somebody else has made lacks Delta."""
    if _EXTENSION not in str(spark.conf.get("spark.sql.extensions", "")).split(","):
        raise TableError(
            "`engine: spark` needs Delta in the Spark session, and the one of this program has none.\n"
            f"Start it with spark.jars.packages={PACKAGE} and spark.sql.extensions={_EXTENSION}."
        )


def _with(given: str | None, value: str) -> str:
    parts = [part.strip() for part in (given or "").split(",") if part.strip()]
    return ",".join(parts if value in parts else [*parts, value])
