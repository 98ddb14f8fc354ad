"""Dead letters in the form of kafka-delta-ingest: its columns beside Lakefeed's own, which a replay needs."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
import pyarrow as pa

from lakefeed.files.parquet import FileTarget
from lakefeed.formats import Rules
from lakefeed.formats.refusal import Misfit
from lakefeed.handles.tables import Tables
from lakefeed.pipeline.options.transform import ORIGIN_FIELDS
from lakefeed.rows.dead_letter import DEAD_LETTER_SCHEMA, stored_name

_NO_ORIGIN = {name.removeprefix("kafka."): None for name in ORIGIN_FIELDS}
_THEIRS = ("base64_bytes", "json_string", "error", "timestamp")


@dataclass(frozen=True)
class DeadLetterForm:
    """How letters are written to a table that is not Lakefeed's own. Picklable."""

    schema: pa.Schema
    """The columns that the table has."""
    partition_columns: tuple[str, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    transforms: tuple[tuple[str, str], ...] = ()

    def of(self, letters: pa.RecordBatch) -> pa.RecordBatch:
        """Letters as the table has them; columns that nobody fills are null."""
        names = [stored_name(name, ingest=True) for name in letters.schema.names]
        columns: dict[str, Any] = dict(zip(names, letters.columns, strict=True))
        columns |= self._theirs(letters)
        columns |= self._made(columns, letters.num_rows)
        nothing = {one.name: pa.nulls(letters.num_rows, one.type) for one in self.schema}
        arrays = [columns.get(one.name, nothing[one.name]).cast(one.type) for one in self.schema]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _theirs(self, letters: pa.RecordBatch) -> dict[str, pa.Array]:
        """Bytes of what could not be read, the text of what could."""
        encoded, texts = [], []
        rows = zip(*(letters.column(name).to_pylist() for name in ("stage", "code", "payload")), strict=True)
        for stage, code, payload in rows:
            text = None if stage == "decode" and code != "bad_transform" else _text(payload)
            texts.append(text)
            encoded.append(None if text is not None or payload is None else b64encode(payload).decode())
        return {
            "base64_bytes": pa.array(encoded, pa.string()),
            "json_string": pa.array(texts, pa.string()),
            "timestamp": letters.column("dead_at"),
        }

    def _made(self, columns: Mapping[str, pa.Array], count: int) -> dict[str, pa.Array]:
        """What transforms make of each letter; nothing where one fails, as no letter may be lost."""
        # Here, as commands that only look at letters need none of it.
        from lakefeed.formats.json.decoder import JsonDecoder
        from lakefeed.formats.transform.objects import Objects

        targets = {target for target, _ in self.transforms}
        schema = pa.schema([one.with_nullable(True) for one in self.schema if one.name in targets])
        if not self.transforms or not len(schema):
            return {}
        objects = Objects(self.transforms, schema, coerces=True)
        values = {name: columns[name].to_pylist() for name in _THEIRS[:3]}
        values["timestamp"] = columns["timestamp"].cast(pa.int64()).to_pylist()
        decoder = JsonDecoder(schema, Rules(new_column="ignore"))
        texts: list[bytes] = []
        for at in range(count):
            try:
                letter = orjson.dumps({name: column[at] for name, column in values.items()})
                texts.append(objects.rewritten(letter, _NO_ORIGIN))
            except Misfit:
                texts.append(b"{}")
        decoded = decoder.decode(texts)
        if decoded.refused:
            bad = {one.index for one in decoded.refused}
            decoded = decoder.decode([b"{}" if at in bad else text for at, text in enumerate(texts)])
        return dict(zip(schema.names, decoded.rows.columns, strict=True))


def form_of(tables: Tables) -> DeadLetterForm | None:
    """The form of a pipeline's letters; None for Lakefeed's own. Opens their table, or makes it."""
    asked = tables.pipeline.dead_letters
    if asked.form == "lakefeed":
        return None
    shape = tables.open_dead_letters().shape
    return DeadLetterForm(
        shape.schema, tuple(shape.partition_columns), dict(shape.properties), tuple(asked.transform.items())
    )


def dead_letter_target(form: DeadLetterForm | None, *, sync: bool) -> FileTarget:
    """How files of letters are written, in any form."""
    if form is None:
        return FileTarget(DEAD_LETTER_SCHEMA, sync=sync)
    columns, properties = form.partition_columns, form.properties
    return FileTarget(form.schema, partition_columns=columns, properties=properties, sync=sync)


def in_form(form: DeadLetterForm | None, letters: pa.RecordBatch) -> pa.RecordBatch:
    """Letters as their table has them, in any form."""
    return letters if form is None else form.of(letters)


def own_names(names: Sequence[str], *, ingest: bool) -> dict[str, str]:
    """What the columns of a table of letters are called here, by what they are called there."""
    return {stored_name(name, ingest=ingest): name for name in names}


def _text(payload: bytes | None) -> str | None:
    try:
        return None if payload is None else payload.decode()
    except UnicodeDecodeError:
        return None
