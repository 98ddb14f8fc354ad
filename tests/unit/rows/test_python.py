"""The user's function: halved when it raises, and each row known to come from its event."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from lakefeed.errors import TableError
from lakefeed.events import Refused
from lakefeed.formats import Rules
from lakefeed.formats.fit.fitter import Fitter
from lakefeed.rows import Rows, StepResult
from lakefeed.rows.attribution import rows_of
from lakefeed.rows.python import RunPython
from lakefeed.rows.user_code import UserFunction, collect

Batch = pa.RecordBatch


class _Given(UserFunction):
    """A function of this file, without a module."""

    def __init__(self, function: Callable[[Batch], Any]) -> None:
        super().__init__("shop:enrich")
        object.__setattr__(self, "_own", function)

    def load(self) -> Callable[[Batch], Any]:
        own: Callable[[Batch], Any] = self._own  # type: ignore[attr-defined]
        return own


def run(
    function: Callable[[Batch], Any], values: list[Any], columns: pa.Schema | None = None, **given: Any
) -> StepResult:
    fitter = Fitter(columns or pa.schema([("n", pa.int64())]), Rules("add", "dead_letter"))
    step = RunPython("clicks", _Given(function), lambda batch: fitter.fit(batch.to_struct_array()))
    batch = pa.record_batch({"n": pa.array(values, pa.int64())})
    indexes = given.get("indexes", range(len(values)))
    events: Any = None
    return step(Rows(batch, events, indexes))


def test_rows_are_changed_dropped_and_multiplied_and_each_is_known_to_come_from_its_event() -> None:
    def enrich(batch: Batch) -> Batch:
        kept = batch.filter(pc.not_equal(batch.column("n"), 2))
        twice = pa.array(np.repeat(np.arange(kept.num_rows), 2))
        return kept.take(twice)

    done = run(enrich, [1, 2, 3], indexes=[10, 20, 30])

    assert done.rows.batch.to_pydict() == {"n": [1, 1, 3, 3]}
    assert list(done.rows.indexes) == [10, 10, 30, 30]
    assert done.refused == []


def test_without_the_column_of_numbers_as_many_rows_are_the_same_rows() -> None:
    done = run(lambda batch: batch.select(["n"]), [1, 2, 3], indexes=[10, 20, 30])

    assert list(done.rows.indexes) == [10, 20, 30]


def test_without_the_column_of_numbers_other_rows_are_looked_for_only_when_somebody_asks() -> None:
    calls = []

    def twins(batch: Batch) -> Batch:
        """As many rows of each event as its number says."""
        calls.append(batch.num_rows)
        numbers = batch.column("n").to_numpy()
        return pa.record_batch({"n": np.repeat(numbers, numbers)})

    values = [2, 0, 3, 1, 0, 4, 5, 0]
    done = run(twins, values, indexes=list(range(100, 108)))

    assert calls == [8]
    wanted = [100 + at for at, value in enumerate(values) for _ in range(value)]
    assert list(done.rows.indexes) == wanted
    assert rows_of(done.rows.indexes, [105, 100, 101]) == [0, 1, 6, 7, 8, 9]
    assert len(calls) <= 8


def test_a_function_that_makes_more_of_a_part_than_of_the_whole_is_told_the_contract() -> None:
    def strange(batch: Batch) -> Batch:
        return pa.record_batch({"n": pa.array(range(1 if batch.num_rows == 4 else 9))})

    done = run(strange, [1, 2, 3, 4])

    with pytest.raises(TableError, match="must be the results of its rows"):
        list(done.rows.indexes)


@pytest.mark.parametrize("bad", [[], [0], [7], [3, 4, 9], list(range(10))])
def test_rows_that_make_it_raise_are_refused_and_the_others_go_on(bad: list[int]) -> None:
    def fussy(batch: Batch) -> Batch:
        for value in batch.column("n").to_pylist():
            if value in bad:
                raise ZeroDivisionError(f"cannot take {value}")
        return batch

    done = run(fussy, list(range(10)))

    good = [value for value in range(10) if value not in bad]
    assert done.rows.batch.to_pydict() == {"n": good}
    assert list(done.rows.indexes) == good
    assert done.refused == [Refused(at, "python", "ZeroDivisionError", f"cannot take {at}") for at in bad]


def test_halves_without_the_column_of_numbers_still_know_their_events() -> None:
    def fussy(batch: Batch) -> Batch:
        numbers = batch.column("n").to_numpy()
        if 3 in numbers:
            raise ValueError
        return pa.record_batch({"n": np.repeat(numbers, 2)})

    done = run(fussy, list(range(6)), indexes=[0, 10, 20, 30, 40, 50])

    assert list(done.rows.indexes) == [0, 0, 10, 10, 20, 20, 40, 40, 50, 50]
    assert done.refused == [Refused(30, "python", "ValueError", "ValueError")]


def test_what_it_returns_is_fitted_to_the_columns_of_the_table() -> None:
    def enrich(batch: Batch) -> Batch:
        texts = pa.array([str(value) if value != 2 else "two" for value in batch.column("n").to_pylist()])
        return batch.append_column("amount", texts).append_column("new", texts)

    columns = pa.schema([("n", pa.int64()), ("amount", pa.decimal128(5, 1))])
    done = run(enrich, [1, 2, 3], columns, indexes=[10, 20, 30])

    assert [str(value) for value in done.rows.batch.column("amount").to_pylist()] == ["1.0", "3.0"]
    assert [(one.index, one.stage, one.code) for one in done.refused] == [(20, "schema", "bad_decimal")]
    assert list(done.rows.indexes) == [10, 30]
    assert done.unknown == pa.schema([("new", pa.string())])


def test_what_pandas_and_polars_make_needs_no_cast() -> None:
    def enrich(batch: Batch) -> Any:
        some = batch.num_rows
        return pa.table(
            {
                "n": batch.column("n"),
                "big": pa.array(["a"] * some, pa.large_string()),
                "viewed": pa.array(["a"] * some, pa.string_view()),
                "category": pa.array(["a"] * some).dictionary_encode(),
                "moment": pa.array([0] * some, pa.timestamp("ns")),
                "lists": pa.array([["a"]] * some, pa.large_list(pa.large_string())),
            }
        )

    done = run(enrich, [1, 2])

    assert done.unknown == pa.schema(
        [
            ("big", pa.string()),
            ("viewed", pa.string()),
            ("category", pa.string()),
            ("moment", pa.timestamp("us", "UTC")),
            ("lists", pa.list_(pa.field("element", pa.string()))),
        ]
    )


@pytest.mark.parametrize(
    ("returned", "words"),
    [
        (lambda batch: None, "returned NoneType, not a pyarrow.RecordBatch; does it end with `return`"),
        (lambda batch: batch.to_pylist(), "returned list, not a pyarrow.RecordBatch"),
        (
            lambda batch: pa.record_batch({"n": [1], "_event": [7]}),
            "returned other numbers in '_event' than it was given",
        ),
        (lambda batch: pa.record_batch({"n": [1], "_event": [None]}), "other numbers in '_event'"),
        (lambda batch: pa.record_batch({"n": [1], "_event": ["x"]}), "other numbers in '_event'"),
        (
            lambda batch: pa.record_batch({"t": pa.array([(1, 2, 3)], pa.month_day_nano_interval())}),
            "a column 't' of type month_day_nano_interval, which tables do not have",
        ),
        (
            lambda batch: pa.RecordBatch.from_arrays([pa.array([1]), pa.array([1])], names=["a", "a"]),
            "two columns 'a'",
        ),
        (lambda batch: batch.select([]), r"2 rows without a column\.\n.*`batch\.slice\(0, 0\)`"),
        (lambda batch: batch.select(["_event"]), "returned 2 rows without a column"),
        (
            lambda batch: batch.append_column("v", pa.array([{}] * batch.num_rows, pa.struct([]))),
            "a column 'v' of type struct<>, which tables do not have",
        ),
        (
            lambda batch: pa.record_batch({"v": pa.array([[{}]] * 2, pa.list_(pa.struct([])))}),
            "a column 'v' of type list<item: struct<>>, which tables do not have",
        ),
    ],
)
def test_a_result_that_breaks_the_contract_stops_the_table(
    returned: Callable[[Batch], Any], words: str
) -> None:
    with pytest.raises(TableError, match=words):
        run(returned, [1, 2])


def test_a_function_leaves_all_rows_out_with_a_batch_of_none() -> None:
    empty = pa.RecordBatch.from_arrays([], names=[])

    for returned in (lambda batch: batch.slice(0, 0), lambda batch: empty):
        assert run(returned, [1, 2]).rows.batch.num_rows == 0


def write(folder: Path, **texts: str) -> None:
    for name, text in texts.items():
        file = folder / (name.replace("__", "/") + ".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)


def test_a_module_beside_the_file_brings_all_that_it_imports_from_there(tmp_path: Path) -> None:
    write(
        tmp_path,
        shop__init="",
        shop__clean="from . import words\ndef enrich(batch):\n    import late\n    return late.x, words.y\n",
        shop__words="y = 2\n",
        late="import json\nx = 1\n",
        other="raise AssertionError\n",
        json="raise AssertionError\n",
    )
    (tmp_path / "shop" / "init.py").rename(tmp_path / "shop" / "__init__.py")

    code = collect(["shop.clean:enrich"], tmp_path)

    assert [one.name for one in code.modules] == ["late", "shop", "shop.clean", "shop.words"]
    function: Any = UserFunction("shop.clean:enrich", code).load()
    assert function(None) == (1, 2)
    assert not any(str(tmp_path) in each for each in sys.path)


def test_a_changed_file_is_imported_anew_in_the_same_process(tmp_path: Path) -> None:
    def loaded() -> Any:
        found: Any = UserFunction("clean:enrich", collect(["clean:enrich"], tmp_path)).load()
        return found(None)

    write(tmp_path, clean="from words import y\ndef enrich(batch): return y\n", words="y = 1\n")
    first = loaded()
    write(tmp_path, words="y = 2\n")

    assert (first, loaded()) == (1, 2)


def test_a_folder_without_init_is_a_package_too(tmp_path: Path) -> None:
    write(
        tmp_path, shop__clean="from shop.words import y\ndef enrich(batch): return y\n", shop__words="y = 1\n"
    )

    found: Any = UserFunction("shop.clean:enrich", collect(["shop.clean:enrich"], tmp_path)).load()

    assert found(None) == 1


def test_an_installed_module_needs_no_text(tmp_path: Path) -> None:
    code = collect(["operator:neg"], tmp_path)

    assert code.modules == ()
    found: Any = UserFunction("operator:neg", code).load()
    assert found(1) == -1


@pytest.mark.parametrize(
    ("text", "name", "words"),
    [
        (
            "",
            "claen:enrich",
            r"there is no module 'claen'; put claen.py beside the pipeline file, or install",
        ),
        ("def enrich(batch): ...", "clean:enrihc", "has no function 'enrihc', did you mean 'enrich'"),
        ("enrich = 3", "clean:enrich", "'clean:enrich' is no function, but int"),
        ("def enrich(a, b): ...", "clean:enrich", r"must take one argument.*enrich\(a, b\)"),
        ("def enrich(batch): yield 1", "clean:enrich", "not be async or a generator"),
        ("\ndef enrich(:", "clean:enrich", r"module 'clean' is no Python: .* \(clean.py, line 2\)"),
        (
            "\nimport pandaz",
            "clean:enrich",
            r"ModuleNotFoundError: No module named 'pandaz' \(clean.py, line 2\)",
        ),
        ("1 / 0", "clean:enrich", r"cannot be imported: ZeroDivisionError: .* \(clean.py, line 1\)"),
    ],
)
def test_what_is_wrong_with_a_function_is_told_with_its_place(
    tmp_path: Path, text: str, name: str, words: str
) -> None:
    write(tmp_path, clean=text)

    with pytest.raises(TableError, match=words):
        UserFunction(name, collect([name], tmp_path)).load()


def test_a_dead_letter_names_the_line_that_raised(tmp_path: Path) -> None:
    write(tmp_path, clean="def enrich(batch):\n    raise KeyError('price')\n")
    function = UserFunction("clean:enrich", collect(["clean:enrich"], tmp_path))
    fitter = Fitter(pa.schema([]), Rules("add", "dead_letter"))
    step = RunPython("clicks", function, lambda batch: fitter.fit(batch.to_struct_array()))
    events: Any = None

    done = step(Rows(pa.record_batch({"n": [1]}), events, range(1)))

    assert done.refused == [Refused(0, "python", "KeyError", "'price' (clean.py, line 2)")]
    assert done.rows.batch.num_rows == 0


def test_modules_that_are_too_large_to_travel_are_refused(tmp_path: Path) -> None:
    write(tmp_path, clean="x = '" + "a" * (9 * 2**20) + "'\n")

    with pytest.raises(TableError, match="Install them as a package"):
        collect(["clean:enrich"], tmp_path)
