"""What Spark raises is told as a lost batch, which is tried again; what Lakefeed raises is left alone."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.util import _load_from_socket

from lakefeed.engine.flow_run import spark_errors
from lakefeed.errors import BatchFailed
from support.processes import free_port


def test_slip_of_pyspark_after_its_jvm_was_killed_is_a_lost_batch() -> None:
    gone: Any = [free_port(), "secret"]

    with (
        pytest.raises(BatchFailed, match=r"Spark lost a batch: .*Connection refused") as lost,
        spark_errors(),
        _load_from_socket(gone, None),  # type: ignore[arg-type]
    ):
        pass

    assert isinstance(lost.value.__cause__, UnboundLocalError)


def test_slip_of_our_own_is_not_blamed_on_spark() -> None:
    with pytest.raises(KeyError), spark_errors():
        raise KeyError("ours")


def test_what_has_ended_a_query_is_told_and_not_the_state_of_its_thread() -> None:
    said = (
        "Python worker failed to connect back.\n=== Streaming Query ===\nIdentifier: shop [id = 1]\n"
        "Current State: INITIALIZING\nThread State: RUNNABLE"
    )

    told = r"^Spark lost a batch: Python worker failed to connect back\.$"
    with pytest.raises(BatchFailed, match=told), spark_errors():
        raise StreamingQueryException(said)
