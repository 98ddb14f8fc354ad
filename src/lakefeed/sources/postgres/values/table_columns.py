"""The columns of a table in Arrow: texts of Postgres cast to what its types become."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.events import Unfit
from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.events import METADATA
from lakefeed.sources.postgres.replication.pgoutput import Mask, Relation
from lakefeed.sources.postgres.values.casts import cast
from lakefeed.sources.postgres.values.stored_defaults import columns_of, stored_defaults
from lakefeed.sources.postgres.values.type_catalog import PostgresColumn, TypeCatalog
from lakefeed.sources.postgres.values.types import notice

_log = logging.getLogger("lakefeed")
_told: set[tuple[str, str]] = set()


class TableColumns:
    """Casts the columns of tables; asks the catalog for each type once."""

    def __init__(self, catalog: TypeCatalog) -> None:
        self._catalog = catalog
        self._known: dict[Relation, list[PostgresColumn]] = {}
        self._later: dict[Relation, list[tuple[str, pa.Scalar]]] = {}

    def cast(
        self,
        relation: Relation,
        texts: Sequence[pa.Array],
        added: Sequence[pa.Array],
        whole: Mask | None = None,
    ) -> tuple[pa.RecordBatch, dict[str, Unfit]]:
        """The columns of some rows, with what is added to them, and the values that no column holds.

        `whole` says which rows know all columns; None for all rows.
        """
        arrays, names = [], []
        unfit: dict[str, Unfit] = {}
        for column, text in zip(self.columns(relation), texts, strict=True):
            values, doubt = cast(text, column)
            if doubt is not None:
                unfit[column.name] = Unfit(doubt, text)
            arrays.append(values)
            names.append(column.name)
        for name, value in self._later.get(relation, ()):
            values = pa.repeat(value, len(added[0]))
            nothing = pa.scalar(None, value.type)
            arrays.append(values if whole is None else pc.if_else(pa.array(whole), values, nothing))
            names.append(name)
        return pa.RecordBatch.from_arrays([*arrays, *added], names=[*names, *METADATA.names]), unfit

    def know_later(self, relation: Relation, connection: Connection, publication: str) -> None:
        """Learn what rows of a table that had these columns have by now in columns that came later."""
        if relation in self._later:
            return
        self._later[relation] = []
        known = {field.name for field in relation.fields}
        columns = columns_of(connection, relation.oid)
        later = [name for name, has_default in columns.items() if has_default and name not in known]
        # With a name that is gone, one of the others may be another name of the same column.
        if later and known <= columns.keys():
            found = stored_defaults(connection, publication, relation.stream, relation.oid)
            self._later[relation] = [(name, found[name]) for name in later if name in found]

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
