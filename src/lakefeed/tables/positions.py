"""Positions: how a source partition's offset is named and counted in a table's log.

A `txn` action holds the *last* offset that the table has, so that a reader of the log sees what was
committed. Everywhere else Lakefeed speaks of the *next* offset; these functions are the only border between
the two.
"""

from __future__ import annotations

from collections.abc import Mapping

from lakefeed.events import Offsets

_TOMBSTONES = "/#tombstones"
_BINLOG = "/#binlog/"


def application_id(pipeline: str, source: str, partition: str, dead_letters_of: str | None = None) -> str:
    """The `txn` application id of a source partition; with `dead_letters_of`, of one table's dead letters."""
    plain = f"{pipeline}/{source}/{partition}"
    return f"{plain}/{dead_letters_of}" if dead_letters_of else plain


def positions_of(
    transactions: Mapping[str, int], pipeline: str, source: str, dead_letters_of: str | None = None
) -> Offsets:
    """The next offsets that a table holds for one source of a pipeline."""
    head = f"{pipeline}/{source}/"
    tail = f"/{dead_letters_of}" if dead_letters_of else ""
    found: Offsets = {}
    for name, version in transactions.items():
        partition = name.removeprefix(head).removesuffix(tail)
        if name == f"{head}{partition}{tail}" and "/" not in partition and "#" not in partition:
            found[partition] = version + 1
    return found


def marks_of(transactions: Mapping[str, int], pipeline: str, source: str) -> dict[str, int]:
    """The marks that a table holds for one source: numbers that identify what is behind a name."""
    head = f"{pipeline}/{source}/#"
    return {name.removeprefix(head): value for name, value in transactions.items() if name.startswith(head)}


def mark_id(pipeline: str, source: str, name: str) -> str:
    """The `txn` application id of a mark. No partition name starts with `#`."""
    return f"{pipeline}/{source}/#{name}"


def replay_id(pipeline: str, table: str | None = None) -> str:
    """The `txn` application id that counts what a table has left to do with its dead letters.

    In the table it counts replays and rewinds; in the dead-letter table, with `table`, those whose letters
    are replayed. No source is named `#replay`.
    """
    return f"{pipeline}/#replay/{table}" if table else f"{pipeline}/#replay"


def table_number_id(pipeline: str, source: str, table: str) -> str:
    """The `txn` application id, in the dead-letter table, of the number of the table that they are of.

    No partition is named `#table`.
    """
    return f"{pipeline}/{source}/#table/{table}"


def past_letters_id(pipeline: str, source: str, table: str) -> str:
    """The `txn` application id, in the dead-letter table, of the newest `dead_at` that is of a former table.

    In microseconds since 1970. Such dead letters are never replayed. No partition is named `#past`.
    """
    return f"{pipeline}/{source}/#past/{table}"


def offset_rules_id(pipeline: str, source: str, table: str) -> str:
    """The `txn` application id, in the dead-letter table, of the rules that offsets of a table's events have.

    No partition is named `#offsets`.
    """
    return f"{pipeline}/{source}/#offsets/{table}"


def offset_rules_since_id(pipeline: str, source: str, table: str) -> str:
    """The `txn` application id of the offset from which on these rules hold.

    No partition is named `#offsets-since`.
    """
    return f"{pipeline}/{source}/#offsets-since/{table}"


def rebuild_id(pipeline: str) -> str:
    """The `txn` application id that counts the rebuilds of a table."""
    return f"{pipeline}/#rebuild"


def shaping_id(pipeline: str, digest: str) -> str:
    """The `txn` application id that counts the rows written with shaping options that have this digest."""
    return f"{pipeline}/#shaping/{digest}"


def rows_by_shaping(transactions: Mapping[str, int], pipeline: str) -> dict[str, int]:
    """How many rows were written with which shaping options, by their digest."""
    head = shaping_id(pipeline, "")
    return {name.removeprefix(head): rows for name, rows in transactions.items() if name.startswith(head)}


def run_id(pipeline: str) -> str:
    """The `txn` application id that counts the runs of a pipeline which have begun to replace a table."""
    return f"{pipeline}/#run"


def ended_id(pipeline: str) -> str:
    """The `txn` application id of the last of these runs that came to its end."""
    return f"{pipeline}/#ended"


def query_id(pipeline: str, table: str | None = None) -> str:
    """The `txn` application id of what a query has read: the version of a table.

    Without `table`, of a number that identifies the query and the tables behind the names in it. No source is
    named `#query`.
    """
    return f"{pipeline}/#query/{table}" if table else f"{pipeline}/#query"


