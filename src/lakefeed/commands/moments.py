"""Points in time as one types them: a date, a time, or how long ago."""

from __future__ import annotations

import datetime as dt

from lakefeed.errors import UsageError


def moment(text: str | None, option: str) -> dt.datetime | None:
    """Read `2026-11-15`, `2026-11-15T10:00:00Z` or `2h` (ago); in UTC unless a zone is given."""
    from lakefeed.units import parse_duration

    if text is None:
        return None
    try:
        found = dt.datetime.fromisoformat(text)
        return found if found.tzinfo else found.replace(tzinfo=dt.UTC)
    except ValueError:
        pass
    try:
        return dt.datetime.now(dt.UTC) - dt.timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError):
        raise UsageError(
            f"{option}: expected a time such as 2026-11-15T10:00:00Z, or 2h for two hours ago, got '{text}'"
        ) from None
