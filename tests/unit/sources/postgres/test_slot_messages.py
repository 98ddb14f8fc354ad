"""What is said where the server fails to decode its own WAL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from lakefeed.errors import SourceError
from lakefeed.sources.postgres.replication import slot_messages


def test_fault_of_the_server_at_decoding_is_told_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    nobody: Any = None

    def peeked(*given: object) -> Iterator[list[bytes]]:
        yield [b"first"]
        raise psycopg.errors.InternalError_('could not map filenode "base/5/16491" to relation OID\nCONTEXT')

    monkeypatch.setattr(slot_messages, "slot_named", lambda *given: None)
    monkeypatch.setattr(slot_messages, "_peeked", peeked)
    pieces = slot_messages.messages(nobody, "lakefeed_shop", "lakefeed_shop", 100, nobody)

    assert next(pieces) == [b"first"]
    with pytest.raises(SourceError) as told:
        next(pieces)

    assert str(told.value).splitlines() == [
        "the server fails to decode the changes of the replication slot lakefeed_shop: "
        'could not map filenode "base/5/16491" to relation OID',
        "It fails whoever reads them. To go on, run once with `on_slot_loss: snapshot`, which reads all rows "
        "anew, after this statement: SELECT pg_drop_replication_slot('lakefeed_shop')",
    ]
