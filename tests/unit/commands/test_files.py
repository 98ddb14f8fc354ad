"""`lakefeed files`: list, retry and forget, as somebody types them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.command_line import Lakefeed
from support.landing import Landing


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    """Three files that were read, one of them with a dead letter, and one that came since."""
    landing = Landing(tmp_path, table="schema: {id: long}")
    landing.put("a.json", '{"id": 1}\n{"id": "x"}\n', 1000)
    landing.put("2026/b.json", '{"id": 2}\n', 2000)
    landing.put("2025/b.json", '{"id": 3}\n', 3000)
    landing.run()
    return landing


def listed(lakefeed: Lakefeed, landing: Landing, *options: str) -> list[int]:
    """The numbers of the files that `files list` shows."""
    code, out, _ = lakefeed("files", "list", landing.file, "--json", *options)
    assert code == 0
    (report,) = json.loads(out)
    return [row["number"] for row in report["shown"]]


def test_list_shows_what_became_of_each_file(lakefeed: Lakefeed, landing: Landing) -> None:
    code, out, said = lakefeed("files", "list", landing.file)

    heading, first, second, third = out.splitlines()
    assert (code, said) == (0, "")
    assert heading == f"drops  3 files in {landing.folder / 'shop_drops_files'}"
    assert first.startswith(
        f"     1  read        {landing.into}/a.json  22B  2 records, 1 dead letter  version 1"
    )
    assert "2026/b.json  10B  1 record  version 1  found " in second
    assert "2025/b.json" in third


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ([], [1, 2, 3, 4]),
        (["--state", "waiting"], [4]),
        (["--state", "read", "--name", "b.json"], [2, 3]),
        (["--name", "2026/b.json"], [2]),
        (["--name", "./in/2026/*"], [2]),
        (["--name", "in/*.json"], [1, 2, 3, 4]),
        (["--name", "6/b.json"], []),
        (["--since", "1h"], [1, 2, 3, 4]),
        (["--until", "1h"], []),
        (["--limit", "1"], [4]),
    ],
)
def test_list_chooses_by_state_name_and_time(
    lakefeed: Lakefeed, landing: Landing, options: list[str], numbers: list[int]
) -> None:
    lakefeed("files", "retry", landing.file, "in/a.json", "--yes")

    assert listed(lakefeed, landing, *options) == numbers


def test_retry_warns_of_rows_that_will_be_there_twice_and_asks_first(
    lakefeed: Lakefeed, landing: Landing
) -> None:
    code, shown, _ = lakefeed("files", "retry", landing.file, "./in/2026/b.json")
    before = listed(lakefeed, landing)
    _, out, _ = lakefeed("files", "retry", landing.file, "./in/2026/b.json", "--yes")
    landing.run()

    assert code == 0 and "drops: 1 file would be read again" in shown and "--yes" in shown
    assert "warning: rows of these files that are in rows will be there twice" in out
    assert (before, listed(lakefeed, landing)) == ([1, 2, 3], [1, 2, 3, 4])
    assert landing.rows("id") == [1, 2, 2, 3]


def test_forgotten_file_is_read_as_it_is_now(lakefeed: Lakefeed, landing: Landing) -> None:
    landing.put("a.json", '{"id": 7}\n', 4000)

    code, out, _ = lakefeed("files", "forget", landing.file, landing.into / "a.json", "--yes")
    landing.run()

    assert code == 0
    assert out.splitlines() == [
        "drops: 1 file forgotten",
        f"  {landing.into}/a.json",
        "  warning: rows of these files stay in rows, and what lies there now comes besides. "
        "To replace them: "
        f"lakefeed files reload {landing.file} {landing.into}/a.json",
        "A run reads what lies there as new files.",
    ]
    assert landing.rows("id") == [1, 2, 3, 7]


def test_name_that_no_file_has_and_unknown_states_are_told(lakefeed: Lakefeed, landing: Landing) -> None:
    nobody = lakefeed("files", "retry", landing.file, "c.json", "--yes")
    state = lakefeed("files", "list", landing.file, "--state", "reed")

    see = f"see: lakefeed files list {landing.file}"
    assert nobody == (2, "", f"no file in the ledger is named c.json; {see}\n")
    assert state[0] == 2 and "--state: unknown state 'reed', did you mean 'read'?" in state[2]


def test_plan_and_status_tell_of_files_that_are_too_young_to_be_read(
    lakefeed: Lakefeed, tmp_path: Path
) -> None:
    """They are not counted, but a run waits for them: nobody may think that there is nothing to read."""
    landing = Landing(tmp_path, "format: json", table="schema: {id: long}")
    landing.file.write_text(landing.file.read_text().replace("settle: 1ms", "settle: 1h"))
    landing.put("a.json", '{"id": 1}\n', 1000)
    young = "drops: 2 files are younger than `settle` (1h) and not counted yet"
    landing.put("b.json", '{"id": 2}\n')
    landing.put("c.json", '{"id": 3}\n')

    _, planned, _ = lakefeed("plan", landing.file)
    _, shown, _ = lakefeed("status", landing.file)
    _, document, _ = lakefeed("status", landing.file, "--json")
    (landing.into / "b.json").unlink()
    (landing.into / "c.json").unlink()
    _, later, _ = lakefeed("plan", landing.file)

    assert f"  drops 0: begins at file 1, end file 2, lag about 1 record\n  {young}\n" in planned
    assert f"  {young}\n" in shown
    told = json.loads(document)["outstanding"]["drops"]
    assert (told["files"], told["young"], told["settle"]) == (1, 2, 3600.0)
    assert "younger" not in later
