"""The manifest: what a task wrote, read and refused. It is all that comes back from a worker."""

from __future__ import annotations

import base64
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from lakefeed import errors
from lakefeed.columns.widening import merged_proposals
from lakefeed.engine.run_events import DeadLetterSample
from lakefeed.errors import BatchFailed
from lakefeed.events import OffsetRange, PartRead
from lakefeed.files import WrittenFile
from lakefeed.handles.progress import Expectations, TableProgress
from lakefeed.handles.table_plan import StagedPosition, TableId
from lakefeed.tables.detail.shaped import merged_counts

MOST_SAMPLES = 5
"""Dead letters of a table that a task tells about one by one; the others are only counted."""


def various(samples: Iterable[DeadLetterSample]) -> list[DeadLetterSample]:
    """The first of each reason, then the second of each, and so on: the few that are kept tell of many."""
    seen = Counter[tuple[str, str]]()
    ranked = []
    for one in samples:
        seen[one.stage, one.code] += 1
        ranked.append((seen[one.stage, one.code], one))
    return [one for _, one in sorted(ranked, key=lambda pair: pair[0])]


@dataclass
class TableManifest:
    """What a task did for one table."""

    table: TableId
    files: list[WrittenFile] = field(default_factory=list)
    dead_letter_files: list[WrittenFile] = field(default_factory=list)
    dead_letters: dict[str, int] = field(default_factory=dict)
    """Dead letters by partition, whether or not they had been written before."""
    refusals: dict[str, int] = field(default_factory=dict)
    """Dead letters that this task has written, by `stage/code`."""
    refused_parts: dict[str, int] = field(default_factory=dict)
    """Dead letters by the part of the source that they are of, where it keeps account of parts."""
    samples: list[DeadLetterSample] = field(default_factory=list)
    newest: float | None = None
    """The time of a newest event that became a row, in seconds since 1970."""
    skipped: dict[str, int] = field(default_factory=dict)
    """Events by partition that carry nothing, and are neither rows nor dead letters."""
    filtered: dict[str, int] = field(default_factory=dict)
    """Events by partition that the table leaves out on purpose."""
    expectations: Expectations = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    """Expectations that stop the table, each with a row that has not met it."""
    proposal: pa.Schema | None = None
    """Columns of the events that must be known before anything is written."""
    without_columns: int = 0
    """Events that showed no column at all while the schema was being inferred."""
    returned: pa.Schema | None = None
    """Columns that a function of the user's has returned, and that must be known first."""
    wider: pa.Schema | None = None
    """Columns in the types that the table needs for values which do not fit, and that must be given first."""
    taken: int = 0
    """Events that a function has taken, and made any number of rows of."""
    former_keys: list[tuple[str, ...]] = field(default_factory=list)
    """Key columns that changes have from before the source had another key, the oldest first."""
    partial: int = 0
    """Changes that leave out columns, which the rows of the table are to have."""
    partial_changes: list[StagedPosition] = field(default_factory=list)
    """Where these came from, where that is asked for."""
    events: list[int] = field(default_factory=list)
    """Of a table of a route, where that is asked for: the indexes of the events that are its rows."""
    lost: dict[str, dict[str, str]] = field(default_factory=dict)
    """By stream: columns that its events do not have and that options name, each with its option."""
    error: errors.LakefeedError | None = None

    def expected(self, counts: Mapping[str, Mapping[str, int]], failed: Mapping[str, str]) -> None:
        """Count what became of rows by the rules of `expect`."""
        self.expectations = merged_counts(self.expectations, counts)
        self.failed = {**failed, **self.failed}

    def new_dead_letters(self, partitions: Collection[str] | None) -> int:
        """Dead letters of this batch, or of some partitions in it.

        Of these it is 0 in a batch that finds letters from before a crash.
        """
        if partitions is None:
            return sum(self.refusals.values())
        if sum(self.dead_letters.values()) != sum(self.refusals.values()):
            return 0
        return sum(self.dead_letters.get(partition, 0) for partition in partitions)

    @property
    def rows(self) -> int:
        """Rows in all files."""
        return sum(file.rows for file in self.files)


@dataclass
class Manifest:
    """What one task did; `error` when the source failed, and then nothing else counts."""

    ranges: list[OffsetRange] = field(default_factory=list)
    """What the task was to read."""
    tables: dict[TableId, TableManifest] = field(default_factory=dict)
    read: dict[str, int] = field(default_factory=dict)
    """Events read, by partition."""
    parts: dict[str, int] = field(default_factory=dict)
    """Events read, by the part of the source that they are of, where it keeps account of parts."""
    part_errors: dict[str, str] = field(default_factory=dict)
    """Why parts could not be read, or not all of them."""
    bytes_read: int = 0
    overfull: bool = False
    """Whether it gave up because its events are larger than the batch was planned for; it wrote nothing."""
    ends: dict[str, int] = field(default_factory=dict)
    """Where the batch must end instead, by partition: see `EndsEarlier`; the task wrote nothing."""
    error: errors.LakefeedError | None = None

    def to_json(self) -> str:
        """The manifest as text, for the way through Spark."""
        ranges = [(span.partition, span.start, span.end) for span in self.ranges]
        value = {**vars(self), "ranges": ranges, "tables": list(self.tables.values())}
        return orjson.dumps(value, default=_packed).decode()

    @classmethod
    def from_json(cls, text: str) -> Manifest:
        """Read back what `to_json` wrote."""
        value = orjson.loads(text)
        value["ranges"] = [OffsetRange(*span) for span in value["ranges"]]
        value["tables"] = {one.table: one for one in map(_unpacked_table, value["tables"])}
        return cls(**value | {"error": _unpacked_error(value["error"])})