def read_by_query(transactions: Mapping[str, int], pipeline: str) -> dict[str, int]:
    """The versions of other tables that the rows of a table were made of, by the names of these tables."""
    head = f"{query_id(pipeline)}/"
    return {
        name.removeprefix(head): version
        for name, version in transactions.items()
        if name.startswith(head) and version >= 0
    }


def ingest_id(app_id: str, number: int) -> str:
    """The `txn` application id under which kafka-delta-ingest keeps the last offset of a partition."""
    return f"{app_id}-{number}"


def ingest_positions(transactions: Mapping[str, int], app_id: str) -> dict[int, int]:
    """The next offsets that kafka-delta-ingest left, or was told of, by the number of the partition."""
    found: dict[int, int] = {}
    for name, last in transactions.items():
        head, _, number = name.rpartition("-")
        if head == app_id and number.isdecimal():
            found[int(number)] = last + 1
    return found


def absent(name: str) -> int | None:
    """What an application id stands at where a log does not have it; None where that cannot be said."""
    pipeline, _, _ = name.partition("/")
    counters = (run_id(pipeline), ended_id(pipeline), rebuild_id(pipeline))
    if name in counters or name.endswith(_TOMBSTONES) or _BINLOG in name or "/#shaping/" in name:
        return 0
    return -1 if "/#query" in name else None


def tombstones_id(pipeline: str) -> str:
    """The `txn` application id of the newest file of tombstones that a pipeline has left beside a table."""
    return f"{pipeline}{_TOMBSTONES}"


def tombstone_heads(transactions: Mapping[str, int]) -> tuple[int, ...]:
    """The newest files of tombstones of everybody who has fed a table."""
    return tuple(sorted(at for name, at in transactions.items() if at and name.endswith(_TOMBSTONES)))


def tombstones_at(then: Mapping[str, int], now: Mapping[str, int]) -> dict[str, int]:
    """The transactions by which a table has the tombstones again that it had then."""
    return {
        name: then.get(name, 0)
        for name, at in now.items()
        if name.endswith(_TOMBSTONES) and then.get(name, 0) != at
    }


def binlog_id(pipeline: str, source: str, stream: str, what: str) -> str:
    """The `txn` application id of what is known of the binlog that a stream of changes comes from.

    `stream` is a partition and a connector, `what` one of `server`, `position` and `time`, or with a number
    `origin` and `transaction`.
    """
    return f"{pipeline}{_BINLOG}{source}/{stream}/{what}"


def binlog_sources(transactions: Mapping[str, int], pipeline: str, stream: str) -> list[str]:
    """The sources of a pipeline through which this stream has fed a table."""
    head, tail = f"{pipeline}{_BINLOG}", f"/{stream}/server"
    ids = [name for name in transactions if name.startswith(head) and name.endswith(tail)]
    return [name.removeprefix(head).removesuffix(tail) for name in ids]


def binlog_streams(transactions: Mapping[str, int]) -> list[tuple[str, str, str]]:
    """Pipeline, source and stream of all binlogs that have fed a table."""
    ids = (name for name in transactions if _BINLOG in name and name.endswith("/server"))
    parts = (name.removesuffix("/server").partition(_BINLOG) for name in ids)
    return [(pipeline, *rest.split("/", 1)) for pipeline, _, rest in parts]  # type: ignore[misc]


def is_position(name: str) -> bool:
    """Whether an application id counts what has been read, and not what belongs to the rows of a version."""
    counts_rows = "/#shaping/" in name or name.endswith("/#rebuild")
    return not counts_rows and not name.endswith(_TOMBSTONES) and _BINLOG not in name


def feeders_of(transactions: Mapping[str, int]) -> dict[tuple[str, str], Offsets]:
    """The next offsets of everybody who has fed a table, by the names of pipeline and source."""
    found: dict[tuple[str, str], Offsets] = {}
    for name, version in transactions.items():
        if named_partition(name):
            pipeline, source, partition = name.split("/")
            found.setdefault((pipeline, source), {})[partition] = version + 1
    return found


def named_partition(name: str) -> str | None:
    """`source/partition` of an application id that holds a table's position, None of any other."""
    parts = name.split("/")
    return "/".join(parts[1:]) if len(parts) == 3 and "#" not in name and all(parts) else None
