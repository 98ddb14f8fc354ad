"""A Dagster asset: a table that a pipeline writes, materialized every hour, with two checks.

The rows of a run stay in the table if a check fails; assets that depend on it are not materialized then.
"""

from pathlib import Path

import dagster as dg

from lakefeed import Pipeline

PIPELINE = Path(__file__).with_name("generate.yaml")
CHECKS = [dg.AssetCheckSpec(name, asset="events", blocking=True) for name in ("no_dead_letters", "sound")]


@dg.asset(check_specs=CHECKS)
def events() -> dg.MaterializeResult:
    """Reads the new events and proves the table."""
    pipeline = Pipeline.from_file(PIPELINE)
    result = pipeline.run(once=True)
    proof = pipeline.verify()
    (table,) = proof.tables

    return dg.MaterializeResult(
        metadata={
            "dagster/row_count": table.rows,
            "rows": result.rows,
            "dead_letters": sum(result.dead_letters.values()),
            "version": table.version,
        },
        check_results=[
            dg.AssetCheckResult(check_name="no_dead_letters", passed=not result.dead_letters),
            dg.AssetCheckResult(check_name="sound", passed=proof.sound, metadata={"why": proof.problems}),
        ],
    )


hourly = dg.ScheduleDefinition("hourly", target=[events], cron_schedule="0 * * * *")
defs = dg.Definitions(assets=[events], schedules=[hourly])
