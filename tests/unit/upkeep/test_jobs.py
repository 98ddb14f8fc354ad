"""Which tables upkeep looks after."""

from __future__ import annotations

import pytest

from lakefeed import Pipeline
from lakefeed.handles.tables import Tables
from lakefeed.run import warn_unsafe
from lakefeed.upkeep.jobs import jobs_of

KEYS = {"AWS_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
UNSAFE = {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}


def test_a_table_whose_commits_nothing_protects_gets_no_second_writer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    pipeline = Pipeline.model_validate(
        {
            "name": "shop",
            "sources": {"clicks": {"type": "generate"}},
            "tables": {
                "safe": {"path": "s3://lake/safe", "from": "clicks"},
                "unsafe": {"path": "s3://lake/unsafe", "from": "clicks", "storage": UNSAFE},
                "local": {"path": "/lake/local", "from": "clicks", "storage": UNSAFE},
            },
            "storage": KEYS,
        }
    )

    tables = Tables(pipeline)
    found = [job.handle.name for job in jobs_of(tables, None)]

    assert "safe" in found and "local" in found
    assert "unsafe" not in found

    warn_unsafe(tables)

    [warning] = caplog.messages
    assert warning.startswith("table unsafe: commits are not protected against a second writer")
