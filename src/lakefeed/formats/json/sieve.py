"""The sieve: which payloads Arrow reads together, and which are decided one by one.

All are read in one block. When that fails, the payloads that are likely to blame are taken out and the rest
is read again, with closer and costlier looks, so that good payloads stay on the fast path whatever is among
them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, cast

import numpy as np
import orjson
import pyarrow as pa

from lakefeed.columns.column_types import DEEPEST
from lakefeed.columns.evidence import pruned
from lakefeed.events import Refused
from lakefeed.formats import Decoded, Rules
from lakefeed.formats.json import parser
from lakefeed.formats.json import suspects as json_suspects
from lakefeed.formats.json.any_value import is_exact
from lakefeed.formats.json.block import Block, BlockReader, Failed
from lakefeed.formats.json.inference import Imprecise, NewFields, exact_object
from lakefeed.formats.json.strict import StrictReader

_HOPEFUL_READS = 3
_PART = 8192  # parsed objects that the processor's cache still holds
_FEW = 32

_T = TypeVar("_T")


@dataclass(frozen=True)
class _Group:
    """Payloads that are still together, with their indexes in the call, and parsed if that has been done."""

    indexes: Sequence[int]
    texts: Sequence[bytes]
    objects: Sequence[dict[str, Any]] = ()

    def at(self, indexes: Sequence[int]) -> _Group:
        def some(every: Sequence[_T]) -> list[_T]:
            return [every[index] for index in indexes] if every else []

        return _Group(some(self.indexes), some(self.texts), some(self.objects))


_Read = Callable[[_Group], Block | Failed]


class Sieve:
    """The work of one call of the decoder."""

    def __init__(
        self, blocks: BlockReader, strict: StrictReader, rules: Rules, payloads: Sequence[bytes | None]
    ) -> None:
        self._blocks = blocks
        self._strict = strict
        self._rules = rules
        self._adds = rules.new_column in ("add", "fail")
        self._payloads = payloads
        self._doubted: list[int] = []
        self._indexes: list[Sequence[int]] = []
        self._rows: list[pa.StructArray] = []
        self._refused: list[Refused] = []
        self._note_new = False
        self._newcomers: dict[int, dict[str, Any]] = {}
        """Payloads that became rows and may have columns that the schema has not."""
        self._extras: dict[int, str] = {}
        """What to keep of payloads, if they become rows without the strict path."""
        self._rescued: dict[int, str] = {}

    def decoded(self) -> Decoded:
        """Read everything, fast first, and put the rows into the order of the payloads."""
        self._read_hopefully(self._with_content())
        self._decide_doubted()
        rows = pa.RecordBatch.from_struct_array(self._in_order())
        return Decoded(rows, self._refused, self._unknown(), self._rescued_column())

    def _with_content(self) -> _Group:
        payloads: Any = self._payloads
        if None not in payloads and b"" not in payloads:
            return _Group(range(len(payloads)), payloads)
        self._doubted = [index for index, payload in enumerate(payloads) if not payload]
        return _Group(range(len(payloads)), payloads).at([n for n, payload in enumerate(payloads) if payload])

    def _read_hopefully(self, group: _Group) -> None:
        """Read all; when that fails, all but those that look wrong or that Arrow complained of."""
        for _ in range(0 if self._blocks.mapped else _HOPEFUL_READS):
            block = self._blocks.read(group.texts)
            if isinstance(block, Block):
                return self._keep(group, block)
            suspects = block.suspects | self._blocks.patterns.wrong(group.texts)
            if not suspects or len(suspects) > len(group.indexes) // 2:
                break
            group = self._without(suspects, group)
        for start in range(0, len(group.indexes), _PART):
            self._read_carefully(group.at(range(start, min(start + _PART, len(group.indexes)))))
        return None

    def _read_carefully(self, group: _Group) -> None:
        """Look at each payload with a fast parser, take out what does not fit, and read the rest."""
        objects, broken = json_suspects.loaded(group.texts)
        # Before anything walks through the objects: no walk may go deeper than the stack of Python.
        broken |= json_suspects.deep(group.texts, DEEPEST + 1 if self._adds else parser.DEEPEST)
        group = self._without(broken, _Group(group.indexes, group.texts, objects))
        group = self._with_column_names(group)
        group = self._without(json_suspects.misfits(group.objects, self._blocks.fields), group)
        group, unknown = self._look_for_new(group)
        blocks, in_part = self._blocks, unknown or bool(self._blocks.mapped)
        if in_part:
            # Arrow skips the other part, and so does not check it.
            group = self._without(json_suspects.doubled(group.texts, group.objects), group)

        def read(some: _Group) -> Block | Failed:
            return blocks.read_known(some.texts, some.objects) if in_part else blocks.read(some.texts)

        block = read(group)
        if isinstance(block, Block):
            return self._keep(group, block)
        suspects = block.suspects | json_suspects.bad_decimals(group.objects, blocks.fields)
        if not in_part:
            suspects |= json_suspects.doubled(group.texts, group.objects)
        return self._halve(self._without(suspects, group), read)

    def _with_column_names(self, group: _Group) -> _Group:
        """The objects under the names of the columns; the strict path says what is wrong with the others."""
        spellings = self._blocks.spellings
        if spellings is None:
            return group
        objects, hard = json_suspects.renamed(group.objects, spellings)
        self._blocks.expect_variants()
        return self._without(hard, _Group(group.indexes, group.texts, objects))

    def _look_for_new(self, group: _Group) -> tuple[_Group, bool]:
        """Take out what the strict path must decide, and say whether the rest has unknown fields."""
        if self._rules.new_column == "ignore":
            return group, True
        if not self._adds:
            group = self._with_extras(group)
        new = NewFields(exact=True, rules=self._rules)
        unknown = new.of(group.objects, self._blocks.fields)
        if not self._adds:
            self._blocks.learn(unknown)
            return group, bool(unknown)
        if new.doubtful_names:
            group = self._without(json_suspects.having(new.doubtful_names, group.objects), group)
        self._note_new = bool(unknown)
        return group, bool(unknown)

    def _with_extras(self, group: _Group) -> _Group:
        """Set aside what has no column, where that is exact; the strict path has the rest, and refusals."""
        hard = set()
        for index, each in enumerate(group.objects):
            found = self._blocks.extras(each)
            if found is None:
                continue
            # A fast parser keeps every digit of an integer, but not the sign of a zero.
            exact = is_exact(found, zero=True) and b"-0" not in group.texts[index]
            if exact and self._rules.new_column == "rescue":
                self._extras[group.indexes[index]] = orjson.dumps(found).decode()
            else:
                hard.add(index)
        return self._without(hard, group)

    def _halve(self, group: _Group, read: _Read) -> None:
        """Find by halves what fails a block for a reason that nothing above knows."""
        block = read(group)
        if isinstance(block, Block):
            return self._keep(group, block)
        group = self._without(block.suspects, group)
        if len(group.indexes) <= _FEW:
            self._doubted.extend(group.indexes)
            return None
        middle = len(group.indexes) // 2
        self._halve(group.at(range(middle)), read)
        return self._halve(group.at(range(middle, len(group.indexes))), read)

    def _without(self, indexes: set[int], group: _Group) -> _Group:
        """The group without these, which the strict path will decide."""
        if not indexes:
            return group
        self._doubted.extend(group.indexes[index] for index in indexes)
        return group.at([index for index in range(len(group.indexes)) if index not in indexes])

    def _keep(self, group: _Group, block: Block) -> None:
        rows = block.rows
        if block.doubt is not None:
            self._doubted.extend(group.indexes[index] for index in np.flatnonzero(block.doubt).tolist())
            rows = rows.filter(pa.array(~block.doubt))
            group = group.at(np.flatnonzero(~block.doubt).tolist())
        self._indexes.append(group.indexes)
        self._rows.append(rows)
        if self._note_new:
            self._newcomers.update(zip(group.indexes, group.objects, strict=True))
        if self._extras:
            self._rescued.update({n: self._extras[n] for n in group.indexes if n in self._extras})

    def _decide_doubted(self) -> None:
        if not self._doubted and self._rows:
            return
        judged = self._strict.read(self._payloads, sorted(self._doubted))
        self._refused = judged.refused
        self._indexes.append(judged.good)
        self._rows.append(judged.rows)
        self._rescued.update(judged.rescued)
        if self._adds:
            self._newcomers.update((n, self._exact(n)) for n in judged.good)

    def _in_order(self) -> pa.StructArray:
        if len(self._rows) == 1:
            return self._rows[0]
        order = np.argsort(np.concatenate([np.asarray(indexes, np.int64) for indexes in self._indexes]))
        return pa.concat_arrays(self._rows).take(pa.array(order))

    def _unknown(self) -> pa.Schema | None:
        if not self._newcomers:
            return None
        indexes = sorted(self._newcomers)
        try:
            new = self._new_fields([self._newcomers[n] for n in indexes], exact=False)
        except Imprecise:
            new = self._new_fields([self._exact(n) for n in indexes], exact=True)
        evident = pruned(new)
        if new and not evident:
            self._blocks.learn(new)
        return pa.schema(evident) if evident else None

    def _exact(self, index: int) -> dict[str, Any]:
        found = exact_object(self._payloads[index] or b"")
        spellings = self._blocks.spellings
        return found if spellings is None else cast("dict[str, Any]", spellings.object(found))

    def _new_fields(self, objects: list[dict[str, Any]], *, exact: bool) -> list[pa.Field]:
        return NewFields(exact, self._rules).of(objects, self._blocks.fields)

    def _rescued_column(self) -> pa.Array | None:
        if not self._rescued:
            return None
        indexes = sorted(index for indexes in self._indexes for index in indexes)
        return pa.array([self._rescued.get(index) for index in indexes], pa.string())
