from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs

from lakefeed.handles.tables import Tables
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.tables.schema import add_columns, keep_properties
from lakefeed.tables.table import LakeTable


def tables(folder: Path, name: str) -> Tables:
    file = folder / f"{name}.yaml"
    file.write_text(
        f"""\
name: {name}
sources: {{clicks: {{type: generate, rows: 10}}}}
tables: {{events: {{path: events, from: clicks, schema: {{id: long}}}}}}
"""
    )
    return Tables(Pipeline.from_file(file))


def test_column_that_another_writer_added_first_is_neither_added_again_nor_an_error(tmp_path: Path) -> None:
    mine, theirs = tables(tmp_path, "mine").handles["events"], tables(tmp_path, "theirs").handles["events"]
    mine.create(pa.schema([("id", pa.int64())]), {}, {})
    theirs.open("theirs")
    theirs.add(pa.schema([("new", pa.string()), ("theirs", pa.int64())]), {})

    stale = add_columns(mine.table, [pa.field("new", pa.string())], {})
    added = mine.add(pa.schema([("new", pa.string()), ("mine", pa.int64())]), {})

    assert not stale
    assert [field.name for field in added] == ["mine"]
    store = pafs.SubTreeFileSystem(str(tmp_path / "events"), pafs.LocalFileSystem())
    table = LakeTable.open("events", str(tmp_path / "events"), {}, store)
    assert table is not None
    assert table.schema.names == ["id", "new", "theirs", "mine"]


def test_property_that_meets_a_change_of_another_writer_is_set_behind_it(tmp_path: Path) -> None:
    mine, theirs = tables(tmp_path, "mine").handles["events"], tables(tmp_path, "theirs").handles["events"]
    mine.create(pa.schema([("id", pa.int64())]), {}, {})
    theirs.open("theirs")
    theirs.add(pa.schema([("theirs", pa.int64())]), {})

    keep_properties(mine.table, {"delta.logRetentionDuration": "interval 3 days"}, {})

    assert mine.table.properties["delta.logRetentionDuration"] == "interval 3 days"
    assert mine.table.schema.names == ["id", "theirs"]
