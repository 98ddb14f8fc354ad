"""Names of fields in SQL texts."""

from __future__ import annotations

import pytest

from lakefeed.sql.field_names import with_column_names

COLUMNS = ["US_Gross", "a_b", "a_b_2", "with_space", "meta"]
FIELDS = {"US Gross": "US_Gross", "a b": "a_b_2", "user id": "user_id"}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`US Gross` > 1 AND `us gross` < 5", "`US_Gross` > 1 AND `US_Gross` < 5"),
        ("`a b` + `a_b` + a_b", "`a_b_2` + `a_b` + a_b"),
        ("meta.`user id`", "meta.`user_id`"),
        ("`with space` = 'x'", "`with_space` = 'x'"),
        (
            "f('`US Gross`', \"`US Gross`\", `US Gross`)",
            "f('`US Gross`', \"`US Gross`\", `US_Gross`)",
        ),
        ("'it\\'s `US Gross`' = `other one`", "'it\\'s `US Gross`' = `other one`"),
        ("price AS `US Gross`", "price AS `US_Gross`"),
    ],
)
def test_a_name_in_backticks_that_no_column_has_is_that_of_a_field(text: str, expected: str) -> None:
    assert with_column_names(text, COLUMNS, FIELDS) == expected
