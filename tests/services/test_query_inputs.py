"""What a query asks the store of a table that it reads, against a real S3 server."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from lakefeed.handles.query.inputs import Input
from lakefeed.stores.objects import ObjectFiles
from support.s3 import S3Server


def test_look_at_an_input_lists_only_what_came_since_the_last(
    s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.create_bucket("gold")
    path = "s3://gold/silver"

    def commit() -> None:
        write_deltalake(path, pa.table({"id": [1]}), mode="append", storage_options=s3.storage)

    for _ in range(12):
        commit()
    listed: list[int] = []
    for name in ("get_file_info_selector", "names_after"):
        real = getattr(ObjectFiles, name)

        def listing(files: ObjectFiles, at: Any, real: Any = real) -> Any:
            found = real(files, at)
            listed.append(len(found))
            return found

        monkeypatch.setattr(ObjectFiles, name, listing)
    silver = Input("silver", path, s3.storage)

    first = silver.look(5)
    unchanged = silver.look(11)
    commit()
    DeltaTable(path, storage_options=s3.storage).optimize.compact()
    changed = silver.look(11)
    s3.client.delete_object(Bucket="gold", Key=f"silver/_delta_log/{13:020d}.json")
    replaced = silver.look(11)

    assert first and unchanged and changed and replaced
    assert (first.version, first.changed) == (11, (6, 7, 8, 9, 10, 11))
    assert (unchanged.version, unchanged.changed) == (11, ())
    assert (changed.version, changed.changed) == (13, (12,))
    assert (replaced.version, replaced.table_id) == (12, first.table_id)
    assert listed == [12, 1, 3, 0, 13]
