"""Rewinding a table of a pipeline, so that the next run reads the events since then again."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from lakefeed.dead_letters.find import DeadLetterFilter, read_dead_letters
from lakefeed.dead_letters.reconcile import (
    IDENTITY_COLUMNS,
    Identity,
    from_commit_info,
    grouped,
    members,
    reconcile,
    to_commit_info,
)
from lakefeed.dead_letters.reconcile import identities as identities_of
from lakefeed.engine.faultpoints import passing
from lakefeed.engine.instance import only_instance, running
from lakefeed.errors import DataLoss, TableError, UsageError
from lakefeed.events import Offsets, identities
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reprocess.downstream import notes_on_fed_tables
from lakefeed.reprocess.readable_again import strict
from lakefeed.sources import source_of
from lakefeed.sources.subscription import taken
from lakefeed.tables.log.log import Log
from lakefeed.tables.operations.rewind import plan_rewind, restore
from lakefeed.tables.positions import marks_of, replay_id
from lakefeed.text import suggestion


@dataclass
class PartitionRewind:
    """A source partition whose position goes back; the events in between are read again."""

    partition: str
    now: int
    then: int
    events: int
    now_place: str | None = None
    """The two offsets in words, where they are more than numbers."""
    then_place: str | None = None


@dataclass
class RewindReport:
    """What a rewind did, or would do."""

    table: str
    from_version: int
    to_version: int
    to_time: str | None
    rows_now: int | None
    rows_then: int | None
    partitions: list[PartitionRewind] = field(default_factory=list)
    dead_letters_kept: int = 0
    """Dead letters of the range that is read again; they stay dead letters."""
    dead_letters_returned: int = 0
    """Letters whose rows from a replay go, and which come back."""
    dead_letters_replayed: int = 0
    """Letters whose rows from a replay come back, and which go."""
    undone: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    running: bool = False
    """Whether the pipeline runs on this machine now, so that only the plan can be shown."""
    version: int | None = None
    """The version that the rewind made; None for a dry run."""


def rewind(
    pipeline: Pipeline,
    table: str,
    *,
    to_version: int | None = None,
    to_time: dt.datetime | None = None,
    who: str = "",
    undo_others: bool = False,
    dry_run: bool = False,
) -> RewindReport:
    """Bring a table back to an older version, and its positions with it, in one commit.

    Refused while the pipeline runs, where the source has no longer what would be read again, and where
    files are gone. An instance on another machine is fenced by its next commit.
    """
    tables = Tables(pipeline)
    tables.find_routed()
    if table not in tables.handles:
        raise UsageError(f"--table: the pipeline has no table '{table}'{suggestion(table, tables.handles)}")
    if dry_run:
        report = _Rewinding(tables, table, to_version, to_time).report
        if process := running(pipeline):
            report.running = True
            report.notes.append(
                f"pipeline {pipeline.name} is running on this machine{process}; a rewind is refused until it "
                "has stopped"
            )
        return report
    with only_instance(pipeline):
        rewinding = _Rewinding(tables, table, to_version, to_time, reconciling=True)
        if rewinding.report.undone and not undo_others:
            raise TableError(
                f"table {table}: a rewind would also undo other changes: {rewinding.report.undone[0]}"
                f"{_and_more(rewinding.report.undone)}.\nAdd --undo-others if that is what you want."
            )
        rewinding.run(who)
        return rewinding.report


class _Rewinding:
    """One rewind: planned when it is made, done by `run`."""

    def __init__(
        self,
        tables: Tables,
        table: str,
        to_version: int | None,
        to_time: dt.datetime | None,
        *,
        reconciling: bool = False,
    ) -> None:
        self._tables, self._pipeline = tables, tables.pipeline
        self._handle: TableHandle = self._tables.handles[table]
        opened = self._handle.look()
        if opened is None:
            raise TableError(f"table {table}: there is no Delta table at {self._handle.path} yet.")
        if reconciling:
            reconcile(self._tables, self._handle)
        log = Log.open(self._handle.store)
        assert log is not None
        self._rewind = plan_rewind(log, to_version, to_time)
        self._refuse_what_the_source_has_lost()
        self._back = self._dead_letters_to_return()
        self._replayed = self._own(self._rewind.former_replays) - self._own(self._rewind.replays)
        self.report = self._report()

    def run(self, who: str) -> None:
        """Do it: the table in one commit, then its dead letters."""
        name, rewind = self._pipeline.name, self._rewind
        handle, key = self._handle, replay_id(name)
        letters = self._tables.dead_letters.look()
        reconciled = letters.transactions.get(replay_id(name, handle.name), 0) if letters else 0
        number = max(handle.table.transactions.get(key, 0), reconciled) + 1
        commit_info: dict[str, Any] = {
            "pipeline": name,
            "kind": "rewind",
            "from": rewind.from_version,
            "to": rewind.to_version,
            "who": who,
            "positions": rewind.positions,
            "dead_letters": self._back,
            "replayed": to_commit_info(grouped(sorted(self._replayed, key=str))),
        }
        with handle.lock:
            # Counted also where no letter is left to do, so that a replay that runs now is fenced.
            counted = {key: number} if letters else {}
            self.report.version = restore(handle.table, rewind, rewind.transactions | counted, commit_info)
        passing("rewind_committed")
        reconcile(self._tables, handle)

    def _refuse_what_the_source_has_lost(self) -> None:
        spec = self._handle.spec
        assert spec is not None
        for source in spec.from_:
            wanted = taken(source_of(self._pipeline, source), spec, self._wanted(source))
            if not wanted:
                continue
            client = strict(source_of(self._pipeline, source)).client(self._pipeline.name, source)
            try:
                marks = marks_of(self._rewind.then.transactions, self._pipeline.name, source)
                served = client.check(wanted, marks)
                if lost := client.lost_between(wanted, self._wanted(source, now=True)):
                    raise DataLoss(f"source {source}: {lost}")
                now = identities(client.marks())
                anew = [
                    name for name, mark in now.items() if spec.takes(name) and marks.get(name, mark) != mark
                ]
            except DataLoss as error:
                raise DataLoss(
                    f"the events cannot be read again, so nothing is rewound: {str(error).splitlines()[0]}\n"
                    "Choose a newer version."
                ) from error
            finally:
                client.close()
            if anew:
                raise DataLoss(
                    f"source {source}: topic {anew[0]!r} was deleted and created again since version "
                    f"{self._rewind.to_version}: its events cannot be read again, so nothing is rewound.\n"
                    "Choose a newer version."
                )
            for partition, at in wanted.items():
                if served.get(partition) != at:
                    raise DataLoss(
                        f"source {source}: {partition}: the next offset would be {at}, which the source no "
                        f"longer has, so nothing is rewound.\nChoose a newer version."
                    )

    def _wanted(self, source: str, *, now: bool = False) -> Offsets:
        """The positions of a source that change, as they would be, or as they are now."""
        head = f"{self._pipeline.name}/{source}/"
        return {
            name.removeprefix(head): current if now else then
            for name, (current, then) in self._rewind.positions.items()
            if name.startswith(head)
        }

    def _own(self, replays: Iterable[Mapping[str, Any]]) -> set[Identity]:
        """The letters that replays of this pipeline have made rows of."""
        own = (one for one in replays if one.get("pipeline") == self._pipeline.name)
        return {letter for one in own for letter in members(from_commit_info(one["dead_letters"]))}

    def _dead_letters_to_return(self) -> list[dict[str, Any]]:
        """Letters that were replayed since, and whose events are not read again: their rows go.

        Not those that the older version has rows of as well, from a replay that a rewind has undone.
        """
        back = []
        there = self._own(self._rewind.former_replays)
        for commit_info in self._rewind.replays:
            if lost := [
                one
                for one in sorted(self._own([commit_info]), key=str)
                if one not in there and not self._read_again(one)
            ]:
                letters = to_commit_info(grouped(lost))
                back.append({"version": commit_info["dead_letters_version"], "dead_letters": letters})
        self._refuse_letters_that_are_gone(back)
        return back

    def _refuse_letters_that_are_gone(self, back: list[dict[str, Any]]) -> None:
        for part in back:
            for _ in read_dead_letters(
                self._tables, DeadLetterFilter(table=self._handle.id.table), ["offset"], part["version"]
            ):
                pass

    def _read_again(self, letter: tuple[str, str | None, int, int, int]) -> bool:
        source, topic, number, _, offset = letter
        if source not in self._pipeline.inputs:
            return False
        partition = source_of(self._pipeline, source).partition_of(topic, number)
        now, then = self._rewind.positions.get(f"{self._pipeline.name}/{source}/{partition}", (0, 0))
        return then <= offset < now

    def _report(self) -> RewindReport:
        plan = self._rewind
        report = RewindReport(
            self._handle.name,
            plan.from_version,
            plan.to_version,
            plan.to_time,
            plan.now.rows,
            plan.then.rows,
            undone=plan.undone,
            dead_letters_returned=sum(
                len(offsets) for part in self._back for *_, offsets in part["dead_letters"]
            ),
        )
        for name, (now, then) in sorted(plan.positions.items()):
            pipeline, _, partition = name.partition("/")
            if pipeline != self._pipeline.name:
                report.notes.append(
                    f"pipeline {pipeline} also writes to this table; its position in {partition} moves back "
                    f"too"
                )
            elif partition.partition("/")[0] not in self._pipeline.inputs:
                report.notes.append(
                    f"the position in {partition} moves back, but the file has no such source"
                )
            report.partitions.append(self._partition(name, now, then))
        report.dead_letters_kept = self._letters_kept()
        report.dead_letters_replayed = self._letters_replayed()
        report.notes += notes_on_fed_tables(self._tables, self._handle.name, plan.to_version)
        return report

    def _partition(self, name: str, now: int, then: int) -> PartitionRewind:
        """A position that goes back, and how many events lie in between where the source knows better."""
        pipeline, _, partition = name.partition("/")
        source, _, own = partition.partition("/")
        if pipeline != self._pipeline.name or source not in self._pipeline.inputs:
            return PartitionRewind(partition, now, then, max(0, now - then))
        spec = source_of(self._pipeline, source)
        if spec.describe_offset(now) is None:
            return PartitionRewind(partition, now, then, max(0, now - then))
        with closing(spec.client(pipeline, source)) as client:
            read = client.rows_read({own: then}, {own: now}) or client.rows_between({own: then}, {own: now})
        words = spec.describe_offset(now), spec.describe_offset(then)
        return PartitionRewind(partition, now, then, read[own], *words)

    def _letters_kept(self) -> int:
        columns = ["source", "topic", "partition", "offset"]
        own = DeadLetterFilter(table=self._handle.id.table)
        return sum(
            self._read_again((row["source"], row["topic"], row["partition"], 0, row["offset"]))
            for batch in read_dead_letters(self._tables, own, columns)
            for row in batch.to_pylist()
        )

    def _letters_replayed(self) -> int:
        own = DeadLetterFilter(table=self._handle.id.table)
        return sum(
            one in self._replayed
            for batch in (read_dead_letters(self._tables, own, IDENTITY_COLUMNS) if self._replayed else ())
            for one in identities_of(batch)
        )


def _and_more(texts: list[str]) -> str:
    return f", and {len(texts) - 1} more" if len(texts) > 1 else ""
