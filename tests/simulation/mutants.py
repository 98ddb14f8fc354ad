"""Defects put into the product on purpose, one at a time: lives must find them.

A mutant replaces lines of one module before it is imported, in a process of its own. Each takes back a guard
or a repair.
"""

from __future__ import annotations

import argparse
import importlib.abc
import importlib.machinery
import importlib.util
import logging
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

_SOURCE = Path(__file__).parents[2] / "src"


@dataclass(frozen=True)
class Mutant:
    """What is wrong with a module: text that is there once, and what is there instead."""

    name: str
    module: str
    before: str
    after: str
    source: str = "kafka"
    """Lives of which source must find it."""
    focus: str = ""
    """What these lives are about, where few others would meet it."""

    @property
    def file(self) -> Path:
        """The file of the module."""
        path = _SOURCE.joinpath(*self.module.split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def text(self) -> str:
        """The source of the module with the defect."""
        source = self.file.read_text()
        assert source.count(self.before) == 1, (
            f"{self.name}: {self.file} has {source.count(self.before)} of it"
        )
        return source.replace(self.before, self.after)


MUTANTS = (
    Mutant(
        "the fence between two instances",
        "lakefeed.tables.write.commit",
        "        if found != expected:\n            raise Fenced(",
        "        if False:\n            raise Fenced(",
    ),
    Mutant(
        "the look-up of a commit whose answer was lost",
        "lakefeed.tables.write.commit",
        'if commit_info_of(info).get("commit") == self.change.token:',
        "if False:",
    ),
    Mutant(
        "files of a commit that may have landed are kept",
        "lakefeed.tables.write.commit",
        "error.untried = not effort.unsure",
        "error.untried = True",
        focus="keys",
    ),
    Mutant(
        "an entry holds behind versions that touch its files",
        "lakefeed.tables.write.commit",
        "or own & removes:",
        "or False:",
    ),
    Mutant(
        "dead letters are committed",
        "lakefeed.engine.batch.committer",
        "files = [file for result in results.values() for file in result.dead_letter_files]\n",
        "files = []\n",
    ),
    Mutant(
        "dead letters are committed before rows",
        "lakefeed.engine.batch.committer",
        """        try:
            self._commit_dead_letters(spans, accepted)
        except LakefeedError as error:
            self._drop_after(error, accepted.values())
            raise
        self._note_read(spans, read, accepted)
        reloads = self._readable(reloads, manifests)
        self._remove_former(accepted, reloads)
        failed = self._commit_tables(self._due(accepted, reloads), reloads)
""",
        """        self._note_read(spans, read, accepted)
        reloads = self._readable(reloads, manifests)
        self._remove_former(accepted, reloads)
        failed = self._commit_tables(self._due(accepted, reloads), reloads)
        self._commit_dead_letters(spans, accepted)
""",
    ),
    Mutant(
        "events that are dead letters already are not refused again",
        "lakefeed.engine.task.table_task",
        "before = self._dead_before(events) if self._pending else set()",
        "before = set()",
    ),
    Mutant(
        "positions of dead letters do not fall behind those of a killed run",
        "lakefeed.engine.batch.committer",
        "transactions[key] = max(span.end - 1, ahead)",
        "transactions[key] = span.end - 1",
        focus="letters",
    ),
    Mutant(
        "ranges that a table holds already are passed over",
        "lakefeed.handles.table_plan",
        "return rows_from.get(span.partition, span.end) <= span.start",
        "return True",
    ),
    Mutant(
        "positions move with the rows",
        "lakefeed.engine.batch.committer",
        "transactions[key], expected[key] = span.end - 1, progress.logged.get(partition)",
        "transactions[key], expected[key] = span.start - 1, progress.logged.get(partition)",
    ),
    Mutant(
        "what a filter leaves out is counted",
        "lakefeed.engine.batch.committer",
        "                progress.take(spans, read, front.dead_letters, front.skipped, front.filtered)",
        "                progress.take(spans, read, front.dead_letters, front.skipped)",
    ),
    Mutant(
        "a column whose name is the new name of another one",
        "lakefeed.rows.rename",
        "and field.name not in rename.values()",
        "",
    ),
    Mutant(
        "deletions leave tombstones",
        "lakefeed.tables.write.upsert",
        "            tombstones.write(decision.tombstones)",
        "            pass",
    ),
    Mutant(
        "a file of tombstones names the older ones",
        "lakefeed.tables.write.keyed.tombstones",
        "older = [*left, *(one.number for one in self._written)]",
        "older = []",
    ),
    Mutant(
        "a change as old as a deletion is stale",
        "lakefeed.tables.write.keyed.decision",
        "stale = (own <= grave) | (own < newest) | (tied & self.replayed)",
        "stale = (own < grave) | (own < newest) | (tied & self.replayed)",
    ),
    Mutant(
        "a change older than the row is stale",
        "lakefeed.tables.write.keyed.decision",
        "stale = (own <= grave) | (own < newest) | (tied & self.replayed)",
        "stale = (own <= grave) | (tied & self.replayed)",
    ),
    Mutant(
        "a replayed letter gives way to the row of its key",
        "lakefeed.tables.write.keyed.decision",
        "        if not self.replayed:\n            return np.zeros(count, np.bool_)",
        "        if True:\n            return np.zeros(count, np.bool_)",
        focus="resent",
    ),
    Mutant(
        "of one sequence, a deletion wins in a batch",
        "lakefeed.tables.write.keyed.fold",
        "return np.lexsort((position, winning_kinds(rows, rules, numbers, sequence), sequence, numbers))",
        "return np.lexsort((position, sequence, numbers))",
        focus="keys",
    ),
    Mutant(
        "a null leaves the value that the row has",
        "lakefeed.tables.write.keyed.fold",
        "                silent[name] = nulls | silent.get(name, False)",
        "                pass",
    ),
    Mutant(
        "of equal keys in a batch, the first is added",
        "lakefeed.tables.write.deduplicate",
        "return first & ~there[index.numbers]",
        "return ~there[index.numbers]",
    ),
    Mutant(
        "a key that the table has is a duplicate",
        "lakefeed.tables.write.deduplicate",
        "return first & ~there[index.numbers]",
        "return first",
    ),
    Mutant(
        "rows that a deletion vector has marked stay marked",
        "lakefeed.tables.write.keyed.merge_on_read",
        "deleted = union(before, edit.gone)",
        "deleted = union(NONE, edit.gone)",
    ),
    Mutant(
        "a rewrite leaves out rows that are marked",
        "lakefeed.tables.write.keyed.copy_on_write",
        "gone, file = union(read_vector(store, file.vector), gone), replace(file, vector=None)",
        "gone, file = gone, replace(file, vector=None)",
        focus="marks",
    ),
    Mutant(
        "a compaction gives way to who has changed its files",
        "lakefeed.tables.rewrite.rewrite",
        "        _check_between(table, seen, {file.path for file in old})",
        "        pass",
        focus="marks",
    ),
    Mutant(
        "a compaction looks whether its files have other marks",
        "lakefeed.tables.rewrite.rewrite",
        "gone = [file.path for file in old if file.path not in there or there[file.path] != file.vector]",
        "gone = [file.path for file in old if file.path not in there]",
        focus="marks",
    ),
    Mutant(
        "a vacuum keeps the files of the table",
        "lakefeed.tables.operations.vacuum",
        "needed = set(stored_paths(data_files(table)))",
        "needed = set()",
    ),
    Mutant(
        "a vacuum keeps the tombstones that count",
        "lakefeed.tables.write.keyed.tombstones",
        "    return {path_of(number) for number in found}\n",
        "    return set()\n",
    ),
    Mutant(
        "a rewind takes positions back",
        "lakefeed.tables.operations.rewind",
        "        found.transactions[name] = then\n",
        "",
    ),
    Mutant(
        "a rewind takes tombstones back",
        "lakefeed.tables.operations.rewind",
        "with_tombstones = {**transactions, **go_back(table, rewind.then.transactions)}",
        "with_tombstones = {**transactions}",
        focus="keys",
    ),
    Mutant(
        "a rewind returns the letters of later replays",
        "lakefeed.reprocess.rewind",
        '            "dead_letters": self._back,\n',
        '            "dead_letters": [],\n',
    ),
    Mutant(
        "letters that became rows are deleted",
        "lakefeed.reprocess.resend",
        '        passing("replay_committed")\n        reconcile(self._tables, handle)',
        '        passing("replay_committed")',
    ),
    Mutant(
        "a replay first does what a killed one has left",
        "lakefeed.reprocess.resend",
        "        reconcile(self._tables, self._handle)",
        "        pass",
        focus="resent",
    ),
    Mutant(
        "a replay is fenced",
        "lakefeed.reprocess.resend",
        "change = Change(files, {key: number}, {key: before}, commit_info, shape, replayed=True)",
        "change = Change(files, {key: number}, {}, commit_info, shape, replayed=True)",
        focus="resent",
    ),
    Mutant(
        "a discard leaves letters whose events are to be read again",
        "lakefeed.dead_letters.discard",
        "    return lambda rows: ~ahead(rows)",
        "    return lambda rows: ahead(rows) | True",
        focus="letters",
    ),
    Mutant(
        "deletions are not judged by expect",
        "lakefeed.rows.expect",
        "        every = ~deletes\n",
        "        every = np.ones(len(dropped), np.bool_)\n",
    ),
    Mutant(
        "a dead letter of expect is not dropped as well",
        "lakefeed.rows.expect",
        "        dropped[list(dead)] = False\n        kept = ~dropped",
        "        kept = ~dropped",
    ),
    Mutant(
        "a checkpoint keeps positions",
        "lakefeed.tables.log.lean_checkpoint",
        "    needed[removed[~kept]] = False\n",
        "    needed[actions['txn'].combine_chunks().is_valid().to_numpy(zero_copy_only=False)] = False\n",
    ),
)


FILES = (
    Mutant(
        "a second instance never numbers a file again",
        "lakefeed.sources.files.ledger",
        "Change(files, {self._mark: last}, {self._mark: before}, ",
        "Change(files, {self._mark: last}, {}, ",
    ),
    Mutant(
        "files are listed again when another instance was faster",
        "lakefeed.sources.files.client",
        "                files = self._finder.everything()\n            self._finder.done()",
        "                pass\n            self._finder.done()",
    ),
    Mutant(
        "a file with another content than the one found is not read for it",
        "lakefeed.sources.files.waiting",
        "        part = self._ledger.rows_of(numbers)\n"
        "        return found_files(part.filter(pa.array(~self._known.superseded(part))))",
        "        part = self._ledger.rows_of(numbers)\n        return found_files(part)",
    ),
    Mutant(
        "a number that was replaced is not read",
        "lakefeed.sources.files.known",
        "if state not in (*GONE, *TAKEN_AWAY)",
        "if state not in TAKEN_AWAY",
    ),
    Mutant(
        "a reload takes out the rows of the numbers before",
        "lakefeed.handles.reloading",
        "    if not wanted:\n        return None\n    # Where another",
        "    if True:\n        return None\n    # Where another",
    ),
    Mutant(
        "a reload takes out rows of every former number",
        "lakefeed.sources.files.waiting",
        '            number = row.get("replaces")\n',
        "            number = None\n",
    ),
    Mutant(
        "dead letters of a table that has not read the file go with the reload",
        "lakefeed.dead_letters.reconcile",
        "    if not former:\n        return 0\n    with",
        "    return 0\n    with",
    ),
    Mutant(
        "dead letters go with the rows that a reload replaces",
        "lakefeed.dead_letters.reconcile",
        "return {replay_id(name): settled} if former_dead_letters(tables, handle, reloads) else {}",
        "return {}",
    ),
    Mutant(
        "`fail` stops at a file that tables have read",
        "lakefeed.sources.files.client",
        'if self._source.on_change == "fail" and not pc.all(untouched).as_py():',
        "if False:",
    ),
    Mutant(
        "files are copied before they are deleted",
        "lakefeed.sources.files.after",
        "                    self._copy(file, inside)\n",
        "",
    ),
    Mutant(
        "`forget_after` notes what may come back",
        "lakefeed.sources.files.client",
        "        return new.filter(pc.invert(doubtful))",
        "        return new",
    ),
    Mutant(
        "`forget_after` keeps files that are there",
        "lakefeed.sources.files.ledger",
        "        return old & passed & self.known.is_missing(numbers), old & gone",
        "        return old & passed, old & gone",
    ),
    Mutant(
        "the ledger is told of files that were read",
        "lakefeed.sources.files.client",
        "        if not self._runs or not self._noted:",
        "        if True:",
    ),
)
"""What only lives of files can find."""

POSTGRES = (
    Mutant(
        "a snapshot and the changes beside it are parted by what the snapshot has seen",
        "lakefeed.sources.postgres.snapshot.chunk",
        "            unseen = ~Visibility.of(self.seen).sees(changes.xids)\n        if self.key",
        "            unseen = ~unseen\n        if self.key",
    ),
    Mutant(
        "changes of rows that were copied count beside a chunk",
        "lakefeed.sources.postgres.snapshot.chunk",
        "        return done | (here & unseen)",
        "        return here & unseen",
    ),
    Mutant(
        "changes of rows that were not copied wait for their chunk",
        "lakefeed.sources.postgres.snapshot.chunk",
        "        if self.end == self.start:\n            return done\n",
        "        if self.end == self.start:\n            return ~np.zeros(count, np.bool_)\n",
    ),
    Mutant(
        "rows that are read behind a truncation stay",
        "lakefeed.sources.postgres.read",
        "part = part.before(late.get(name)).behind(emptied.get(name, 0))",
        "part = part.before(late.get(name))",
    ),
    Mutant(
        "a truncation inside of a snapshot is for rows that were copied",
        "lakefeed.sources.postgres.snapshot.chunk",
        "            done = (keys < first) | (changes.ops == TRUNCATE)",
        "            done = keys < first",
    ),
    Mutant(
        "a change of the key is a deletion and an insertion",
        "lakefeed.sources.postgres.replication.pgoutput",
        "= by_whole_rows or self._moved(view, relation, old, new, which_old, which_new)",
        "= by_whole_rows",
    ),
    Mutant(
        "a value that a change leaves out is no null",
        "lakefeed.sources.postgres.read",
        "        unchanged_names(relation, [one[kept] for one in changes.unchanged]),\n",
        "        unchanged_names(relation, [one[kept] & False for one in changes.unchanged]),\n",
    ),
    Mutant(
        "rows that move into what was copied are asked for whole",
        "lakefeed.sources.postgres.read",
        "                changes = completed(catalog, changes, kept, keys[changes.relation.stream])\n",
        "",
    ),
    Mutant(
        "what was left out and the old row has is filled in",
        "lakefeed.sources.postgres.replication.pgoutput",
        "            _fill(old, new, which_old, which_new)\n",
        "",
    ),
    Mutant(
        "changes from before the range are skipped",
        "lakefeed.sources.postgres.read",
        "    kept = within & ~before if wanted is None else within & ~before & wanted",
        "    kept = within if wanted is None else within & wanted",
    ),
    Mutant(
        "changes behind the range wait for the next batch",
        "lakefeed.sources.postgres.read",
        "changes.lsns < span.start, changes.lsns < span.end",
        "changes.lsns < span.start, changes.lsns < span.end + (1 << 40)",
    ),
    Mutant(
        "the slot keeps what a table needs",
        "lakefeed.sources.postgres.client",
        "            first = min(at for name, at in positions.items() if not is_rows(name))",
        "            first = max(at for name, at in positions.items() if not is_rows(name))",
    ),
    Mutant(
        "a table that is read again is emptied first",
        "lakefeed.sources.postgres.snapshot.plan",
        "            empties=span.start == AGAIN,",
        "            empties=False,",
    ),
    Mutant(
        "a chunk ends behind all changes that were read",
        "lakefeed.sources.postgres.snapshot.plan",
        "        while end <= beyond or",
        "        while",
    ),
    Mutant(
        "a column that came with a default has it in old rows",
        "lakefeed.sources.postgres.values.stored_defaults",
        "            if values[0].is_valid:",
        "            if False:",
    ),
)
"""What only lives of a database can find."""

ALL = (
    *MUTANTS,
    *(replace(one, source="files") for one in FILES),
    *(replace(one, source="postgres") for one in POSTGRES),
)


class _Loader(importlib.machinery.SourceFileLoader):
    mutant: Mutant

    def get_code(self, fullname: str) -> object:  # type: ignore[override]
        return compile(self.mutant.text(), str(self.mutant.file), "exec")


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(self, name: str, path: object, target: ModuleType | None = None) -> object:  # type: ignore[override]
        if name != self._mutant.module:
            return None
        loader = _Loader(name, str(self._mutant.file))
        loader.mutant = self._mutant
        return importlib.util.spec_from_file_location(
            name,
            self._mutant.file,
            loader=loader,
            submodule_search_locations=[str(self._mutant.file.parent)]
            if self._mutant.file.name == "__init__.py"
            else None,
        )


def _play(name: str, source: str, seed: int, seconds: float) -> int:
    """Play lives on one mutant until one fails, on the product itself for a name of none; 0 if one did."""
    for mutant in (one for one in ALL if one.name == name):
        sys.meta_path.insert(0, _Finder(mutant))
    # Only now, as the product is imported with it.
    from simulation.simulate import findings

    logging.getLogger("lakefeed").setLevel(logging.CRITICAL)
    for case, wrong in findings(seed, seconds, [source], quiet=True):
        print(f"seed {case.seed}: {wrong}")
        if name == "none" or _is_sound(case.seed, source):
            return 0
        print("    which the product itself fails")
    return 1


def _is_sound(seed: int, source: str) -> bool:
    """Whether the product itself passes the life that has failed with a mutant."""
    command = [sys.executable, "-m", "simulation.mutants", "--play", "none"]
    command += ["--seed", str(seed), "--minutes", "0", "--source", source]
    return subprocess.run(command, capture_output=True, check=False).returncode == 1


def hunt(seed: int, minutes: float, names: Sequence[str]) -> list[str]:
    """Play lives on each mutant, for so long at most; returns those that none has found."""
    missed = []
    sources = {one.name: one.source + (f":{one.focus}" if one.focus else "") for one in ALL}
    for name in names:
        began = time.monotonic()
        command = [sys.executable, "-m", "simulation.mutants", "--play", name, "--seed", str(seed)]
        command += ["--minutes", str(minutes), "--source", sources[name]]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        took = f"{time.monotonic() - began:.0f} s"
        is_found = not done.returncode
        if not is_found:
            missed.append(name)
        print(f"{'found in' if is_found else 'NOT found in'} {took}: {name}", flush=True)
        print(f"    {(done.stdout or done.stderr[-300:])[:200].strip()}".replace("\n", " "), flush=True)
    return missed


def _main() -> int:
    parser = argparse.ArgumentParser(prog="make simulate MUTANTS=1", description=__doc__)
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--minutes", type=float, default=5, help="for each mutant")
    parser.add_argument("--only", help="mutants with this in their name")
    parser.add_argument("--play", help=argparse.SUPPRESS)
    parser.add_argument("--source", help="only mutants for lives of this source")
    given = parser.parse_args()
    if given.play:
        return _play(given.play, given.source, given.seed, given.minutes * 60)
    chosen = [one for one in ALL if given.source in (None, one.source)]
    names = [one.name for one in chosen if (given.only or "") in one.name]
    print(f"seed {given.seed}, {given.minutes:g} minutes for each of {len(names)} mutants", flush=True)
    missed = hunt(given.seed, given.minutes, names)
    print(f"found {len(names) - len(missed)} of {len(names)}; not found: {', '.join(missed) or 'none'}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(_main())