def check_covered(planned: list[OffsetRange], manifests: list[Manifest]) -> None:
    """Raise BatchFailed unless the tasks have read what was planned, all of it and each event once.

    Positions move to the end of what was planned: a task that is missing would be events that nobody read.
    """
    covered: list[OffsetRange] = []
    ranges = [span for manifest in manifests for span in manifest.ranges]
    for span in sorted(ranges, key=_sort_key):
        last = covered[-1] if covered else None
        if last and (last.partition, last.end) == (span.partition, span.start):
            covered[-1] = OffsetRange(span.partition, last.start, span.end)
        else:
            covered.append(span)
    if covered != sorted(planned, key=_sort_key):
        raise BatchFailed(
            f"Spark returned a batch with other offsets than planned: {listed(covered)}, "
            f"not {listed(planned)}; nothing of it was committed"
        )


def _sort_key(span: OffsetRange) -> tuple[str, int, int]:
    return span.partition, span.start, span.end


def listed(spans: Sequence[OffsetRange]) -> str:
    """Ranges in words, the first few of them."""
    some = ", ".join(f"{span.partition}: {span.start} to {span.end}" for span in spans[:3])
    return f"{some} and {len(spans) - 3} more" if len(spans) > 3 else some or "none"


def merged(manifests: list[Manifest]) -> dict[TableId, TableManifest]:
    """What all tasks together did for each table."""
    found: dict[TableId, TableManifest] = {}
    for manifest in manifests:
        for one in manifest.tables.values():
            known = found.setdefault(one.table, TableManifest(one.table))
            known.files += one.files
            known.dead_letter_files += one.dead_letter_files
            known.dead_letters = added([known.dead_letters, one.dead_letters])
            known.refusals = added([known.refusals, one.refusals])
            known.refused_parts = added([known.refused_parts, one.refused_parts])
            known.samples += one.samples
            if one.newest is not None:
                known.newest = max(one.newest, known.newest or one.newest)
            known.skipped = added([known.skipped, one.skipped])
            known.filtered = added([known.filtered, one.filtered])
            known.expected(one.expectations, one.failed)
            known.without_columns += one.without_columns
            known.error = known.error or one.error
            known.proposal = merged_proposals(known.proposal, one.proposal)
            known.returned = merged_proposals(known.returned, one.returned)
            known.wider = merged_proposals(known.wider, one.wider)
            known.taken += one.taken
            known.partial += one.partial
            known.partial_changes += one.partial_changes
            for stream, columns in one.lost.items():
                known.lost[stream] = known.lost.get(stream, {}) | columns
            known.former_keys += [keys for keys in one.former_keys if keys not in known.former_keys]
    return found


def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
    """The sum of each key."""
    total = Counter[str]()
    for one in counts:
        total.update(one)
    return total


def parts_read(
    manifests: Sequence[Manifest],
    tables: Mapping[TableId, TableManifest],
    progress: Mapping[TableId, TableProgress],
) -> dict[str, PartRead]:
    """What was read of each part of a source that keeps account of them, and where the first table has it."""
    written = (progress[table].handle.table for table, one in tables.items() if one.files)
    version = next((table.version for table in written), None)
    letters = added(table.refused_parts for table in tables.values())
    counts = added(manifest.parts for manifest in manifests)
    errors = {part: text for manifest in manifests for part, text in manifest.part_errors.items()}
    return {
        part: PartRead(records, letters.get(part, 0), version, errors.get(part))
        for part, records in counts.items()
    }


def unreadable_parts(manifests: Sequence[Manifest]) -> set[str]:
    """The parts of which nothing was read but why they cannot be."""
    counts = added(manifest.parts for manifest in manifests)
    return {part for manifest in manifests for part in manifest.part_errors if counts.get(part) == 1}


def largest(manifests: list[Manifest]) -> tuple[int, int]:
    """Events and bytes of the task that met the largest: the next batch is planned by it, not by the mean."""
    counts = [(sum(manifest.read.values()), manifest.bytes_read) for manifest in manifests]
    return max(counts, key=lambda count: count[1] / max(1, count[0]))


def _packed(value: Any) -> Any:
    """What JSON has no word for."""
    if isinstance(value, pa.Schema):
        return base64.b64encode(value.serialize()).decode()
    assert isinstance(value, errors.LakefeedError)
    return {"class": type(value).__name__, "text": str(value), "trace": getattr(value, "traceback", "")}


def _unpacked_table(value: dict[str, Any]) -> TableManifest:
    table = TableManifest(**value)
    table.table = TableId(value["table"]["table"], tuple(value["table"]["key"]))
    table.files = [WrittenFile(**file) for file in value["files"]]
    table.dead_letter_files = [WrittenFile(**file) for file in value["dead_letter_files"]]
    table.partial_changes = [(str(one[0]), int(one[1]), int(one[2])) for one in value["partial_changes"]]
    table.former_keys = [tuple(keys) for keys in value["former_keys"]]
    table.samples = [DeadLetterSample(**sample) for sample in value["samples"]]
    table.proposal = _unpacked_schema(value["proposal"])
    table.returned = _unpacked_schema(value["returned"])
    table.wider = _unpacked_schema(value["wider"])
    table.error = _unpacked_error(value["error"])
    return table


def _unpacked_schema(packed: str | None) -> pa.Schema | None:
    return None if packed is None else pa.ipc.read_schema(pa.py_buffer(base64.b64decode(packed)))


def _unpacked_error(value: dict[str, str] | None) -> errors.LakefeedError | None:
    if value is None:
        return None
    kind: type[errors.LakefeedError] = getattr(errors, value["class"])
    if kind is errors.Defect:
        return errors.Defect(value["text"], value["trace"])
    return kind(value["text"])
