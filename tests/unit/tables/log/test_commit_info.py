"""The commit info of an entry, also as earlier builds have written it."""

from __future__ import annotations

from typing import Any

import pytest

from lakefeed.tables.log.commit_info import commit_info_of, commit_metadata


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ({"kind": "letters", "letters": {"a": 1}}, {"kind": "dead_letters", "dead_letters": {"a": 1}}),
        (
            {"kind": "replay", "letters": [["s", None, 0, 0, [1]]], "letters_version": 3},
            {"kind": "replay", "dead_letters": [["s", None, 0, 0, [1]]], "dead_letters_version": 3},
        ),
        (
            {"kind": "rewind", "letters": [{"version": 2, "letters": [["s", None, 0, 0, [1]]]}]},
            {"kind": "rewind", "dead_letters": [{"version": 2, "dead_letters": [["s", None, 0, 0, [1]]]}]},
        ),
    ],
)
def test_commits_of_earlier_builds_say_letters_for_dead_letters(
    written: dict[str, Any], read: dict[str, Any]
) -> None:
    assert commit_info_of(commit_metadata(written)) == read
    assert commit_info_of(commit_metadata(read)) == read
