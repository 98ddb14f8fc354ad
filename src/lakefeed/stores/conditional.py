"""Whether two writers of one name are kept apart: a server is tried, an object says how it was made."""

from __future__ import annotations

import uuid
from contextlib import suppress

import obstore

from lakefeed.errors import TableError
from lakefeed.stores.location import bucket_of
from lakefeed.stores.objects import ObjectFiles, translated

_tried: set[tuple[str, str]] = set()
"""Servers and buckets that have kept two writers apart since this process began."""


def refuse_unconditional(objects: ObjectFiles) -> None:
    """Raise TableError where a server overwrites what it was told to make only if it is not there.

    Amazon, Google and Microsoft are believed. Any other server is tried, once in a process.
    """
    tried = objects.endpoint, bucket_of(objects.uri).name
    if not objects.endpoint or tried in _tried:
        return
    probe = f"_delta_log/_lakefeed_probe_{uuid.uuid4().hex}"
    try:
        objects.put_new(probe, b"one")
        objects.put_new(probe, b"two")
    except FileExistsError:
        _tried.add(tried)
        return
    finally:
        with suppress(OSError):
            objects.delete_file(probe)
    raise TableError(
        f"{objects.uri}: the server at {objects.endpoint} ignores conditional writes (If-None-Match), so two "
        "writers could overwrite each other.\nUse a store that supports them. If this pipeline is the only "
        'writer of its tables, set\nAWS_S3_ALLOW_UNSAFE_RENAME: "true" in `storage`.'
    )


def says_conditional(objects: ObjectFiles, path: str) -> bool:
    """Whether an object says that a conditional request made it, as the log store for Spark has it say."""
    with translated():
        return obstore.get(objects.objects, path).attributes.get("lakefeed-commit") == "conditional"
