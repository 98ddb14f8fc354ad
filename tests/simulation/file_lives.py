"""Lives of a source of files: what a disk shows, what the ledger says, what each table must have of it."""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from lakefeed.errors import DataLoss, FileChanged, LakefeedError, TableError, UsageError
from lakefeed.reprocess import files
from lakefeed.sources import PARTITION
from lakefeed.sources.files import after
from simulation.cases import NAME, SOURCE, Case, Player, Step, _changes, _trouble
from simulation.checks import Wrong, rows_of
from simulation.drops import FORMS, Content, Drops
from simulation.events import Event, Producer
from simulation.model import OutOfScope, Refusal, TableModel
from simulation.pipelines import Spec, draw_table, draw_tables, loose_fields
from simulation.world import Points, World, installed

STATES = ("waiting", "skipped", "read", "unreadable", "deleted", "moved", "replaced", "forgotten")
GONE, TAKEN, FREE = ("replaced", "forgotten"), ("deleted", "moved"), ("forgotten", "deleted", "moved")
NAMES = ("a.json", "b.json", "sub/c.json", "d=1/e ä.json", "f.json.gz", "sub/g.json.bz2", "_h.json", "i.txt")
_BITS = 32
_EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_CSV_FIELDS = {"id", "seq", "op", "name", "amount", "flag"}


def draw(seed: int, steps: int = 14) -> Case:
    """The case of a seed."""
    random = Random(f"files {seed}")
    focus = random.choice((None, "reload", "reload", "keys", "letters"))
    if focus == "reload":
        names = "ab"[: random.choice((1, 2))]
        tables = {name: draw_table(random, name, {"mode": "append"}) for name in names}
    else:
        tables = draw_tables(random, focus)
    source = draw_source(random, tables)
    names = tuple(random.sample(NAMES, random.choice((2, 3, 8))))
    is_csv = source["format"] != "json"
    ordered = any(spec.get("ignore_nulls") for spec in tables.values())
    misfits = () if is_csv else loose_fields(tables)
    producer = Producer(random, misfits=misfits, ordered=ordered, focus=focus)
    life = [_put(random, producer, names, is_csv=is_csv), {"do": "run"}]
    while len(life) < steps:
        life += _steps(random, producer, tables, source, names)
    return Case(
        seed, tables, [*life, {"do": "run"}], batch=random.choice((2, 10, 1000)), kind="files", source=source
    )


def draw_source(random: Random, tables: Mapping[str, Spec]) -> Spec:
    """A source of files, in which every option is valid beside the others and beside the tables."""
    source: Spec = {"type": "files", "path": "landing", "format": "json", "settle": "0s"}
    for option in DRAWN.values():
        option(random, source, tables)
    return source


def _format(random: Random, source: Spec, tables: Mapping[str, Spec]) -> None:
    declared = all("schema" in spec and _declares_all(spec) for spec in tables.values())
    if declared and random.random() < 0.6:
        source["format"] = {"type": "csv", "header": True}


def _declares_all(spec: Spec) -> bool:
    """Whether every field that a file of CSV may have is declared, so that none is taken for text."""
    renamed = spec.get("rename", {})
    return all(renamed.get(name, name) in spec["schema"] for name in _CSV_FIELDS)


def _records(random: Random, source: Spec, tables: Mapping[str, Spec]) -> None:
    if source["format"] == "json" and random.random() < 0.15:
        source["records"] = "data"


def _on_change(random: Random, source: Spec, tables: Mapping[str, Spec]) -> None:
    choices = ["fail", "ignore"]
    if random.random() < 0.6 and all(spec["mode"] in ("append", "overwrite") for spec in tables.values()):
        # A reload finds rows by the path of their file.
        for spec in tables.values():
            spec.pop("select", None)
            spec |= {"mode": "append", "metadata": random.choice((True, {"_topic": "_file"}))}
        choices = ["reload", "reload", "reload", "fail"]
    source["on_change"] = random.choice(choices)


def _after(random: Random, source: Spec, tables: Mapping[str, Spec]) -> None:
    if random.random() < 0.3:
        source["after"] = random.choice(("delete", {"move": "done"}))


def _forget_after(random: Random, source: Spec, tables: Mapping[str, Spec]) -> None:
    if random.random() < 0.3:
        source["forget_after"] = "3d"


def _pattern(random: Random, source: Spec, tables: Mapping[str, Spec]) -> None:
    if random.random() < 0.15:
        source["pattern"] = "*.json*"


def _recursive(random: Random, source: Spec, tables: Mapping[str, Spec]) -> None:
    if random.random() < 0.15:
        source["recursive"] = False


