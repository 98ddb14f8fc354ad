"""Reconciling: the dead-letter table follows what a replay or a rewind has done to a table.

Rows and letters are in two tables, and one commit cannot change both. So the table commits first: its commit
increments a number in its log, and its commit info says what is left to do with letters. The commit of the
dead letters does that and sets the same number in its log. If the number is higher in the table than in the
letters, a process was killed between the two commits; the next one does the rest, once.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from lakefeed.dead_letters.find import DeadLetterFilter, Mask, read_dead_letters
from lakefeed.dead_letters.form import dead_letter_target, form_of, in_form
from lakefeed.dead_letters.remove import Chosen, remove
from lakefeed.errors import Fenced, StoreUnavailable, TableError
from lakefeed.files.parquet import write_files
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.tables import Tables
from lakefeed.stores import drop_files
from lakefeed.tables.log.entry import read_entry
from lakefeed.tables.positions import replay_id
from lakefeed.tables.table import LakeTable, commit_info_of
from lakefeed.tables.write.append import append
from lakefeed.tables.write.mode import Change, Reloads

MICROSECOND = dt.timedelta(microseconds=1)
_ATTEMPTS = 5

Identity = tuple[str, str | None, int, int, int]
"""Source, topic, partition, microseconds of `dead_at` and offset: what tells a table's letter from others.

