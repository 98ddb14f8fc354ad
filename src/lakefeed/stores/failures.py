"""What went wrong with a store, in a sentence with what to do about it."""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from deltalake.exceptions import CommitFailedError, DeltaError

from lakefeed.errors import LakefeedError, StoreUnavailable, TableError
from lakefeed.stores.refusals import refusal
from lakefeed.text import first_line

_FULL = (StoreUnavailable, "no space left", "Free some space; the write is tried again.")
_FORBIDDEN = (TableError, "permission denied", "Give the user that runs Lakefeed the right to write there.")
_TOO_MANY_FILES = (
    StoreUnavailable,
    "too many open files",
    "Raise the limit of this user (`ulimit -n`); the write is tried again.",
)
_BY_NUMBER: dict[int, tuple[type[TableError], str, str]] = {
    errno.ENOSPC: _FULL,
    errno.EDQUOT: _FULL,
    errno.EACCES: _FORBIDDEN,
    errno.EPERM: _FORBIDDEN,
    errno.EMFILE: _TOO_MANY_FILES,
    errno.ENFILE: _TOO_MANY_FILES,
    errno.EROFS: (TableError, "the file system is read-only", "Make it writable, or choose another path."),
    errno.ENOTDIR: (TableError, "a part of this path is a file, not a directory", "Choose another path."),
}

_ANSI = re.compile(r"\x1b\[[0-9;]*m")
_DAMAGED = re.compile(
    r"Json error|found gap|Invalid Checkpoint|Parquet error|less than footer|No table metadata or protocol"
    r"|older than the existing snapshot"
)
_DATA_FILE = re.compile(
    r"(?:file|location) (\S+\.parquet)\b.*?"
    r"(?:not found|no such file|range was invalid|invalid parquet|footer|eof)",
    re.I | re.S,
)
# What the kernel of delta-rs says of a table that it cannot read or write, now or later.
_UNKNOWN_KIND = re.compile(
    r"Unsupported|Schema error|Max catalog version|Invalid protocol|Invalid column mapping|is not supported"
)
# What shows that a store, or the way to it, caused an error: that may pass.
_PASSING = re.compile(
    r"object ?store|generic (?!delta)\w+ error|http|sending request|time(d)? ?out|connect|reset|os error"
    r"|i/o error|unavailable|slow ?down|too many requests|no reason given",
    re.I,
)
# Not the name of a table or a bucket, in a URL that an error quotes.
_MISUSED = re.compile(
    r"unknown scheme|invalid (table|url|uri)|missing (region|account)"
    r"|(?<![\w/.%=-])configuration(?![\w/%-]|\.\w)"
    r"|generic delta kernel error",
    re.I,
)
# delta-rs ends some errors with the functions that it was in.
_BACKTRACE = re.compile(r"\d+: (<unknown>|\w+$)|at \S+:\d+:\d+$")
_LOG_ENTRY = re.compile(r"_delta_log/(\d{20})\.json")
# delta-rs has no errno, but quotes the system's error in one of these two ways.
_NUMBER = re.compile(r"Os \{ code: (\d+)|\(os error (\d+)\)")


@contextmanager
def store_errors(path: str) -> Iterator[None]:
    """Turn what a disk or an object store raises into TableError or StoreUnavailable, with what to do.

    A refused commit passes as it is: only the caller knows what it means. But one that delta-rs will never
    make, as the table has a feature that it does not know, is none that may be tried again.
    """
    try:
        yield
    except LakefeedError:
        raise
    except CommitFailedError as error:
        if "Unsupported table features" in str(error):
            raise _table_error(path, error) from error
        raise
    except (OSError, DeltaError) as error:
        raise _table_error(path, error) from error


def _table_error(path: str, error: Exception) -> TableError:
    text = _ANSI.sub("", str(error))
    if found := _BY_NUMBER.get(_number(error, text)):
        kind, what, remedy = found
    elif isinstance(error, FileNotFoundError) and (entry := _LOG_ENTRY.search(text)):
        kind = StoreUnavailable
        what = f"version {int(entry[1])} is no longer in the log: it was cleaned up meanwhile"
        remedy = "Nothing is damaged, and a run tries it again; repeat a command."
    elif refused := refusal(path, text, _gist(text)):
        kind = TableError
        what, remedy = refused
    elif (file := _DATA_FILE.search(text)) and "_delta_log" not in file[1]:
        kind, what = TableError, f"a file of the table is missing or damaged: {file[1].rpartition('/')[2]}"
        remedy = "Bring it back from a backup, or restore the table to a version without it."
    elif _UNKNOWN_KIND.search(text):
        kind, what = TableError, f"delta-rs does not support this table: {_kernel(text)}"
        remedy = "Choose another path, or remove the unsupported feature with the engine that set it."
    elif _DAMAGED.search(text):
        kind, what = TableError, f"the log of the table is damaged: {_damage(text)}"
        remedy = (
            "Nothing was written. Bring the file back from a backup.\n"
            "A broken checkpoint may be deleted, with _last_checkpoint, if the log has all versions since 0."
        )
    elif _MISUSED.search(text):
        kind, what, remedy = TableError, f"cannot be opened: {_gist(text)}", "Check the path and `storage`."
    elif isinstance(error, DeltaError) and not _PASSING.search(text):
        kind, what = TableError, f"delta-rs cannot do this with the table: {_kernel(text)}"
        remedy = "Look at `lakefeed table detail`, then start again."
    else:
        kind, what = StoreUnavailable, f"the store does not answer: {_gist(text)}"
        remedy = "The write is tried again; check that the store can be reached."
    return kind(f"{path}: {what}\n{remedy}")


def _damage(text: str) -> str:
    """What is wrong with a log, without the internals of the library that found it."""
    if "found gap" in text:
        present = sorted({int(number) for number in re.findall(r"filename: \"(\d+)\.json\"", text)})
        return f"entries are missing between versions {present[0]} and {present[-1]}" if present else "a gap"
    return _kernel(text)


def _kernel(text: str) -> str:
    """The first line of a chain of errors of the kernel, which says what it is about."""
    layers = r"^(Kernel error: |Generic delta kernel error: |Unsupported: )+"
    return re.sub(layers, "", first_line(text, 1_000))[:200]


def _number(error: Exception, text: str) -> int:
    quoted = _NUMBER.search(text)
    return getattr(error, "errno", None) or (int(quoted[1] or quoted[2]) if quoted else 0)


def _gist(text: str) -> str:
    """The innermost cause that a chain of errors names; it is what tells one failure from another."""
    lines = [line.strip(" ↳\t") for line in text.splitlines() if line.strip(" ↳\t")]
    lines = [line for line in lines if not _BACKTRACE.match(line)]
    code = re.search(r"<Code>(\w+)</Code>\s*<Message>([^<]*)", text)
    # A line about retries and their limits ends in what went wrong.
    last = lines[-1].split("  - ")[-1] if lines else "no reason given"
    # Azure adds the number and the time of the request.
    return f"{code[1]}: {code[2].splitlines()[0]}" if code and code[2] else last[:200]