def _max_files(random: Random, source: Spec, tables: Mapping[str, Spec]) -> None:
    if random.random() < 0.3:
        source["max_files"] = random.choice((1, 2))


DRAWN = {
    "format": _format,
    "records": _records,
    "on_change": _on_change,
    "after": _after,
    "forget_after": _forget_after,
    "pattern": _pattern,
    "recursive": _recursive,
    "max_files": _max_files,
}
"""What draws each option of a source of files."""


def _put(random: Random, producer: Producer, names: Sequence[str], *, is_csv: bool) -> Step:
    events = [_of_file(producer.event()) for _ in range(random.choice((1, 2, 4, 8)))]
    first = next((one for one in events if one.code is None), None)
    # What the first line is says what the file is.
    events = [first, *(one for one in events if one is not first)] if first else []
    if not events:
        return _put(random, producer, names, is_csv=is_csv)
    step: Step = {"do": "put", "path": random.choice(names), "events": events}
    if not is_csv:
        step["form"] = random.choice(FORMS)
    if random.random() < 0.2:
        step["seconds"] = 0
    return step


def _of_file(event: Event) -> Event:
    return replace(event, partition=0, key=None, headers=(), gap=0, milliseconds=0)


def _steps(
    random: Random, producer: Producer, tables: Mapping[str, Spec], source: Spec, names: Sequence[str]
) -> list[Step]:
    table, path = random.choice(list(tables)), random.choice(names)
    is_csv = source["format"] != "json"
    kinds = {
        "put": 30,
        "run": 12,
        "kill": 20,
        "fault": 6,
        "inside": 6,
        "change": 10,
        "remove": 6,
        "restore": 4,
        "rename": 4,
        "reload": 8 if _are_reloaded(tables) else 1,
        "retry": 2,
        "forget": 3,
        "days": 6 if "forget_after" in source else 1,
        "compact": 5,
        "vacuum": 2,
        "checkpoint": 2,
        "replay": 0 if tables[table].get("ignore_nulls") else 4,
        "discard": 2,
        "rewind": 4,
        "edit": 3,
    }
    put = _put(random, producer, names, is_csv=is_csv)
    match random.choices(list(kinds), list(kinds.values()))[0]:
        case "put":
            return [put, *([] if random.random() < 0.5 else [_put(random, producer, names, is_csv=is_csv)])]
        case "kill":
            return [put, {"do": "run", "kill": random.randrange(1, 40)}]
        case "fault":
            return [put, {"do": "run", "fault": random.randrange(1, 25)}]
        case "inside":
            other = random.choice(({"do": "run"}, {"do": "compact", "table": table}))
            at = random.randrange(1, random.choice((10, 30)))
            return [put, {"do": "run", "at": at, "inside": other}]
        case "change":
            # A file that tables have read, and soon one that is corrected.
            corrected = {**_put(random, producer, names, is_csv=is_csv), "path": put["path"], "seconds": 1}
            trouble = random.choice(({}, {}, {"kill": random.randrange(1, 40)}))
            return [put, {"do": "run"}, corrected, {"do": "run", **trouble}]
        case "remove" | "restore" as do:
            return [{"do": do, "path": path}]
        case "rename":
            return [{"do": "rename", "path": path, "to": f"new {path}" if "/" not in path else f"new/{path}"}]
        case "reload" | "retry" | "forget" as do:
            correct = [{**put, "path": path}] if random.random() < 0.6 else []
            return [*correct, {"do": do, "path": path}, {"do": "run", **_kill(random)}]
        case "days":
            later: list[Step] = [{"do": "days", "days": 4}, {"do": "run"}]
            if random.random() < 0.5:
                return later
            # A file that goes, is forgotten, and comes back as it was.
            path = put["path"]
            gone: list[Step] = [put, {"do": "run"}, {"do": "remove", "path": path}]
            return [*gone, *later, {"do": "restore", "path": path}, {"do": "run"}]
        case "edit":
            changes = {
                name: one for name, one in _changes(random, tables[table]).items() if name != "metadata"
            }
            return [{"do": "edit", "table": table, "changes": changes}] if changes else []
        case "vacuum":
            return [{"do": "vacuum", "table": table, "days": random.choice((2, 400))}]
        case "rewind":
            step = {"do": "rewind", "table": table, "back": random.randrange(1, 4)} | _trouble(random)
            return [step, {"do": "run", **_kill(random)}]
        case "run" | "checkpoint" as do:
            return [{"do": do, "table": table} if do == "checkpoint" else {"do": do}]
        case do:
            return [{"do": do, "table": table} | _trouble(random)]


