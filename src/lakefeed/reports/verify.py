"""`verify`: every table of a pipeline and its dead letters, proved from their logs. Starts no JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from lakefeed.dead_letters.unapplied import unapplied_changes, unapplied_words
from lakefeed.errors import LakefeedError
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.modes import history_rules
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.changes import KEYED
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reports.feeders import ReadTwice, copied, pipelines_of, told_of_copies
from lakefeed.reports.source_rows import compare_with_sources
from lakefeed.reports.status import backwards_texts
from lakefeed.sources import source_of
from lakefeed.sources.subscription import is_by_stream
from lakefeed.tables.data_files import named_files
from lakefeed.tables.log.entry import Cleaned
from lakefeed.tables.log.log import Log
from lakefeed.tables.positions import application_id, read_by_query, replay_id
from lakefeed.tables.verify.chain import Chain, Describe
from lakefeed.tables.verify.changes import repeated_keys
from lakefeed.tables.verify.duplicates import (
    OF_INGEST_LETTERS,
    OF_LETTERS,
    OF_ROWS,
    Origin,
    Repeated,
    Scan,
    scan,
)
from lakefeed.tables.verify.finding import Finding
from lakefeed.tables.verify.intervals import interval_problems
from lakefeed.tables.verify.strangers import Expected
from lakefeed.tables.verify.verify import VerifiedLog, verify_log
from lakefeed.tables.write.keyed.staged import logged_keys
from lakefeed.text import counted

if TYPE_CHECKING:
    from lakefeed.reports.comparison import Comparison


@dataclass
class VerifiedPartition:
    """The offsets of a partition, `source/partition`, that a table has read, one behind the other."""

    pipeline: str
    partition: str
    first: int
    next: int
    read: int
    dead_letters: int
    """Those that are there now."""
    settled: int = 0
    """Dead letters that have been replayed or discarded since."""
    first_place: str | None = None
    """The first and the next offset in words, where they are more than numbers."""
    next_place: str | None = None


@dataclass
class VerifiedTable:
    """What was proved of one table. A table that does not exist yet has no version."""

    name: str
    path: str
    version: int | None = None
    checked_from: int = 0
    rows: int | None = None
    files: int = 0
    pipelines: list[str] = field(default_factory=list)
    """Whoever feeds it."""
    partitions: list[VerifiedPartition] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    made_of: dict[str, int] = field(default_factory=dict)
    """With `query`: the versions of other tables that its rows were made of."""
    complete: bool = True
    """Whether all rows could be counted and all files looked at."""
    compared: list[Comparison] = field(default_factory=list)
    """With `--against-source`: what the streams of a copy are like."""


@dataclass
class VerifiedPipeline:
    """All tables of a pipeline; `sound` when nothing was found and all could be counted."""

    pipeline: str
    sound: bool
    tables: list[VerifiedTable]
    dead_letters: VerifiedTable
    unchecked: list[str] = field(default_factory=list)
    """With `--against-source`: why streams of a source are in no copy."""

    @property
    def problems(self) -> list[str]:
        """Why it is not `sound`: a line for each finding, and for each check that was not possible."""
        lines = []
        for table in (*self.tables, self.dead_letters):
            lines += [f"{table.name}: {finding}" for finding in table.findings]
            lines += [f"{table.name}: not checked: {text}" for text in table.unchecked if not table.complete]
        return lines + [f"not checked: {text}" for text in self.unchecked]


def verify(
    pipeline: Pipeline,
    *,
    deep: bool = False,
    against_source: bool = False,
    tell: Callable[[str], None] = lambda _: None,
) -> VerifiedPipeline:
    """Prove every table from its own log; with `deep`, look for repeated events in the data as well.

    With `against_source`, copies are compared with the rows of their source; `tell` hears how far that is.
    """
    tables = Tables(pipeline)
    tables.find_routed()
    # Tables first: a running pipeline commits dead letters before rows, so these may only be further.
    shared = frozenset(name for name in pipeline.inputs if source_of(pipeline, name).unbounded)
    words = partial(_words_for, pipeline)
    proved = [(handle, *_proof(handle, shared, words)) for handle in tables.handles.values()]
    dead_letters_proof, dead_letters_log = _proof(tables.dead_letters, dead_letters=True)
    dead_letters = _verified(tables.dead_letters, dead_letters_proof, dead_letters_log)
    dead_letters_scan = None
    # The tables' logs tell how many dead letters there were; the dead letters, how many are left.
    if dead_letters_proof and (deep or not dead_letters_proof.untouched):
        columns = OF_INGEST_LETTERS if tables.dead_letters.is_ingest_form else OF_LETTERS
        dead_letters_scan = scan(tables.dead_letters.store, dead_letters_proof.present, columns)
    if deep and dead_letters_scan and dead_letters_proof:
        dead_letters.findings += _repeated_dead_letters(
            pipeline, dead_letters_scan, dead_letters_proof.version, _read_again(proved)
        )
    verified = []
    for handle, proof, log in proved:
        one = _verified(handle, proof, log)
        verified.append(one)
        if proof is None:
            continue
        if handle.spec and handle.spec.query:
            one.made_of = read_by_query(proof.snapshot.transactions, pipeline.name)
        texts = backwards_texts(pipeline.name, handle, proof.version)
        one.notes += [" ".join(text.split()) for text in texts]
        one.findings += _dead_letters_present(pipeline, handle, proof, dead_letters_proof)
        copies = copied(pipeline, handle, proof)
        counts = compare_with_sources(pipeline, handle, proof, one.partitions)
        twice = told_of_copies(handle, proof.version, copies, pipeline)
        for findings, notes in (counts, twice):
            one.findings += findings
            one.notes += notes
        if deep:
            _look_deep(pipeline, handle, proof, one, copies)
        if not (dead_letters_scan and dead_letters_proof and _counts_dead_letters(tables, handle)):
            continue
        if not dead_letters_proof.untouched:
            _count_what_is_left(pipeline, handle, one, dead_letters_scan)
        if deep and _only_runs(proof, dead_letters_proof):
            one.findings += _count_dead_letters(
                pipeline, handle, proof, dead_letters_scan, dead_letters_proof
            )
    unchecked = _compare_copies(tables, verified, tell) if against_source else []
    _note_unapplied(tables, verified, dead_letters)
    sound = not unchecked and all(one.complete and not one.findings for one in (*verified, dead_letters))
    return VerifiedPipeline(pipeline.name, sound, verified, dead_letters, unchecked)


def _compare_copies(
    tables: Tables, verified: Sequence[VerifiedTable], tell: Callable[[str], None]
) -> list[str]:
    """Add to what was proved how copies compare with the rows of their source; why streams are in none."""
    from lakefeed.reports.against_source import compare_with_source

    found, missing = compare_with_source(tables.pipeline, list(tables.handles.values()), tell)
    for one in verified:
        compared = found[one.name]
        one.compared = compared.comparisons
        one.findings += compared.findings
        one.notes += compared.notes
        one.unchecked += compared.unchecked
        one.complete = one.complete and compared.complete
    return missing


def _note_unapplied(tables: Tables, verified: Sequence[VerifiedTable], dead_letters: VerifiedTable) -> None:
    """Note in copies of a database that changes of their rows are dead letters."""
    counts = unapplied_changes(tables) if dead_letters.rows else {}
    for one in verified:
        if count := counts.get(one.name):
            one.notes.append(unapplied_words(count))


def _counts_dead_letters(tables: Tables, handle: TableHandle) -> bool:
    """Whether the commits of a table count dead letters: those of a route do by stream, or not at all."""
    return not handle.id.key or bool(
        handle.spec and is_by_stream(handle.spec, tables.sources_of(handle.spec))
    )


def _only_runs(*proofs: VerifiedLog) -> bool:
    return all(proof.untouched and proof.first == 0 and not proof.missing for proof in proofs)


def _words_for(pipeline: Pipeline, name: str) -> Describe:
    """What says offsets of a partition in words, by the name that its position has in a log."""
    owner, source, *_ = name.split("/")
    known = owner == pipeline.name and source in pipeline.inputs
    return source_of(pipeline, source).describe_offset if known else _no_words


def _no_words(_: int) -> None:
    return None


def _proof(
    handle: TableHandle,
    shared: frozenset[str] = frozenset(),
    words: Callable[[str], Describe] = lambda _: _no_words,
    *,
    dead_letters: bool = False,
) -> tuple[VerifiedLog | None, Log | LakefeedError | None]:
    expected = Expected(handle.spec.app_id if handle.spec else None, handle.is_ingest_form)
    try:
        cleaned: int | None = None
        while (log := Log.open(handle.store)) is not None:
            try:
                found = verify_log(log, letters=dead_letters, shared=shared, expected=expected, words=words)
                return found, log
            except Cleaned as error:
                # A run beside it has cleaned up the log between the listing and the reading.
                if error.version == cleaned:
                    raise
                cleaned = error.version
        return None, None
    except LakefeedError as error:
        if error.retryable:
            raise
        return None, error


def _verified(
    handle: TableHandle, proof: VerifiedLog | None, log: Log | LakefeedError | None
) -> VerifiedTable:
    verified = VerifiedTable(handle.name, handle.path)
    if isinstance(log, LakefeedError):
        verified.findings.append(Finding("log", str(log)))
    if proof is None:
        return verified
    verified.version, verified.checked_from = proof.version, proof.first
    verified.rows, verified.files, verified.complete = proof.rows, proof.files, proof.complete
    chains = sorted(proof.chains.items(), key=lambda named: (named[1].partition, named[0]))
    verified.partitions = [
        VerifiedPartition(name.partition("/")[0], one.partition, one.first, one.next, one.read, one.letters)
        for name, one in chains
    ]
    verified.pipelines = pipelines_of(proof) if chains else []
    verified.findings, verified.notes, verified.unchecked = (
        list(proof.findings),
        list(proof.notes),
        proof.unchecked,
    )
    return verified


def _dead_letters_present(
    pipeline: Pipeline, handle: TableHandle, proof: VerifiedLog, dead_letters: VerifiedLog | None
) -> list[Finding]:
    """The dead letters that the table counts are there, and none waits for a replay that was cut short."""
    held = dead_letters.snapshot.transactions if dead_letters else {}
    found = []
    for source in handle.spec.from_ if handle.spec else ():
        for name, chain in _chains(proof, pipeline.name, source):
            known = held.get(application_id(*name, dead_letters_of=handle.id.table))
            if chain.dead_lettered and (known is None or known < chain.dead_lettered[0]):
                start, end = chain.dead_lettered
                text = f"{chain.partition}: the dead letters of {chain.range_words(start, end)} are missing"
                found.append(Finding("dead_letters", text, proof.version, chain.partition, start, end))
    ordered = proof.snapshot.transactions.get(replay_id(pipeline.name), 0)
    settled = held.get(replay_id(pipeline.name, handle.name), 0)
    if dead_letters and ordered > settled:
        text = (
            "a replay or rewind was interrupted before it updated its dead letters; the next run completes it"
        )
        found.append(Finding("interrupted", text, proof.version))
    return found


def _chains(proof: VerifiedLog, pipeline: str, source: str) -> list[tuple[tuple[str, str, str], Chain]]:
    head = f"{pipeline}/{source}/"
    return [
        ((pipeline, source, name.removeprefix(head)), chain)
        for name, chain in proof.chains.items()
        if name.startswith(head)
    ]


def _count_what_is_left(
    pipeline: Pipeline, handle: TableHandle, verified: VerifiedTable, dead_letters: Scan
) -> None:
    """The dead letters of each partition as they are now, after some were replayed or discarded."""
    for source in handle.spec.from_ if handle.spec else ():
        left, _ = _dead_letters_of(pipeline, source, handle, dead_letters)
        for one in verified.partitions:
            if one.pipeline == pipeline.name and one.partition.startswith(f"{source}/"):
                now = left[one.partition.removeprefix(f"{source}/")]
                one.settled, one.dead_letters = max(0, one.dead_letters - now), now


def _look_deep(
    pipeline: Pipeline,
    handle: TableHandle,
    proof: VerifiedLog,
    verified: VerifiedTable,
    copies: list[ReadTwice],
) -> None:
    verified.findings += _keys_once(handle, proof)
    table = handle.look()
    found = scan(
        handle.store, proof.present, OF_ROWS.stored(table.shape.physical_names) if table else OF_ROWS
    )
    for file in proof.present:
        length = found.lengths[file.path]
        if file.rows is not None and length != file.rows:
            text = f"{file.path} holds {length:,} rows, the log says {file.rows:,}"
            verified.findings.append(Finding("count", text, proof.version))
    if found.without_origin:
        verified.unchecked.append(
            f"{counted(found.without_origin, 'row')} without metadata columns: `metadata: true` would let "
            "repeated events be found in them"
        )
    owner = _owners(pipeline, handle, proof)
    shared = {one.partition for one in copies} if handle.spec and handle.spec.share else set()
    for origin, repeated in found.repeated.items():
        chain = owner(origin)
        if chain is None:
            verified.unchecked.append(f"partition {_shown(origin)} has no pipeline that is known to feed it")
        elif handle.spec and handle.spec.python:
            # A function may make several rows of an event.
            verified.unchecked.append(f"{chain.partition}: whether events are there twice, as of `python`")
        elif chain.partition.partition("/")[2] not in shared:
            text = f"{chain.partition}: {_there_twice('event', repeated, chain)}"
            span = (repeated.first, repeated.last + 1)
            verified.findings.append(Finding("duplicate", text, proof.version, chain.partition, *span))
    furthest: dict[str, int] = {}
    for name, chain in proof.chains.items():
        furthest[name.split("/")[2]] = max(chain.next, furthest.get(name.split("/")[2], 0))
    for origin, highest in found.highest.items():
        chain = owner(origin)
        if chain and proof.first == 0 and not chain.anew and highest >= chain.next:
            if highest < furthest[chain.partition.partition("/")[2]]:
                # Another pipeline has read further.
                continue
            there, position = chain.offset_words(highest), chain.offset_words(chain.next)
            text = f"{chain.partition}: the table holds offset {there}, its position is {position}"
            verified.findings.append(
                Finding("reset", text, proof.version, chain.partition, chain.next, highest + 1)
            )


def _keys_once(handle: TableHandle, proof: VerifiedLog) -> list[Finding]:
    """In a table whose rows have keys, each is there once; `within` lets one come again."""
    spec = handle.spec
    table = handle.look() if spec and spec.mode in KEYED and not spec.within else None
    if table is None or spec is None:
        return []
    keys = spec.keys or logged_keys(table)
    if not keys:
        # Events bring them, and none has come yet.
        return []
    present = named_files(table, proof.present)
    if spec.mode == "history":
        problems = interval_problems(table, present, replace(history_rules(spec), keys=keys))
        return [Finding("duplicate", text, proof.version) for text in problems]
    surplus, example = repeated_keys(table, present, keys)
    if not surplus:
        return []
    text = f"{counted(surplus, 'row')} whose key another row has, such as {example}"
    return [Finding("duplicate", text, proof.version)]


def _there_twice(noun: str, repeated: Repeated, chain: Chain) -> str:
    often = "twice" if repeated.rows == repeated.events else "more than once"
    first = chain.offset_words(repeated.first)
    return f"{counted(repeated.events, noun)} there {often}, the first at {first}"


def _owners(pipeline: Pipeline, handle: TableHandle, proof: VerifiedLog) -> Callable[[Origin], Chain | None]:
    """Return a function from topic and partition to the chain that has read them; None where unclear."""
    sources = list(handle.spec.from_) if handle.spec else []

    def owner(origin: Origin) -> Chain | None:
        names = [
            application_id(pipeline.name, source, source_of(pipeline, source).partition_of(*origin))
            for source in sources
        ]
        known = [proof.chains[name] for name in names if name in proof.chains]
        return known[0] if len(known) == 1 else None

    return owner


def _read_again(proved: Sequence[tuple[TableHandle, VerifiedLog | None, object]]) -> set[tuple[str, str]]:
    """The partitions that tables have read anew, whose records may be dead letters again."""
    return {
        (handle.id.table, name)
        for handle, proof, _ in proved
        for name, chain in (proof.chains if proof else {}).items()
        if chain.anew
    }


def _repeated_dead_letters(
    pipeline: Pipeline, dead_letters: Scan, version: int, again: Collection[tuple[str, str]]
) -> list[Finding]:
    """A record is a dead letter of a table once, unless it is of a partition that was read again."""
    found = []
    for (owner, source, table, topic, number), repeated in dead_letters.repeated.items():
        if owner == pipeline.name and source in pipeline.sources:
            partition = source_of(pipeline, source).partition_of(topic, number)
            if (table, application_id(pipeline.name, source, partition)) in again:
                continue
        often = "twice" if repeated.rows == repeated.events else "more than once"
        text = (
            f"{counted(repeated.events, 'dead letter')} of table {table} there {often}, the first is "
            f"{source}/{_shown((topic, number))} at {repeated.first}"
        )
        found.append(Finding("dead_letters", text, version, None, repeated.first, repeated.last + 1))
    return found


def _dead_letters_of(
    pipeline: Pipeline, source: str, handle: TableHandle, dead_letters: Scan
) -> tuple[Counter[str], dict[str, tuple[int, int]]]:
    """How many dead letters of a table there are of each partition, and their lowest and highest offset."""
    counts: Counter[str] = Counter()
    reach: dict[str, tuple[int, int]] = {}
    for origin, count in dead_letters.counts.items():
        owner, of_source, table, topic, number = origin
        if (owner, of_source, table) == (pipeline.name, source, handle.id.table):
            partition = source_of(pipeline, source).partition_of(topic, number)
            counts[partition] += count
            here = dead_letters.lowest[origin], dead_letters.highest[origin]
            lowest, highest = reach.get(partition, here)
            reach[partition] = min(here[0], lowest), max(here[1], highest)
    return counts, reach


def _count_dead_letters(
    pipeline: Pipeline, handle: TableHandle, proof: VerifiedLog, dead_letters: Scan, log: VerifiedLog
) -> list[Finding]:
    """As many dead letters as the table's commits have counted; for tables that only runs have changed."""
    found = []
    for source in handle.spec.from_ if handle.spec else ():
        counts, reach = _dead_letters_of(pipeline, source, handle, dead_letters)
        chains, stream_of = _chains(proof, pipeline.name, source), source_of(pipeline, source).stream_of
        again = {stream_of(name[2]) for name, chain in chains if chain.anew} - {None}
        for name, chain in chains:
            partition = name[2]
            if chain.anew:
                # A row that is read again as it was has its dead letter already, or gets another one.
                continue
            # After a crash between the two commits, dead letters are ahead of the table until the next run.
            # Those of a table that was made anew may lie before its first offset, where events were lost.
            lowest, highest = reach.get(partition, (chain.first, -1))
            outside = lowest < chain.first or highest >= chain.next
            # Dead letters that are older than the table may be of a topic that had the name before.
            since = log.dead_lettered.get(application_id(*name, dead_letters_of=handle.id.table))
            older = since is not None and proof.created is not None and since < proof.created
            # A snapshot goes past changes whose dead letters are there, and that the table did not count: a
            # run was killed between the two commits.
            has_more = older or stream_of(partition) in again
            wrong = counts[partition] < chain.letters if has_more else counts[partition] != chain.letters
            if wrong and not outside:
                text = (
                    f"{chain.partition}: {counted(chain.letters, 'dead letter')} by the table's commits, "
                    f"{counts[partition]:,} in the dead letters"
                )
                first, end = chain.first, chain.next
                found.append(Finding("dead_letters", text, proof.version, chain.partition, first, end))
    return found


def _shown(origin: Origin) -> str:
    return f"{origin[0]}-{origin[1]}" if origin[0] else str(origin[1])
