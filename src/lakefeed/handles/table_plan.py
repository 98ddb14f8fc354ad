"""How one table takes the events of a flow: what tasks need to know about it. Picklable."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa

from lakefeed.columns.change_columns import ChangeColumns
from lakefeed.columns.naming import cleaned_names
from lakefeed.events import OffsetRange, Offsets
from lakefeed.files.parquet import FileTarget
from lakefeed.formats import DEFAULT_RULES, Rules
from lakefeed.pipeline.options.metadata import MetadataColumns
from lakefeed.pipeline.options.partition_by import PartitionField
from lakefeed.pipeline.options.route import Key, Route
from lakefeed.rows.changes import ChangePlan
from lakefeed.rows.user_code import UserFunction
from lakefeed.sql.projection import Projection

Stamp = tuple[int, int | None, int, bytes | None]
"""An offset, the timestamp of its event in microseconds, the number that its origin has, and its key.

A recreated topic has the same offsets again, changes of one transaction have one offset, and two rows of a
snapshot may have one fingerprint as their number.
"""


StagedPosition = tuple[str, int, int]
"""Where a change came from, as it is staged: its partition, its offset and its ordinal."""


@dataclass(frozen=True, order=True)
class TableId:
    """Which table is meant: one of the pipeline file, or with `key` one that its route has made."""

    table: str
    key: Key = ()

    def __str__(self) -> str:
        """The name that users see, such as `events/de`."""
        return "/".join((self.table, *self.key))


@dataclass(frozen=True)
class RoutedTable:
    """One table of a route. `rows_from` as in `TablePlan`."""

    path: str
    target: FileTarget
    rows_from: Offsets
    plan: TablePlan | None = None
    """Where it has the types of its own stream: how it alone takes the events of that."""


@dataclass(frozen=True)
class TablePlan:
    """How one table takes the events of a flow. `columns` is None while its schema is still to be inferred.

    `rows_from` are the next offsets of the table: what lies before them is there already. `pending` are
    events from there on that are dead letters of the table already, as a crash came before the rows beside
    them were committed. Neither is written again.
    """

    name: str
    path: str
    storage: Mapping[str, str] = field(repr=False)
    columns: pa.Schema | None
    target: FileTarget | None
    partition_by: tuple[PartitionField, ...]
    metadata: MetadataColumns
    rows_from: Offsets
    pending: Mapping[str, frozenset[Stamp]] = field(default_factory=dict)
    rules: Rules = DEFAULT_RULES
    follows: frozenset[str] = frozenset()
    """Columns that have the type that a stream with types of its own has for them."""
    widens: frozenset[str] = frozenset()
    """Columns of the events that get a wider type for values which do not fit."""
    fixed: Mapping[str, str] = field(default_factory=dict)
    """Columns that do not, though nobody declared their type; each with the reason."""
    rescues: bool = False
    rename: Mapping[str, str] = field(default_factory=dict)
    route: Route | None = None
    routed: Mapping[Key, RoutedTable] = field(default_factory=dict)
    reserved: frozenset[Key] = frozenset()
    """Values whose table would lie where another table of the pipeline is."""
    by_stream: bool = False
    """With `route`: whether each table takes one stream, and has positions in that alone."""
    own_types: bool = False
    """With `by_stream`: whether each table has the types of its stream; then each of `routed` has a plan."""
    tells_events: bool = False
    """With `route`: whether the manifest says which events are rows of each table, as a replay must know."""
    shuffles: bool = False
    """Whether files that several tasks write for one partition value become one."""
    full: bool = False
    """Whether the route has as many tables as it may."""
    reshapes: bool = False
    """Whether the columns of the table are others than those of its events."""
    events: pa.Schema | None = None
    """With `reshapes`: the columns that decoding must produce; None while they are to be inferred."""
    projection: Projection | None = None
    """`where`, `select` and `expect`; None where the table has none, or what they read is not known yet."""
    selects: bool = False
    """Whether `select` makes the columns; without it, the projection has only `where` and `expect`."""
    uses_sql: bool = False
    """Whether there must be a projection before anything is written."""
    changes: ChangePlan | None = None
    """How rows are changes, in a table whose rows have keys."""
    reads: Mapping[str, str] = field(default_factory=dict)
    """Columns of the events that options name, each with its option: see `read_columns`."""
    log: ChangeColumns | None = None
    """By which columns the events say what they do, in any mode; None where they do not."""
    asks: bool = False
    """Whether the source is asked for every value that a change leaves out, where it can be asked."""
    unknown_changes: frozenset[StagedPosition] = frozenset()
    """Changes that leave out values which neither the table nor the source has: they are dead letters."""
    held_back: frozenset[StagedPosition] = frozenset()
    """Of dead letters: changes that leave out values which an older dead letter of their key may have."""
    tells_partial: bool = False
    """Whether the manifest says which changes leave out values, as a replay must know."""
    python: UserFunction | None = None
    """The user's function that gets the decoded events."""
    returned: pa.Schema | None = None
    """With `python`: the columns that its result must have; None while they are to be inferred."""

    @property
    def decoded(self) -> pa.Schema | None:
        """The columns that decoding must produce; None while they are to be inferred."""
        return self.events if self.reshapes else self.columns

    @property
    def renames(self) -> bool:
        """Whether columns, or fields inside them, have other names in the table than in the events."""
        return bool(self.rename) or any(True for _ in cleaned_names(self.decoded or ()))

    @property
    def is_inferring(self) -> bool:
        """Whether events can only be looked at, as what the table makes of them is not known yet."""
        return (
            self.decoded is None
            or (self.uses_sql and self.projection is None)
            or (self.python is not None and self.returned is None)
        )

    @property
    def needs_spark(self) -> bool:
        """Whether its SQL has something that only Spark's own operators do."""
        return self.projection is not None and self.projection.needs_spark is not None

    @property
    def is_keyed(self) -> bool:
        """Whether upserts and deletions change rows by their key, which deduplication does not."""
        return self.changes is not None and self.changes.applies

    @property
    def reads_log(self) -> bool:
        """Whether steps must know what change events do and carry that are not taken for changes."""
        if self.log is None or (self.changes is not None and self.changes.envelopes is not None):
            return False
        return self.is_keyed or (self.changes is None and self.projection is not None)

    def asked_columns(self) -> frozenset[str] | None:
        """The columns of the events that changes must carry, or the source is asked; None for all of them.

        A column that nothing but itself is made of may be left out: the row of the table has it. All of them
        where the row may lack what an earlier change brought, as a rule has dropped it, or it was rescued.
        """
        rules = self.projection.rules if self.projection else ()
        may_lack = self.asks or self.rescues or any(rule.otherwise == "drop" for rule in rules)
        if not self.is_keyed or may_lack or self.python:
            return None if self.is_keyed else frozenset()
        assert self.changes is not None
        conditions = [self.changes.delete_when, self.changes.truncate_when]
        needed = [condition.columns() for condition in conditions if condition is not None]
        if self.projection is not None:
            made_of = {item.name: item.expression.columns() for item in self.projection.items}
            judged = [rule.expression.columns() for rule in rules]
            read = [set().union(*(made_of.get(name, {name}) for name in rule)) for rule in judged]
            needed += [columns for columns in (*made_of.values(), *read) if len(columns) > 1]
            needed += [] if self.projection.where is None else [self.projection.where.columns()]
        names = {new: old for old, new in self.rename.items()}
        return frozenset(names.get(name, name) for columns in needed for name in columns)

    def takes_rows(self, span: OffsetRange) -> bool:
        """Whether the table still misses the events of this range. Ranges never straddle a position."""
        return is_missing(self.rows_from, span)

    def closed_to(self, key: Key) -> tuple[str, str] | None:
        """With `route`: why there is no table for a value and will be none, as code and text; None if not."""
        assert self.route is not None
        if key in self.routed:
            return None
        if key in self.reserved:
            return "bad_route", f"{self.route.path(key)} is the path of another table of the pipeline"
        if not self.full:
            return None
        count = len(self.routed)
        return "too_many_tables", f"no table for {', '.join(key)}: there are {count}, as `max_tables` allows"

    def has_passed(self, key: Key, span: OffsetRange) -> bool:
        """With `route`: whether the table of a value has the events of a range already."""
        return key in self.routed and self.routed[key].rows_from.get(span.partition, 0) > span.start

    def positions(self) -> list[Offsets]:
        """The next offsets of the table, or of every table of its route and the lowest of them.

        Where each table of a route takes one stream, these are its positions there.
        """
        if self.by_stream:
            return [self.rows_from]
        return [self.rows_from, *(one.rows_from for one in self.routed.values())]


def is_missing(rows_from: Offsets, span: OffsetRange) -> bool:
    """Whether a table with these next offsets misses a range; it has none in streams of others."""
    return rows_from.get(span.partition, span.end) <= span.start
