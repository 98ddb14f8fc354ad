"""The graph of a pipeline: which table feeds which, and in which order a run that ends by itself reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from lakefeed.pipeline.options.paths import same_location

if TYPE_CHECKING:
    from lakefeed.pipeline.pipeline import Pipeline


class Graph:
    """Sources feed tables, and tables feed others as sources of the same name."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._fed_by = {name: table.from_ for name, table in pipeline.tables.items()}
        paths = {name: table.path for name, table in pipeline.tables.items() if table.path}
        read = {name: source.reads_table() for name, source in pipeline.inputs.items()}
        self._reads = tables_read(read, paths)

    def table_read_by(self, source: str) -> str | None:
        """The table of the file that a source reads; None where it reads none."""
        return self._reads.get(source)

    def sources_before(self, source: str) -> set[str]:
        """The sources that must have been read before this one, so that it brings all that is there.

        Those in turn wait for theirs.
        """
        table = self.table_read_by(source)
        return set() if table is None else set(self._fed_by[table])

    def fed_from(self, table: str) -> list[str]:
        """The tables that a table feeds."""
        readers = {source for source, read in self._reads.items() if read == table}
        return [name for name, own in self._fed_by.items() if readers.intersection(own)]


def feeding_tables(sources: Iterable[str], wanted: Mapping[str, Iterable[str]]) -> list[str]:
    """The tables that feed others: named by a `from` where no source has that name.

    `wanted` are the names in the `from` of each table. No table feeds itself.
    """
    known = set(sources)
    named = {name for table, names in wanted.items() for name in names if name != table}
    return [table for table in wanted if table in named and table not in known]


def tables_read(sources: Mapping[str, str | None], paths: Mapping[str, str]) -> dict[str, str]:
    """Which table of the file a source reads, given the path that each source reads and each table has."""
    return {
        source: table
        for source, path in sources.items()
        for table, own in paths.items()
        if path is not None and same_location(own, path)
    }


def circles(wanted: Mapping[str, Iterable[str]], reads: Mapping[str, str]) -> Iterator[list[str]]:
    """Tables that feed themselves, by way of others or not: the tables of each circle.

    `reads` says which table a name in `from` stands for.
    """
    told: set[str] = set()

    def walk(path: list[str]) -> Iterator[list[str]]:
        for name in wanted.get(path[-1], ()):
            table = reads.get(name)
            if table in path:
                circle = path[path.index(table) :]
                if not told.intersection(circle):
                    told.update(circle)
                    yield circle
            elif table is not None:
                yield from walk([*path, table])

    for table in wanted:
        if table not in told:
            yield from walk([table])
