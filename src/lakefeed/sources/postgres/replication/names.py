"""The names of publication and slot that are made of those of pipeline and source: no two sources share one.

A plain name, `lakefeed_<pipeline>_<source>`, may be that of two sources: an underscore may be part of either,
characters that a slot cannot have are replaced, it is cut, and slots of all databases of a server have their
names in common. So only a source without an underscore gets it, if nothing was replaced or cut. Any other
source gets a name with a hash at its end, and stays with it. The comment of a publication names the source
that has made it.
"""

from __future__ import annotations

import hashlib

from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.replication.publication import describe, publication_state
from lakefeed.sources.postgres.source import PostgresSource, plain_name

_PREFIX = "lakefeed: "
_BEFORE_HASH = 54
_SLOTS = "SELECT slot_name, database FROM pg_catalog.pg_replication_slots WHERE slot_name = ANY (%s)"


def owner_text(pipeline: str, source: str) -> str:
    """The comment on a publication that a source has made."""
    return f"{_PREFIX}pipeline {pipeline}, source {source}"


def settled_names(
    connection: Connection, source: PostgresSource, pipeline: str, name: str
) -> tuple[str, str]:
    """The names of publication and slot on a server; those of the file stay as they are.

    A publication without a comment is that of an earlier version, or was made by hand: it is used. Such a
    slot is used where the publication shows whose it is.
    """
    database, exact = connection.info.dbname, f"lakefeed_{pipeline}_{name}"
    digest = hashlib.sha256(f"{pipeline}/{name}/{database}".encode()).hexdigest()[:8]
    plain = plain_name(exact)
    hashed = f"{plain[:_BEFORE_HASH]}_{digest}"
    is_unique = plain == exact and "_" not in name
    known = publication_state(connection, plain)
    is_of_another = _is_of_another(known.comment, pipeline, name)
    uses_plain = known.exists and not is_of_another
    publication, slot = source.publication, source.slot
    if publication is None:
        is_plain = uses_plain or (is_unique and not known.exists)
        publication = plain if is_plain and not publication_state(connection, hashed).exists else hashed
    if slot is None:
        there = dict(connection.execute(_SLOTS, [[plain, hashed]]).fetchall())
        is_own = publication == plain and (known.is_owner or bool(known.comment))
        is_own = (is_unique or is_own) and not is_of_another
        is_plain = is_own and there.get(plain, database) == database
        slot = plain if is_plain and there.get(hashed) != database else hashed
    return publication, slot


def _is_of_another(comment: str | None, pipeline: str, name: str) -> bool:
    return bool(comment and comment.startswith(_PREFIX) and comment != owner_text(pipeline, name))


def claim(connection: Connection, source: PostgresSource, publication: str, pipeline: str, name: str) -> None:
    """Say whose a publication is that an earlier version has made, so that no other source takes it."""
    known = publication_state(connection, publication)
    if known.exists and known.is_owner and not known.comment and not source.publication:
        describe(connection, publication, owner_text(pipeline, name))
