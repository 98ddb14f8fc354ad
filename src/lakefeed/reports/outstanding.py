"""What waits in a source that keeps a log, and how far its snapshot is, in words."""

from __future__ import annotations

from collections.abc import Iterable

from lakefeed.events import Outstanding
from lakefeed.figures import ago, readable_size
from lakefeed.text import counted
from lakefeed.units import format_duration


def copied_words(outstanding: Outstanding | None) -> str:
    """How far the snapshot of a source is, and the log that it keeps meanwhile; nothing where there is none.

    `snapshot: 300,000 of about 1,000,000 rows (30%), about 70 s left; keeps 12 MB of its log, room for 1 GB`.
    """
    if outstanding is None or outstanding.copied is None:
        return ""
    copied = outstanding.copied
    share = f"{100 * copied.rows // max(1, copied.total)}%"
    text = f"snapshot: {copied.rows:,} of about {copied.total:,} rows ({share})"
    if copied.seconds_left is not None:
        text += f", about {ago(copied.seconds_left)} left"
    if outstanding.retained is not None:
        text += f"; keeps {readable_size(outstanding.retained)} of its log"
        if outstanding.headroom is not None:
            text += f", room for {readable_size(outstanding.headroom)}"
    return text


def young_words(outstanding: Outstanding | None) -> str:
    """`3 files are younger than `settle` (2s) and not counted`; nothing where there are none."""
    if outstanding is None or not outstanding.young or outstanding.settle is None:
        return ""
    are = "is" if outstanding.young == 1 else "are"
    settle = format_duration(outstanding.settle)
    return f"{counted(outstanding.young, 'file')} {are} younger than `settle` ({settle}) and not counted yet"


def gone_words(outstanding: Outstanding | None) -> str:
    """`2 known files are gone, 3 files are new`; nothing where none is gone."""
    if outstanding is None or not outstanding.gone:
        return ""
    gone, new = outstanding.gone, outstanding.new
    known = f"{gone:,} known {'file is' if gone == 1 else 'files are'} gone"
    return f"{known}, {counted(new, 'file')} {'is' if new == 1 else 'are'} new"


def behind_words(outstanding: Outstanding | None) -> str:
    """`behind by 12 MB of its log, for 3 s`: of a source that keeps a log; nothing where it is not behind."""
    if outstanding is None or outstanding.retained is None or not outstanding.bytes:
        return ""
    since = "" if outstanding.seconds is None else f", for {ago(outstanding.seconds)}"
    return f"behind by {readable_size(outstanding.bytes)} of its log{since}"


def lag_words(told: Iterable[tuple[int | None, str | None]]) -> str | None:
    """Lags of several sources together, each a number and its words; None where the numbers say it."""
    known = list(told)
    if any(lag is None for lag, _ in known) or not any(words for _, words in known):
        return None
    return ", ".join(words or f"{lag:,}" for lag, words in known if lag)