A topic that was made anew has the same offsets again, but no task reads both.
"""
IDENTITY_COLUMNS = ["source", "topic", "partition", "dead_at", "offset"]


class DeadLetterGroup(NamedTuple):
    """Dead letters of one partition that one task wrote, as commit info lists them."""

    source: str
    topic: str | None
    partition: int
    dead_at: int
    offsets: Sequence[int]


def identities(rows: pa.RecordBatch) -> list[Identity]:
    """Who each of these letters is."""
    columns = [
        rows.column(name).cast(pa.int64()) if name == "dead_at" else rows.column(name)
        for name in IDENTITY_COLUMNS
    ]
    return list(zip(*(column.to_pylist() for column in columns), strict=True))


def grouped(dead_letters: Iterable[Identity]) -> list[DeadLetterGroup]:
    """Letters as commit info lists them."""
    groups: dict[tuple[str, str | None, int, int], list[int]] = {}
    for source, topic, partition, dead_at, offset in dead_letters:
        groups.setdefault((source, topic, partition, dead_at), []).append(offset)
    return [DeadLetterGroup(*head, sorted(offsets)) for head, offsets in groups.items()]


def to_commit_info(groups: Iterable[DeadLetterGroup]) -> list[list[Any]]:
    """Groups as JSON."""
    return [list(one) for one in groups]


def from_commit_info(value: Iterable[list[Any]]) -> list[DeadLetterGroup]:
    """Groups from JSON."""
    return [DeadLetterGroup(*one) for one in value]


def members(groups: Iterable[DeadLetterGroup]) -> Iterator[Identity]:
    """Every letter of the groups."""
    for source, topic, partition, dead_at, offsets in groups:
        yield from ((source, topic, partition, dead_at, offset) for offset in offsets)


class FormerOffsets(NamedTuple):
    """Offsets of a source whose rows and dead letters a reload has replaced, without the last one."""

    source: str
    first: int
    end: int


def former_offsets(order: Mapping[str, Any]) -> list[FormerOffsets]:
    """Those of a commit by its commit info; none of a commit that has reloaded nothing."""
    spans = [span for own in (order.get("reloaded") or {}).get("files", {}).values() for span in own]
    return [FormerOffsets(order["source"], *span) for span in spans]


def order_to_settle(tables: Tables, handle: TableHandle, reloads: Reloads) -> dict[str, int]:
    """What the commit of a reload increments, where it leaves dead letters to be deleted; see `reconcile`."""
    name, dead_letters = tables.pipeline.name, tables.dead_letters.look()
    if dead_letters is None:
        return {}
    with tables.dead_letters.lock:
        dead_letters.refresh()
        settled = dead_letters.transactions.get(replay_id(name, handle.name), 0)
    return {replay_id(name): settled} if former_dead_letters(tables, handle, reloads) else {}


def former_dead_letters(tables: Tables, handle: TableHandle, reloads: Reloads) -> int:
    """How many dead letters of a table a reload replaces."""
    return count_former(tables, reloads.source, handle.id.table, reloads.former)


def remove_former(tables: Tables, source: str, table: str, former: Sequence[tuple[int, int]]) -> int:
    """Delete the dead letters of former offsets of files that a table has not read; how many they were.

    Where a table has read them, the commit that replaces its rows orders the deletion: see `reconcile`.
    """
    name = tables.pipeline.name
    if not former:
        return 0
    with tables.dead_letters.lock:
        if tables.dead_letters.open(name) is None or not count_former(tables, source, table, former):
            return 0
        commit_info = {"pipeline": name, "table": table, "kind": "reloaded"}
        spans = [FormerOffsets(source, *span) for span in former]
        return _remove_offsets(tables, table, spans, commit_info, {}) or 0


def count_former(tables: Tables, source: str, table: str, former: Sequence[tuple[int, int]]) -> int:
    """How many dead letters a table has of former offsets of files."""
    spans = [FormerOffsets(source, *span) for span in former]
    return sum(batch.num_rows for batch in _of_offsets(tables, table, spans)) if spans else 0


def _of_offsets(tables: Tables, table: str, former: Sequence[FormerOffsets]) -> Iterator[pa.RecordBatch]:
    """The dead letters of a table that there are of these offsets, which are of one source."""
    wanted = DeadLetterFilter(table=table, source=former[0].source)
    among = _within(former)
    for batch in read_dead_letters(tables, wanted, IDENTITY_COLUMNS):
        yield batch.filter(pa.array(among(batch)))


def _within(former: Sequence[FormerOffsets]) -> Chosen:
    """Which dead letters are of some offsets, whichever source these are of."""
    spans = sorted((span.first, span.end) for span in former)
    firsts, ends = np.array(spans, np.int64).reshape(-1, 2).T
    ends = np.maximum.accumulate(ends)

    def among(rows: pa.RecordBatch) -> Mask:
        offsets = rows.column("offset").to_numpy()
        at = np.searchsorted(firsts, offsets, "right") - 1
        found: Mask = (at >= 0) & (offsets < ends[at])
        return found

    return among


def _remove_offsets(
    tables: Tables,
    table: str,
    former: Sequence[FormerOffsets],
    commit_info: Mapping[str, Any],
    transactions: Mapping[str, int],
) -> int | None:
    wanted = DeadLetterFilter(table=table, source=former[0].source)
    return remove(tables, wanted, commit_info, transactions, _within(former), ["offset"])


def reconcile(tables: Tables, handle: TableHandle) -> bool:
    """Do what the table's last replay or rewind has left to do; False where nothing was left.

    Raises TableError when the log no longer tells what that was.
    """
    name = tables.pipeline.name
    ordered = handle.table.transactions.get(replay_id(name))
    if ordered is None:
        return False
    with tables.dead_letters.lock:
        dead_letters = tables.dead_letters.open(name)
        if dead_letters is None:
            return False
        key = replay_id(name, handle.name)
        for _ in range(_ATTEMPTS):
            if dead_letters.transactions.get(key, 0) >= ordered:
                return False
            if _follow(tables, handle, dead_letters, ordered):
                return True
            dead_letters.refresh()
    raise StoreUnavailable(
        f"{tables.dead_letters.path}: other writers keep changing the dead letters; run the command again."
    )


def unreconciled(tables: Tables, handle: TableHandle) -> frozenset[Identity]:
    """The letters that are rows already, as a replay was killed before it could delete them."""
    name, dead_letters = tables.pipeline.name, tables.dead_letters.table
    ordered = handle.table.transactions.get(replay_id(name))
    if ordered is None or dead_letters.transactions.get(replay_id(name, handle.name), 0) >= ordered:
        return frozenset()
    order = _order(handle, name, ordered)
    if former := former_offsets(order):
        batches = _of_offsets(tables, handle.id.table, former)
        return frozenset(one for batch in batches for one in identities(batch))
    replayed = order["dead_letters"] if order["kind"] == "replay" else order.get("replayed", ())
    return frozenset(members(from_commit_info(replayed)))


def _follow(tables: Tables, handle: TableHandle, dead_letters: LakeTable, ordered: int) -> bool:
    """One try; False when another commit came in between."""
    order = _order(handle, tables.pipeline.name, ordered)
    # Letters of a route are of all its tables.
    commit_info: dict[str, Any] = {"pipeline": tables.pipeline.name, "table": handle.id.table}
    key = replay_id(tables.pipeline.name, handle.name)
    if order["kind"] == "rebuild":
        return _replace_all(tables, handle, dead_letters, order, {key: ordered})
    if order["kind"] == "rewind":
        # Rows of the version that came back. The number is set with the dead letters that come back, if any.
        back = set(members(from_commit_info(order.get("replayed", ()))))
        present = _identified(tables, handle.id.table, None) if back else ()
        is_there = any(not back.isdisjoint(identities(batch)) for batch in present)
        if is_there and not _remove_replayed(tables, handle, back, commit_info, {}):
            return False
        return _return(tables, dead_letters, order, commit_info, {key: ordered})
    if former := former_offsets(order):
        commit_info["kind"] = "reloaded"
        return _remove_offsets(tables, handle.id.table, former, commit_info, {key: ordered}) is not None
    replayed = set(members(from_commit_info(order["dead_letters"])))
    return _remove_replayed(tables, handle, replayed, commit_info, {key: ordered})


def _remove_replayed(
    tables: Tables,
    handle: TableHandle,
    replayed: Collection[Identity],
    commit_info: Mapping[str, Any],
    transactions: Mapping[str, int],
) -> bool:
    """Delete the dead letters that are rows now; False where another process has set the positions first."""

    def chosen(rows: pa.RecordBatch) -> Mask:
        return np.array([one in replayed for one in identities(rows)], np.bool_)

    wanted, told = DeadLetterFilter(table=handle.id.table), {**commit_info, "kind": "replayed"}
    return remove(tables, wanted, told, transactions, chosen, IDENTITY_COLUMNS) is not None


def _append(dead_letters: LakeTable, change: Change) -> bool:
    """Commit a change; False where another process has followed the same order first."""
    try:
        append(dead_letters, change, retries=_ATTEMPTS)
    except Fenced as error:
        if error.untried:
            drop_files(dead_letters.store, [file.path for file in change.files])
        return False
    return True


def _return(
    tables: Tables,
    dead_letters: LakeTable,
    order: dict[str, Any],
    commit_info: dict[str, Any],
    transactions: dict[str, int],
) -> bool:
    """Put letters back whose rows a rewind has taken away, and that no source will give again."""
    form, store = form_of(tables), tables.dead_letters.store
    gone = _gone(tables, commit_info["table"], order.get("dead_letters", ()))
    rows = (pa.Table.from_batches([in_form(form, batch)]) for batch in gone)
    files = write_files(store, dead_letter_target(form, sync=tables.dead_letters.sync), rows)
    told = commit_info | {"kind": "returned", "dead_letters": sum(file.rows for file in files)}
    expected = {name: dead_letters.transactions.get(name) for name in transactions}
    return _append(dead_letters, Change(files, transactions, expected, told))


def _replace_all(
    tables: Tables,
    handle: TableHandle,
    dead_letters: LakeTable,
    order: dict[str, Any],
    transactions: dict[str, int],
) -> bool:
    """Let the dead letters of a rebuild take the place of those that the table had; False on a conflict.

    The letters go first, and the number is set with those that come: killed in between, it is done again.
    """
    pipeline, table = tables.pipeline.name, handle.id.table
    about = {"pipeline": pipeline, "table": table}
    for source in order["sources"]:
        past = tables.newest_past_letter(source, table)
        own = DeadLetterFilter(table=table, source=source, since=past and past + MICROSECOND)
        if any(batch.num_rows for batch in read_dead_letters(tables, own, ["offset"])):
            discard = {**about, "kind": "discard", "reason": "the table was rebuilt"}
            if remove(tables, own, discard, {}) is None:
                return False
    staged = staged_dead_letters(tables, order["dead_letters"], handle)
    if staged.dead_letters.look() is not None:
        tail, head = f"/{table}", f"/#table/{table}#"
        for name, at in staged.dead_letters.table.transactions.items():
            if (name.endswith(tail) and "#" not in name) or head in name:
                transactions[name] = max(at, dead_letters.transactions.get(name, -1))
    form, wanted = form_of(tables), DeadLetterFilter(table=table)
    rows = (pa.Table.from_batches([in_form(form, one)]) for one in read_dead_letters(staged, wanted))
    target = dead_letter_target(form, sync=tables.dead_letters.sync)
    files = write_files(tables.dead_letters.store, target, rows)
    told = {**about, "kind": "returned", "dead_letters": sum(file.rows for file in files)}
    expected = {name: dead_letters.transactions.get(name) for name in transactions}
    return _append(dead_letters, Change(files, transactions, expected, told))


def staged_dead_letters(tables: Tables, path: str, handle: TableHandle) -> Tables:
    """The tables of the pipeline with the dead letters that a rebuild of a table has written."""
    other = tables.pipeline.dead_letters.model_copy(update={"path": path, "storage": handle.storage})
    return Tables(tables.pipeline.model_copy(update={"dead_letters": other}))


def _gone(tables: Tables, table: str, parts: Iterable[Mapping[str, Any]]) -> Iterator[pa.RecordBatch]:
    """Letters as an older version of their table has them, and the newest does not; each once."""
    there = {one for batch in _identified(tables, table, None) for one in identities(batch)}
    for part in parts:
        wanted = set(members(from_commit_info(part["dead_letters"]))) - there
        there |= wanted
        for batch in _identified(tables, table, part["version"]):
            yield batch.filter(pa.array([one in wanted for one in identities(batch)], pa.bool_()))


def _identified(tables: Tables, table: str, version: int | None) -> Iterator[pa.RecordBatch]:
    columns = IDENTITY_COLUMNS if version is None else None
    return read_dead_letters(tables, DeadLetterFilter(table=table), columns, version)


def _order(handle: TableHandle, pipeline: str, number: int) -> dict[str, Any]:
    """The commit info of the commit that set this number."""
    for version in range(handle.table.version, -1, -1):
        try:
            entry = read_entry(handle.store, version, positions_only=True)
        except FileNotFoundError:
            break
        if entry.transactions.get(replay_id(pipeline)) == number:
            return commit_info_of(entry.info)
    raise TableError(
        f"table {handle.name}: a replay of dead letters was interrupted, and the log no longer shows which "
        f"ones it wrote.\n"
        "Compare the dead letters with the table, and discard those that are already rows."
    )
