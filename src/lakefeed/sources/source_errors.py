"""What a store says becomes what the source says that reads from it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from lakefeed.errors import SourceError, SourceUnavailable, StoreUnavailable, TableError


@contextmanager
def source_errors(whose: str = "") -> Iterator[None]:
    """A store or a table that cannot be looked at is a source that does not answer."""
    said = f"{whose}: " if whose else ""
    try:
        yield
    except StoreUnavailable as error:
        raise SourceUnavailable(f"{said}{error}") from error
    except TableError as error:
        raise SourceError(f"{said}{error}") from error
