"""A table of a route that takes one stream of its source."""

from __future__ import annotations

from typing import Self

from pydantic import PrivateAttr

from lakefeed.pipeline.options.route import safe_value
from lakefeed.pipeline.section import Section


class OneStream(Section):
    """What a table is where its route makes one for each stream; the file itself says nothing of it."""

    _stream: str | None = PrivateAttr(default=None)

    def of_stream(self, stream: str) -> Self:
        """The same for one stream, by its name as it stands in a path."""
        copy = self.model_copy()
        copy._stream = stream
        return copy

    def may_take(self, stream: str | None) -> bool:
        """Whether a stream is the one, or may be any."""
        return self._stream is None or safe_value(stream or "") == self._stream
