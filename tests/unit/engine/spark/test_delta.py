from __future__ import annotations

from pathlib import Path

from lakefeed import Pipeline
from lakefeed.engine.spark.delta import PACKAGE, delta_settings, needs_delta


def pipeline(folder: Path, upkeep: str, own: str = "{}") -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(
        f"""\
name: shop
sources: {{clicks: {{type: generate}}}}
tables:
  events: {{path: events, from: clicks, upkeep: {own}}}
upkeep: {upkeep}
dead_letters: {{upkeep: {{engine: delta-rs}}}}
"""
    )
    return Pipeline.from_file(file)


def test_jars_are_fetched_only_for_a_pipeline_that_asks_for_spark(tmp_path: Path) -> None:
    assert needs_delta(pipeline(tmp_path, "{engine: spark}"))
    assert needs_delta(pipeline(tmp_path, "{}", own="{engine: spark}"))
    assert needs_delta(pipeline(tmp_path, "{engine: spark, once: true}"), once=True)
    assert not needs_delta(pipeline(tmp_path, "{engine: spark}"), once=True)
    assert not needs_delta(pipeline(tmp_path, "{}"))
    assert not needs_delta(pipeline(tmp_path, "{engine: spark}", own="off"))
    assert not needs_delta(pipeline(tmp_path, "off"))


def test_jars_are_fetched_for_a_delta_table_that_spark_streams(tmp_path: Path) -> None:
    pipeline(tmp_path, "{}")
    file = tmp_path / "shop.yaml"
    for kind, wanted in (("delta", True), ("rate", False)):
        text = f"type: spark, format: {kind}, options: {{path: /lake/orders}}"
        file.write_text(file.read_text().replace("type: generate", text))

        assert needs_delta(Pipeline.from_file(file), once=True) is wanted
        file.write_text(file.read_text().replace(text, "type: generate"))


def test_settings_of_the_user_stay_beside_those_of_delta() -> None:
    given = {
        "spark.sql.extensions": "my.Extension",
        "spark.jars.packages": "a:b:1",
        "spark.driver.memory": "4g",
    }

    settings = delta_settings(given)

    assert settings["spark.sql.extensions"] == "my.Extension,io.delta.sql.DeltaSparkSessionExtension"
    assert settings["spark.jars.packages"] == f"a:b:1,{PACKAGE}"
    assert settings["spark.driver.memory"] == "4g"
    assert delta_settings(settings) == settings


def test_jars_that_the_user_has_are_not_fetched() -> None:
    settings = delta_settings({"spark.jars": "/opt/jars/delta-spark_4.2_2.13-4.4.0.jar"})

    assert "spark.jars.packages" not in settings
