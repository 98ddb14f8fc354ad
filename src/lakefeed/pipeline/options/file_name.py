"""How the data files of a table are named."""

from __future__ import annotations

import re
from typing import Annotated, Literal, get_args

from pydantic import AfterValidator, Field

from lakefeed.pipeline.section import Section, Shorthand
from lakefeed.text import shown

Strategy = Literal["uuid", "uuid7", "serial"]

_PREFIX = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def _check_prefix(text: str) -> str:
    # Engines do not look at files whose names begin with a dot or an underscore, and vacuum keeps them.
    if not _PREFIX.fullmatch(text):
        raise ValueError(
            "expected up to 64 letters, digits, dots, dashes and underscores that begin with a letter or "
            f"digit, got {shown(text)}"
        )
    return text


class FileName(Section):
    """How the data files of a table are named."""

    prefix: Annotated[str, AfterValidator(_check_prefix)] = Field(
        default="part", description="How every name begins."
    )
    strategy: Strategy = Field(
        default="uuid",
        description="What makes a name unique: `uuid`, a random one; `uuid7`, which begins with the time, so "
        "names sort by when a file was begun; `serial`: a number that grows with each batch, those of "
        "the task and of the file, and random digits.",
    )


FileNameField = Annotated[FileName, Shorthand({word: {"strategy": word} for word in get_args(Strategy)})]
"""A mapping, or the strategy alone: `file_name: uuid7`."""
