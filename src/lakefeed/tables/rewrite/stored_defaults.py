"""Values that rows get when their table gets a column: a database gives them to old rows and tells nobody.

What is to be filled in is kept as a property of the table until it is done. So a run that is killed between
the new column and its values finishes that before it reads anything: no row with an own value comes between.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal
from shlex import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.column_types import type_text
from lakefeed.columns.partition_values import value_of
from lakefeed.columns.repeated import repeated
from lakefeed.errors import Conflict, TableError
from lakefeed.files import WrittenFile
from lakefeed.files.parquet import FileTarget, TableWriter, write_files
from lakefeed.tables.data_files import codec_of, data_files, read_file, refuse_missing
from lakefeed.tables.log.change_feed import TYPE, is_on
from lakefeed.tables.log.data_file import DataFile
from lakefeed.tables.log.listing import CHANGES
from lakefeed.tables.operations.operation import CommitInfo
from lakefeed.tables.rewrite.rewrite import rewrite
from lakefeed.tables.schema import keep_properties
from lakefeed.tables.table import LakeTable
from lakefeed.tables.write.keyed.keys import equal
from lakefeed.tables.write.keyed.lookup import read_columns
from lakefeed.tables.write.mode import refuse_append_only

PROPERTY = "lakefeed.default."
"""Begins the name of the property that holds what a column is to be filled with, in SQL; empty when done."""
_TRIES = 5
"""How often another writer may change a file meanwhile."""
_LITERAL = re.compile(r"arrow_cast\((?:'(?P<text>.*)'|(?P<number>-?\d+)), '[^']*'\)", re.DOTALL)
_STREAM = "arrow_ipc:"
"""Begins the text of a value that SQL has no plain literal for: an Arrow stream of one value, in base64."""
_NAMES = {
    "float": "Float32",
    "double": "Float64",
    "string": "Utf8",
    "bool": "Boolean",
}


def literal(value: pa.Scalar, kind: pa.DataType | None = None) -> str | None:
    """A value as SQL, for a column of its type or of `kind`; None where such a column has no text for it."""
    kind = value.type if kind is None else kind
    if pa.types.is_string(kind) and value.type != kind:
        # The text that a database has for it is not known here.
        return None
    try:
        value = value.cast(kind)
        if pa.types.is_binary(kind) or pa.types.is_nested(kind):
            return _stream(value)
        text = _literal(value)
        again = None if text is None else _value(text, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, TableError):
        return None
    return text if equal(pa.array([again], kind), pa.array([value], kind))[0] else None


def _stream(value: pa.Scalar) -> str:
    sink = pa.BufferOutputStream()
    values = repeated(value, 1)
    with pa.ipc.new_stream(sink, pa.schema([("value", values.type)])) as writer:
        writer.write_batch(pa.record_batch([values], ["value"]))
    return _STREAM + base64.b64encode(sink.getvalue()).decode()


def _of_stream(text: str, kind: pa.DataType) -> pa.Scalar:
    try:
        with pa.ipc.open_stream(base64.b64decode(text.removeprefix(_STREAM), validate=True)) as reader:
            (value,) = reader.read_all().column("value")
    except (ValueError, KeyError, OSError) as error:
        raise TableError(f"{text} is not the text of a value") from error
    return value.cast(kind)


def _literal(value: pa.Scalar) -> str | None:
    kind = value.type
    if pa.types.is_timestamp(kind):
        # Python has no times outside the years 1 to 9999, and Postgres does.
        zone = f'Some("{kind.tz}")' if kind.tz else "None"
        return f"arrow_cast({value.cast(pa.int64())}, 'Timestamp(Microsecond, {zone})')"
    if pa.types.is_date32(kind):
        return f"arrow_cast({value.cast(pa.int32())}, 'Date32')"
    if pa.types.is_decimal128(kind):
        return f"arrow_cast('{value.as_py():f}', 'Decimal128({kind.precision}, {kind.scale})')"
    text = str(value.as_py()).replace("'", "''")
    if pa.types.is_signed_integer(kind):
        return f"arrow_cast('{text}', '{str(kind).capitalize()}')"
    return f"arrow_cast('{text}', '{_NAMES[str(kind)]}')" if str(kind) in _NAMES else None


def intend(table: LakeTable, values: Mapping[str, str], commit_info: CommitInfo) -> None:
    """Keep what columns are to be filled with, before the table gets them; values are SQL."""
    keep_properties(table, {PROPERTY + name: text for name, text in values.items()}, commit_info)


def fill(table: LakeTable, commit_info: CommitInfo, open_until: str | None = None) -> list[str]:
    """Fill what was intended, in one commit; the names of the columns. Rows with a value keep it.

    `open_until` is the column that is null in the rows of a history that hold now: the others stay.
    """
    wanted = {
        name.removeprefix(PROPERTY): text
        for name, text in table.properties.items()
        if name.startswith(PROPERTY) and text and name.removeprefix(PROPERTY) in table.schema.names
    }
    if not wanted:
        return []
    refuse_append_only(
        table.shape,
        table.path,
        f"the default of its new column {next(iter(wanted))} changes rows",
        "`mode: append`",
    )
    values = {name: _wanted(table, name, text) for name, text in wanted.items()}
    for left in reversed(range(_TRIES)):
        try:
            _rewrite(table, values, commit_info, open_until)
            break
        except Conflict:
            if not left:
                raise
    keep_properties(table, {PROPERTY + name: "" for name in wanted}, commit_info)
    return list(wanted)


def _wanted(table: LakeTable, name: str, text: str) -> pa.Scalar:
    try:
        return _value(text, table.schema.field(name).type)
    except TableError as error:
        raise TableError(
            f"{table.path}: the property {PROPERTY}{name} is to fill the column {name}: {error}.\n"
            f"To leave its rows as they are: lakefeed table properties {quote(table.path)} "
            f"--set {quote(f'{PROPERTY}{name}=')} --yes"
        ) from error


def _value(text: str, kind: pa.DataType) -> pa.Scalar:
    """The value of a text that `literal` has written. Raises TableError for any other text."""
    if text.startswith(_STREAM):
        return _of_stream(text, kind)
    found = _LITERAL.fullmatch(text)
    if found is None:
        raise TableError(f"{text} is not the text of a value")
    number, plain = found["number"], (found["text"] or "").replace("''", "'")
    try:
        if number:
            return (
                pa.scalar(int(number)).cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(kind)
            )
        if pa.types.is_string(kind):
            return pa.scalar(plain)
        # Older versions wrote small decimals with an exponent.
        return pa.scalar(Decimal(plain), kind) if pa.types.is_decimal(kind) else value_of(plain, kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ArithmeticError) as error:
        raise TableError(f"{text} is no {type_text(kind)}: {error}") from error


def _rewrite(
    table: LakeTable, values: Mapping[str, pa.Scalar], commit_info: CommitInfo, open_until: str | None
) -> None:
    """Write the files that lack a value again; files of earlier versions stay as they are."""
    table.refresh()
    files = data_files(table)
    refuse_missing(table.store, files)
    files = [file for file in files if _lacks(table, file, values, open_until)]
    if not files:
        return
    target = FileTarget(
        table.schema,
        partition_columns=tuple(table.partition_columns),
        compression={"UNCOMPRESSED": "none"}.get(codec := codec_of(table.store, files), codec.lower()),
        properties=table.properties,
        sync=table.durable,
    )
    feed: list[WrittenFile] = []
    if is_on(table.properties):
        feed = write_files(table.store, _feed_target(target), _changes(table, files, values, open_until))
    filled = (
        _filled(batch, values, open_until)
        for file in files
        for batch in read_file(table.store, file, table.schema)
    )
    rewrite(table, files, filled, TableWriter(table.store, target), commit_info, feed=feed)


def _lacks(table: LakeTable, file: DataFile, values: Mapping[str, pa.Scalar], open_until: str | None) -> bool:
    names = [*values, *([open_until] if open_until else [])]
    schema = pa.schema([table.schema.field(name) for name in names])
    batches = read_columns(table.store, file, schema)
    return any(_lacking(batch, name, open_until).true_count for batch in batches for name in values)


def _lacking(rows: pa.RecordBatch, name: str, open_until: str | None) -> pa.BooleanArray:
    """Which rows are to get a value in a column."""
    lacking = rows.column(name).is_null()
    return pc.and_(lacking, rows.column(open_until).is_null()) if open_until else lacking


def _filled(rows: pa.RecordBatch, values: Mapping[str, pa.Scalar], open_until: str | None) -> pa.RecordBatch:
    for name, value in values.items():
        at = rows.schema.get_field_index(name)
        column = pc.if_else(_lacking(rows, name, open_until), value, rows.column(at))
        rows = rows.set_column(at, rows.schema.field(at), column)
    return rows


def _feed_target(target: FileTarget) -> FileTarget:
    schema = pa.schema([*target.schema, pa.field(TYPE, pa.string())])
    return replace(target, schema=schema, folder=f"{CHANGES}/", prefix="cdc")


def _changes(
    table: LakeTable, files: Sequence[DataFile], values: Mapping[str, pa.Scalar], open_until: str | None
) -> Iterator[pa.Table]:
    """The rows that get a value, before and after."""
    for file in files:
        for batch in read_file(table.store, file, table.schema):
            lacking = np.zeros(batch.num_rows, np.bool_)
            for name in values:
                lacking |= _lacking(batch, name, open_until).to_numpy(zero_copy_only=False)
            rows = batch.filter(pa.array(lacking))
            after = _filled(rows, values, open_until)
            for kind, some in (("update_preimage", rows), ("update_postimage", after)):
                types = pa.array([kind] * rows.num_rows, pa.string())
                yield pa.Table.from_batches([some]).append_column(TYPE, types)
