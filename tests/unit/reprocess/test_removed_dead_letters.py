"""Dead letters leave tables that others write, too: their columns, rows, commits and properties stay."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from deltalake import DeltaTable, Field, write_deltalake

from lakefeed import Pipeline
from lakefeed.dead_letters.discard import discard
from lakefeed.dead_letters.find import DeadLetterFilter, Mask, count_dead_letters
from lakefeed.dead_letters.remove import remove
from lakefeed.errors import TableError
from lakefeed.handles.tables import Tables
from lakefeed.tables.table import LakeTable
from support.landing import Landing
from support.vectors import allow, mark_everywhere

BAD = '{"id": "x"}\n{"id": "y"}\n{"id": 3}\n'
DECLARED = "schema: {id: long}"


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """A table of one row, and two dead letters in one file."""
    landing = Landing(tmp_path, "format: json, on_change: reload", DECLARED)
    landing.put("a.json", BAD, 1000)
    landing.run()
    return landing


def letters_path(landing: Landing) -> Path:
    return landing.folder / "shop_dead_letters"


def discarded(landing: Landing, offset: int | None = None) -> int:
    wanted = DeadLetterFilter(offset=offset)
    return discard(Pipeline.from_file(landing.file), wanted, who="me", reason="noise").dead_letters


def test_letters_that_stay_keep_what_others_have_noted_in_a_column_of_their_own(landing: Landing) -> None:
    table = DeltaTable(letters_path(landing))
    table.alter.add_columns([Field("note", "string")])
    table.update({"note": "'seen'"})
    first, second = landing.letters()

    count = discarded(landing, first["offset"])

    assert (count, landing.letters()) == (1, [second])
    assert second["note"] == "seen"


def test_rows_of_kafka_delta_ingest_in_the_same_file_are_no_obstacle(tmp_path: Path) -> None:
    foreign = pa.table(
        {
            "base64_bytes": ["eA=="],
            "json_string": pa.array([None], pa.string()),
            "error": ["bad"],
            "timestamp": pa.array([0], pa.timestamp("us", "UTC")),
            "date": ["2026-11-01"],
        }
    )
    write_deltalake(tmp_path / "theirs", foreign, partition_by=["date"])
    landing = Landing(tmp_path, "format: json, on_change: reload", DECLARED)
    landing.file.write_text(
        landing.file.read_text() + "dead_letters: {path: theirs, form: kafka-delta-ingest}\n"
    )
    landing.put("a.json", BAD, 1000)
    landing.run()
    DeltaTable(tmp_path / "theirs").update({"date": "'2026-11-01'"})
    assert len(DeltaTable(tmp_path / "theirs").file_uris()) == 1

    landing.put("a.json", BAD.replace('"x"', "1"), 2000)
    landing.run()
    after_reload = sorted(DeltaTable(tmp_path / "theirs").to_pyarrow_table()["error"].to_pylist())
    discarded(landing)

    assert after_reload == ["bad", 'id: expected long, got "y"']
    assert DeltaTable(tmp_path / "theirs").to_pyarrow_table()["base64_bytes"].to_pylist() == ["eA=="]
    assert landing.rows("id") == [1, 3]


def test_letters_that_may_not_be_deleted_stop_only_what_deletes_some(landing: Landing) -> None:
    DeltaTable(letters_path(landing)).alter.set_table_properties({"delta.appendOnly": "true"})

    landing.put("b.json", BAD, 1000)
    landing.run()
    with pytest.raises(TableError) as refused:
        discarded(landing)

    assert len(landing.letters()) == 4
    assert str(refused.value) == (
        f"{letters_path(landing)}: dead letters are to leave, and the table has delta.appendOnly=true.\n"
        "Set the property to false, or choose another path for `dead_letters`."
    )
    shutil.rmtree(landing.folder / "rows")
    with pytest.raises(TableError, match="dead letters are to leave"):
        landing.run()


def test_file_that_another_writer_has_replaced_meanwhile_is_looked_at_again(landing: Landing) -> None:
    landing.put("b.json", BAD, 1000)
    landing.run()
    pipeline, path = Pipeline.from_file(landing.file), letters_path(landing)
    tables, looks = Tables(pipeline), list[int]()
    assert tables.dead_letters.open(pipeline.name) is not None

    def chosen(rows: pa.RecordBatch) -> Mask:
        if not looks:
            DeltaTable(path).optimize.compact()
            write_deltalake(path, DeltaTable(path).to_pyarrow_table().slice(0, 1), mode="append")
        looks.append(rows.num_rows)
        return np.ones(rows.num_rows, np.bool_)

    wanted = DeadLetterFilter(table="rows")
    count = remove(tables, wanted, {"pipeline": "shop", "kind": "discard"}, {}, chosen)

    assert (count, landing.letters()) == (5, [])
    assert sum(looks[2:]) == 5


@pytest.mark.parametrize("feed", ["true", "false"])
def test_commit_whose_answer_is_lost_is_not_repeated(
    landing: Landing, monkeypatch: pytest.MonkeyPatch, feed: str
) -> None:
    path = letters_path(landing)
    DeltaTable(path).alter.set_table_properties({"delta.enableChangeDataFeed": feed})
    offset, put, version = landing.letters()[0]["offset"], LakeTable.put, DeltaTable(path).version()

    def lost(table: LakeTable, actions: object) -> None:
        put(table, actions)  # type: ignore[arg-type]
        raise OSError("connection reset by peer")

    monkeypatch.setattr(LakeTable, "put", lost)

    assert discarded(landing, offset) == 1
    assert DeltaTable(path).version() == version + 1
    if feed == "true":
        changes = pa.table(DeltaTable(path).load_cdf(starting_version=version + 1).read_all())
        assert changes.select(["offset", "_change_type"]).to_pylist() == [
            {"offset": offset, "_change_type": "delete"}
        ]
    monkeypatch.undo()
    assert landing.is_sound


def test_letters_that_a_deletion_vector_has_deleted_are_not_counted_again(landing: Landing) -> None:
    allow(letters_path(landing))
    mark_everywhere(letters_path(landing), [0])

    assert discarded(landing) == 1
    assert count_dead_letters(Tables(Pipeline.from_file(landing.file))) == 0
