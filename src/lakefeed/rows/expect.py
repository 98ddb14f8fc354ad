"""`expect`: rules that rows must meet, counted, and what becomes of rows that do not meet them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.staged import DELETIONS
from lakefeed.events import Refused
from lakefeed.rows import Rows, StepResult
from lakefeed.rows.evaluator import Evaluate
from lakefeed.rows.unchanged import lacking
from lakefeed.sql.projection import Rule

STAGE = "expect"
PASSED = "passed"
FAILED = "failed"
RESULTS = {"warn": "warned", "drop": "dropped", "dead_letter": "dead_letter", "fail": FAILED}
"""What a row that does not meet a rule is counted as."""

_LONGEST = 80
_MOST_COLUMNS = 5


class Expect:
    """Counts how many rows meet each rule, and takes out those that must not land."""

    def __init__(self, rules: Sequence[Rule], evaluate: Evaluate) -> None:
        self._rules = rules
        self._evaluate = evaluate

    def __call__(self, rows: Rows) -> StepResult:
        """The rows that may land; a row that breaks several rules is dead before it is dropped."""
        counts: dict[str, dict[str, int]] = {}
        dropped = np.zeros(rows.batch.num_rows, np.bool_)
        dead: dict[int, Refused] = {}
        failed: dict[str, str] = {}
        # A deletion has no row that could be good or bad.
        deletes = np.zeros(len(dropped), np.bool_) if rows.ops is None else np.isin(rows.ops, DELETIONS)
        every = ~deletes
        for rule in self._rules:
            (met,), thrown = self._evaluate([rule.expression], rows)
            # What a change does not carry was judged with the change that brought it.
            unknown = rows.unchanged is not None and lacking(rows.unchanged, rule.expression.columns())
            judged = every & ~np.asarray(unknown)
            broken = ~pc.fill_null(met, False).to_numpy(zero_copy_only=False)
            if thrown:
                broken[list(thrown)] = True
            broken &= judged
            number = int(broken.sum())
            counts[rule.name] = {PASSED: int(judged.sum()) - number}
            if not number:
                continue
            counts[rule.name][RESULTS[rule.otherwise]] = number
            if rule.otherwise == "drop":
                dropped |= broken
            elif rule.otherwise == "dead_letter":
                for at in np.flatnonzero(broken).tolist():
                    dead.setdefault(at, self._refused(rule, rows, at, thrown.get(at)))
            elif rule.otherwise == "fail":
                at = int(np.argmax(broken))
                failed[rule.name] = f"`{rule.text}`: {_why(rule, rows.batch, at, thrown.get(at))}"
        if not dead and not dropped.any():
            return StepResult(rows, counts=counts, failed=failed)
        dropped[list(dead)] = False
        kept = ~dropped
        kept[list(dead)] = False
        return StepResult(
            rows.where(kept),
            [one for _, one in sorted(dead.items())],
            rows.indexes_at(dropped),
            counts,
            failed=failed,
        )

    def _refused(self, rule: Rule, rows: Rows, at: int, thrown: tuple[str, str] | None) -> Refused:
        text = f"`{rule.text}` is not met: {_why(rule, rows.batch, at, thrown)}"
        return Refused(int(rows.indexes[at]), STAGE, rule.name, text)


def _why(rule: Rule, batch: pa.RecordBatch, at: int, thrown: tuple[str, str] | None) -> str:
    """What the rule has read in a row: `price is -3`."""
    if thrown:
        return f"{thrown[0]}: {thrown[1]}"
    names = [name for name in batch.schema.names if name in rule.expression.columns()]
    return ", ".join(f"{name} is {_value(batch.column(name)[at])}" for name in names[:_MOST_COLUMNS])


def _value(value: pa.Scalar) -> str:
    if not value.is_valid:
        return "null"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
