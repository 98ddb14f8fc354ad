"""Events that a table refuses in a task: written as dead letters, counted, and a few kept word for word."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Sequence

import pyarrow as pa

from lakefeed.dead_letters.form import dead_letter_target, in_form
from lakefeed.engine.batch.manifest import MOST_SAMPLES, TableManifest
from lakefeed.engine.batch.plan import FlowPlan
from lakefeed.engine.run_events import DeadLetterSample
from lakefeed.engine.task.decoding import origin_of, payloads_of
from lakefeed.errors import TableError
from lakefeed.events import Events, Refused
from lakefeed.files.parquet import TableWriter
from lakefeed.formats.refusal import TYPE_CHANGES
from lakefeed.handles.table_plan import TablePlan
from lakefeed.rows.dead_letter import dead_letters, preview
from lakefeed.stores import open_store

_LONGEST_REASON = 300
_SAMPLES_OF_A_REASON = 3


class DeadLetterWriter(TableWriter):
    """Writes the dead letters of one table in one task."""

    def __init__(self, plan: FlowPlan, table: TablePlan) -> None:
        store = open_store(plan.dead_letters_path, dict(plan.dead_letters_storage))
        super().__init__(store, dead_letter_target(plan.dead_letter_form, sync=plan.sync))
        self._plan = plan
        self._name = table.name
        self._stops = table.rules.type_change == "fail"
        self._dead_at = dt.datetime.now(dt.UTC)

    def refuse(self, events: Events, refused: list[Refused], result: TableManifest) -> None:
        """Write a dead letter for each of them, and count it in the manifest of the table."""
        if self._stops:
            self._stop_at_type_change(events, refused)
        indexes = [one.index for one in refused]
        count(result.dead_letters, events, indexes)
        payloads, origin = payloads_of(events, indexes), origin_of(events, indexes)
        count_parts(result.refused_parts, self._plan, origin)
        self._note(refused, origin, payloads, result)
        plan = self._plan
        letters = dead_letters(
            plan.pipeline, plan.source_name, self._name, refused, origin, payloads, self._dead_at
        )
        self.write(in_form(plan.dead_letter_form, letters))

    def _stop_at_type_change(self, events: Events, refused: list[Refused]) -> None:
        changed = next((one for one in refused if one.code in TYPE_CHANGES), None)
        if changed:
            origin = events.origin([changed.index]).to_pylist()[0]
            where = f"{origin['stream'] or self._plan.source_name}, partition {origin['partition']}"
            raise TableError(
                f"table {self._name}: the event at offset {origin['offset']} of {where} "
                f"does not fit and `evolve.type_change` is fail: {changed.error}.\n"
                "Correct `schema` or the producer, or choose another rule, then start again."
            )

    def _note(
        self,
        refused: list[Refused],
        origin: pa.RecordBatch,
        payloads: Sequence[bytes | None],
        result: TableManifest,
    ) -> None:
        """Count the reasons, and keep a few of them word for word."""
        for one in refused:
            reason = f"{one.stage}/{one.code}"
            result.refusals[reason] = result.refusals.get(reason, 0) + 1
        kept = Counter((one.stage, one.code) for one in result.samples)
        for index, one in enumerate(refused):
            if len(result.samples) >= MOST_SAMPLES:
                return
            reason_of = (one.stage, one.code)
            if kept[reason_of] < _SAMPLES_OF_A_REASON:
                kept[reason_of] += 1
                result.samples.append(self._sample(one, origin.slice(index, 1), payloads[index]))

    def _sample(self, one: Refused, origin: pa.RecordBatch, payload: bytes | None) -> DeadLetterSample:
        (at,) = origin.select(["stream", "partition", "offset"]).to_pylist()
        partition = self._plan.source.partition_of(at["stream"], at["partition"])
        text = one.error[:_LONGEST_REASON].encode("utf-8", "replace").decode()
        return DeadLetterSample(partition, at["offset"], one.stage, one.code, text, preview(payload))


def count(counts: dict[str, int], events: Events, indexes: Sequence[int]) -> None:
    """Add events to the counts of their partitions."""
    for partition, number in events.counts(indexes).items():
        counts[partition] = counts.get(partition, 0) + number


def count_parts(counts: dict[str, int], plan: FlowPlan, origin: pa.RecordBatch) -> None:
    """Add events to the counts of the parts that they are of, where the source keeps account of these."""
    for offset in origin.column("offset").to_pylist() if plan.source.keeps_parts else ():
        part = plan.source.part_of(offset)
        counts[part] = counts.get(part, 0) + 1
