"""Values of a source of columns that no column holds: what becomes of them is for `evolve` to say."""

from __future__ import annotations

from datetime import date

import numpy as np
import pyarrow as pa
import pytest

from lakefeed.columns.column_types import declared_schema
from lakefeed.engine.task.decoding import EventDecoder, payloads_of
from lakefeed.events import Events, Refused, Unfit
from lakefeed.formats import Decoded, Rules
from lakefeed.formats.json.format import JsonFormat
from lakefeed.sources.delta.read import RowEvents

DAY = date(2026, 11, 17)


def events() -> Events:
    columns = pa.record_batch(
        {"id": [1, 2, 3], "due": pa.array([DAY, None, None], pa.date32()), "note": ["a", "b", "c"]}
    )
    made = RowEvents(columns, np.arange(3), 0)
    made.unfit = {"due": Unfit(np.array([False, True, False]), pa.array(["2026-11-17", "infinity", None]))}
    return made


def decoded(schema: dict[str, str], rules: Rules) -> Decoded:
    return EventDecoder(JsonFormat(), declared_schema(schema), rules).decode(events())


REFUSED = [Refused(1, "schema", "out_of_range", 'due: expected date, got "infinity", which it cannot hold')]


def test_such_a_value_is_a_dead_letter_with_its_text() -> None:
    found = decoded({"id": "long", "due": "date", "note": "string"}, Rules())

    assert found.refused == REFUSED
    assert found.rows.column("id").to_pylist() == [1, 3]
    assert payloads_of(events(), [1, 2]) == [
        b'{"id":2,"due":"infinity","note":"b"}',
        b'{"id":3,"due":null,"note":"c"}',
    ]


def test_such_a_value_can_be_rescued_unless_its_column_needs_one() -> None:
    rules = Rules(type_change="rescue")
    found = decoded({"id": "long", "due": "date", "note": "string"}, rules)
    needed = decoded({"id": "long", "due": "date not null", "note": "string"}, rules)

    assert found.refused == []
    assert found.rescued is not None and found.rescued.to_pylist() == [None, '{"due":"infinity"}', None]
    assert found.rows.column("due").to_pylist() == [DAY, None, None]
    assert [(one.index, one.code) for one in needed.refused] == [(1, "out_of_range"), (2, "missing_value")]


@pytest.mark.parametrize(
    ("rules", "refused"),
    [
        (Rules(), REFUSED),
        (Rules(new_column="dead_letter"), None),
        (Rules(new_column="ignore"), []),
        (Rules(dropped=frozenset(["due"])), []),
    ],
)
def test_such_a_value_of_a_new_column_is_never_left_out_unless_its_column_is(
    rules: Rules, refused: list[Refused] | None
) -> None:
    found = decoded({"id": "long", "note": "string"}, rules)

    if refused is None:
        assert [one.code for one in found.refused] == ["new_column", "out_of_range"]
    else:
        assert found.refused == refused
