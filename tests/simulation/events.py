"""Events that a case chooses one by one, as plain data: what is in their payloads, good and bad."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random
from typing import Any

TOPIC = "orders"
OTHER_TOPIC = "payments"
"""What another pipeline reads. Its events have keys of their own, as those of two topics have no order."""
_OTHERS = 60
PARTITIONS = 2

# Values of a field are of one type, but for `_MISFITS`: a table that does not declare the field infers it.
# What a payload may hold, by field: the type that a table may declare.
DECLARED = {
    "id": "long",
    "seq": "long",
    "op": "long",
    "name": "string",
    "amount": "double",
    "price": "decimal(10,2)",
    "flag": "boolean",
    "at": "timestamp",
    "meta": "struct<ip: string, n: long>",
    "tags": "array<long>",
}
# Fields that no table declares; each has values of one type only, as a batch infers a type from all of them.
UNDECLARED = {
    "more": ("1", "2", "-9223372036854775808"),
    "note": ('"n"', '"ä€😀"'),
    "odd f": ('"x"', '"y"'),
    "Upper": ("true", "false"),
    "deep": ('{"a": 1}', '{"a": 2, "b": ["x"]}'),
}
_GOOD: Mapping[str, tuple[str, ...]] = {
    "name": ('"a"', '"b"', '""', '"ä€😀"', '"a/b=c%20 d"', '"' + "long" * 20 + '"', '"null"', "null"),
    "amount": ("1.0", "-0.5", "1e300", "0.1", "5e-324", "null"),
    "price": ("1.0", "9.90", "-99999999.99", "0.00", "null"),
    "flag": ("true", "false", "null"),
    "at": (
        '"2026-11-15T10:00:00Z"',
        '"2026-11-15T23:59:59.999999+02:00"',
        '"1969-12-31T23:59:59.5Z"',
        '"0001-01-01T00:00:00Z"',
        '"9999-12-31T23:59:59Z"',
        "null",
    ),
    "meta": ('{"ip": "::1", "n": 1}', '{"n": 2}', '{"ip": "", "n": null}', "null"),
    "tags": ("[]", "[1]", "[1, null, 9223372036854775807]", "null"),
}
_MISFITS: Mapping[str, tuple[str, ...]] = {
    "name": ("5", "{}", "true"),
    "amount": ('"x"', "1e400", "true"),
    "price": ("0.001", "100000000", "true"),
    "flag": ('"yes"', "1"),
    "at": ('"soon"', '"2026-13-01T00:00:00Z"'),
    "meta": ("5", '"m"'),
    "tags": ("5", '{"a": 1}', '["a"]'),
    "op": ('"x"', "1.5", "9223372036854775808"),
}
# Payloads that are no JSON object, as text of latin-1, with the code of their dead letter.
_BROKEN: tuple[tuple[str | None, str], ...] = (
    (None, "null_payload"),
    ("", "empty_payload"),
    ("\xff", "not_utf8"),
    ('{"id": 1', "bad_json"),
    ("[1]", "not_an_object"),
    ("7", "not_an_object"),
    ('{"id": 1, "id": 2}', "duplicate_key"),
    ('{"id": 01}', "bad_json"),
)


_KEYS = (b"k", b"", b"\xff\x00")


@dataclass(frozen=True)
class Event:
    """One event. `values` are texts of JSON by field; `code` is that of a payload which is no object."""

    partition: int
    values: Mapping[str, str] = field(default_factory=dict)
    code: str | None = None
    raw: str | None = None
    key: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    milliseconds: int = 0
    gap: int = 0
    """How many offsets before it hold no event."""
    topic: str = TOPIC
    offset: int = -1
    change: str | None = None
    """What Debezium says of a change: its `op`, or that it is a tombstone, which says nothing."""
    place: int = 0
    """Where the change is in the log of its database."""
    shown: int | None = None
    """The offset that metadata columns have, where it is another one."""
    text: str | None = None
    """The payload, where it is no JSON."""

    @property
    def payload(self) -> bytes | None:
        """The bytes."""
        if self.code is not None:
            return None if self.raw is None else self.raw.encode("latin-1")
        if self.text is not None:
            return self.text.encode()
        row = "{" + ", ".join(f'"{name}": {text}' for name, text in self.values.items()) + "}"
        return self._envelope(row).encode() if self.change else row.encode()

    def _envelope(self, row: str) -> str:
        before = row if self.change == "d" else "null"
        after = "null" if self.change in ("d", "t") else row
        source = f'{{"connector": "postgresql", "name": "s", "lsn": {self.place}, "table": "orders"}}'
        about = f'"op": "{self.change}", "ts_ms": {self.milliseconds}, "source": {source}'
        return f'{{"before": {before}, "after": {after}, {about}}}'


class Producer:
    """Draws events. Changes of a key stay in one partition, as the order of a key needs."""

    partitions = PARTITIONS

    def __init__(
        self,
        random: Random,
        *,
        misfits: tuple[str, ...],
        ordered: bool,
        tombstones: bool = False,
        focus: str | None = None,
        topic: str = TOPIC,
    ) -> None:
        """`misfits` are fields with values of the wrong type; `ordered` lets no sequence fall back.

        With `tombstones`, some events are a key without a payload. A `focus` is on keys or on dead letters.
        """
        self._topic = topic
        self._first = 0 if topic == TOPIC else _OTHERS
        focus = "letters" if focus == "resent" else focus
        self._few = focus in ("keys", "letters")
        self._again = {"keys": 0.6, "letters": 0.5, "marks": 0.3}.get(focus or "", 0.2)
        self._misfit_rate = 0.4 if focus == "letters" else 0.08
        self._broken_rate = 0.12 if focus == "letters" else 0.06
        self._changes = {"keys": 0.6, "marks": 0.4}.get(focus or "", 0.25)
        self._tombstones = tombstones
        self._random = random
        self._misfits = misfits
        self._ordered = ordered
        self._sequence = 0
        self._number: int | None = None
        """The key of the last event."""

    def event(self) -> Event:
        """The next event."""
        random = self._random
        again = self._number is not None and random.random() < self._again
        fresh = self._first + random.randrange(0, 3 * self.partitions, 3 if self._few else 1)
        number = self._number if again else fresh
        assert number is not None
        about: dict[str, Any] = {
            # A key of a partition that comes later was in none before.
            "partition": (number - self._first) // 3,
            "topic": self._topic,
            "milliseconds": 1_790_000_000_000 + random.randrange(10**6),
            "gap": random.choice((0, 0, 0, 0, 0, 1, 3)),
        }
        if random.random() < 0.3:
            # Of a key that is no JSON, a message without a payload would say nothing.
            about["key"] = random.choice((b'{"id": 99}', b'{"id": 98}') if self._tombstones else _KEYS)
        if random.random() < 0.2:
            about["headers"] = (("h", b"1"), ("h", None))
        if self._tombstones and random.random() < 0.12:
            return Event(code="null_payload", **about | {"key": b'{"id": %d}' % number})
        if random.random() < self._broken_rate:
            raw, code = random.choice(_BROKEN)
            return Event(raw=raw, code=code, **about)
        return Event(values=self._values(number), **about)

    def _values(self, number: int) -> dict[str, str]:
        random = self._random
        if number != self._number or random.random() < 0.5:
            # Else one more change of the same moment.
            self._sequence += 1
        self._number = number
        late = 0 if self._ordered else random.choice((0, 0, 0, 0, 1, 4))
        values = {"id": str(number), "seq": str(10 + self._sequence - late)}
        if random.random() < 0.04:
            values[random.choice(("id", "seq"))] = "null"
        if random.random() < self._changes:
            values["op"] = random.choice(("0", "1", "1", "1", "2"))
        for name, good in _GOOD.items():
            if random.random() < 0.45:
                # Of an empty list, nothing says which column it is of where no table declares that.
                values[name] = random.choice(
                    good if name in self._misfits else [one for one in good if one != "[]"]
                )
        if self._misfits and random.random() < self._misfit_rate:
            name = random.choice(self._misfits)
            values[name] = random.choice(_MISFITS[name])
        if random.random() < 0.12:
            name = random.choice(list(UNDECLARED))
            values[name] = random.choice(UNDECLARED[name])
        return values


MISFITS = tuple(_MISFITS)
EVERYWHERE = ("id", "seq")
"""What every event has, as its key and its order."""


def is_misfit(name: str, text: str) -> bool:
    """Whether a value has no one meaning where a table does not declare its field."""
    return text in _MISFITS.get(name, ()) or text == "[]"
