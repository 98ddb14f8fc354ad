"""Cases: a pipeline and the steps of its life as plain data, drawn from a seed and played in a world."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

from lakefeed import LakefeedError
from lakefeed.dead_letters.discard import discard
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.errors import Conflict, DataLoss, Fenced, TableError
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.rewind import rewind
from lakefeed.stores import open_store
from lakefeed.tables.operations import checkpoint, vacuum
from lakefeed.tables.operations.operation import operation_info
from lakefeed.tables.rewrite import compact
from lakefeed.tables.table import LakeTable
from lakefeed.upkeep.file_writer import file_writer
from simulation.changes import FORMAT, DatabaseProducer, draw_database_tables, suits_changes
from simulation.checks import LogReader, Wrong, compare, duckdb_rows, rows_of
from simulation.derived import Derived, draw_derived, suits
from simulation.events import MISFITS, OTHER_TOPIC, Event, Producer
from simulation.model import OutOfScope, Refusal, TableModel
from simulation.operations import OPERATIONS, Operations, draw_operation
from simulation.pipelines import FOCUS, Spec, draw_layout, draw_tables, loose_fields
from simulation.scenarios import draw_scenario
from simulation.world import STORE, Endless, Killed, World, installed

Step = dict[str, Any]
_DAY = 86_400.0
NAME = "shop"
SOURCE = "k"
OTHER = "other"
OTHER_SOURCE = "p"
OTHER_FILE = "other.yaml"


@dataclass(frozen=True)
class Case:
    """One life: a file, and what happens."""

    seed: int
    tables: dict[str, Spec]
    steps: list[Step]
    batch: int = 4
    key: str | None = None
    """The `key` of the source: with it, an event without a payload deletes the row of its key."""
    derived: dict[str, Spec] = field(default_factory=dict)
    """Tables that another one feeds, or that have a route."""
    format: str = "json"
    shared: str | None = None
    """A table that another pipeline feeds as well, from another topic."""
    kind: str = "kafka"
    source: dict[str, Any] = field(default_factory=dict)
    """The options of a source that is not Kafka."""

    def document(self) -> dict[str, Any]:
        """The pipeline file."""
        source = {"type": "kafka", "brokers": "memory:9092", "topics": ["orders"], "format": self.format}
        source |= {"key": self.key} if self.key else {}
        return {
            "name": NAME,
            "sources": {SOURCE: self.source or source},
            "tables": self.tables | self.derived,
            "flush": {"rows": self.batch},
            "upkeep": "off",
            "sync": False,
            "give_up_after": "1s",
        }

    def other_document(self, spec: Spec) -> dict[str, Any]:
        """The file of the other pipeline, for the table that both feed."""
        source = {"type": "kafka", "brokers": "memory:9092", "topics": [OTHER_TOPIC]}
        document = self.document() | {"name": OTHER, "tables": {self.shared: spec | {"from": OTHER_SOURCE}}}
        key = {"key": self.key} if self.key and spec["mode"] == "upsert" else {}
        return document | {"sources": {OTHER_SOURCE: source | key}}


def draw(seed: int, steps: int = 14, about: str | None = None) -> Case:
    """The case of a seed: the same whenever and wherever it is drawn. `about` is its focus, if not any."""
    random = Random(seed)
    if about is None and random.random() < 0.1:
        return _draw_database(seed, random, steps)
    focus = about or random.choice((None, None, *FOCUS))
    tables = draw_tables(random, focus)
    for spec in tables.values():
        draw_layout(random, spec)
    derived = draw_derived(random, tables)
    misfits = loose_fields(tables | {name: spec for name, spec in derived.items() if "route" in spec})
    ordered = any(spec.get("ignore_nulls") for spec in tables.values())
    keyed = all(spec.get("keys", ["id"]) == ["id"] and spec["mode"] != "history" for spec in tables.values())
    keyed = keyed and any(spec["mode"] == "upsert" for spec in tables.values())
    key = "json" if keyed and random.random() < 0.5 else None
    producer = Producer(random, misfits=misfits, ordered=ordered, tombstones=key is not None, focus=focus)
    assert set(misfits) <= set(MISFITS)
    shared = _shared(random, tables)
    other = Producer(
        random, misfits=misfits, ordered=ordered, tombstones=key is not None, focus=focus, topic=OTHER_TOPIC
    )
    other.partitions = 1
    life = [_events(producer, random), {"do": "run"}]
    while len(life) < steps:
        if focus and random.random() < 0.45:
            (name,) = tables
            cures = partial(random.choice, _cures(tables[name]))
            life += draw_scenario(
                random, focus, name, tables[name], partial(_events, producer, random), cures
            )
        life += _steps(random, producer, tables)
        if shared and random.random() < 0.3:
            life += [_events(other, random), _shared_step(random)]
    life = [*(one for one in life if suits(derived, tables, one)), {"do": "run"}]
    batch = random.choice((2, 4, 10) if focus in ("keys", "letters", "resent") else (2, 4, 10, 1000))
    return Case(seed, tables, life, batch=batch, key=key, derived=derived, shared=shared)


def _draw_database(seed: int, random: Random, steps: int) -> Case:
    """A life of tables that follow a database."""
    tables = draw_database_tables(random)
    producer = DatabaseProducer(random, misfits=loose_fields(tables), ordered=True, focus="keys")
    life = [_events(producer, random), {"do": "run"}]
    while len(life) < steps:
        life += [one for one in _steps(random, producer, tables) if suits_changes(one)]
    life += [{"do": "run"}]
    return Case(seed, tables, life, batch=random.choice((2, 4, 10, 1000)), format=FORMAT)


def _shared(random: Random, tables: Mapping[str, Spec]) -> str | None:
    """A table that another pipeline feeds too: a truncation would be of the keys of both."""
    able = [
        name for name, spec in tables.items() if spec["mode"] != "overwrite" and "truncate_when" not in spec
    ]
    return random.choice(able) if able and random.random() < 0.2 else None


def _shared_step(random: Random) -> Step:
    """A run of the other pipeline, or one of this one in which it comes to its end."""
    at = random.randrange(1, 20)
    other: Step = {"do": "other"}
    meeting = {"do": "run", "at": at, "inside": other}
    return random.choice((other, {**other, "kill": at}, {**other, "fault": at}, meeting, meeting))


def _events(producer: Producer, random: Random) -> Step:
    return {"do": "produce", "events": [producer.event() for _ in range(random.choice((1, 3, 6, 12)))]}


def _steps(random: Random, producer: Producer, tables: Mapping[str, Spec]) -> list[Step]:
    """What happens next: one step, or several that make sense together."""
    step = _step(random, producer, tables)
    cured = "schema" in tables.get(step.get("table", ""), ())
    if step["do"] == "replay" and cured and random.random() < 0.8:
        # Many letters become rows by another file only.
        cure = random.choice(_cures(tables[step["table"]]))
        cured_life = [
            _events(producer, random),
            {"do": "run"},
            _edit(step["table"], cure),
            {"do": "run"},
            step,
        ]
        return cured_life + _after_replay(random, step)
    if step["do"] == "run" and ("kill" in step or "fault" in step or "inside" in step):
        # A run that has nothing to do passes no point.
        later = [{"do": "discard", "table": random.choice(list(tables))}] if random.random() < 0.15 else []
        return [_events(producer, random), step, *later]
    if step["do"] == "rewind" and random.random() < 0.6:
        # What is read again must be right after each batch; dead letters of it must not go.
        between = random.choice(([], [{"do": "discard", "table": step["table"]}]))
        return [step, *between, {"do": "run", "kill": random.randrange(4, 30)}]
    if step["do"] in ("compact", "rewind", "replay") and "inside" in step:
        # Something for the other process to do.
        return [_events(producer, random), step]
    if step["do"] == "edit" and "updates" in step["changes"]:
        return [step, _events(producer, random), {"do": "run"}, _events(producer, random), {"do": "run"}]
    if step["do"] in ("vacuum", "rewind") and random.random() < 0.5:
        return [{"do": "compact", "table": step["table"]}, step]
    return [step]


def _after_replay(random: Random, replay: Step) -> list[Step]:
    """What meets a replay that was killed, or has just come to its end."""
    again = {"do": "replay", "table": replay["table"]}
    back = {"do": "rewind", "table": replay["table"], "back": random.choice((1, 1, 2))}
    if "kill" in replay:
        return random.choice(([again], [again], [back], []))
    return random.choice(([back], [back, again], []))


def _cures(spec: Spec) -> list[Spec]:
    """Options with which some dead letters of a table would be rows. Columns that were added stay columns."""
    rule = (spec.get("evolve") or {}).get("new_column", "add")
    other = "ignore" if rule == "dead_letter" else rule
    return [
        {"evolve": {"new_column": other, "type_change": "rescue"}},
        {"evolve": {"new_column": other, "type_change": "rescue"}, "expect": None, "where": None},
        {"expect": None},
        # Only a new table gets column mapping.
        {"names": "keep" if spec.get("names") == "keep" else "clean"},
    ]


def _edit(table: str, changes: Spec) -> Step:
    return {"do": "edit", "table": table, "changes": changes}


def _step(random: Random, producer: Producer, tables: Mapping[str, Spec]) -> Step:
    table = random.choice(list(tables))
    partial, marks = tables[table].get("ignore_nulls"), "updates" in tables[table]
    kinds = {
        "produce": 30,
        "run": 12,
        "kill": 20,
        "fault": 8,
        "inside": 8,
        "compact": 18 if marks else 9,
        "vacuum": 3,
        "checkpoint": 4,
        "replay": 0 if partial else 8,
        "discard": 3,
        "rewind": 5,
        "edit": 12 if marks else 6,
        "partition": 2 if producer.partitions < 4 else 0,
        "expire": 2,
        "operation": 7,
        "lose_state": 2,
        "batch": 4,
    }
    operation = draw_operation(random, table, tables[table])
    match random.choices(list(kinds), list(kinds.values()))[0]:
        case "produce":
            return _events(producer, random)
        case "kill":
            return {"do": "run", "kill": random.randrange(1, 40)}
        case "batch":
            size = random.choice(({}, {"bytes": "100B"}, {"bytes": "500B"}))
            return {"do": "batch", "rows": random.choice((1, 3, 10, 1000)), **size}
        case "operation":
            return operation or {"do": "checkpoint", "table": table}
        case "partition":
            producer.partitions += 1
            return {"do": "partition"}
        case "fault":
            away = {"away": random.randrange(1, 6)} if random.random() < 0.3 else {}
            return {"do": "run", "fault": random.randrange(1, 25), **away}
        case "inside":
            others = [{"do": do, "table": table} for do in ("compact", "checkpoint")]
            inner = random.choice([{"do": "run"}, *others, *([operation] if operation else [])])
            return {"do": "run", "at": random.randrange(1, 30), "inside": inner}
        case "rewind":
            step = {"do": "rewind", "table": table, "back": random.randrange(1, 5)}
            return step | _trouble(random)
        case "edit":
            return _edit(table, _changes(random, tables[table]))
        case "compact":
            # Most compactions write a file or two, and commit.
            inner = random.choice([{"do": "run"}, *([operation] if operation else [])])
            meeting = {"at": random.randrange(1, 5), "inside": inner}
            return {"do": "compact", "table": table} | random.choice((meeting, _trouble(random)))
        case "vacuum":
            return {"do": "vacuum", "table": table, "days": random.choice((2, 400))}
        case "replay":
            other = {"at": random.randrange(1, 6), "inside": {"do": "replay", "table": table}}
            return {"do": "replay", "table": table} | random.choice((other, _trouble(random)))
        case "discard" as do:
            return {"do": do, "table": table} | _trouble(random)
        case do:
            return {"do": do, "table": table}


def _trouble(random: Random) -> Step:
    """What may go wrong with a command."""
    at = random.randrange(1, 9)
    return random.choice(({}, {}, {}, {"kill": at}, {"at": at, "inside": {"do": "run"}}))


def _changes(random: Random, spec: Spec) -> Spec:
    """Other values of options that a table may change while it lives."""
    rule = {"that": "id > 0", "otherwise": random.choice(("warn", "drop", "dead_letter"))}
    changes: list[Spec] = [{"max_rows_per_file": 3}, {"max_rows_per_file": None}]
    if "schema" in spec:
        free = "rename" not in spec and "note" not in spec.get("drop", ())
        changes += [{"metadata": None}] + ([{"rename": {"note": "remark"}}] if free else [])
        changes += [{"where": "id > 1"}, {"where": None}, {"expect": {"first": rule}}, {"expect": None}]
    if spec["mode"] in ("upsert", "history"):
        now = spec.get("updates", "copy_on_write")
        changes += 3 * [{"updates": "merge_on_read" if now == "copy_on_write" else "copy_on_write"}]
    return random.choice(changes)


class Player:
    """Plays a case, and compares the world with the model after each step."""

    def __init__(self, case: Case, world: World) -> None:
        self.case = case
        self.world = world
        self.models = self._models()
        self.logs = {name: LogReader(world.folder / name) for name in case.tables}
        self.letters_log = LogReader(world.folder / f"{NAME}_dead_letters")
        self.other_letters = LogReader(world.folder / f"{OTHER}_dead_letters")
        self.operations = Operations(self)
        self.derived = Derived(self, case.derived)
        self.is_complete = False
        """Whether the last step was a run that came to its end, with nobody beside it."""
        self.flush: dict[str, Any] = {"rows": case.batch}
        """Where a batch ends."""
        self.vacuumed: set[str] = set()
        self.expired = False
        self.unfinished: set[str] = set()
        """Tables whose last command on dead letters was killed: the next process does what it has left."""
        self.known: dict[str, int] = {}
        """The version of each table up to which its commits were looked at."""
        world.save(case.document())
        if case.shared:
            world.save(case.other_document(case.tables[case.shared]), OTHER_FILE)

    def play(self) -> None:
        """Raise Wrong at the first step after which something is wrong."""
        with self._installed():
            for number, step in enumerate(self.case.steps):
                try:
                    self._step(step)
                except Endless as endless:
                    raise Wrong("endless", f"step {number} ({_title(step)})") from endless
                except Wrong as wrong:
                    raise Wrong(wrong.kind, f"after step {number} ({_title(step)}): {wrong}") from wrong
                except (LakefeedError, AssertionError, Exception) as error:
                    if isinstance(error, OutOfScope):
                        raise
                    kind = f"{type(error).__name__}"
                    raise Wrong(kind, f"in step {number} ({_title(step)}): {error}") from error
            self._settle()

    def _models(self) -> dict[str, Any]:
        return {name: TableModel(spec, self.case.key) for name, spec in self.case.tables.items()}

    @contextmanager
    def _installed(self) -> Iterator[None]:
        """Let the product run in the world."""
        with self.world.broker.clients().installed(), installed(self.world.points):
            yield

    def _step(self, step: Step) -> None:
        self.world.points.begin()
        self.is_complete = False
        match step["do"]:
            case "produce":
                for event in step["events"]:
                    self.world.produce(event)
                return
            case "edit":
                self._edit(step["table"], step["changes"])
                return
            case "partition":
                self.world.add_partition()
                return
            case "expire":
                self._expire()
                return
            case "batch":
                self.flush = {name: value for name, value in step.items() if name != "do"}
                self._save()
                return
            case "run":
                self._run(step)
            case _:
                self._act(step)
        self._check()

    def _act(self, step: Step) -> None:
        if step["do"] in OPERATIONS:
            self.operations.play(step)
        else:
            getattr(self, f"_{step['do']}")(step)

    # What happens

    def _run(self, step: Step) -> None:
        pipeline = self.world.pipeline()
        try:
            done = self._killable(step, lambda: run_inline(pipeline))
        except Fenced:
            if step.get("inside") != {"do": "run"}:
                raise
            done = False
        self._read(complete=done)
        self.is_complete = done and "inside" not in step

    def _inside(self, step: Step) -> None:
        """Another process does something, to its end, while the first one stands still."""
        with self.world.points.aside():
            if step["do"] == "run":
                # Of the same pipeline, on another machine.
                run_inline(self.world.pipeline(state=".elsewhere"))
            elif step["do"] == "replay":
                self._replay(step, state=".elsewhere")
            else:
                self._act(step)

    def _expire(self) -> None:
        """Retention takes what every table has read."""
        read = [model.taken.positions for model in self.models.values()]
        names = set(read[0]).intersection(*read)
        if all(log.version >= 0 for log in self.logs.values()):
            self.world.expire({name: min(one[name] for one in read) for name in names})
            self.expired = True

    def _edit(self, table: str, changes: Spec) -> None:
        if table not in self.models:
            return
        self.models[table].edit(changes)
        self._save()

    def _save(self) -> None:
        document = self.case.document() | {"flush": self.flush}
        document["tables"] = {name: model.spec for name, model in self.models.items()} | self.case.derived
        self.world.save(document)
        if self.case.shared in self.models:
            self.world.save(self.case.other_document(self.models[self.case.shared].spec), OTHER_FILE)

    def _other(self, step: Step) -> None:
        """A run of the pipeline that shares a table."""
        if self.case.shared in self.models:
            pipeline = self.world.pipeline(state=".other", name=OTHER_FILE)
            self._killable(step, lambda: run_inline(pipeline))
            self._read(complete=False)

    def _lose_state(self, _: Step) -> None:
        self.world.lose_state()

    def _killable(self, step: Step, command: Any) -> bool:
        """Run a command that may die at a point, or be disturbed there; whether it has come to its end."""
        points = self.world.points
        if "inside" in step:
            points.begin(step["at"], lambda: self._inside(step["inside"]))
        elif "fault" in step:
            among = [step["point"]] if "point" in step else STORE
            points.begin(step["fault"], partial(points.fail, step.get("away", 0)), among)
        elif "kill" in step:
            points.begin(step["kill"], points.die, [step["point"]] if "point" in step else ())
        try:
            command()
        except Killed:
            return False
        return True

    def _table(self, name: str) -> LakeTable | None:
        path = str(self.world.folder / name)
        return LakeTable.open("table", path, {}, open_store(path, {}), foreign=True)

    def _compact(self, step: Step) -> None:
        table = self._table(step["table"])
        if table is not None:
            info = operation_info("compact", by="command", who="", reason=None)
            with suppress(*([Conflict] if "inside" in step else [])):
                self._killable(step, lambda: compact.run(table, compact.plan(table), info, file_writer))
            if "inside" in step:
                self._read(complete=False)

    def _vacuum(self, step: Step) -> None:
        table = self._table(step["table"])
        if table is None:
            return
        info = operation_info("vacuum", by="command", who="", reason=None)
        # As if all files were old: also those that no version names.
        plan = vacuum.plan(table, retain=0, allow_short=True, now=time.time() + step["days"] * _DAY)
        self._killable(step, lambda: vacuum.run(table, plan, info))
        self.vacuumed.add(step["table"])

    def _checkpoint(self, step: Step) -> None:
        table = self._table(step["table"])
        if table is not None:
            self._killable(step, lambda: checkpoint.run(table, checkpoint.plan(table)))

    def _replay(self, step: Step, state: str = ".lakefeed") -> None:
        name = step["table"]
        model = self.models[name]
        wanted = DeadLetterFilter(table=name)
        if not self.logs[name].files and self.logs[name].version < 0:
            return
        pipeline = self.world.pipeline(state)
        if model.spec["mode"] not in ("append", "overwrite"):
            # Which of a letter and a new event comes first is for their commits to say.
            step = {key: value for key, value in step.items() if key not in ("at", "inside")}
        log, before = self.logs[name], self.logs[name].version
        try:
            done = self._killable(step, lambda: replay(pipeline, wanted, who="me"))
        except Fenced:
            if step.get("inside", {}).get("do") != "replay":
                raise
            done = False
        (self.unfinished.discard if done else self.unfinished.add)(name)
        log.read()
        if done or any(one.get("kind") == "replay" for one in log.infos[before + 1 :]):
            model.replay(self.world.by_place())
        self._read(complete=False)

    def _discard(self, step: Step) -> None:
        name = step["table"]
        pipeline = self.world.pipeline()
        before = self.letters_log.version
        step = {key: value for key, value in step.items() if key not in ("at", "inside")}
        done = self._killable(
            step, lambda: discard(pipeline, DeadLetterFilter(table=name), who="me", reason="")
        )
        self.letters_log.read()
        if done or self.letters_log.version != before:
            self.models[name].discard()

    def _rewind(self, step: Step) -> None:
        name = step["table"]
        model, versions = self.models[name], sorted(self.models[name].versions)
        if len(versions) < 2:
            return
        version = versions[max(0, len(versions) - 1 - step["back"])]
        log, pipeline = self.logs[name], self.world.pipeline()

        def command() -> None:
            rewind(pipeline, name, to_version=version, who="me", undo_others=True)

        before = log.version
        self.unfinished.add(name)
        try:
            if self._killable(step, command):
                self.unfinished.discard(name)
        except TableError as error:
            if "inside" not in step and not (name in self.vacuumed and "cannot be restored" in str(error)):
                raise
        except DataLoss:
            if not self.expired:
                raise
        log.read()
        if any(one.get("kind") == "rewind" for one in log.infos[before + 1 :]):
            model.rewind(version)
        self._read(complete=False)

    # What is compared

    def _read(self, *, complete: bool) -> None:
        """Let the models read what the logs say has been read."""
        ends = self.world.ends()
        for name, model in self.models.items():
            self.logs[name].read()
            known = self.known.get(name, -1)
            positions = self.logs[name].positions(f"{NAME}/{SOURCE}/")
            others = self.logs[name].positions(f"{OTHER}/{OTHER_SOURCE}/")
            if complete and self.logs[name].version >= 0 and positions != ends:
                read = {part: at for part, at in ends.items() if positions.get(part, 0) < at}
                for partition in read:
                    tail = [
                        one
                        for one in self.world.events[partition]
                        if one.offset >= positions.get(partition, 0)
                    ]
                    if tail:
                        raise Wrong("not read", f"{name} has {positions}, the source ends at {ends}")
            model.read(self.world.events, positions | others)
            if any(one.get("kind") == "end" for one in self.logs[name].infos[known + 1 :]):
                model.taken.is_over = True
            self.known[name] = self.logs[name].version

    def _check(self) -> None:
        self.letters_log.read()
        self.other_letters.read()
        found = self.letters_log.rows() + self.other_letters.rows()
        for name, model in self.models.items():
            log = self.logs[name]
            log.read()
            compare(f"rows of {model.spec['mode']}", model.content(), log.rows())
            self._check_letters(name, model, [one for one in found if one["table"] == name])
            if log.version >= 0:
                model.note_version(log.version)
        self.derived.check(found, complete=self.is_complete)

    def _check_letters(self, name: str, model: TableModel, found: list[dict[str, Any]]) -> None:
        ahead: dict[tuple[str, int], Refusal] = {}
        seen = set()
        ordered = self.logs[name].transactions.get(f"{NAME}/#replay", 0)
        interrupted = name in self.unfinished and ordered > self.letters_log.transactions.get(
            f"{NAME}/#replay/{name}", 0
        )
        for one in found:
            place = self._place_of(one)
            refusal = Refusal(one["stage"], one["code"])
            if place in seen:
                raise Wrong("letters", f"{name}: {place} is a dead letter twice")
            seen.add(place)
            event = self._event_of(name, place, one)
            if one["payload"] != event.payload:
                raise Wrong("letters", f"{name}: {place} has another payload than its event")
            known = model.letters.get(place) or model.ahead.get(place)
            if known is None and interrupted and place in model.taken.replayed:
                continue
            if known is None:
                if place[1] < model.taken.positions.get(place[0], 0):
                    raise Wrong("letters", f"{name}: {place} is a dead letter, {refusal}, and should not be")
                known = model.would_refuse(event)
                ahead[place] = refusal
            if known != refusal:
                raise Wrong("letters", f"{name}: {place} is {refusal} and should be {known}: {event}")
        expected = model.ahead | model.letters
        missing = expected.keys() - seen
        if missing and not interrupted:
            texts = [f"{place} {expected[place]}" for place in sorted(missing)]
            raise Wrong("letters", f"{name}: no dead letter of {', '.join(texts)}")
        model.ahead |= ahead

    def _place_of(self, letter: Mapping[str, Any]) -> tuple[str, int]:
        """The partition and the offset of a dead letter."""
        return f"{letter['topic']}-{letter['partition']}", letter["offset"]

    def _event_of(self, table: str, place: tuple[str, int], letter: Mapping[str, Any]) -> Event:
        """The event that a dead letter of a table is of."""
        return next(event for event in self.world.events[place[0]] if event.offset == place[1])

    def _settle(self) -> None:
        """At the end of a life: `verify --deep`, and all engines that read Delta without a JVM."""
        self.world.points.begin()
        proof = verify(self.world.pipeline(), deep=True)
        told = [
            str(one)
            for table in (*proof.tables, proof.dead_letters)
            for one in table.findings
            if one.kind not in self.operations.told
        ]
        if told:
            raise Wrong("verify", "; ".join(told))
        for name, model in self.models.items():
            folder, content = self.logs[name].folder, model.content()
            # DuckDB reads NULL for the partition columns of a table with column mapping.
            misread = model.spec.get("names") == "keep" and "partition_by" in model.spec
            if self.logs[name].version >= 0:
                compare(f"delta-rs of {model.spec['mode']}", content, rows_of(folder))
                if not misread:
                    compare(f"DuckDB of {model.spec['mode']}", content, duckdb_rows(folder))


def _title(step: Step) -> str:
    more = ", ".join(f"{name} {value}" for name, value in step.items() if name not in ("do", "events"))
    return f"{step['do']} {more}".strip()


def play(case: Case) -> Wrong | None:
    """What is wrong with a case; None where the model agrees, or says that it cannot know."""
    with World() as world:
        try:
            Player(case, world).play()
        except Wrong as wrong:
            return wrong
        except OutOfScope:
            return None
    return None
