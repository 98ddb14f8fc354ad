"""Versions that a reader of a Delta table cannot pass, and the ways on."""

from __future__ import annotations

from shlex import quote

from lakefeed.errors import SourceError
from lakefeed.sources.delta.history import VersionRows
from lakefeed.sources.delta.source import DeltaSource
from lakefeed.tables.log.change_feed import FEED


def stops(source: DeltaSource, added: VersionRows) -> bool:
    """Whether a version does something to rows that were read, and no option says to go on."""
    if added.stops is None or (source.ignore_changes and not source.change_feed):
        return False
    return source.change_feed or not (added.only_deletes and source.ignore_deletes)


def refusal(
    source: DeltaSource, name: str, number: int, added: VersionRows, back_to: int | None
) -> SourceError:
    """Why the reader cannot pass a version, which may restore an older one, and the ways on."""
    whose, path = source.called(name), source.path
    if source.change_feed:
        return SourceError(
            f"{whose}: version {number} of {path} ({added.stops}) changes rows, and the change "
            "data feed was off: nothing tells which.\nTurn it on: lakefeed table properties "
            f"{quote(path)} --set {FEED}=true --yes\nThen begin behind it with `start: {{version: N}}`, "
            "or anew with all rows: `start: earliest`, after dropping the tables that it feeds."
        )
    if back_to is not None:
        return SourceError(
            f"{whose}: version {number} ({added.stops}) brings {path} back to version {back_to}; "
            "rows of later versions were read already.\nTake the tables that it feeds back to before "
            "that: lakefeed rewind FILE --table NAME --to-version N; or drop them: they begin anew."
        )
    does = "deletes rows" if added.only_deletes else "changes or deletes rows"
    option = "ignore_deletes" if added.only_deletes else "ignore_changes"
    anew = "drop the tables that it feeds: they begin anew, with what is there now"
    if not added.only_deletes:
        anew = f"make the tables that it feeds anew (lakefeed rebuild FILE --table NAME --yes), or {anew}"
    where = "" if not source.waits else f" (a source `{name}` with `type: delta`)"
    return SourceError(
        f"{whose}: version {number} of {path} ({added.stops}) {does} that were read already.\n"
        f"Set `{option}: true` on the source{where} to keep what was read and go on; or bring the table "
        "back to the version before (lakefeed rewind);\n"
        f"or {anew}."
    )
