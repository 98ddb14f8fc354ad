"""A commit through a lock table: prepared, taken, copied, completed; and finished by whoever comes by.

The order is that of `S3DynamoDBLogStore`. After each step the process may end: before a version is taken
nothing has happened, from then on it is committed.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from contextlib import suppress

from lakefeed.errors import LakefeedError, TableError
from lakefeed.stores.lock_table import LockTable
from lakefeed.stores.objects import ObjectFiles


def put_locked(objects: ObjectFiles, lock: LockTable, path: str, content: bytes) -> str | None:
    """Make an entry of the log that nobody has made; its tag. Raises FileExistsError where somebody has.

    When it raises anything else, the entry may be committed: `finish` tells.
    """
    log, _, name = path.rpartition("/")
    if objects.tag(path) is not None:
        raise FileExistsError(path)
    if (before := _name_before(name)) is not None:
        finish(objects, lock, f"{log}/{before}")
    temp = f".tmp/{name}.{uuid.uuid4()}"
    objects.put(f"{log}/{temp}", content)
    try:
        taken = lock.take(name, temp)
    except FileExistsError:
        with suppress(OSError):
            objects.delete_file(f"{log}/{temp}")
        # What the other one has not finished must be there when it is looked for.
        finish(objects, lock, path)
        if objects.tag(path) is None and lock.entries(name):
            raise _missing(objects, lock, name) from None
        raise
    made = _copy(objects, path, content)
    with suppress(LakefeedError, OSError):
        # It is committed without these.
        lock.complete(taken)
        objects.delete_file(f"{log}/{temp}")
    return made


def finish(objects: ObjectFiles, lock: LockTable, path: str) -> bool:
    """Put in place what a writer has committed and not copied; whether there was anything to do."""
    log, _, name = path.rpartition("/")
    entries = [entry for entry in lock.entries(name) if not entry.complete]
    if not entries:
        return False
    if objects.tag(path) is None:
        content = _prepared(objects, [f"{log}/{entry.temp_path}" for entry in entries])
        if content is not None:
            with suppress(FileExistsError):
                _copy(objects, path, content)
        # Its writer may have copied it meanwhile, and deleted what it had prepared.
        elif objects.tag(path) is None:
            raise _missing(objects, lock, name)
    lock.complete(entries)
    return True


def finish_newest(objects: ObjectFiles, lock: LockTable, log: str) -> None:
    """The same for the newest versions that the lock table knows; only these can be unfinished."""
    for entry in lock.newest():
        if not entry.complete:
            finish(objects, lock, f"{log}/{entry.file_name}")


def _prepared(objects: ObjectFiles, temps: Sequence[str]) -> bytes | None:
    for temp in temps:
        with suppress(FileNotFoundError):
            return objects.get(temp)[0]
    return None


def _missing(objects: ObjectFiles, lock: LockTable, name: str) -> TableError:
    return TableError(
        f"{objects.uri}: the lock table {lock.options.table} knows {name} of this path, and the log does not "
        "have it: the table was deleted or moved.\nBring its log back, or delete the entries of this path "
        "from the lock table; `lakefeed table drop` does both."
    )


def _copy(objects: ObjectFiles, path: str, content: bytes) -> str | None:
    """Put an entry in place, without overwriting one, where the store can do that; its tag.

    Raises FileExistsError for an entry of a writer that does not look at the lock table.
    """
    try:
        return objects.put_new(path, content)
    except FileExistsError:
        found, made = objects.get(path)
        if found != content:
            raise
        return made
    except OSError as error:
        if "not implemented" not in str(error).lower():
            raise
    return objects.put(path, content)


def _name_before(name: str) -> str | None:
    number, _, rest = name.partition(".")
    return f"{int(number) - 1:0{len(number)}d}.{rest}" if number.isdecimal() and int(number) else None
