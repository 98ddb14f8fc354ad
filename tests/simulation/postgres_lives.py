"""Lives of a database: whatever happens, a copy is its table as it was at the position in its log."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from random import Random
from typing import Any

from lakefeed.engine.inline import run_inline
from lakefeed.errors import TableError
from lakefeed.reprocess.snapshot import reading_anew
from lakefeed.sources.postgres.positions import ALL_ROWS
from lakefeed.sources.postgres.snapshot.chunk import position_of_key
from simulation.cases import NAME, SOURCE, Case, Player, Step, _trouble
from simulation.checks import LogReader, Wrong, compare, duckdb_rows
from simulation.database import Database, Row, Table, number_of
from simulation.pipelines import Spec
from simulation.world import Killed, World, installed

COLUMNS = {
    "orders": {"id": "int8", "n": "int4", "note": "text", "flag": "bool", "price": "numeric"},
    "items": {"code": "text", "n": "int4", "note": "text", "day": "date"},
}
KEYS = {"orders": ["id"], "items": ["code"]}
_MORE = {"later": "text", "extra": "int4"}
"""Columns that may come."""
_LARGE = "large value " * 8
_Values = Mapping[str, tuple[str | None, ...]]
_VALUES: _Values = {
    "int4": ("1", "2", "0", "-2147483648", None),
    "text": ("a", "", "ä€😀", 'quo"te, and comma', _LARGE, _LARGE, _LARGE, _LARGE + "2", None),
    "bool": ("t", "f", None),
    "numeric": ("1.50", "-99999999.99", "0.00", None),
    "date": ("2026-11-19", "0001-01-01", "9999-12-31", None),
}
_INFINITE = ("infinity", "-infinity")
_FIRST_RUN = (90, 350)
"""Points at which a run copies rows in chunks."""
_CODES = ("a", "b", "ä", "long code", "e", "f", "g", "h")


def draw(seed: int, steps: int = 14) -> Case:
    """The case of a seed."""
    random = Random(f"postgres {seed}")
    names = random.choice((["orders"], ["items"], ["orders", "items"]))
    source: Spec = {
        "type": "postgres",
        "connection": "dbname=shopdb",
        "tables": [f"public.{one}" for one in names],
    }
    for option in DRAWN.values():
        option(random, source)
    tables = {name: draw_table(random, name) for name in names}
    create = [{"do": "create", "name": one, "identity": random.choice(("d", "d", "f"))} for one in COLUMNS]
    values = _VALUES | {"date": (*_VALUES["date"], *_INFINITE)} if "infinity" in source else _VALUES
    filled = [_insertion(random, values) for _ in range(random.choice((4, 20, 40)))]
    life: list[Step] = [*create, {"do": "commit", "statements": filled}]
    for _ in range(random.choice((0, 1, 2, 3))):
        # The rows are copied in chunks, while they change, by processes that die.
        met = _met(random, values)
        life += [{"do": "run", "kill": random.randrange(*_FIRST_RUN), **met}, _transaction(random, 4, values)]
    life.append({"do": "run", **_met(random, values)})
    while len(life) < steps:
        life += _steps(random, list(tables), source, values)
    batch = random.choice((2, 3, 4, 1000))
    return Case(seed, tables, [*life, {"do": "run"}], batch=batch, kind="postgres", source=source)


def draw_table(random: Random, name: str) -> Spec:
    """A copy of a table, in which every option is valid beside the others."""
    spec: Spec = {"path": name, "from": SOURCE, "mode": "upsert", "streams": f"public.{name}"}
    if random.random() < 0.35:
        # All changes, by which the rows can be made again.
        return spec | {"mode": "append"}
    if random.random() < 0.4:
        spec["updates"] = "merge_on_read"
    if random.random() < 0.3:
        spec["where"] = "n > 0"
    if random.random() < 0.3:
        spec["rename"] = {"note": "remark"}
    if random.random() < 0.3:
        spec["max_rows_per_file"] = random.choice((1, 2, 5))
    if random.random() < 0.4:
        spec["properties"] = {"delta.checkpointInterval": random.choice(("2", "3", "7"))}
    if random.random() < 0.2:
        spec["partition_by"] = ["flag"] if name == "orders" else ["day"]
    return spec


def _before(random: Random, source: Spec) -> None:
    if random.random() < 0.15:
        source["before"] = True


def _on_slot_loss(random: Random, source: Spec) -> None:
    if random.random() < 0.4:
        source["on_slot_loss"] = "snapshot"


def _on_recreate(random: Random, source: Spec) -> None:
    if random.random() < 0.4:
        source["on_recreate"] = "snapshot"


def _infinity(random: Random, source: Spec) -> None:
    if random.random() < 0.4:
        source["infinity"] = "max"


DRAWN = {
    "before": _before,
    "on_slot_loss": _on_slot_loss,
    "on_recreate": _on_recreate,
    "infinity": _infinity,
}
"""What draws each option of a source of a database."""


def _transaction(random: Random, most: int, values: _Values) -> Step:
    statements = [_statement(random, values) for _ in range(random.randrange(1, most + 1))]
    return {"do": "commit", "statements": statements}


def _statement(random: Random, values: _Values) -> list[Any]:
    name = random.choice(("orders", "orders", "items"))
    key = _key(random, name)
    columns = COLUMNS[name] | _MORE
    some = {one: random.choice(values[kind]) for one, kind in columns.items() if one not in KEYS[name]}
    kind = random.choices(("insert", "update", "move", "delete", "truncate"), (8, 14, 5, 4, 2))[0]
    share = 0.9 if kind == "insert" else 0.35
    some = {one: value for one, value in some.items() if random.random() < share}
    match kind:
        case "insert":
            return ["insert", name, {KEYS[name][0]: key, **some}]
        case "update":
            return ["update", name, [key], some]
        case "move":
            return ["update", name, [key], {KEYS[name][0]: _key(random, name), **some}]
        case "delete":
            return ["delete", name, [key]]
        case _:
            return ["truncate", name]


def _met(random: Random, values: _Values) -> Step:
    """Transactions that others commit while a run goes on, each so many points behind the one before."""
    some = [_transaction(random, 4, values)["statements"] for _ in range(random.choice((1, 3, 10)))]
    return {"every": random.randrange(20, 60), "meet": some}


def _insertion(random: Random, values: _Values) -> list[Any]:
    while (found := _statement(random, values))[0] != "insert":
        """Only what fills a table."""
    return found


def _key(random: Random, name: str) -> str:
    return str(random.randrange(-2, 14)) if name == "orders" else random.choice(_CODES)


def _steps(random: Random, tables: list[str], source: Spec, values: _Values) -> list[Step]:
    table = random.choice(tables)
    change = _transaction(random, 5, values)
    kinds = {
        "commit": 25,
        "run": 8,
        "kill": 22,
        "fault": 8,
        "inside": 8,
        "meanwhile": 22,
        "add": 4,
        "drop": 3,
        "snapshot": 5,
        "compact": 5,
        "vacuum": 2,
        "checkpoint": 2,
        "rewind": 4,
        "lose": 5 if "on_slot_loss" in source else 0,
        "recreate": 5 if "on_recreate" in source else 0,
    }
    match random.choices(list(kinds), list(kinds.values()))[0]:
        case "commit":
            return [change]
        case "run":
            return [{"do": "run"}]
        case "kill":
            return [change, {"do": "run", "kill": random.randrange(1, 70)}]
        case "fault":
            return [change, {"do": "run", "fault": random.randrange(1, 25)}]
        case "inside":
            other = random.choice(({"do": "run"}, {"do": "compact", "table": table}))
            return [change, {"do": "run", "at": random.randrange(1, 70), "inside": other}]
        case "meanwhile":
            return [change, {"do": "run", **_met(random, values)}]
        case "add":
            column = random.choice(list(_MORE))
            default = random.choice((None, *_VALUES[_MORE[column]][:2]))
            add = {"do": "add", "name": table, "column": column, "default": default}
            return [add, _transaction(random, 4, values)]
        case "drop":
            return [{"do": "drop", "name": table, "column": random.choice(("price", "day"))}, change]
        case "snapshot":
            return [
                {"do": "snapshot", "table": table, **_met(random, values)} | _kill(random, 80),
                {"do": "run", **_kill(random, 120)},
            ]
        case "rewind":
            rewind = {"do": "rewind", "table": table, "back": random.randrange(1, 4)}
            return [rewind, {"do": "run", **_kill(random, 120)}]
        case "lose":
            return [change, {"do": "lose"}, {"do": "run", **_kill(random, 120)}]
        case "recreate":
            return [{"do": "recreate", "name": table}, change, {"do": "run", **_kill(random, 160)}]
        case "vacuum":
            return [{"do": "vacuum", "table": table, "days": random.choice((2, 400))}]
        case "compact" as do:
            return [{"do": do, "table": table} | _trouble(random)]
        case do:
            return [{"do": do, "table": table}]


def _kill(random: Random, most: int) -> Step:
    return random.choice(({}, {"kill": random.randrange(1, most)}))


@dataclass
class _Copy:
    """A copy has nothing that the database's past does not say."""

    spec: Spec
    versions: dict[int, None] = field(default_factory=dict)

    def note_version(self, version: int) -> None:
        self.versions[version] = None

    def rewind(self, version: int) -> None:
        """The position in the log says it."""


