"""Tables whose columns are inferred, while no event has shown one: they wait, and lose nothing."""

from __future__ import annotations

from lakefeed.engine.run_events import TableChanged, Watcher
from lakefeed.errors import LakefeedError, TableError
from lakefeed.handles.handle import TableHandle
from lakefeed.handles.table_plan import TableId
from lakefeed.text import counted


class AwaitingSchema:
    """Counts the events that a table without columns has read.

    None of them is lost: the table gets its first position when it is made, and that is where it began. So
    they are read again then, and are rows of nulls.
    """

    def __init__(self, watch: Watcher) -> None:
        self._watch = watch
        self._events: dict[str, int] = {}
        self._handles: dict[str, TableHandle] = {}
        self._there: set[str] = set()
        """Tables that are there, and whose columns are asked for anew."""

    def add(self, handle: TableHandle, events: int, was_there: bool = False) -> None:
        """Note events without a column; the first of them are told.

        `was_there`: the table was there when the batch was planned.
        """
        if not events:
            return
        if handle.name not in self._events:
            text = f"has no columns yet: no field has a value in {counted(events, 'event')} so far"
            self._watch(TableChanged(handle.name, text))
        self._handles[handle.name] = handle
        if was_there:
            self._there.add(handle.name)
        self._events[handle.name] = self._events.get(handle.name, 0) + events

    def _why(self, name: str) -> str:
        if function := self._handles[name].python:
            return f"; `python: {function.name}` has returned no row"
        return ""

    @property
    def is_made(self) -> bool:
        """Whether one of the tables has been made meanwhile, for the events of another source."""
        return any(handle.exists for name, handle in self._handles.items() if name not in self._there)

    def waits(self, name: str) -> bool:
        """Whether events of a table have been read that will be read again."""
        return name in self._events

    def failures(self) -> dict[TableId, LakefeedError]:
        """What to say of tables that are not made when there is nothing more to read."""
        return {
            TableId(name): TableError(
                f"table {name}: no column has a value in {counted(count, 'event')}, so no schema can be "
                f"inferred{self._why(name)}.\n"
                "Declare `schema` for the table, or start again when there are other events."
            )
            for name, count in self._events.items()
        }
