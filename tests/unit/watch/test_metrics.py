"""Metrics: every one by its name and labels, and what is deployed beside them."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import yaml
from prometheus_client.parser import text_string_to_metric_families

from lakefeed.engine.run_events import SourceSeen, TableReached
from lakefeed.events import Outstanding
from support.debian import promtool
from support.watched import WatchedRun, shop

ROOT = Path(__file__).parents[3]
FLOW = {"pipeline", "source", "table"}
RECEIVED = {
    "lakefeed_http_requests_total": {"pipeline", "source", "status"},
    "lakefeed_http_events_total": {"pipeline", "source"},
    "lakefeed_http_bytes_total": {"pipeline", "source"},
    "lakefeed_http_in_flight_bytes": {"pipeline", "source"},
    "lakefeed_journal_bytes": {"pipeline", "source"},
    "lakefeed_journal_age_seconds": {"pipeline", "source"},
    "lakefeed_journal_sync_seconds": {"pipeline", "source"},
}
"""What only an HTTP source has; see tests/unit/sources/http/test_looking.py."""
NAMES = {
    "lakefeed_records_read_total": {"pipeline", "source"},
    "lakefeed_records_written_total": FLOW,
    "lakefeed_dead_letters_total": FLOW | {"stage"},
    "lakefeed_bytes_written_total": FLOW,
    "lakefeed_files_written_total": FLOW,
    "lakefeed_commits_total": FLOW,
    "lakefeed_commit_failures_total": FLOW,
    "lakefeed_commit_retries_total": FLOW,
    "lakefeed_commit_seconds": FLOW,
    "lakefeed_batch_seconds": {"pipeline", "source"},
    "lakefeed_batch_records": {"pipeline", "source"},
    "lakefeed_batch_tasks": {"pipeline", "source"},
    "lakefeed_cores": {"pipeline"},
    "lakefeed_executors": {"pipeline"},
    "lakefeed_source_lag_records": {"pipeline", "source", "partition"},
    "lakefeed_freshness_seconds": {"pipeline", "table"},
    "lakefeed_table_files": {"pipeline", "table"},
    "lakefeed_table_small_files": {"pipeline", "table"},
    "lakefeed_table_version": {"pipeline", "table"},
    "lakefeed_schema_changes_total": {"pipeline", "table"},
    "lakefeed_upkeep_runs_total": {"pipeline", "table", "operation"},
    "lakefeed_up": FLOW,
}
SHAPED = {
    "lakefeed_stale_changes_total": FLOW,
    "lakefeed_filtered_rows_total": FLOW,
    "lakefeed_expectation_rows_total": {"pipeline", "table", "rule", "result"},
    "lakefeed_refreshes_total": {"pipeline", "table", "result"},
    "lakefeed_refresh_seconds": {"pipeline", "table"},
    "lakefeed_query_behind_versions": {"pipeline", "table"},
    "lakefeed_source_files_waiting": {"pipeline", "source"},
    "lakefeed_source_bytes_waiting": {"pipeline", "source"},
    "lakefeed_source_retained_bytes": {"pipeline", "source"},
    "lakefeed_source_headroom_bytes": {"pipeline", "source"},
    "lakefeed_source_lag_seconds": {"pipeline", "source"},
    "lakefeed_source_snapshot_rows": {"pipeline", "source"},
    "lakefeed_source_snapshot_estimated_rows": {"pipeline", "source"},
}
"""Those of tables with SQL, rules and queries, and of sources of files."""


def test_files_and_bytes_that_wait_are_told_of_sources_of_files() -> None:
    run = WatchedRun()
    run.all_is_well()
    run.tell(
        SourceSeen(
            "clicks", {"0": 150}, outstanding=lambda at, ends: Outstanding(ends["0"] - at["0"], 7, 8, 9)
        )
    )

    assert value(run, "lakefeed_source_files_waiting", source="clicks") == 50
    assert value(run, "lakefeed_source_bytes_waiting", source="clicks") == 7
    assert value(run, "lakefeed_source_files_waiting", source="orders") is None


def test_stale_changes_are_counted_by_table() -> None:
    run = WatchedRun()
    run.trouble_everywhere()
    run.commit("clicks", "clicks", stale=3)
    run.commit("clicks", "clicks", stale=2)

    assert value(run, "lakefeed_stale_changes_total", table="clicks") == 5


def run_with_everything() -> WatchedRun:
    run = WatchedRun()
    run.trouble_everywhere()
    return run


def value(run: WatchedRun, name: str, **labels: str) -> float | None:
    for family in text_string_to_metric_families(run.metrics.text().decode()):
        for sample in family.samples:
            if sample.name == name and labels.items() <= sample.labels.items():
                return sample.value
    return None


def test_every_metric_is_there_under_its_name_with_its_labels() -> None:
    text = run_with_everything().metrics.text().decode()

    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            name = re.sub(r"_(bucket|count|sum)$", "", sample.name)
            found.setdefault(name, set()).update(sample.labels.keys() - {"le"})

    assert found == NAMES


def test_promtool_finds_nothing_wrong_with_the_metrics() -> None:
    text = run_with_everything().metrics.text()

    done = subprocess.run([*promtool(), "check", "metrics"], input=text, capture_output=True, timeout=120)

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_counters_and_gauges_tell_what_happened() -> None:
    run = run_with_everything()
    run.clock.now += 29

    assert value(run, "lakefeed_records_read_total", source="clicks") == 100
    assert value(run, "lakefeed_records_written_total", source="orders", table="refunds") == 100
    assert value(run, "lakefeed_dead_letters_total", table="clicks", stage="decode") == 1
    assert value(run, "lakefeed_commit_failures_total", table="orders") == 1
    assert value(run, "lakefeed_upkeep_runs_total", operation="compact") == 1
    assert value(run, "lakefeed_commit_seconds_bucket", table="clicks", le="0.025") == 1
    assert value(run, "lakefeed_freshness_seconds", table="clicks") == 30
    assert value(run, "lakefeed_up", source="clicks", table="clicks") == 1
    assert value(run, "lakefeed_up", source="clicks", table="refunds") == 0
    assert value(run, "lakefeed_up", source="orders", table="orders") == 0


def test_a_source_with_very_many_partitions_has_one_series() -> None:
    run = WatchedRun()
    run.tell(TableReached("clicks", "clicks", {str(number): 0 for number in range(501)}))

    run.tell(SourceSeen("clicks", {str(number): 2 for number in range(501)}))

    assert run.metrics.text().count(b"lakefeed_source_lag_records{") == 1
    assert value(run, "lakefeed_source_lag_records", source="clicks", partition="all") == 1002


def test_two_runs_in_one_program_do_not_mix() -> None:
    one, other = WatchedRun(), WatchedRun(shop(name="other"))

    one.commit("clicks", "clicks", rows=5)

    assert value(one, "lakefeed_records_written_total") == 5
    assert value(other, "lakefeed_records_written_total") is None


def test_the_dashboard_and_the_alerts_name_only_metrics_that_exist_and_all_of_them() -> None:
    dashboard = json.loads((ROOT / "deploy" / "grafana-dashboard.json").read_text())
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yaml").read_text())

    shown = " ".join(target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
    watched = " ".join(rule["expr"] for group in rules["groups"] for rule in group["rules"])
    used = {
        re.sub(r"_(bucket|count|sum)$", "", name) for name in re.findall(r"lakefeed_\w+", shown + watched)
    }

    assert used == set(NAMES)


def test_promtool_finds_nothing_wrong_with_the_alerts() -> None:
    rules = ROOT / "deploy" / "alerts.yaml"

    done = subprocess.run([*promtool(), "check", "rules", str(rules)], capture_output=True, timeout=120)

    assert done.returncode == 0, done.stderr
    assert b"SUCCESS: 8 rules found" in done.stdout


def test_the_documentation_names_every_metric() -> None:
    page = (ROOT / "docs" / "monitoring.md").read_text()

    rows = re.findall(r"^\| `(lakefeed_\w+)` \| ([^|]+) \|", page, re.MULTILINE)

    assert {name: set(re.findall(r"\w+", labels)) for name, labels in rows} == NAMES | SHAPED | RECEIVED


def test_other_pages_name_metrics_of_sources_that_there_are() -> None:
    pages = "\n".join(page.read_text() for page in (ROOT / "docs").rglob("*.md"))

    named = set(re.findall(r"`(lakefeed_source_\w+)", pages))

    assert named <= {*NAMES, *SHAPED, *RECEIVED}
