"""The columns of a table in Arrow: texts of Postgres cast to what its types become."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa

from lakefeed.events import Unfit
from lakefeed.sources.postgres.events import METADATA
from lakefeed.sources.postgres.pgoutput import Relation
from lakefeed.sources.postgres.values.casts import cast
from lakefeed.sources.postgres.values.type_catalog import PostgresColumn, TypeCatalog
from lakefeed.sources.postgres.values.types import notice

_log = logging.getLogger("lakefeed")
_told: set[tuple[str, str]] = set()


class TableColumns:
    """Casts the columns of tables; asks the catalog for each type once."""

    def __init__(self, catalog: TypeCatalog) -> None:
        self._catalog = catalog
        self._known: dict[Relation, list[PostgresColumn]] = {}

    def cast(
        self, relation: Relation, texts: Sequence[pa.Array], added: Sequence[pa.Array]
    ) -> tuple[pa.RecordBatch, dict[str, Unfit]]:
        """The columns of some rows, with what is added to them, and the values that no column holds."""
        arrays, names = [], []
        unfit: dict[str, Unfit] = {}
        for column, text in zip(self.columns(relation), texts, strict=True):
            values, doubt = cast(text, column)
            if doubt is not None:
                unfit[column.name] = Unfit(doubt, text)
            arrays.append(values)
            names.append(column.name)
        return pa.RecordBatch.from_arrays([*arrays, *added], names=[*names, *METADATA.names]), unfit

    def columns(self, relation: Relation) -> list[PostgresColumn]:
        """The columns of a table; asks the server where they are not known yet."""
        if relation not in self._known:
            self._catalog.load(field.type_oid for field in relation.fields)
            dimensions = self._catalog.dimensions(relation.oid)
            found = [
                PostgresColumn(
                    field.name,
                    self._catalog.type_of(field.type_oid),
                    field.typmod,
                    dimensions.get(field.name, 0),
                )
                for field in relation.fields
            ]
            self._known[relation] = found
            for column in found:
                text = notice(column)
                if text and (relation.stream, column.name) not in _told:
                    _told.add((relation.stream, column.name))
                    _log.info("%s: %s", relation.stream, text)
        return self._known[relation]
