"""Small files with the traits of public data, each read by a pipeline of five lines and by another reader."""

from __future__ import annotations

import csv
import gzip
import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from support.ledger import dead_letters

Rows = list[dict[str, Any]]
Read = Callable[[Path], Rows]
PIPELINE = """\
name: shop
sources:
  drops: {{type: files, path: in, {options}}}
tables:
  rows: {{path: rows, from: drops}}
"""
CARS: Rows = [{"Name": f"car {at}", "Miles per Gallon": at % 40, "Origin": "USA"} for at in range(150)]
CARS += [{"Name": "last", "Miles per Gallon": 26.5, "Origin": None}]
CAR_COLUMNS = {"Miles per Gallon": "Miles_per_Gallon"}
MOVIES: Rows = [
    {"Title": "The Land Girls", "US Gross": 146083, "IMDB Rating (of 10)": 6.1, "Rotten?": "no"},
    {"Title": "Slam", "US Gross": None, "IMDB Rating (of 10)": 3, "Rotten?": None},
    {"Title": "Br\u00fcno \u2014 2", "US Gross": 2**53 + 1, "IMDB Rating (of 10)": 7.25, "Rotten?": "yes"},
]
MOVIE_COLUMNS = {"US Gross": "US_Gross", "IMDB Rating (of 10)": "IMDB_Rating__of_10_"}
QUAKES: Rows = [
    {
        "type": "Feature",
        "properties": {"mag": 1.6 + at, "place": "13 km NW of Tres Pinos, CA", "gap": None if at else 71},
        "geometry": {"type": "Point", "coordinates": [-121.5 - at, 36.9, 8]},
        "id": f"nc{at}",
    }
    for at in range(3)
]
MISSIONS = (
    'Company Name,Launch (UTC),Cost $m,Notes\r\n"SpaceX, Inc.",2020-08-07,50.0,"a ""quote"""\r\n   \r\n'
    'CASC,,29.75,\r\n1941,2020-08-04,,"two\r\nlines"\r\n'
)
MISSION_COLUMNS = {"Company Name": "Company_Name", "Launch (UTC)": "Launch__UTC_", "Cost $m": "Cost_$m"}
RATES = "'Land';'Quote %';'Stand'\n'Bayern';3,1;13\u00a0124\n'Baden; W.';-0,5;11\n"
HEADER = "format: {type: csv, header: true}"


def of_json(*path: str) -> Read:
    """The elements of the array at a path."""

    def read(file: Path) -> Rows:
        found = json.loads(file.read_bytes())
        for key in path:
            found = found[key]
        return found  # type: ignore[no-any-return]

    return read


def of_objects(file: Path) -> Rows:
    """Objects one after the other, with any white space between them."""
    found, text, decoder = list[dict[str, Any]](), file.read_text().lstrip(), json.JSONDecoder()
    while text:
        one, end = decoder.raw_decode(text)
        found.append(one)
        text = text[end:].lstrip()
    return found


def of_csv(encoding: str = "utf-8", **dialect: Any) -> Read:
    """Records that are not blank; a field without text is null."""

    def read(file: Path) -> Rows:
        with file.open(encoding=encoding, newline="") as text:
            head, *rows = (row for row in csv.reader(text, **dialect) if "".join(row).strip())
        return [dict(zip(head, (value or None for value in row), strict=True)) for row in rows]

    return read


def of_duckdb(file: Path) -> Rows:
    found = duckdb.read_csv(str(file), compression="gzip", all_varchar=True, header=True, sep=",")
    return [dict(zip(found.columns, row, strict=True)) for row in found.fetchall()]


@dataclass
class Case:
    """A file, how another reader reads it, and the options that the source needs besides its path."""

    name: str
    content: str | bytes
    read: Read
    options: str = "format: json"
    columns: dict[str, str] = field(default_factory=dict)
    """By field the column, where that has another name."""