class PostgresPlayer(Player):
    """Plays a case of a database. What a table must have is in the database's own past."""

    def __init__(self, case: Case, world: World) -> None:
        super().__init__(case, world)
        self.database = Database(world.points)
        self.began = 0
        self.expired = True
        """A slot forgets what every table has, so that a rewind may be refused."""
        self.dropped: dict[str, set[str]] = {}

    def _models(self) -> dict[str, Any]:
        return {name: _Copy(spec) for name, spec in self.case.tables.items()}

    @contextmanager
    def _installed(self) -> Iterator[None]:
        with self.database.installed(), installed(self.world.points):
            yield

    def _step(self, step: Step) -> None:
        self.began = self.database.lsn
        # Those of processes that are gone.
        self.database.snapshots.clear()
        match step["do"]:
            case "create":
                name = step["name"]
                self.database.create(name, COLUMNS[name], KEYS[name], step["identity"])
            case "commit":
                self._commit(step)
            case "add":
                kind = _MORE[step["column"]]
                self.database.add_column(step["name"], step["column"], kind, step["default"])
            case "lose":
                self.database.slots.clear()
            case "recreate":
                self.database.recreate(step["name"])
            case "drop":
                self.database.drop_column(step["name"], step["column"])
                self.dropped.setdefault(step["name"], set()).add(step["column"])
            case _:
                super()._step(step)

    # What happens

    def _run(self, step: Step) -> None:
        # What clients of one process leave to each other is not there in the next one.
        self.world._loaded.clear()
        try:
            super()._run(step)
        except TableError as error:
            if not self._may_refuse(error):
                raise
            self._read(complete=False)

    def _may_refuse(self, error: TableError) -> bool:
        """Whether a copy keeps what it has, as `where` would leave out most rows of a new snapshot."""
        return "rows of the new snapshot would be left out" in str(error)

    def _killable(self, step: Step, command: Any) -> bool:
        if "meet" not in step:
            return super()._killable(step, command)
        points, due = self.world.points, list(step["meet"])

        def meet() -> None:
            if due and points.passed < step.get("kill", points.passed + 1):
                self.database.commit(due.pop(0))
            elif "kill" in step:
                points.die()
            points.again(min(step["every"], max(1, step.get("kill", 10**9) - points.passed)))

        points.begin(step["every"], meet)
        try:
            command()
        except Killed:
            return False
        return True

    def _commit(self, step: Step) -> None:
        self.database.commit(step["statements"])

    def _snapshot(self, step: Step) -> None:
        pipeline = self.world.pipeline()
        if self.logs[step["table"]].version < 0:
            return

        def command() -> None:
            run_inline(reading_anew(pipeline, SOURCE, [f"public.{step['table']}"])[0])

        try:
            self._read(complete=self._killable(step, command))
        except TableError as error:
            if not self._may_refuse(error):
                raise
            self._read(complete=False)

    # What is compared

    def _read(self, *, complete: bool) -> None:
        for name, log in self.logs.items():
            log.read()
            if complete and self.database.tables and not self._is_drained(name, log):
                raise Wrong("not read", f"{name} is at {self._positions(log, name)} of {self.database.lsn}")

    def _is_drained(self, name: str, log: LogReader) -> bool:
        """Whether a copy has all that there was when the step began."""
        at, rows = self._positions(log, name)
        was = self.database.at(self.began)
        return rows >= ALL_ROWS and (at >= self.began or self.database.at(at)[name] == was[name])

    def _positions(self, log: LogReader, name: str) -> tuple[int, int]:
        found = log.positions(f"{NAME}/{SOURCE}/")
        return found.get(f"public.{name}", 0), found.get(f"public.{name}:rows", 0)

    def _check(self) -> None:
        for name, log in self.logs.items():
            log.read()
            self._compare("rows", name, log.rows())
            if log.version >= 0:
                self.models[name].note_version(log.version)
        self.letters_log.read()
        if letters := self.letters_log.rows():
            raise Wrong("letters", f"nothing is wrong with {letters}")

    def _compare(self, kind: str, name: str, rows: list[dict[str, Any]]) -> None:
        """Raise Wrong unless a copy is its table, or the changes that it has make it."""
        expected, mode = self._expected(name, self.logs[name]), self.models[name].spec["mode"]
        if mode == "append":
            rows = replayed(rows, KEYS[name])
            # What a statement does to all rows is no change of theirs.
            expected, rows = ([_of_all(row) for row in one] for one in (expected, rows))
        compare(f"{kind} of {mode}", expected, self._without_dropped(name, rows))

    def _expected(self, name: str, log: LogReader) -> list[dict[str, Any]]:
        at, until = self._positions(log, name)
        table = self.database.at(at).get(name)
        if table is None:
            return []
        spec = self.models[name].spec
        found = []
        for row in table.rows.values():
            if until < ALL_ROWS and position_of_key(number_of(table, row)) >= until:
                continue
            values = {one.name: _value(one.kind, row[one.name]) for one in table.columns}
            if spec.get("where") and not ((values.get("n") or 0) > 0):
                continue
            found.append({spec.get("rename", {}).get(one, one): value for one, value in values.items()})
        return [_as_written(row, spec) for row in self._without_dropped(name, found)]

    def _without_dropped(self, name: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        gone = self.dropped.get(name, set())
        return [
            {one: value for one, value in row.items() if one not in gone and one[0] != "_"} for row in rows
        ]

    def _settle(self) -> None:
        for name, log in self.logs.items():
            if log.version >= 0:
                self._compare("DuckDB", name, duckdb_rows(log.folder))


def _of_all(row: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if name not in _MORE}


def replayed(events: list[dict[str, Any]], keys: list[str]) -> list[dict[str, Any]]:
    """The rows that changes make, in their order. Raises Wrong where one of them cannot be."""
    rows: dict[Any, dict[str, Any]] = {}
    before: dict[str, Any] = {}
    for event in sorted(events, key=lambda one: (one["_lsn"], one["_ordinal"])):
        key = tuple(event[name] for name in keys)
        match event["_op"]:
            case "truncate":
                rows.clear()
            case "delete":
                if key not in rows:
                    raise Wrong("changes", f"{event} deletes a row that is not there")
                before = rows.pop(key)
            case "update":
                if key not in rows:
                    raise Wrong("changes", f"{event} is of a row that is not there")
                rows[key] = event | _left_out(event, rows[key])
            case _:
                if key in rows:
                    raise Wrong("changes", f"{event} is of a row that is there")
                # A change of the key is a deletion, and right behind it an insertion.
                rows[key] = event | _left_out(event, before)
    return list(rows.values())


def _left_out(event: dict[str, Any], before: dict[str, Any]) -> dict[str, Any]:
    return {name: before.get(name) for name in event.get("_unchanged") or ()}


def _as_written(row: dict[str, Any], spec: Spec) -> dict[str, Any]:
    """A row as Delta has it: no empty text in a partition value."""
    return {
        one: None if one in spec.get("partition_by", ()) and value == "" else value
        for one, value in row.items()
    }


def _value(kind: str, text: str | None) -> Any:
    """A value by its text."""
    if text is None:
        return None
    match kind:
        case "int8" | "int4":
            return int(text)
        case "bool":
            return text == "t"
        case "numeric":
            return Decimal(text)
        case "date":
            return dt.date.fromisoformat(
                {"infinity": "9999-12-31", "-infinity": "0001-01-01"}.get(text, text)
            )
    return text


__all__ = ["DRAWN", "PostgresPlayer", "Row", "Table", "draw"]
