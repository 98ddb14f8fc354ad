"""The columns of a table in Arrow: texts of Postgres cast to what its types become."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from lakefeed.columns.repeated import repeated
from lakefeed.events import Unfit
from lakefeed.sources.postgres.connection import Connection
from lakefeed.sources.postgres.events import METADATA, Origins, PostgresEvents
from lakefeed.sources.postgres.replication.pgoutput import Mask, Relation
from lakefeed.sources.postgres.values.casts import cast
from lakefeed.sources.postgres.values.column_names import event_name, name_problem
from lakefeed.sources.postgres.values.finite import is_finite
from lakefeed.sources.postgres.values.stored_defaults import columns_of, stored_defaults
from lakefeed.sources.postgres.values.type_catalog import PostgresColumn, TypeCatalog
from lakefeed.sources.postgres.values.types import notice

_log = logging.getLogger("lakefeed")
_told: set[tuple[str, str]] = set()


class TableColumns:
    """Casts the columns of tables; asks the catalog for each type once.

    `finite` says in which columns infinite dates and timestamps are the first and the last that a column
    holds, as patterns of `schema.table.column`.
    """

    def __init__(self, catalog: TypeCatalog, *, finite: Sequence[str] = ()) -> None:
        self._catalog, self._finite = catalog, finite
        self._known: dict[Relation, list[PostgresColumn]] = {}
        self._later: dict[Relation, list[tuple[str, pa.Scalar, str]]] = {}

    def events(
        self,
        relation: Relation,
        texts: Sequence[pa.Array],
        added: Sequence[pa.Array],
        keys: Sequence[str],
        origins: Origins,
        whole: Mask | None = None,
    ) -> PostgresEvents:
        """Events of some rows: their columns, what is added to them, and the values that no column holds.

        `whole` says which rows know all columns; None for all rows.
        """
        arrays: dict[str, pa.Array] = {}
        given: dict[str, pa.Array] = {}
        unfit: dict[str, Unfit] = {}
        problem = name_problem(relation.stream, (field.name for field in relation.fields))
        for column, text in zip(self.columns(relation), texts, strict=True):
            finite = is_finite(relation.stream, column.name, keys, self._finite)
            values, doubt = cast(text, column, finite=finite)
            # With a problem the names are of no use, and no table takes the rows.
            name = event_name(column.name) if problem is None else f"{column.name} "
            if doubt is not None:
                unfit[name] = Unfit(doubt, text)
            arrays[name], given[name] = values, text
        for column_name, value, text in self._later.get(relation, ()):
            name = event_name(column_name)
            arrays[name] = _where(whole, value, len(added[0]))
            given[name] = _where(whole, pa.scalar(text, pa.string()), len(added[0]))
        columns = pa.RecordBatch.from_arrays([*arrays.values(), *added], names=[*arrays, *METADATA.names])
        return PostgresEvents(columns, unfit, tuple(map(event_name, keys)), origins, given, problem)

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
            asked = (publication, relation.stream, relation.oid)
            found = stored_defaults(connection, *asked, finite=self._finite)
            self._later[relation] = [(name, *found[name]) for name in later if name in found]

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


def _where(whole: Mask | None, value: pa.Scalar, count: int) -> pa.Array:
    """The same value for all rows that know all columns."""
    values = repeated(value, count)
    return values if whole is None else pc.if_else(pa.array(whole), values, pa.scalar(None, value.type))
