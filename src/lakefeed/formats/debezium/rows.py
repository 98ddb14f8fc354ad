"""`unwrap`: the row that a change event is about, instead of the event."""

from __future__ import annotations

from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.formats.debezium.envelope import Envelope, members
from lakefeed.formats.debezium.sequence import sequence, sequences
from lakefeed.formats.fit.type_rules import is_text
from lakefeed.formats.refusal import Misfit, Misfits, shown, utf8_text

ADDED = pa.schema([("__op", pa.string()), ("__deleted", pa.bool_()), ("__ts_ms", pa.int64())])
"""What is added to the columns of the row."""

SEQUENCE = "__sequence"
"""What is added for a table that applies changes: a text by which a change is newer than another."""


def about_no_row(*, changes: bool) -> frozenset[str]:
    """What was done to no row in particular: a message was sent, or a table emptied, which is a change."""
    return frozenset(("m",)) if changes else frozenset(("m", "t"))


def unwrapped(events: pa.StructArray, *, changes: bool = False) -> tuple[pa.StructArray, Misfits]:
    """The rows of events: as they are after the change or, where it has deleted them, as they were before.

    The misfits are events without either, such as one that empties a table.
    """
    columns = dict(zip((field.name for field in events.type), events.flatten(), strict=True))
    rows = _rows(columns, len(events))
    op, moment = columns["op"], columns.get("ts_ms", pa.nulls(len(events), pa.int64()))
    absent = rows.is_null()
    if changes:
        absent = pc.and_(absent, pc.not_equal(op, "t"))
    missing = np.flatnonzero(absent.to_numpy(zero_copy_only=False)).tolist()
    texts = [name for name in ("after", "before") if name in columns and is_text(columns[name].type)]
    misfits = {index: _document_in_avro() if texts else _no_row(op[index].as_py()) for index in missing}
    members = [*rows.flatten(), op, pc.equal(op, "d"), moment]
    names = [*(field.name for field in rows.type), *ADDED.names]
    if changes:
        members.append(sequences(columns.get("source"), moment))
        names.append(SEQUENCE)
    kind = pa.struct([(name, member.type) for name, member in zip(names, members, strict=True)])
    return pa.Array.from_buffers(kind, len(events), [None], children=members), misfits


def _rows(columns: dict[str, pa.Array], count: int) -> pa.StructArray:
    sides = [columns[name] for name in ("after", "before") if name in columns]
    sides = [side for side in sides if pa.types.is_struct(side.type)]
    if not sides:
        return pa.nulls(count, pa.struct([]))
    # Both are rows of one table; an event that says otherwise is taken by what is after the change.
    first, last = sides[0], sides[-1] if sides[-1].type == sides[0].type else sides[0]
    indexes = np.arange(count) + np.where(first.is_valid().to_numpy(zero_copy_only=False), 0, count)
    return pa.concat_arrays([first, last]).take(pa.array(indexes))


def row_text(envelope: Envelope, *, changes: bool = False) -> bytes:
    """The JSON text of the row of an event that came without a schema, what is added included. Raises Misfit.

    Text, so that the rules of JSON decide what its values become, without losing a digit on the way.
    """
    event = envelope.event
    side = next((name for name in ("after", "before") if event.get(name) is not None), None)
    if side is None and not (changes and event["op"] == "t"):
        raise _no_row(event["op"])
    if side is None:
        row = b"{}"
    else:
        row = _text(envelope, side) if isinstance(event[side], dict) else _document(event[side], side)
    moment = _text(envelope, "ts_ms") if "ts_ms" in event else b"null"
    comma = b"," if row[1:-1].strip() else b""
    op, deleted = orjson.dumps(event["op"]), b"true" if event["op"] == "d" else b"false"
    made = b'%b%b"__op":%b,"__deleted":%b,"__ts_ms":%b}' % (row[:-1], comma, op, deleted, moment)
    if not changes:
        return made
    found = orjson.dumps(sequence(event.get("source"), event.get("ts_ms")))
    return b'%b,"%b":%b}' % (made[:-1], SEQUENCE.encode(), found)


def _document(value: Any, side: str) -> bytes:
    """The row that is the JSON text of a document, as MongoDB's connector writes it. Raises Misfit."""
    text = value.encode().strip() if isinstance(value, str) else b""
    try:
        if isinstance(orjson.loads(text), dict):
            return text
    except orjson.JSONDecodeError:
        pass
    message = f"expected a row, or the JSON text of one, got {shown(value)}"
    raise Misfit("no_row", message).within(side)


def _document_in_avro() -> Misfit:
    message = (
        "rows are texts here, as MongoDB's connector writes them; `unwrap` reads these from JSON only, "
        "so leave it out or use the JSON converter"
    )
    return Misfit("no_row", message)


def _text(envelope: Envelope, name: str) -> bytes:
    """The text of a member of an event, as it came."""
    try:
        text = orjson.dumps(envelope.event[name])
    except orjson.JSONEncodeError:
        text = b""
    # Found as it would be written, it is what was written: no digit was lost. Else it is looked for.
    if text and b'"%b":%b' % (name.encode(), text) in envelope.text:
        return text
    return members(utf8_text(envelope.text))[name].content


def _no_row(op: str) -> Misfit:
    return Misfit("no_row", f'expected `before` or `after` to hold a row, got neither for the op "{op}"')
