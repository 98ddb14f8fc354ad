"""A query over tables in an object store, on a real Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.reports.verify import verify
from support.jars import delta_jars
from support.lakefeed import run
from support.s3 import S3Server


@pytest.mark.timeout(600)
def test_a_query_reads_and_fills_tables_in_an_object_store(s3: S3Server, tmp_path: Path) -> None:
    s3.client.create_bucket(Bucket="queries")
    file = tmp_path / "shop.yaml"
    query = "SELECT event_type, count(*) AS n, max(event_time) AS last FROM events GROUP BY event_type"
    document = {
        "name": "shop",
        "storage": s3.storage,
        "sources": {"clicks": {"type": "generate", "rows": 2000}},
        "tables": {
            "events": {"path": "s3://queries/events", "from": "clicks", "partition_by": ["event_type"]},
            "types": {"path": "s3://queries/types", "query": query},
        },
        "spark": {"conf": {"spark.jars": ",".join(map(str, delta_jars()))}},
    }
    file.write_text(json.dumps(document))

    code, _, said = run("run", str(file), "--once", timeout=300)

    assert code == 0, said
    types, events = (
        DeltaTable(f"s3://queries/{name}", storage_options=s3.storage).to_pyarrow_table()
        for name in ("types", "events")
    )
    counted = events.group_by("event_type").aggregate([("event_id", "count"), ("event_time", "max")])
    wanted = {
        row["event_type"]: (row["event_id_count"], row["event_time_max"]) for row in counted.to_pylist()
    }
    assert {row["event_type"]: (row["n"], row["last"]) for row in types.to_pylist()} == wanted
    assert sum(count for count, _ in wanted.values()) == 2000
    assert verify(Pipeline.from_file(file)).sound
