"""Inferred columns: what was seen of each in the events, the type that follows, and both as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import pyarrow as pa

from lakefeed.columns.column_types import JSON, event_name, type_text
from lakefeed.columns.evidence import Evidence, evidence_of, is_quiet
from lakefeed.text import counted, yaml_mapping

_MOST_LINES = 60
_FIRST_NAME = re.compile(r"`([^`]*)`|[^.\[:]*")
"""What the message about a value begins with: the name of its field."""
_FEW = 20
"""Fewer events than these say little about the type of a column."""
_FATES = {
    "widen": "becomes a dead letter",
    "dead_letter": "becomes a dead letter",
    "rescue": "goes to the column _rescued",
    "fail": "stops the table",
}


@dataclass(frozen=True)
class InferredColumn:
    """A column, or a field in one, with the values that were seen of it and the type that was chosen."""

    column: str
    chosen: pa.DataType
    counts: dict[str, int]
    """Values by kind, the most frequent first."""
    odd: int
    """Values that the chosen type does not take."""

    def text(self, type_change: str = "dead_letter") -> str:
        """`49,900 numbers, 100 strings -> those 100 become dead letters`."""
        said = ", ".join(counted(count, kind) for kind, count in self.counts.items())
        if self.chosen == JSON:
            return f"{said} -> each as its JSON text"
        return f"{said}{_fate(self.odd, type_change)}"


def inferred_columns(proposal: pa.Schema) -> list[InferredColumn]:
    """What was seen of every proposed column, and of what is inside of it."""
    found: list[InferredColumn] = []
    for column in proposal:
        if (evidence := evidence_of(column)) is not None:
            found += _inferred(column.name, evidence)
    return found


def inferred_lines(proposal: pa.Schema, type_change: str = "dead_letter") -> list[str]:
    """A line for every inferred column and every field in one: name, type, and what was seen."""
    found = inferred_columns(proposal)
    shown = found if len(found) <= _MOST_LINES else [one for one in found if one.odd or one.chosen == JSON]
    rows = [(one.column, _short(one.chosen), one.text(type_change)) for one in shown[:_MOST_LINES]]
    wide = [max((len(row[at]) for row in rows), default=0) for at in (0, 1)]
    lines = [f"{name:{wide[0]}}  {kind:{wide[1]}}  {text}" for name, kind, text in rows]
    left = len(found) - len(rows)
    return [*lines, f"and {counted(left, 'more column')}"] if left else lines


def events_seen(proposal: pa.Schema) -> int:
    """How many events the proposed columns are inferred from: those with a value in the fullest column."""
    found = (evidence_of(column) for column in proposal)
    return max((one.total for one in found if one is not None), default=0)


def inferred_from(events: int, kind: str = "event") -> str:
    """`inferred from 1 event; declare `schema` if later events may differ`: a caution where few were seen."""
    caution = "; declare `schema` if later events may differ" if events < _FEW else ""
    return f"inferred from {counted(events, kind)}{caution}"


def to_declare(proposal: pa.Schema, errors: Iterable[str], *, whole: bool = False) -> str:
    """What to write in `schema` so that no value of these events is of the wrong type: `{total: json}`.

    With `whole`, all columns: beside a `schema`, SQL knows no others.
    """
    types = dict.fromkeys(mixed(proposal, errors), "json")
    if types and whole:
        types = {one.name: types.get(one.name) or type_text(one.type) for one in proposal}
    return yaml_mapping(types) if types else ""


def mixed(proposal: pa.Schema, errors: Iterable[str]) -> list[str]:
    """The proposed columns that do not take all values of these events.

    `errors` are the messages of refused events: they name columns too.
    """
    odd = [one.column for one in inferred_columns(proposal) if one.odd]
    fields = {event_name(one): one.name for one in proposal}
    named = [found[1] or found[0] for error in errors if (found := _FIRST_NAME.match(error))]
    tops = dict.fromkeys([re.split(r"[.\[]", path, maxsplit=1)[0] for path in odd])
    tops |= dict.fromkeys(fields.get(name, name) for name in named)
    return [name for name in tops if name in proposal.names]


def _inferred(path: str, evidence: Evidence) -> Iterator[InferredColumn]:
    chosen = evidence.type()
    if is_quiet(chosen):
        return
    yield InferredColumn(path, chosen, _kinds(evidence), evidence.odd())
    if pa.types.is_struct(chosen):
        for one in chosen:
            yield from _inferred(f"{path}.{one.name}", evidence.fields[one.name])
    elif chosen.num_fields and evidence.inside:
        yield from _inferred(f"{path}[]", evidence.inside)


def _kinds(evidence: Evidence) -> dict[str, int]:
    """The groups, timestamps apart from other text where there are both."""
    counts = {name: count for name, count in evidence.groups.items() if count}
    times = evidence.counts.get("timestamp", 0)
    if times:
        others = counts.pop("string") - times
        counts |= {"timestamp": times} | ({"string": others} if others else {})
    return dict(sorted(counts.items(), key=lambda one: -one[1]))


def _short(kind: pa.DataType) -> str:
    """A type without what is inside: that has lines of its own."""
    return type_text(kind).partition("<")[0]


def _fate(odd: int, type_change: str) -> str:
    if not odd:
        return ""
    if odd == 1:
        return f" -> that one {_FATES[type_change]}"
    many = _FATES[type_change].replace("becomes a dead letter", "become dead letters")
    return f" -> those {odd:,} {many.replace('goes', 'go').replace('stops', 'stop')}"
