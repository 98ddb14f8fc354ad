"""Names of fields in SQL: in backticks, a name that no column has may be that of the field of a column."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from lakefeed.columns.names import clean_column_name
from lakefeed.text import in_backticks

# A quote inside a text, and a backtick inside a text, belong to the text.
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`""", re.DOTALL)


def with_column_names(text: str, columns: Collection[str], fields: Mapping[str, str]) -> str:
    """The text with the names of columns in place of names of their fields.

    `columns` are the names of all columns, `fields` those that have another name than their field, by that.
    A field that is not among them may have the cleaned name of a column.
    """
    if "`" not in text:
        return text
    own = {column.lower(): column for column in columns}
    folded = {field.lower(): column for field, column in fields.items()}

    def named(found: re.Match[str]) -> str:
        quoted = found[0]
        name = quoted[1:-1].replace("``", "`")
        if quoted[0] != "`" or name.lower() in own:
            return quoted
        column = fields.get(name) or folded.get(name.lower()) or own.get(clean_column_name(name).lower())
        return quoted if column is None else in_backticks(column)

    return _QUOTED.sub(named, text)
