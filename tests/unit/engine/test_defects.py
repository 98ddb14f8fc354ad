"""What nobody foresaw stops one source, is told as a defect of Lakefeed, and leaves the others alone."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import BatchFailed, Fenced, GaveUp, Pipeline, SourceUnavailable
from lakefeed.engine import retries
from lakefeed.engine.assignment import Assignment, Assignments
from lakefeed.engine.batch.manifest import Manifest
from lakefeed.engine.defects import defect_of
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import RunEvent, SourceStopped, SourceTrouble, TableStopped, all_of
from lakefeed.engine.supervisor import Supervisor
from lakefeed.errors import Defect, LakefeedError, TableError
from lakefeed.formats.text import TextFormat
from lakefeed.handles.tables import Tables
from lakefeed.sources.generate.source import GenerateClient
from lakefeed.watch.health import concerns, reasons
from lakefeed.watch.state import RunState


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retries, "_FIRST_WAIT", 0.001)


def shop(folder: Path) -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(
        """\
name: shop
sources:
  clicks: {type: generate, rows: 100}
  orders: {type: generate, rows: 100, format: text}
tables:
  clicks: {path: clicks, from: clicks}
  orders: {path: orders, from: orders}
"""
    )
    return Pipeline.from_file(file)


class Ears:
    """Remembers trouble and what has stopped."""

    def __init__(self) -> None:
        self.troubles: list[str] = []
        self.ended: dict[str, str] = {}

    def __call__(self, event: RunEvent) -> None:
        match event:
            case SourceTrouble(text=text):
                self.troubles += [text] if text else []
            case SourceStopped(source=source, text=text):
                self.ended[f"source {source}"] = text
            case TableStopped(table=table, text=text):
                self.ended[f"table {table}"] = text


class Staged:
    """A flow that does what it is told, run after run; an empty list ends it well."""

    def __init__(self, source: str, runs: list[Exception | int]) -> None:
        self.source, self.batches, self.has_lost_spark = source, 0, False
        self.stop, self.failures = threading.Event(), dict[str, TableError]()
        self.runs, self.once = runs, False
        self.assignment: Assignment | None = None

    def run(self) -> bool:
        if not self.runs:
            return True
        now = self.runs.pop(0)
        if isinstance(now, Exception):
            raise now
        self.batches += now
        return False

    def end_run(self, table: str) -> None:
        """Append to a table needs no end."""


def supervise(pipeline: Pipeline, watcher: Any, *staged: Staged) -> LakefeedError | None:
    for flow in staged:
        flow.assignment = Assignments(Tables(pipeline), flow.source, watcher).main()
    flows: Any = list(staged)
    try:
        Supervisor(pipeline, flows, watcher, threading.Event()).run()
    except LakefeedError as error:
        return error
    return None


class Broken:
    """A decoder that fails at an event that nobody foresaw."""

    def decode(self, payloads: Any) -> Any:
        raise KeyError("half a \ud83d character")


def test_defect_in_one_source_is_told_as_what_it_is_and_leaves_the_others_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline, ears = shop(tmp_path), Ears()
    state = RunState(pipeline)
    monkeypatch.setattr(TextFormat, "decoder", lambda *given: Broken())

    with pytest.raises(Defect) as ended:
        run_inline(pipeline, all_of(ears, state.watch))

    log = tmp_path / ".lakefeed" / "shop" / "defects.log"
    text = (
        "source orders: a defect in Lakefeed while it took 0: 0 to 100: "
        f"KeyError: 'half a \\ud83d character' (test_defects.py, line {line_of(Broken.decode)})\n"
        f"Please report it with {log}, which has the traceback."
    )
    assert ears.ended == {"source orders": text}
    assert ears.troubles == [text] * 5
    assert (ended.value.exit_code, ended.value.reported, str(ended.value)) == (1, True, text)
    assert DeltaTable(tmp_path / "clicks").to_pyarrow_table().num_rows == 100
    assert not DeltaTable.is_deltatable(str(tmp_path / "orders"))
    assert log.read_text().count("Traceback (most recent call last)") == 6
    (reason,) = [one for one in reasons(state.view(), pipeline) if "orders" in one]
    assert reason.startswith("source orders: has stopped: a defect in Lakefeed")


def line_of(function: Any) -> int:
    return int(function.__code__.co_firstlineno) + 1


def test_defect_that_passes_is_survived(tmp_path: Path) -> None:
    ears, flow = Ears(), Staged("clicks", [KeyError("x"), 0, RecursionError("deep"), 1, AttributeError("y")])

    assert supervise(shop(tmp_path), ears, flow) is None
    assert [text.split("\n")[0] for text in ears.troubles] == [
        f"source clicks: a defect in Lakefeed: {what} (test_defects.py, line {line_of(Staged.run) + 4})"
        for what in ("KeyError: 'x'", "RecursionError: deep", "AttributeError: y")
    ]
    assert ears.ended == {}


def test_defects_are_counted_until_a_batch_has_landed(tmp_path: Path) -> None:
    alternating: list[Exception | int] = [KeyError("x"), 0] * 6
    moving: list[Exception | int] = [KeyError("x"), 1] * 12
    ears = Ears()

    ended = supervise(shop(tmp_path), ears, Staged("clicks", alternating), Staged("orders", moving))

    assert isinstance(ended, Defect)
    assert list(ears.ended) == ["source clicks"]


def test_defect_is_never_retried_without_spark(tmp_path: Path) -> None:
    flow = Staged("clicks", [KeyError("x")])
    flow.has_lost_spark = True

    ended = supervise(shop(tmp_path), Ears(), flow)

    assert str(ended).startswith("Spark's JVM has exited")


def test_output_of_the_jvm_is_named_where_a_run_has_written_it(tmp_path: Path) -> None:
    lost = Staged("clicks", [BatchFailed("a worker died")] * 20)
    pipeline = shop(tmp_path)
    output = Path(pipeline.state) / "shop" / "spark.err"
    run = RunState(pipeline)
    run.watch(SourceTrouble("clicks", "Spark lost a batch: a worker died"))

    without = concerns(run.view(), pipeline)[0].remedy
    output.parent.mkdir(parents=True)
    output.touch()
    assert retries.spark_output(pipeline) is None
    output.write_text("OutOfMemoryError")
    ended = supervise(pipeline, Ears(), lost)

    assert without.startswith("The batch runs again. Nothing is lost")
    assert concerns(run.view(), pipeline)[0].remedy.startswith(f"The batch runs again; {output} says more. ")
    assert str(ended).endswith(f"The same batch failed 6 times; see {output}.")


def test_source_that_is_given_up_leaves_the_others_alone(tmp_path: Path) -> None:
    lost: list[Exception | int] = [BatchFailed("a worker died")] * 20
    busy = Staged("orders", [1] * 50)
    ears = Ears()

    ended = supervise(shop(tmp_path), ears, Staged("clicks", lost), busy)

    assert isinstance(ended, GaveUp)
    assert ears.ended == {"source clicks": str(ended)}
    assert str(ended).endswith("The same batch failed 6 times.")
    assert not busy.runs
    assert not busy.stop.is_set()


def test_fence_still_ends_the_whole_run(tmp_path: Path) -> None:
    patient = Staged("orders", [SourceUnavailable("away")] * 10_000)
    ears = Ears()

    ended = supervise(shop(tmp_path), ears, Staged("clicks", [Fenced("another instance")]), patient)

    assert isinstance(ended, Fenced)
    assert patient.runs


def test_state_that_cannot_be_written_does_not_hide_a_defect(tmp_path: Path) -> None:
    (tmp_path / ".lakefeed").write_text("a file where a folder should be")
    ears = Ears()

    supervise(shop(tmp_path), ears, Staged("clicks", [KeyError("x")]))

    assert ears.troubles[0].endswith(
        "Please report it with the output of `lakefeed --debug run`, which has the traceback."
    )


def test_log_of_defects_holds_no_secret(tmp_path: Path) -> None:
    pipeline = shop(tmp_path)
    pipeline.storage["aws_secret_access_key"] = "hunter22"

    supervise(pipeline, Ears(), Staged("clicks", [KeyError("hunter22")]))

    log = (tmp_path / ".lakefeed" / "shop" / "defects.log").read_text()
    assert "KeyError: '***'" in log
    assert "hunter22" not in log


def test_defect_comes_back_from_a_worker_with_its_traceback() -> None:
    sent = Manifest(error=defect_of(KeyError("x"), "took 0: 0 to 9"))

    back = Manifest.from_json(sent.to_json()).error

    assert isinstance(back, Defect)
    assert str(back) == "a defect in Lakefeed while it took 0: 0 to 9: KeyError: 'x'"
    assert back.traceback == "KeyError: 'x'\n"


def test_source_that_plans_a_batch_without_tasks_stops_and_does_not_wait_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GenerateClient, "splits", lambda client, ranges, cores: [])

    with pytest.raises(Defect, match="has planned no task"):
        run_inline(shop(tmp_path))
