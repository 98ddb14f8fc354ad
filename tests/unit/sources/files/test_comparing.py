"""What is new or changed among listed files, compared with all rows of a ledger."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from lakefeed import Pipeline
from lakefeed.events import Outstanding
from lakefeed.reprocess.files import retry_or_forget
from lakefeed.sources import source_of
from lakefeed.sources.files.discovery import compare
from lakefeed.sources.files.finding.listing import LISTED
from lakefeed.sources.files.known import DELETED, FORGOTTEN, READ
from lakefeed.sources.files.ledger import found, with_state
from lakefeed.sources.files.offset import file_start
from support.landing import Landing


def files(**sizes: int) -> pa.Table:
    times = pa.array([0] * len(sizes)).cast(LISTED.field("modified").type)
    columns = [
        pa.array(list(sizes)),
        pa.array(list(sizes.values())),
        times,
        pa.nulls(len(sizes), pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=LISTED)


def ledger(*rows: tuple[str, int, str]) -> pa.Table:
    numbered = [found(files(**{path: size}), at) for at, (path, size, _) in enumerate(rows, 1)]
    return with_state(pa.concat_tables(numbered), [state for _, _, state in rows])


def test_last_number_of_a_path_counts_wherever_its_rows_lie() -> None:
    rows = ledger(
        ("same", 1, READ),
        ("grown", 1, READ),
        ("back", 2, READ),
        ("forgotten", 1, READ),
        ("back", 1, READ),
        ("forgotten", 1, FORGOTTEN),
        ("deleted", 1, DELETED),
        ("returned", 1, DELETED),
        ("returned", 1, READ),
        ("gone", 1, READ),
    )

    listed = compare(rows, files(new=1, returned=1, deleted=1, forgotten=1, back=2, grown=2, same=1))

    assert listed.new["path"].to_pylist() == ["new", "deleted", "forgotten"]
    assert listed.changed.select(["path", "size"]).to_pylist() == [
        {"path": "back", "size": 2},
        {"path": "grown", "size": 2},
    ]
    assert listed.known.select(["number", "size"]).to_pylist() == [
        {"number": 5, "size": 1},
        {"number": 2, "size": 1},
    ]


def test_nothing_known_or_nothing_listed_is_no_news() -> None:
    assert compare(ledger(("a", 1, READ)), LISTED.empty_table()).new.num_rows == 0
    assert compare(found(LISTED.empty_table(), 1), files(a=1)).new["path"].to_pylist() == ["a"]


def test_file_that_changed_before_it_was_read_waits_once_for_those_who_only_look(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, on_change: reload")
    landing.put("a.json", '{"id": 1}\n', 1000)
    landing.run()
    pipeline = Pipeline.from_file(landing.file)
    retry_or_forget(pipeline, None, ["a.json"], forget=False, who="me")
    landing.put("a.json", '{"id": 2}\n' * 3, 2000)
    client = source_of(pipeline, "drops").client("shop", "drops")

    position = client.check({"0": file_start(2)}, {})
    ends = client.latest()

    assert ends == {"0": file_start(4)}
    assert client.outstanding(position, ends) == Outstanding(1, 30)
