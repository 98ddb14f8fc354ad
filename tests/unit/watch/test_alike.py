"""What is the same for many tables is one line, and nothing is lost on the way."""

from __future__ import annotations

from collections.abc import Sequence

from lakefeed.engine.run_events import TableStopped
from lakefeed.watch.alike import AlikeLines
from lakefeed.watch.health import concerns, reasons
from support.watched import Clock, WatchedRun, shop


def test_the_first_line_comes_at_once_and_the_others_in_one() -> None:
    written: list[tuple[str, Sequence[str]]] = []
    lines = AlikeLines(clock := Clock())

    for number in range(5):
        lines.add(
            f"all/t{number}", f"all/t{number}: created at lake/t{number}", lambda *one: written.append(one)
        )
        lines.passes(None)
    at_once = list(written)
    lines.passes("all/t3")

    assert at_once == [("all/t0: created at lake/t0", ("all/t0",))]
    assert written[1:] == [
        (
            "all/*: created at lake/* (4 more tables: all/t1, all/t2, all/t3 and all/t4)",
            ("all/t1", "all/t2", "all/t3", "all/t4"),
        )
    ]
    lines.add("a", "a: new column x", lambda *one: written.append(one))
    clock.now += 2
    lines.add("b", "b: new column x", lambda *one: written.append(one))
    assert [line for line, _ in written[2:]] == ["a: new column x", "b: new column x"]


def test_few_lines_and_lines_that_differ_are_written_each() -> None:
    written: list[str] = []
    lines = AlikeLines(Clock())

    for table, text in (("a", "x"), ("b", "x"), ("c", "x"), ("c", "x"), ("c", "y")):
        lines.add(table, f"{table}: {text}", lambda line, _: written.append(line))
    lines.flush()

    assert written == ["a: x", "b: x", "c: x", "c: x", "c: y"]


def test_what_stops_many_tables_is_one_concern() -> None:
    names = [f"t{number}" for number in range(6)]
    run = WatchedRun(
        shop(
            sources={"db": {"type": "generate"}},
            tables={name: {"path": f"/lake/{name}", "from": "db"} for name in names},
        )
    )
    run.all_is_well()
    for name in names[:5]:
        run.tell(TableStopped(name, f"table {name}: /lake/{name} is read-only.\nChange its rights."))
    run.tell(TableStopped("t5", "table t5: something else."))

    found = concerns(run.state.view(), run.pipeline)

    assert [one.what for one in found] == ["5 tables", "table t5"]
    assert found[0].text == "takes no events: /lake/* is read-only (t0, t1, t2 and 2 more)"
    assert found[0].remedy.startswith("Change its rights.")
    assert len(reasons(run.state.view(), run.pipeline)) == 2
