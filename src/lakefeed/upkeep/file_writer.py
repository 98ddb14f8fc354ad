"""How the files of an existing table are written again: by the writer that has written them at first."""

from __future__ import annotations

from lakefeed.files.parquet import FileTarget, TableWriter
from lakefeed.tables.table import LakeTable


def file_writer(table: LakeTable, codec: str, target_size: int, max_rows: int | None = None) -> TableWriter:
    """The writer that the operations of `lakefeed.tables` are given to rewrite a table with."""
    compression = {"UNCOMPRESSED": "none"}.get(codec, codec.lower())
    return TableWriter(
        table.store,
        FileTarget(
            table.schema,
            partition_columns=tuple(table.partition_columns),
            compression=compression,
            target_file_size=target_size,
            max_rows_per_file=max_rows,
            properties=table.properties,
        ),
    )
