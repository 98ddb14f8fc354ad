"""What a member of a consumer group tells of its own failure, and where partitions begin beside held ones."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, SourceError
from lakefeed.engine.assignment import Assignments
from lakefeed.engine.inline import run_inline
from lakefeed.engine.run_events import unwatched
from lakefeed.errors import PipelineFileError, SourceUnavailable
from lakefeed.events import Offsets
from lakefeed.handles.tables import Tables
from lakefeed.sources import KafkaSource, Membership, source_of
from lakefeed.sources.generate.source import GenerateSource
from lakefeed.sources.kafka.client import KafkaClient
from lakefeed.sources.kafka.membership import GroupMember


def source(**more: object) -> KafkaSource:
    """Of a broker that nobody runs: what is asked of it here needs none."""
    given = {"format": "json", "brokers": "127.0.0.1:1", "topics": ("t",), "assignment": "group"}
    return KafkaSource(**{**given, **more})  # type: ignore[arg-type]


def test_failure_of_the_thread_is_raised_to_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: GroupMember) -> None:
        raise RuntimeError("Local: Erroneous state")

    monkeypatch.setattr(GroupMember, "_commit", fail)
    with closing(GroupMember(source(), "shop", "k")) as member:
        told = "source k: the membership in group lakefeed-shop has failed: Local: Erroneous state"
        with pytest.raises(SourceUnavailable, match=told):
            member.wait(threading.Event())
        assert member.has_ended
        with pytest.raises(SourceUnavailable, match=told):
            member.own({"t-0": 1})
        with pytest.raises(SourceUnavailable, match=told):
            _ = member.generation


@pytest.mark.parametrize(
    ("option", "value"),
    [("partition.assignment.strategy", "cooperative-sticky"), ("group.protocol", "consumer")],
)
def test_options_that_assign_otherwise_are_refused(option: str, value: str) -> None:
    with pytest.raises(PipelineFileError, match=f"{option} is set by Lakefeed with `assignment: group`"):
        source(options={option: value})

    assert source(options={option: value}, assignment="all").options == {option: value}


def test_offset_for_all_other_partitions_is_refused() -> None:
    with pytest.raises(PipelineFileError, match="give `earliest` or `latest`, or name the partitions"):
        source(start={"t": {"*": 5}})


def test_start_that_retention_has_passed_is_over_for_held_partitions() -> None:
    client = source(start={"t": {"0": 6, "1": 600}}).client("shop", "k")
    assert isinstance(client, KafkaClient)
    given: dict[str, dict[str, object]] = {"t": {"0": 6, "1": 600}}
    earliest, ends = {"t-0": 500, "t-1": 500}, {"t-0": 1000, "t-1": 1000}
    with closing(client):
        assert client._given(given, earliest, ends, {"t-0": 900})["t-1"] == 600  # type: ignore[arg-type]
        with pytest.raises(SourceError, match="says 6 for t-0, which holds offsets from 500 up to 1000"):
            client._given(given, earliest, ends, {})  # type: ignore[arg-type]


class Rebalancing(Membership):
    """Between two assignments, until somebody has asked twice whether it is settled."""

    def __init__(self) -> None:
        self.asked = 0

    @property
    def is_settled(self) -> bool:
        self.asked += 1
        return self.asked > 2

    @property
    def generation(self) -> int:
        return 2 if self.asked > 2 else 1

    def own(self, offsets: Offsets) -> Offsets:
        return offsets if self.asked > 2 else {}

    def acknowledge(self, positions: Offsets) -> None:
        pass

    def close(self) -> None:
        pass


def test_bounded_run_waits_for_the_end_of_a_rebalance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(GenerateSource, "join", lambda *_: Rebalancing())
    run_inline(generated(tmp_path))

    assert DeltaTable(tmp_path / "events").to_pyarrow_table().num_rows == 100


def generated(folder: Path) -> Pipeline:
    file = folder / "gap.yaml"
    file.write_text(
        """\
name: gap
sources: {gen: {type: generate, rows: 100}}
tables: {events: {path: events, from: gen}}
"""
    )

    return Pipeline.from_file(file)


class Failed(Rebalancing):
    """A membership whose thread has ended."""

    has_ended = True  # type: ignore[assignment]


def test_flow_joins_anew_after_a_failure_and_asks_the_brokers_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = generated(tmp_path)
    assignments, stop = Assignments(Tables(pipeline), "gen", unwatched), threading.Event()
    joined: list[Membership] = []
    monkeypatch.setattr(GenerateSource, "join", lambda *_: joined.append(Failed()) or joined[-1])
    client = source_of(pipeline, "gen").client("gap", "gen")

    assignments.join(client, stop)
    assignments.join(client, stop)
    assert len(joined) == 2

    def latest() -> Offsets:
        raise SourceError("topic 'clickz' does not exist")

    monkeypatch.setattr(GenerateSource, "shares_partitions", True)
    monkeypatch.setattr(client, "latest", latest)
    with pytest.raises(SourceError, match="clickz"):
        assignments.join(client, stop)
    assert len(joined) == 2
