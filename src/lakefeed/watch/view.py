"""What a run looks like at one moment: plain values that the page, the metrics and the terminal draw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from lakefeed.engine.run_events import Committed
from lakefeed.events import Outstanding
from lakefeed.reports.outstanding import lag_words
from lakefeed.reports.status import PartitionStatus, lag_of

_RECENT = 30


@dataclass(frozen=True)
class FlowView:
    """One source into one table."""

    source: str
    table: str
    rate: float
    up: bool

    @property
    def state(self) -> str:
        """How its arrow is drawn: `broken`, `moving` or `still`."""
        return "broken" if not self.up else "moving" if self.rate > 0 else "still"


@dataclass(frozen=True)
class DeadLetterView:
    """One record that became a dead letter, and why."""

    at: float
    table: str
    source: str
    partition: str
    offset: int
    stage: str
    code: str
    error: str
    payload: str
    """The beginning of its bytes, as people read them."""


@dataclass(frozen=True)
class DeadLetterGroup:
    """Dead letters of one table for one reason, with the newest few of them."""

    table: str
    stage: str
    code: str
    count: int
    first: float
    last: float
    samples: tuple[DeadLetterView, ...]


@dataclass(frozen=True)
class Happening:
    """Something that happened to a source or a table: a change, upkeep, a trouble and its end."""

    at: float
    kind: str
    what: str
    text: str
    others: int = 0
    """So many other tables to which the same happened with it."""


@dataclass(kw_only=True)
class SourceFacts:
    """What is known of a source: what has come from it, and what keeps it from going on."""

    name: str
    kind: str
    is_table: bool = False
    """Whether it is a table of the file, as others read it."""
    read: int = 0
    dead_letters: int = 0
    seen_at: float | None = None
    trouble: str = ""
    trouble_since: float = 0.0
    waits: bool = False
    """Whether the trouble lasts until somebody has decided something."""
    stopped: str = ""
    stopped_at: float = 0.0
    remark: str = ""
    """What its owner should know though it is read."""
    skipped: dict[str, str] = field(default_factory=dict)
    """Streams that are not read, with why, and what to do behind a line break."""
    lost: dict[str, str] = field(default_factory=dict)
    """Streams that were read and cannot be read on, in the same words."""

    @property
    def answers(self) -> bool:
        """Whether what it said last is still true: it has answered, and has not fallen silent since."""
        return self.seen_at is not None and not (self.trouble or self.stopped)


@dataclass(kw_only=True)
class SourceView(SourceFacts):
    """A source at one moment."""

    rate: float
    lags: dict[str, int]
    """Events that wait by partition, for the slowest table that is still fed."""
    lag_together: int | None
    """Events that wait, tables that catch up by themselves left out."""
    dead_letter_rate: float
    lag_points: list[float]
    about: str = ""
    """What it says of itself, such as where it listens."""
    refusing: str = ""
    """Why it takes no events at this moment."""
    outstanding: Outstanding | None = None
    """Files and bytes that wait, of a source of files."""
    lag_words: str | None = None
    """What waits in words, where the lag is a guess."""

    @property
    def state(self) -> str:
        """How the source is: `down`, `up`, or `new` where it has not answered yet."""
        return "down" if self.stopped or self.trouble else "up" if self.seen_at else "new"

    @property
    def lag(self) -> int | None:
        """Events that wait, None while the source does not answer."""
        return sum(self.lags.values()) if self.answers else None


@dataclass(kw_only=True)
class TableFacts:
    """What is known of a table: what it holds, what came in this run, and what keeps it from going on."""

    name: str
    path: str
    sources: tuple[str, ...]
    version: int | None = None
    rows: int = 0
    files: int = 0
    small_files: int = 0
    size: int = 0
    last_commit: float | None = None
    newest: float | None = None
    written: int = 0
    commits: int = 0
    first_version: int | None = None
    """The first version that this run has made."""
    commit_seconds: float = 0.0
    """How long the commits of this run took, all together."""
    dead_letters: int = 0
    unapplied: int = 0
    """In a copy of a database: changes of its rows that are dead letters, of this run and of earlier ones."""
    columns: tuple[tuple[str, str], ...] = ()
    """The names of its columns, each with its type as text; empty before they were counted."""
    partition_by: tuple[str, ...] = ()
    partition_values: int = 0
    """How many different values its files have in the columns that it is partitioned by."""
    trouble: str = ""
    """What is being retried for this table while the others of its source go on."""
    trouble_since: float = 0.0
    stopped: str = ""
    stopped_at: float = 0.0
    refusing_since: float = 0.0
    outdated: str = ""
    """Why it is not the copy of its stream, and the command that makes it one."""
    backwards: Mapping[str, str] = field(default_factory=dict)
    """By source: changes of a database that are older than those before, and what to do about it."""
    filtered: int = 0
    """Events of this run that `where` and `expect` have left out."""
    expectations: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """What became of the rows of this run by rule: how many `passed`, `warned`, `dropped`, `dead_letter`."""
    query: bool = False
    """Whether a query makes its rows."""
    reads: tuple[str, ...] = ()
    """The tables that its query reads."""
    inputs: Mapping[str, int] = field(default_factory=dict)
    """The versions of these that its rows were made of; empty before the first refresh."""
    behind: int | None = None
    """Versions with other rows that these have got since; None before the first refresh."""
    behind_by: Mapping[str, int] = field(default_factory=dict)
    """The same for each of them."""
    missing: tuple[str, ...] = ()
    """Tables that the query waits for, as they do not exist yet."""
    refresh_seconds: float = 0.0
    """How long the last refresh took."""
    last_refresh: float | None = None
    """When the last refresh of this run was."""


@dataclass(kw_only=True)
class TableView(TableFacts):
    """A table at one moment."""

    rate: float
    codes: dict[str, int]
    """Dead letters of this run by code."""
    points: list[float]
    offsets: dict[str, dict[str, PartitionStatus]]
    """How far it is in each partition of each source."""
    history: tuple[tuple[float, Committed], ...]
    """The newest commits of this run, each with its time."""
    catching_up: tuple[str, ...]
    """Sources of which it is far behind the other tables, and is fed apart from them."""
    refusing: str
    """Which share of the last events became dead letters, and why, when that is more than 5%."""
    lag_words: str | None = None
    """What waits in words, where the lag is a guess."""

    @property
    def state(self) -> str:
        """How the table is: `down`, `warn`, `up`, or `new` where nothing has come yet."""
        if self.stopped or self.trouble or self.refusing or self.unapplied or self.backwards:
            return "down" if self.stopped or self.trouble else "warn"
        return "up" if self.version is not None else "new"

    @property
    def lag(self) -> int | None:
        """Events that wait over all partitions; None while a source does not answer."""
        return lag_of(self.offsets)


@dataclass(frozen=True)
class RunView:
    """The whole run."""

    pipeline: str
    now: float
    began: float
    started: bool
    """Whether Spark runs, so that sources can be read."""
    sources: tuple[SourceView, ...]
    tables: tuple[TableView, ...]
    dead_letter_table: TableView
    flows: tuple[FlowView, ...]
    dead_letter_groups: tuple[DeadLetterGroup, ...]
    happenings: tuple[Happening, ...]
    span: float
    """How many seconds back the points go."""
    rate_points: list[float]
    lag_points: list[float]
    dead_letter_points: list[float]
    cores: int = 0
    """Tasks that Spark could run side by side when the last batch was planned; 0 before the first."""
    executors: int = 0
    """Executors that had registered then; 0 where tasks run in the driver's process."""

    @property
    def recent_dead_letters(self) -> list[DeadLetterView]:
        """Some dead letters word for word, the newest first."""
        found = [one for group in self.dead_letter_groups for one in group.samples]
        return sorted(found, key=lambda one: -one.at)[:_RECENT]

    @property
    def rows(self) -> int:
        """Rows that this run has committed to the tables, without dead letters and what queries have made."""
        return sum(one.written for one in self.tables if not one.query)

    @property
    def rate(self) -> float:
        """Rows committed a second, over all tables."""
        return sum(one.rate for one in self.tables)

    @property
    def commits(self) -> int:
        """Versions with rows or positions that this run has made, those of the dead-letter table aside."""
        return sum(one.commits for one in self.tables)

    @property
    def dead_letters(self) -> int:
        """Records that became dead letters in this run, counted once for each table that refused them."""
        return sum(one.dead_letters for one in self.tables)

    @property
    def waiting(self) -> bool:
        """Whether every source that still runs has been read to its end, and nothing has come of late."""
        running = [one for one in self.sources if not one.stopped]
        return bool(running) and all(one.lag == 0 for one in running) and not self.rate

    @property
    def lag(self) -> int | None:
        """Events that wait at all sources that still run; None before any answers or while one is silent."""
        if any(one.trouble for one in self.sources):
            return None
        known = [one.lag for one in self.sources if one.lag is not None]
        return sum(known) if known else None

    @property
    def lag_words(self) -> str | None:
        """The same in words, where a source can only guess."""
        told = [(one.lag, one.lag_words) for one in self.sources if one.lag is not None]
        return None if self.lag is None else lag_words(told)
