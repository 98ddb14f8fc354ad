"""How the files of an existing table are written again: by the writer that has written them at first."""

from __future__ import annotations

from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.tables.table import LakeTable


def file_writer(table: LakeTable, codec: str, target_size: int) -> TableWriter:
    """The writer that the operations of `lakefeed.tables` are given to rewrite a table with."""
    return TableWriter(table.store, file_target(table, codec, target_size))


def file_target(table: LakeTable, codec: str, target_size: int, max_rows: int | None = None) -> FileTarget:
    """How its files are written, with the compression that a footer names."""
    return FileTarget(
        table.schema,
        partition_columns=tuple(table.partition_columns),
        compression={"UNCOMPRESSED": "none"}.get(codec, codec.lower()),
        target_file_size=target_size,
        max_rows_per_file=max_rows,
        properties=table.properties,
    )
