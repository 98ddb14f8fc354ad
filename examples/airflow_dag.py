"""An Airflow DAG: every hour, a task reads the new events of a pipeline and proves its tables.

Copy it into the folder of DAGs, next to the pipeline file. Workers need Lakefeed and Java 17.
"""

from datetime import UTC, datetime
from pathlib import Path

from airflow.sdk import dag, task
from airflow.sdk.exceptions import AirflowFailException

from lakefeed import Pipeline

PIPELINE = Path(__file__).with_name("generate.yaml")


@dag(schedule="@hourly", start_date=datetime(2026, 1, 1, tzinfo=UTC), catchup=False, max_active_runs=1)
def lakefeed_hourly() -> None:
    """One task. Lakefeed retries sources and stores itself, so the task needs no retries of its own."""

    @task
    def load() -> dict[str, dict[str, int | None]]:
        pipeline = Pipeline.from_file(PIPELINE)
        result = pipeline.run(once=True)
        proof = pipeline.verify()

        # Not to be retried: the next attempt would read no event, and succeed.
        if result.dead_letters:
            raise AirflowFailException(f"{result}\nTo see them: lakefeed dead-letters list {PIPELINE}")
        if not proof.sound:
            raise AirflowFailException("\n".join(proof.problems))
        return {name: {"rows": table.rows, "version": table.version} for name, table in result.tables.items()}

    load()


hourly = lakefeed_hourly()
