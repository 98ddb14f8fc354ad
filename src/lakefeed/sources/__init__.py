"""Events come in: one folder per system, and the contract that they all keep.

A source is asked on the driver which offsets exist, and on a worker for the events of a range of them.
Offsets are always *next* offsets here: a range is `start <= offset < end`, and a partition's position is the
first offset that has not been read. An offset is an integer below 2**63 that grows with each event of its
partition. There may be gaps, so nobody but the source knows how many events lie between two of them. Nothing
outside a source looks into a partition's name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import pyarrow as pa
from pydantic import Field, field_validator

from lakefeed.columns.change_columns import ChangeColumns
from lakefeed.events import Events, OffsetRange, Offsets, Outstanding, PartRead, Reload, SharedEvents, Split
from lakefeed.pipeline.connectors import Connector, FormatField, connector_named, connector_names
from lakefeed.pipeline.flush import Flush
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.sources import dense_offsets
from lakefeed.text import few, pattern_of

if TYPE_CHECKING:
    from lakefeed.sources.delta.source import DeltaSource as DeltaSource
    from lakefeed.sources.files.source import FilesSource as FilesSource
    from lakefeed.sources.generate.source import GenerateSource as GenerateSource
    from lakefeed.sources.http.source import HttpSource as HttpSource
    from lakefeed.sources.kafka.source import KafkaSource as KafkaSource
    from lakefeed.sources.postgres.source import PostgresSource as PostgresSource
    from lakefeed.sources.spark.source import SparkSource as SparkSource

PARTITION = "0"
"""The partition of a source that has only one."""
Reread = Literal["never", "all", "some"]
"""Which of some events a reader gets again under other offsets; `some`: which ones cannot be determined."""


@dataclass(frozen=True)
class Allowance:
    """How much the next batch may read at most.

    A source that knows sizes beforehand keeps to `bytes` as well. For one that does not, `rows` is already
    what fits, by the size that events had so far.
    """

    rows: int
    bytes: int


@dataclass(frozen=True)
class Finding:
    """What was found at a source before its first byte is read. A run does not start where one is `fail`."""

    state: Literal["ok", "warn", "skip", "fail"]
    """`skip`: the stream is not read, and the others are."""
    text: str
    remedy: str = ""
    """What to do about it, such as the statement that repairs it."""
    stream: str | None = None
    """The stream that it concerns; None for all."""


def folded(findings: Iterable[Finding]) -> list[tuple[Finding, str]]:
    """What is the same for several streams once, with a sentence on the others."""
    alike: dict[str, list[Finding]] = {}
    for one in findings:
        alike.setdefault(pattern_of(one.stream, one.text) if one.stream else one.text, []).append(one)
    found = []
    for first, *others in alike.values():
        same = f"The same for {few(one.stream or '' for one in others)}" if others else ""
        if others and first.remedy:
            same += ": `lakefeed doctor` has the statement of each"
        found.append((first, same and f"{same}."))
    return found


class SourceClient(ABC):
    """A source as the driver sees it, for the length of a run. Raises SourceUnavailable or SourceError."""

    patience: float = 10.0
    """Seconds that an answer may take; those who only look set it lower."""

    rows_a_task: int | None = None
    """So many events are worth a task of their own, by the size that events had in the last batch."""

    goes_on: bool = False
    """Whether this process has read the source before: what a start refuses then stops one stream alone."""
    ends_seen: Offsets
    """The last end that a client of this run has seen of each partition; a run lets its clients share it."""

    def warnings(self) -> list[str]:
        """What a run logs once of what the client has seen since it was made. Asks nobody."""
        return []

    ends: bool = False
    """Whether the run ends by itself: then it waits for what cannot be read yet."""

    @property
    def remark(self) -> str:
        """What its owner should know though it is read, with what to do behind a line break. Asks nobody."""
        return ""

    def takes(self, stream: str | None) -> bool:
        """Whether some table of the file takes a stream; a run replaces this by what it knows."""
        return True

    def begin(self) -> None:  # noqa: B027
        """A run is going to read: before it asks anything else. Those who only look do not call it.

        What reading needs at the source, such as a replication slot, may be made from now on.
        """

    @abstractmethod
    def start(self) -> Offsets:
        """The next offsets of a table that has read nothing yet, for every partition that exists now."""

    def start_beside(self, held: Offsets) -> Offsets:
        """As `start`, without partitions that a table has a position of, whatever `start` says of them."""
        return {partition: at for partition, at in self.start().items() if partition not in held}

    def start_again(self, dead_letters: Callable[[], Collection[int]]) -> Offsets:
        """As `start`, for a table without a position that has dead letters; they are at these offsets.

        Where offsets depend on where a reader has begun, it begins there again, as long as that can be read:
        so events have the offsets of their letters.
        """
        return self.start()

    def replaced_from(self, start: Offsets) -> Offsets:
        """From where on dead letters are outdated by what a table reads that begins at `start`."""
        return start

    def unreadable(self, offsets: Collection[int]) -> Collection[int]:
        """Those offsets of dead letters behind `replaced_from` whose events cannot be read again."""
        return ()

    def reread(self, start: Offsets, dead_letters: Collection[int]) -> Reread:
        """Whether a table that begins at `start` gets the events of dead letters under other offsets.

        `dead_letters` are the offsets of the dead letters, which are older than the table.
        """
        return "never"

    @abstractmethod
    def latest(self) -> Offsets:
        """The end of every partition that exists now, new ones included. Called several times a second."""

    def until(self) -> Offsets:
        """Where a run that ends by itself ends: what is there now. Asked once, and may take its time."""
        return self.latest()

    def rows_between(self, position: Offsets, ends: Offsets) -> dict[str, int]:
        """How many events of each partition of `position` wait before `ends`; a guess where nobody knows.

        More than 0 wherever there is something to read. Asks nobody: called several times a second.
        """
        return dense_offsets.rows_between(position, ends)

    def outstanding(self, position: Offsets, ends: Offsets) -> Outstanding | None:
        """The files and bytes that wait before `ends`, of a source of files. Asks nobody."""
        return None

    def rows_read(self, position: Offsets, ends: Offsets) -> dict[str, int] | None:
        """How many events lie between, to the row, as a proof needs it; None where the source cannot know."""
        return None

    def rows_missed(self, position: Offsets, ends: Offsets, made: int) -> dict[str, int]:
        """How many of these were gone when a table was made, in milliseconds since 1970, that begins there.

        None of a source that loses nothing, or that raises DataLoss for what it has lost.
        """
        return dict.fromkeys(position, 0)

    def unread_again(self, position: Offsets, ends: Offsets) -> int:
        """How many files between were read and are read no more, nor others in place of them.

        None of a source that has no files, or that raises DataLoss for what it has lost.
        """
        return 0

    def next_end(self, position: Offsets, ends: Offsets, allowed: Allowance) -> Offsets:
        """Where the next batch ends, given that something waits: beyond the position, up to `ends`.

        Has the partitions of `position`. A batch may end between two events, and not inside of a transaction.
        The position itself: nothing can be read for now, which `left_out` explains; not where the run `ends`.
        """
        return dense_offsets.next_end(position, ends, allowed.rows)

    def pass_over(self, position: Offsets) -> Offsets:
        """The furthest position with no event between; the same one where a source need not move on.

        Asked at the end of a run and every few minutes. Does not wait for a source that does not answer.
        """
        return position

    def splits(self, ranges: Sequence[OffsetRange], cores: int) -> list[Split]:
        """Cut ranges into tasks that run side by side, each range with what its task needs to know.

        Together they are the ranges, each event in one task. Few events are one task, so that they become
        one file.
        """
        return dense_offsets.splits(ranges, cores, self.rows_a_task)

    def strand(self, position: Offsets) -> Hashable:
        """On which strand of the source a position lies: tables on different ones are never read together.

        Positions are compared, and events between them counted, only where they are on one strand.
        """
        return None

    @abstractmethod
    def check(self, positions: Offsets, marks: Mapping[str, int]) -> Offsets:
        """Return the positions to go on from, given those that a table holds.

        New partitions are added from their beginning. Positions that the source cannot serve any more raise
        DataLoss, or move on and are told in a warning where the source says `on_data_loss: skip`.
        """

    def lost_between(self, position: Offsets, ends: Offsets) -> str | None:
        """What of that range cannot be read again though `check` lets it pass, in words; None if nothing."""
        return None

    def reloads(self, ranges: Sequence[OffsetRange]) -> list[Reload]:
        """What of these ranges replaces rows that were read before. Called when a batch is planned."""
        return []

    def begun(self, start: Offsets, marks: Mapping[str, int]) -> dict[str, int]:
        """Marks that say how a table began, where nothing before `start` is in it; else none.

        Called for a table that is created, and when a batch is committed that begins at `start`. `marks` are
        those that the table holds.
        """
        return {}

    def confirm(self) -> None:  # noqa: B027
        """Raise SourceError unless offsets still stand for what they stood for when the marks were taken.

        Called after a batch was read and before it is committed.
        """

    def end_earlier(self, ends: Offsets) -> None:  # noqa: B027
        """Let batches end where a task of this source has raised `EndsEarlier` for."""

    def note(self, parts: Mapping[str, PartRead]) -> None:  # noqa: B027
        """Take note of what a committed batch has read of each part. Returns at once and never raises."""

    def acknowledge(self, positions: Offsets) -> None:  # noqa: B027
        """Tell the source that every table of the file has all events before these positions.

        The lowest over all tables that the source feeds, those that have failed among them: a source may
        forget what lies before. Called with no position of a partition while one of its tables has not been
        looked at. Returns at once and never raises: whatever goes wrong here, the tables are right.
        """

    def marks(self) -> dict[str, int]:
        """Numbers that identify what is behind the names, such as a topic's id; kept in each table's log.

        Where there are streams, by the name of one, or by that of a partition with `EPOCH` or `DELETED_END`
        behind it.
        """
        return {}

    def age(self, position: Offsets) -> float | None:
        """For how many seconds the first event behind a position has been there; None if nobody knows."""
        return None

    def column_types(self, takes: Callable[[str], bool]) -> list[pa.Schema]:
        """The columns of each stream that is taken, as they are now; none where streams have no types."""
        return []

    def lost_columns(
        self, stream: str, columns: Collection[str], expected: Collection[str], marks: Mapping[str, int]
    ) -> dict[str, str]:
        """Why events of a stream do not have columns that it should have, in words, by column.

        `marks` are those of a table that names them; `expected` are columns that the stream had for sure. A
        column that it never had, or that came later than the events, has no entry.
        """
        return {}

    def refuse_lost_keys(  # noqa: B027
        self, marks: Mapping[str, int], start: Offsets, rename: Mapping[str, str]
    ) -> None:
        """Raise StreamsLost for streams whose changes would not find their rows in a copy with these marks.

        `start` is where the copy goes on, `rename` how it names columns of the events.
        """

    def outdated(self, marks: Mapping[str, int], start: Offsets) -> dict[str, str]:
        """By stream: what a table with these marks has not got, and no event will bring; in words.

        `start` is where it goes on.
        """
        return {}

    def findings(self) -> list[Finding]:
        """What could keep this source from being read, or surprise its owner; for `doctor` and `plan`."""
        return []

    def key_problems(
        self, keys: Sequence[str], takes: Callable[[str], bool], declared: Collection[str] = ()
    ) -> dict[str, str]:
        """Why rows of a table of changes cannot be told apart, in words, by stream.

        `keys` are the columns of the events that the file names, none for the source's own; `takes` says
        which streams the table takes, `declared` for which columns the file has a type. A stream whose rows
        can be told apart, or that is not known, has no entry.
        """
        return {}

    def column_names(self, takes: Callable[[str], bool]) -> Mapping[str, Sequence[str]]:
        """The columns of events by stream, where the source knows them before it is read."""
        return {}

    def original_names(self, takes: Callable[[str], bool]) -> Mapping[str, str]:
        """The names that columns have in the source, by those in events, where a Delta table needs others."""
        return {}

    def left_out(self) -> dict[str, Finding]:
        """The streams that the file means and that are not read, with the reason.

        `warn`: the source has deleted the stream, and whether it was read to its end is not known.
        """
        return {}

    def streams(self) -> list[str]:
        """The streams that there are, where two of them may have one name in a path; else none."""
        return []

    def type_problem(self, takes: Callable[[str], bool], table_of: Callable[[str], str | None]) -> str | None:
        """Why one table cannot hold the columns of the streams that it takes; None if nobody knows of any.

        `table_of` tells streams apart that go into different tables.
        """
        return None

    def stored_defaults(self, takes: Callable[[str], bool]) -> dict[str, pa.Scalar]:
        """What old rows of a stream have in columns that came later, where no event tells of it.

        By the column's name in the events; nothing where a table takes several streams.
        """
        return {}

    def retention(self) -> dict[str, float]:
        """For how many seconds events are kept, by topic or the like; what is not told is left out."""
        return {}

    def close(self) -> None:  # noqa: B027
        """Let go of connections; there are none by default."""


class SourceRows(ABC):
    """The rows of the streams of a source as of one moment, for a comparison with their copies.

    Used on the driver, by one thread. Raises SourceUnavailable or SourceError.
    """

    moment: str
    """The position of the moment, in words."""

    @abstractmethod
    def streams(self) -> dict[str, str | None]:
        """The streams with rows that the source means, each with why it is not read, in words, if so."""

    @abstractmethod
    def problem(self, stream: str, positions: Offsets) -> str | None:
        """Why a table at these positions is no copy of the stream, in words; None if it is one."""

    @abstractmethod
    def position(self, positions: Offsets) -> str:
        """The position of a copy of one stream, in words."""

    @abstractmethod
    def keys(self, stream: str) -> tuple[str, ...]:
        """The columns that identify a row."""

    @abstractmethod
    def columns(self, stream: str) -> pa.Schema:
        """All columns of the rows."""

    @abstractmethod
    def estimate(self, stream: str) -> int:
        """About how many rows the stream has."""

    @abstractmethod
    def edges(self, stream: str, rows: int) -> list[int] | None:
        """The first key of each range of about so many rows, but the first; None unless keys are integers."""

    @abstractmethod
    def read(self, stream: str, first: int | None = None, end: int | None = None) -> Iterator[Events]:
        """The rows, or those whose first key column is in a range `first <= key < end`."""

    @abstractmethod
    def changed(self, positions: Offsets) -> Iterator[tuple[str, pa.RecordBatch | None]]:
        """The keys of rows that differ between these positions and the moment, by stream.

        None in place of keys: every row of the stream may differ.
        """

    @abstractmethod
    def covers(self, positions: Offsets) -> bool | None:
        """Whether `changed` has seen every change behind these positions; None if that can never be known.

        False: the source has moved on meanwhile, and a newer look at the table may have more success.
        """

    @abstractmethod
    def close(self) -> None:
        """Let go of the moment."""


class Membership(ABC):
    """This process among several that share the partitions of a source; held for the length of a run.

    Who may read what can change at any moment, and two may read the same for a while. The positions in the
    tables keep each event from being written twice, whoever reads it.
    """

    @property
    @abstractmethod
    def generation(self) -> int:
        """Grows with each change of what is assigned to this process."""

    @property
    def is_settled(self) -> bool:
        """Whether what is assigned is known; not between two assignments, where it looks like nothing."""
        return True

    @property
    def has_ended(self) -> bool:
        """Whether it has failed: whoever wants to go on has to join anew."""
        return False

    @abstractmethod
    def own(self, offsets: Offsets) -> Offsets:
        """What of it is about partitions that are assigned to this process."""

    @abstractmethod
    def acknowledge(self, positions: Offsets) -> None:
        """Tell the source what all tables have, for its own partitions; as `SourceClient.acknowledge`."""

    @abstractmethod
    def close(self) -> None:
        """Leave the partitions to the others."""


class Source(Connector):
    """The model of a source in the pipeline file."""

    room: ClassVar[str] = "source"
    keeps_parts: ClassVar[bool] = False
    """Whether it keeps account of parts, such as files: what was read of each is counted for it."""
    answers: ClassVar[bool] = False
    """Whether it can be asked for values that its changes leave out: see `Events.completed`."""
    reads_files: ClassVar[bool] = False
    """Whether formats of whole files are for it."""
    event_marks: ClassVar[tuple[str, ...] | None] = None
    """The marks that identify events under every name of pipeline and source; None for all of them.

    Empty where each name has marks of its own, such as the id of its ledger: they say nothing about whether
    two names have read the same events.
    """
    event_mark_shift: ClassVar[int] = 0
    """The low bits of these marks that each name has for itself, such as its entry of a publication."""
    format: FormatField | None = Field(
        default=None, description="How a payload becomes columns.", examples=["json"]
    )
    flush: Flush | None = Field(
        default=None, description="When a batch of this source ends; left out: the pipeline's `flush`."
    )

    unbounded: ClassVar[bool] = False
    """Whether any number of events may have one offset: nobody knows beforehand how much a range holds."""

    @property
    def ends(self) -> bool:
        """Whether it is read to what is there at the start, and no further, also without `--once`."""
        return False

    @field_validator("format", check_fields=False)
    @classmethod
    def _format_of_payloads(cls, value: Any) -> Any:
        if isinstance(value, Connector) and value.of_files and not cls.reads_files:
            raise ValueError(f"{value.type} is a format of files, for `type: files`")
        return value

    @property
    def change_columns(self) -> ChangeColumns | None:
        """What its format says."""
        return None if self.format is None else self.format.change_columns

    @property
    def payload_format(self) -> Connector | None:
        """How payloads are read; None where events have columns."""
        return self.format

    def within(self, pipeline: Pipeline, name: str) -> Self:
        """The source with what it takes from its pipeline where its own options leave it out."""
        return self

    def for_workers(self) -> Self:
        """The source as tasks have it: without secrets that only the driver needs."""
        return self

    def missing(self) -> str | None:
        """What is not there, and what to do about it; None where only asking the source could tell."""
        return None

    @abstractmethod
    def client(self, pipeline: str, name: str) -> SourceClient:
        """Connect, on the driver."""

    def rows_now(self, pipeline: str, name: str, streams: Sequence[str]) -> SourceRows | None:
        """The rows of streams as they are now, on the driver; None for a source of events alone."""
        return None

    def join(self, pipeline: str, name: str, stop: Event) -> Membership | None:
        """Share the partitions with other processes, on the driver, where the options say so; else None.

        Comes back when something is assigned, or nothing for now, or `stop` is set.
        """
        return None

    def has_taken_over(self) -> bool:
        """Whether this run has taken the source from all others, which end: only one run can have it."""
        return False

    def partition_of(self, stream: str | None, number: int) -> str:
        """The name of a partition, from what `ORIGIN` says about an event of it; the only one by default."""
        return PARTITION

    def outdated_marks(
        self, held: Mapping[str, int], now: Mapping[str, int], starts: Offsets, *, is_copy: bool
    ) -> dict[str, int]:
        """What a commit writes instead of marks of now, as the table has not got yet what these stand for.

        `starts` is where the partitions begin that the commit brings; `is_copy`: whether the table holds the
        rows as they are, or were.
        """
        return {}

    def replaces_rows(self, span: OffsetRange) -> bool:
        """Whether the events of a range replace all rows that were read of their stream before."""
        return False

    def has_all_rows(self, span: OffsetRange) -> bool:
        """Whether a range that replaces rows has all of them."""
        return False

    @property
    def own_table(self) -> str | None:
        """The path of a Delta table that the source keeps for itself; none that is fed may lie there."""
        return None

    def number_of(self, partition: str) -> int:
        """The number of a partition in its stream, by its name; for sources whose partitions have one."""
        raise NotImplementedError

    def shared_with(
        self,
        ours: tuple[str, str],
        theirs: tuple[str, str],
        marks: Mapping[str, int],
        spans: tuple[OffsetRange, OffsetRange],
    ) -> SharedEvents | None:
        """The events that two names of pipeline and source have both read, of a range of each.

        For a source without `event_marks`; `marks` are those that the other name has left. None if that
        cannot be known.
        """
        return None

    def stream_of(self, partition: str) -> str | None:
        """The stream that a partition is a part of, by its name; None where the source has none."""
        return None

    def identity_of(self, partition: str) -> str:
        """The mark of `SourceClient.marks` that tells whose offsets those of a partition are."""
        return self.stream_of(partition) or ""

    @property
    def has_stream_columns(self) -> bool:
        """Whether streams have columns: see `stream_columns`."""
        return False

    def stream_columns(self, stream: str) -> dict[str, str | None]:
        """Columns that all events of a stream have besides their own, as text."""
        return {}

    def shown(self, origin: pa.RecordBatch, pipeline: str, name: str) -> pa.RecordBatch:
        """`ORIGIN` of dead letters as metadata columns have it: what `Events.shown` said of their events."""
        return origin

    def row_again(self, row: bytes, columns: pa.Schema, origin: Mapping[str, Any]) -> bytes:
        """A row of a dead letter, an object of JSON, as options of today write it for these columns.

        `origin` is what `ORIGIN` says of it, without the time.
        """
        return row

    def offset_rules(self) -> str | None:
        """The options that offsets of events depend on, as text; None where they depend on none.

        Where it differs from that of a dead letter, the event has another offset when it is read again.
        """
        return None

    def part_of(self, offset: int) -> str:
        """The part that an offset lies in, of a source that keeps account of parts."""
        raise NotImplementedError

    def describe_offset(self, offset: int) -> str | None:
        """An offset in words, where it is more than a number; None where it is none."""
        return None

    def describe_lag(self, position: Offsets, ends: Offsets, rows: Mapping[str, int]) -> str | None:
        """What waits in words, where `rows`, from `rows_between`, are a guess; None where a number says it.

        None as well where nothing waits.
        """
        return None

    @abstractmethod
    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
        """Yield every event of the ranges, each once, in the order of each partition. Runs on a worker.

        All events have payloads, or all have columns.
        """


def source_of(pipeline: Pipeline, name: str) -> Source:
    """The source of that name in a pipeline: one of the file, or a table of it that feeds others."""
    found = pipeline.inputs[name]
    assert isinstance(found, Source)
    return found.within(pipeline, name)


def has_taken_over(pipeline: Pipeline) -> bool:
    """Whether every other run of a pipeline ends for this one, so that what it has committed was its last.

    Then this run goes on at the positions of its tables where another one was faster.
    """
    return any(source_of(pipeline, name).has_taken_over() for name in pipeline.sources)


def __getattr__(name: str) -> Any:
    """The model of each source, imported when it is used: `from lakefeed.sources import KafkaSource`."""
    return connector_named("source", name)


def __dir__() -> list[str]:
    """Everything here, with the model of each source, whether it is imported yet or not."""
    return sorted({*globals(), *connector_names("source")})