def _kill(random: Random) -> Step:
    return random.choice(({}, {"kill": random.randrange(1, 40)}))


def _are_reloaded(tables: Mapping[str, Spec]) -> bool:
    """Whether each table can replace the rows of a file."""

    def has_path(spec: Spec) -> bool:
        wanted = spec.get("metadata", False)
        return wanted is True or (isinstance(wanted, dict | list) and "_topic" in wanted)

    return all(
        spec["mode"] == "append" and has_path(spec) and "select" not in spec for spec in tables.values()
    )


class FilesPlayer(Player):
    """Plays a case of files. The ledger says what was found; the disk, what there was to find."""

    def __init__(self, case: Case, world: World) -> None:
        super().__init__(case, world)
        self.drops = Drops(world.folder, case.source)
        self.ledger: dict[int, dict[str, Any]] = {}
        """The numbers of the ledger after the last step."""
        self.ever: dict[int, dict[str, Any]] = {}
        """Every number that there was, as it was seen last."""
        self.again: dict[str, int] = {}
        """How often a command has asked for a path to be read once more."""
        self.pseudo: dict[tuple[str, tuple[str, int]], Event] = {}
        """Events of files that could not be read, by table and place."""
        self.was_there: dict[str, Content] = {}
        """The files before the step: what it reads, it may take away."""
        self.days = 0.0
        self.takes_away = "after" in case.source
        self.expired = self.takes_away or "forget_after" in case.source
        world.events = {PARTITION: []}

    @contextmanager
    def _installed(self) -> Iterator[None]:
        with installed(self.world.points), _on_disk(self.world.points, self):
            yield

    def _step(self, step: Step) -> None:
        self.was_there = self._counted()
        match step["do"]:
            case "put":
                self.drops.put(
                    step["path"], step["events"], step.get("form", "lines"), step.get("seconds", 1)
                )
            case "remove":
                self.drops.remove(step["path"])
            case "restore":
                self.drops.restore(step["path"])
            case "rename":
                self.drops.rename(step["path"], step["to"])
            case "days":
                self.days += step["days"]
            case _:
                super()._step(step)
                self._check_disk()

    # What happens

    def _run(self, step: Step) -> None:
        troubled = bool({"kill", "fault", "inside"} & step.keys())
        is_changed = self.case.source["on_change"] == "fail" and self._changed()
        self.unfinished |= self.models.keys() if troubled else set()
        try:
            super()._run(step)
        except (FileChanged, TableError) as error:
            if isinstance(error, FileChanged):
                if not is_changed:
                    raise
            elif not ("cannot be replaced" in str(error) and self._may_refuse()):
                raise
            self._read(complete=False)
            return
        if is_changed and not troubled:
            raise Wrong("changed", f"nobody was told that these files have changed: {self._changed()}")
        self.unfinished -= set() if troubled else self.models.keys()

    def _may_refuse(self) -> bool:
        """Whether a table cannot tell which of its rows are of a file."""
        tables = {name: model.spec for name, model in self.models.items()}
        free = {one["path"] for one in self.ever.values() if one["state"] in FREE}
        reused = bool(free) or len(self.ever) != len(self.ledger)
        return reused or not _are_reloaded(tables)

    def _changed(self) -> list[str]:
        """Files that are not as they were read."""
        reached = max(
            (one.taken.positions.get(PARTITION, 0) >> _BITS for one in self.models.values()), default=0
        )
        found = []
        for path, content in self._counted().items():
            last = self._last(path)
            if last is None or last["state"] in FREE or _identity(last) == content.identity:
                continue
            if not (last["number"] >= reached and last["state"] == "waiting"):
                found.append(path)
        return found

    def _counted(self) -> dict[str, Content]:
        there = {path: one for path, one in self.drops.there.items() if Path(path).is_file()}
        return {path: one for path, one in there.items() if self.drops.counts(path)}

    def _last(self, path: str) -> dict[str, Any] | None:
        numbers = [number for number, one in self.ledger.items() if one["path"] == path]
        return self.ledger[max(numbers)] if numbers else None

    def _reload(self, step: Step) -> None:
        self._command(step, files.reload)

    def _retry(self, step: Step) -> None:
        self._command(step, files.retry_or_forget, forget=False)

    def _forget(self, step: Step) -> None:
        self._command(step, files.retry_or_forget, forget=True)

    def _command(self, step: Step, command: Any, **more: Any) -> None:
        path = str(self.drops.folder / step["path"])
        self.again[path] = self.again.get(path, 0) + 1
        pipeline = self.world.pipeline()
        try:
            self._killable(step, lambda: command(pipeline, None, [path], who="me", **more))
        except UsageError as error:
            if self._last(path) is not None and Path(path).is_file():
                raise
            assert "file" in str(error)
        except TableError:
            if not self._may_refuse():
                raise
        self._read(complete=False)

    def _rewind(self, step: Step) -> None:
        counted = self._counted()
        for one in self.ledger.values():
            there = counted.get(one["path"])
            if there is None or there.identity != _identity(one) or one["replaces"] is not None:
                raise OutOfScope("a rewind to before files that are not there any more")
        super()._rewind(step)

    # What is compared

    def _read(self, *, complete: bool) -> None:
        before, self.ledger = self.ledger, self._numbers()
        self._check_ledger()
        for name, model in self.models.items():
            log = self.logs[name]
            log.read()
            positions = log.positions(f"{NAME}/{SOURCE}/")
            if positions:
                self._advance(name, model, positions[PARTITION], before)
            known = self.known.get(name, -1)
            if any(one.get("kind") == "end" for one in log.infos[known + 1 :]):
                model.taken.is_over = True
            self.known[name] = log.version
        if complete:
            self._check_complete()

    def _numbers(self) -> dict[int, dict[str, Any]]:
        found: dict[int, dict[str, Any]] = {}
        folder = self.world.folder / f"{NAME}_{SOURCE}_files"
        ranked = sorted(
            rows_of(folder), key=lambda row: (STATES.index(row["state"]), row["read_at"] or _EPOCH)
        )
        for row in ranked:
            row["path"] = str(self.world.folder / row["path"])
            found[row["number"]] = row
        return found

    def _check_ledger(self) -> None:
        for number, row in self.ledger.items():
            if number not in self.ever:
                self._note_number(number, row)
        self.ever |= self.ledger
        counts: dict[tuple[str, int, int], int] = {}
        for row in self.ever.values():
            counts[_identity(row)] = counts.get(_identity(row), 0) + 1
        for identity, count in counts.items():
            if count > 1 + self.again.get(identity[0], 0):
                raise Wrong("ledger", f"{identity} has {count} numbers")

    def _note_number(self, number: int, row: Mapping[str, Any]) -> None:
        content = self.drops.contents.get(_identity(row))
        if content is None:
            raise Wrong("ledger", f"number {number} is {_identity(row)}, which never was there")
        for record in content.records:
            shown = record.shown or 0
            self.world.events[PARTITION].append(replace(record, offset=(number << _BITS) + shown))

    def _advance(
        self, name: str, model: TableModel, end: int, before: Mapping[int, Mapping[str, Any]]
    ) -> None:
        begin = model.taken.positions.get(PARTITION, 0)
        events: list[Event] = []
        for number in range(begin >> _BITS, end >> _BITS):
            row = self.ledger.get(number)
            if row is None or row["state"] in GONE:
                continue
            if before.get(number, row)["state"] in TAKEN and number in before:
                continue
            last = self._last(row["path"])
            assert last is not None
            if _identity(last) != _identity(row):
                continue
            there = self.was_there.get(row["path"])
            if there is None or there.identity != _identity(row):
                code = "file_gone" if there is None else "file_changed"
                if any(place[1] >> _BITS == number for place in (*model.ahead, *model.letters)):
                    raise OutOfScope("dead letters of a file that is gone")
                event = Event(0, code=code, offset=number << _BITS, shown=0, topic=row["path"])
                self.pseudo[name, (PARTITION, event.offset)] = event
                events.append(event)
                continue
            model.read({PARTITION: events}, {PARTITION: number << _BITS})
            self._replace(model, row)
            events = [one for one in self.world.events[PARTITION] if one.offset >> _BITS == number]
            model.read({PARTITION: events}, {PARTITION: (number + 1) << _BITS})
            events = []
        model.read({PARTITION: events}, {PARTITION: end})

    def _replace(self, model: TableModel, row: Mapping[str, Any]) -> None:
        """Take out what a table has of the numbers that a file had before."""
        former = row["replaces"]
        while former is not None:
            taken = model.taken
            taken.rows = {at: one for at, one in taken.rows.items() if at[1] >> _BITS != former}
            for places in (model.letters, model.ahead):
                for at in [one for one in places if one[1] >> _BITS == former]:
                    del places[at]
            former = self.ever.get(former, {}).get("replaces")

    def _check_letters(self, name: str, model: TableModel, found: list[dict[str, Any]]) -> None:
        there = {self._place_of(one) for one in found}
        # Those of a file that nobody reads any more go with the batch that reads what it is now.
        for place in [one for one in model.ahead if one not in there]:
            if self.ledger.get(place[1] >> _BITS, {}).get("state") in GONE:
                del model.ahead[place]
        if name in self.unfinished:
            lingering = {
                place
                for place in there - model.letters.keys() - model.ahead.keys()
                if self.ever.get(place[1] >> _BITS, {}).get("state") == "replaced"
            }
            found = [one for one in found if self._place_of(one) not in lingering]
        super()._check_letters(name, model, found)

    def _place_of(self, letter: Mapping[str, Any]) -> tuple[str, int]:
        return PARTITION, letter["offset"]

    def _event_of(self, table: str, place: tuple[str, int], letter: Mapping[str, Any]) -> Event:
        pseudo = self.pseudo.get((table, place))
        if pseudo is not None or letter["code"] in ("file_gone", "file_changed"):
            return pseudo or Event(0, code=letter["code"], offset=place[1])
        return super()._event_of(table, place, letter)

    def _check_complete(self) -> None:
        """After a run that came to its end, every table has every file."""
        doubtful = [_identity(row)[2] for number, row in self.ever.items() if number not in self.ledger]
        for path, content in self._counted().items():
            last = self._last(path)
            if last is None or last["state"] in FREE:
                if content.modified <= max(doubtful, default=0):
                    continue
                raise Wrong("not read", f"{path} is there, and the ledger does not know it")
            if _identity(last) != content.identity and self.case.source["on_change"] != "ignore":
                raise Wrong("not read", f"{path} has changed, and the ledger does not say so")
            for name, model in self.models.items():
                if model.taken.positions.get(PARTITION, 0) >> _BITS <= last["number"]:
                    raise Wrong("not read", f"{name} has not come to {path}")
            is_same = _identity(last) == content.identity
            if self.takes_away and is_same and last["state"] == "read" and last["rows"] is not None:
                raise Wrong("still there", f"{path} was read, and `after` has not taken it away")

    def _check_disk(self) -> None:
        """What is gone though the case has not taken it out was read by every table."""
        for path, content in list(self.drops.there.items()):
            if Path(path).exists():
                continue
            numbers = [number for number, one in self.ever.items() if _identity(one) == content.identity]
            read = [model.taken.positions.get(PARTITION, 0) >> _BITS for model in self.models.values()]
            hidden = list(Path(path).parent.glob(f".{Path(path).name}.*.read"))
            if not self.takes_away or not numbers or min(read) <= max(numbers):
                raise Wrong("lost", f"{path} is gone, and was not read by all")
            target = self.world.folder / "done" / Path(path).relative_to(self.drops.folder)
            moves = isinstance(self.case.source["after"], dict)
            if moves and not hidden and not list(target.parent.glob(f"{target.name}*")):
                raise Wrong("lost", f"{path} is gone, and was not moved")
            if not hidden:
                del self.drops.there[path]


