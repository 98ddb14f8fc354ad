"""The shaping options of a table as a short text: rows that were made with other options have another one."""

from __future__ import annotations

import hashlib
import json
from shlex import quote

from lakefeed.pipeline.table import Table
from lakefeed.rows.user_code import UserFunction

_OPTIONS = {
    "coerce",
    "columns",
    "delete_when",
    "drop",
    "exclude",
    "expect",
    "ignore_nulls",
    "keys",
    "metadata",
    "mode",
    "names",
    "partition_by",
    "rename",
    "select",
    "sequence_by",
    "streams",
    "time_by",
    "track",
    "track_except",
    "transform",
    "truncate_when",
    "where",
    "within",
}
"""What decides which rows a table makes of its events. Options with their default value do not count, so that
a release with more options changes nothing."""


def shaping_digest(spec: Table, function: UserFunction | None) -> str:
    """Sixteen hexadecimal digits that stand for the options, and for the text of the function."""
    options = spec.model_dump(mode="json", include=_OPTIONS, exclude_defaults=True)
    told = [
        options,
        *([function.name, [one.text.hex() for one in function.code.modules]] if function else []),
    ]
    return hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode()).hexdigest()[:16]


def rebuild_problem(spec: Table) -> str | None:
    """Why a table of this kind cannot be rebuilt, and what to do instead; None if it can."""
    if spec.query:
        return "its `query` makes all rows.\nRun the pipeline: a run with another query replaces them all."
    if spec.route:
        return (
            "it has a `route`.\n"
            "Drop every table of it (lakefeed table drop PATH --yes): the next run makes them anew of all "
            "events that the source still has. Of one that is dropped alone, no event is read again."
        )
    if spec.mode == "overwrite":
        return (
            "`mode: overwrite` replaces all its rows by what a run reads.\n"
            "The next run that reads events has the options of now. To read all that the source still has: "
            f"lakefeed table drop {quote(spec.path or 'PATH')} --yes, then run the pipeline."
        )
    if spec.app_id or spec.share:
        return (
            "other programs write to it as well (`app_id`, `share`).\n"
            "Give it another `path`: the next run makes that table of all events that the sources of this "
            "file still have."
        )
    return None