CASES = {
    "names with spaces and signs": Case("a.json", json.dumps(MOVIES), of_json(), columns=MOVIE_COLUMNS),
    "pretty-printed": Case("a.json", json.dumps(MOVIES, indent=2), of_json(), columns=MOVIE_COLUMNS),
    "whole numbers, then a decimal": Case("a.json", json.dumps(CARS), of_json(), columns=CAR_COLUMNS),
    "an object with the records": Case(
        "a.json",
        json.dumps({"next": None, "data": MOVIES}, ensure_ascii=False),
        of_json("data"),
        "format: json, records: data",
        MOVIE_COLUMNS,
    ),
    "GeoJSON": Case(
        "a.geojson",
        json.dumps({"type": "FeatureCollection", "metadata": {"count": 3}, "features": QUAKES}, indent=1),
        of_json("features"),
        "format: json, records: features",
    ),
    "objects one after the other": Case(
        "a.json", "".join(json.dumps(one) for one in MOVIES), of_objects, columns=MOVIE_COLUMNS
    ),
    "objects over several lines": Case(
        "a.json", "\n".join(json.dumps(one, indent=1) for one in QUAKES), of_objects
    ),
    "lines of spaces": Case(
        "a.json", "\n   \n".join(json.dumps(one) for one in QUAKES) + "\n\t\n", of_objects
    ),
    "CSV": Case("a.csv", MISSIONS, of_csv(), HEADER, MISSION_COLUMNS),
    "CSV, gzip under its name": Case(
        "a.csv", gzip.compress(MISSIONS.replace("   \r\n", "").encode()), of_duckdb, HEADER, MISSION_COLUMNS
    ),
    "CSV, UTF-16": Case("a.csv", MISSIONS.encode("utf-16"), of_csv("utf-16"), HEADER, MISSION_COLUMNS),
    "CSV of Latin-1": Case(
        "a.csv",
        "Stra\u00dfe,Zahl\nM\u00fcllerweg,1\n".encode("latin-1"),
        of_csv("latin-1"),
        f"{HEADER}, encoding: latin-1",
    ),
}


def read_by_pipeline(folder: Path, options: str) -> tuple[Rows, list[dict[str, Any]]]:
    """The rows, with the values of nested columns, and the dead letters."""
    file = folder / "shop.yaml"
    file.write_text(PIPELINE.format(options=options))
    run_inline(Pipeline.from_file(file))
    rows = DeltaTable(folder / "rows").to_pyarrow_table().to_pylist() if (folder / "rows").exists() else []
    return rows, dead_letters(folder / "shop_dead_letters")


def put(folder: Path, name: str, content: str | bytes) -> Path:
    """A file that is old enough to be read at once."""
    file = folder / "in" / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    os.utime(file, (1000, 1000))
    return file


def renamed(rows: Rows, columns: dict[str, str]) -> Rows:
    return [{columns.get(name, name): value for name, value in row.items()} for row in rows]


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_rows_are_those_of_another_reader(tmp_path: Path, case: Case) -> None:
    file = put(tmp_path, case.name, case.content)

    rows, letters = read_by_pipeline(tmp_path, case.options)

    assert letters == []
    assert rows == renamed(case.read(file), case.columns)


def test_options_that_errors_name_make_rows_of_what_was_refused(tmp_path: Path) -> None:
    file, options, errors = put(tmp_path, "a.csv", RATES), "header: true", []
    for option in ('delimiter: ";"', 'quote: "\'"'):
        rows, letters = read_by_pipeline(tmp_path, f"format: {{type: csv, {options}}}")
        errors.append((rows, [f"set `{option}`" in one["error"] for one in letters]))
        options += f", {option}"

    rows, letters = read_by_pipeline(tmp_path, f"format: {{type: csv, {options}}}")

    assert errors == [([], [True, True]), ([], [True, True])]
    assert letters == []
    assert rows == renamed(of_csv(delimiter=";", quotechar="'")(file), {"Quote %": "Quote_%"})


def test_titles_that_are_numbers_are_text_from_the_first_file_on_that_has_one(tmp_path: Path) -> None:
    titles: Rows = [{"Title": "Slam"}, {"Title": 300}, {"Title": "1941"}, {"Title": 8.5}]
    put(tmp_path, "a.json", json.dumps(titles))
    read_by_pipeline(tmp_path, "format: json")
    put(tmp_path, "b.json", json.dumps([{"Title": 9}]))

    rows, letters = read_by_pipeline(tmp_path, "format: json")

    assert letters == []
    assert sorted(one["Title"] for one in rows) == ["1941", "300", "8.5", "9", "Slam"]