def _identity(row: Mapping[str, Any]) -> tuple[str, int, int]:
    return row["path"], row["size"], (row["modified"] - _EPOCH) // dt.timedelta(microseconds=1)


@contextmanager
def _on_disk(points: Points, player: FilesPlayer) -> Iterator[None]:
    """Changes of the folder are points, and the clock is that of the life."""

    class Folder(type(Path())):  # type: ignore[misc]
        def rename(self, target: Any) -> Any:
            points("rename")
            return super().rename(target)

        def unlink(self, missing_ok: bool = False) -> None:
            points("unlink")
            super().unlink(missing_ok)

    class Moment(dt.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return dt.datetime.now(tz) + dt.timedelta(days=player.days)

    clock = SimpleNamespace(
        time=lambda: time.time() + player.days * 86_400,
        monotonic=lambda: time.monotonic() + player.days * 86_400,
        sleep=lambda _: None,
    )
    dates = SimpleNamespace(datetime=Moment, UTC=dt.UTC, timedelta=dt.timedelta)
    with (
        patch.object(after, "Path", Folder),
        patch.object(after, "time", clock),
        patch("lakefeed.sources.files.client.time", clock),
        patch("lakefeed.sources.files.client.dt", dates),
        patch("lakefeed.sources.files.ledger.dt", dates),
        patch("lakefeed.sources.files.reading.read.time", clock),
    ):
        yield


__all__ = ["DRAWN", "DataLoss", "FilesPlayer", "LakefeedError", "Refusal", "draw"]
