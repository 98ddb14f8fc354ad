"""Verification: every table of a pipeline and its dead letters, proved from their logs. Starts no JVM."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from lakefeed.errors import LakefeedError
from lakefeed.handles.tables import TableHandle, Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.reports.feeders import Copied, copied, pipelines_of, told_of_copies
from lakefeed.sources import source_of
from lakefeed.tables.log.log import Log
from lakefeed.tables.positions import application_id, replay_id
from lakefeed.tables.verify.chain import Chain
from lakefeed.tables.verify.duplicates import OF_LETTERS, OF_ROWS, Origin, Repeated, Scan, scan
from lakefeed.tables.verify.finding import Finding
from lakefeed.tables.verify.verify import Proof, prove
from lakefeed.text import counted


@dataclass
class PartitionProof:
    """The offsets of one source partition that a table has read, one behind the other from `first` on."""

    pipeline: str
    partition: str
    first: int
    next: int
    read: int
    dead_letters: int
    """Those that are there now."""
    settled: int = 0
    """Dead letters that have been replayed or discarded since."""


@dataclass
class TableProof:
    """What was proved of one table. A table that does not exist yet has no version."""

    name: str
    path: str
    version: int | None = None
    checked_from: int = 0
    rows: int | None = None
    files: int = 0
    pipelines: list[str] = field(default_factory=list)
    """Whoever feeds it."""
    partitions: list[PartitionProof] = field(default_factory=list)
    findings: list[Finding] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    complete: bool = True
    """Whether all rows could be counted and all files looked at."""


@dataclass
class PipelineProof:
    """All tables of a pipeline; `sound` when nothing was found and all could be counted."""

    pipeline: str
    sound: bool
    tables: list[TableProof]
    dead_letters: TableProof


def verify(pipeline: Pipeline, *, deep: bool = False) -> PipelineProof:
    """Prove every table from its own log; with `deep`, look for repeated events in the data as well."""
    lake = Tables(pipeline)
    lake.find_routed()
    # Tables before letters: while a pipeline runs, its letters land first, so these may only be further.
    tables = [(handle, *_proof(handle)) for handle in lake.handles.values()]
    letters_proof, letters_log = _proof(lake.dead_letters, letters=True)
    letters = _told(lake.dead_letters, letters_proof, letters_log)
    letters_scan = None
    # The tables' logs tell how many letters there were; how many are left, the letters themselves.
    if letters_proof and (deep or not letters_proof.untouched):
        letters_scan = scan(lake.dead_letters.store, letters_proof.present, OF_LETTERS)
    if deep and letters_scan and letters_proof:
        letters.findings += _repeated_letters(letters_scan, letters_proof.version)
    told = []
    for handle, proof, log in tables:
        told.append(_told(handle, proof, log))
        if proof is None:
            continue
        told[-1].findings += _letters_in_place(pipeline, handle, proof, letters_proof)
        copies = copied(pipeline, handle, proof)
        findings, notes = told_of_copies(handle, proof.version, copies)
        told[-1].findings += findings
        told[-1].notes += notes
        if letters_scan and letters_proof and not letters_proof.untouched:
            _count_what_is_left(pipeline, handle, told[-1], letters_scan)
        if deep:
            _look_deep(pipeline, handle, proof, told[-1], copies)
        if deep and letters_scan and letters_proof and _only_runs(proof, letters_proof):
            told[-1].findings += _count_letters(pipeline, handle, proof, letters_scan, letters_proof)
    sound = all(one.complete and not one.findings for one in (*told, letters))
    return PipelineProof(pipeline.name, sound, told, letters)


def _only_runs(*proofs: Proof) -> bool:
    return all(proof.untouched and proof.first == 0 and not proof.missing for proof in proofs)


def _proof(handle: TableHandle, *, letters: bool = False) -> tuple[Proof | None, Log | LakefeedError | None]:
    try:
        log = Log.open(handle.store)
        return (prove(log, letters=letters) if log else None), log
    except LakefeedError as error:
        if error.retryable:
            raise
        return None, error


def _told(handle: TableHandle, proof: Proof | None, log: Log | LakefeedError | None) -> TableProof:
    told = TableProof(handle.name, handle.path)
    if isinstance(log, LakefeedError):
        told.findings.append(Finding("log", str(log)))
    if proof is None:
        return told
    told.version, told.checked_from = proof.version, proof.first
    told.rows, told.files, told.complete = proof.rows, proof.files, proof.complete
    chains = sorted(proof.chains.items(), key=lambda named: (named[1].partition, named[0]))
    told.partitions = [
        PartitionProof(name.partition("/")[0], one.partition, one.first, one.next, one.read, one.letters)
        for name, one in chains
    ]
    told.pipelines = pipelines_of(proof) if chains else []
    told.findings, told.notes, told.unchecked = list(proof.findings), list(proof.notes), proof.unchecked
    return told


def _letters_in_place(
    pipeline: Pipeline, handle: TableHandle, proof: Proof, letters: Proof | None
) -> list[Finding]:
    """The dead letters that the table counts are there, and none waits for a replay that was cut short."""
    held = letters.snapshot.transactions if letters else {}
    found = []
    for source in handle.spec.from_ if handle.spec else ():
        for name, chain in _chains(proof, pipeline.name, source):
            known = held.get(application_id(*name, dead_letters_of=handle.name))
            if chain.lettered and (known is None or known < chain.lettered[0]):
                start, end = chain.lettered
                text = f"{chain.partition}: the dead letters of offsets {start} to {end - 1} are missing"
                found.append(Finding("letters", text, proof.version, chain.partition, start, end))
    ordered = proof.snapshot.transactions.get(replay_id(pipeline.name), 0)
    settled = held.get(replay_id(pipeline.name, handle.name), 0)
    if letters and ordered > settled:
        text = (
            "a replay or rewind was interrupted before it updated its dead letters; the next run completes it"
        )
        found.append(Finding("interrupted", text, proof.version))
    return found


def _chains(proof: Proof, pipeline: str, source: str) -> list[tuple[tuple[str, str, str], Chain]]:
    head = f"{pipeline}/{source}/"
    return [
        ((pipeline, source, name.removeprefix(head)), chain)
        for name, chain in proof.chains.items()
        if name.startswith(head)
    ]


def _count_what_is_left(pipeline: Pipeline, handle: TableHandle, told: TableProof, letters: Scan) -> None:
    """The dead letters of each partition as they are now, after some were replayed or discarded."""
    for source in handle.spec.from_ if handle.spec else ():
        left, _ = _letters_of(pipeline, source, handle, letters)
        for one in told.partitions:
            if one.pipeline == pipeline.name and one.partition.startswith(f"{source}/"):
                now = left[one.partition.removeprefix(f"{source}/")]
                one.settled, one.dead_letters = max(0, one.dead_letters - now), now


def _look_deep(
    pipeline: Pipeline, handle: TableHandle, proof: Proof, told: TableProof, copies: list[Copied]
) -> None:
    found = scan(handle.store, proof.present, OF_ROWS)
    for file in proof.present:
        length = found.lengths[file.path]
        if file.rows is not None and length != file.rows:
            text = f"{file.path} holds {length:,} rows, the log says {file.rows:,}"
            told.findings.append(Finding("count", text, proof.version))
    if found.without_origin:
        told.unchecked.append(
            f"{counted(found.without_origin, 'row')} without metadata columns: `metadata: true` would let "
            "repeated events be found in them"
        )
    owner = _owners(pipeline, handle, proof)
    shared = {one.partition for one in copies} if handle.spec and handle.spec.share else set()
    for origin, repeated in found.repeated.items():
        chain = owner(origin)
        if chain is None:
            told.unchecked.append(f"partition {_shown(origin)} has no pipeline that is known to feed it")
        elif chain.partition.partition("/")[2] not in shared:
            text = f"{chain.partition}: {_there_twice('event', repeated)}"
            span = (repeated.first, repeated.last + 1)
            told.findings.append(Finding("duplicate", text, proof.version, chain.partition, *span))
    furthest: dict[str, int] = {}
    for name, chain in proof.chains.items():
        furthest[name.split("/")[2]] = max(chain.next, furthest.get(name.split("/")[2], 0))
    for origin, highest in found.highest.items():
        chain = owner(origin)
        if chain and proof.first == 0 and not chain.anew and highest >= chain.next:
            if highest < furthest[chain.partition.partition("/")[2]]:
                # Another pipeline has read further.
                continue
            text = f"{chain.partition}: the table holds offset {highest}, its position is {chain.next}"
            told.findings.append(
                Finding("reset", text, proof.version, chain.partition, chain.next, highest + 1)
            )


def _there_twice(noun: str, repeated: Repeated) -> str:
    often = "twice" if repeated.rows == repeated.events else "more than once"
    return f"{counted(repeated.events, noun)} there {often}, the first at {repeated.first}"


def _owners(pipeline: Pipeline, handle: TableHandle, proof: Proof) -> Callable[[Origin], Chain | None]:
    """Answers whose an event is by its topic and partition; None where several sources may be meant."""
    sources = list(handle.spec.from_) if handle.spec else []

    def owner(origin: Origin) -> Chain | None:
        names = [
            application_id(pipeline.name, source, source_of(pipeline, source).partition_of(*origin))
            for source in sources
        ]
        known = [proof.chains[name] for name in names if name in proof.chains]
        return known[0] if len(known) == 1 else None

    return owner


def _repeated_letters(letters: Scan, version: int) -> list[Finding]:
    """A record is a dead letter of a table once."""
    found = []
    for (_, source, table, topic, number), repeated in letters.repeated.items():
        often = "twice" if repeated.rows == repeated.events else "more than once"
        text = (
            f"{counted(repeated.events, 'dead letter')} of table {table} there {often}, the first is "
            f"{source}/{_shown((topic, number))} at {repeated.first}"
        )
        found.append(Finding("letters", text, version, None, repeated.first, repeated.last + 1))
    return found


def _letters_of(
    pipeline: Pipeline, source: str, handle: TableHandle, letters: Scan
) -> tuple[Counter[str], dict[str, tuple[int, int]]]:
    """How many dead letters of a table there are of each partition, and their lowest and highest offset."""
    counts: Counter[str] = Counter()
    reach: dict[str, tuple[int, int]] = {}
    for origin, count in letters.counts.items():
        owner, of_source, table, topic, number = origin
        if (owner, of_source, table) == (pipeline.name, source, handle.name):
            partition = source_of(pipeline, source).partition_of(topic, number)
            counts[partition] += count
            here = letters.lowest[origin], letters.highest[origin]
            lowest, highest = reach.get(partition, here)
            reach[partition] = min(here[0], lowest), max(here[1], highest)
    return counts, reach


def _count_letters(
    pipeline: Pipeline, handle: TableHandle, proof: Proof, letters: Scan, log: Proof
) -> list[Finding]:
    """As many dead letters as the table's commits have counted; for tables that only runs have changed."""
    found = []
    for source in handle.spec.from_ if handle.spec else ():
        counts, reach = _letters_of(pipeline, source, handle, letters)
        for name, chain in _chains(proof, pipeline.name, source):
            partition = name[2]
            # After a crash between the two commits, letters are ahead of the table until the next run. Those
            # of a table that was made anew may lie before its beginning, where its source has lost events.
            lowest, highest = reach.get(partition, (chain.first, -1))
            outside = lowest < chain.first or highest >= chain.next
            # Letters that are older than the table may be of a topic that had the name before.
            since = log.lettered.get(application_id(*name, dead_letters_of=handle.name))
            older = since is not None and proof.created is not None and since < proof.created
            wrong = counts[partition] < chain.letters if older else counts[partition] != chain.letters
            if wrong and not outside:
                text = (
                    f"{chain.partition}: {counted(chain.letters, 'dead letter')} by the table's commits, "
                    f"{counts[partition]:,} in the dead letters"
                )
                first, end = chain.first, chain.next
                found.append(Finding("letters", text, proof.version, chain.partition, first, end))
    return found


def _shown(origin: Origin) -> str:
    return f"{origin[0]}-{origin[1]}" if origin[0] else str(origin[1])
