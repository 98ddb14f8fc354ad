"""The columns of a table as the pipeline file has them: what events bring, what is made, what is wanted."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from lakefeed.columns.column_types import meant, stored
from lakefeed.columns.names import clean_column_name, cleaned_in_lower_case, kept_name
from lakefeed.columns.naming import Naming
from lakefeed.formats import Rules
from lakefeed.handles.modes import interval_fields
from lakefeed.handles.shaping import CONDITIONS, Shaping, as_declared, merged
from lakefeed.pipeline.options.evolve import RESCUED
from lakefeed.pipeline.options.metadata import MetadataColumns
from lakefeed.pipeline.options.partition_by import PartitionField
from lakefeed.pipeline.pipeline import DeadLetters
from lakefeed.pipeline.table import Table
from lakefeed.rows.dead_letter import dead_letter_schema
from lakefeed.rows.rename import other_names
from lakefeed.tables.shape import Shape


class TableColumns:
    """What the file says about the columns of a table, given what the table is by now."""

    def __init__(
        self, spec: Table | None, shaping: Shaping | None, letters: DeadLetters | None = None
    ) -> None:
        self.spec = spec
        self._letters = letters
        self.shaping = shaping or (Shaping(spec) if spec else None)
        """What the table makes of its events; None for the table of dead letters."""
        self.events_of_route: pa.Schema | None = None
        """In a table of a route: the columns that are decoded for all of them."""
        self.assumed = pa.schema([])
        """Columns of the stream, to be looked at as if the table had them, or the file declared them."""
        self._learned = pa.schema([])
        self.has_exact_names = False
        """Whether a source says what the columns of each stream are: no event spells them in another way."""
        self.original_names: Mapping[str, str] = {}
        """The names that columns have in the source, by those in events, for a table that keeps names."""
        self.converts: set[str] = set()
        """Columns whose type has followed their stream: changes from before that have the old one."""

    @property
    def is_ingest_form(self) -> bool:
        """Whether it is a table of dead letters with the columns of kafka-delta-ingest."""
        return self._letters is not None and self._letters.form != "lakefeed"

    @property
    def letters_schema(self) -> pa.Schema:
        """The columns of a table of dead letters."""
        further = [name for name in (self._letters.transform if self._letters else ()) if "." not in name]
        return dead_letter_schema(ingest=self.is_ingest_form, further=further)

    @property
    def shape(self) -> Shape | None:
        """What the table is now; None while there is none."""
        raise NotImplementedError

    @property
    def is_fed(self) -> bool:
        """Whether Lakefeed has written rows to the table."""
        raise NotImplementedError

    @property
    def partition_fields(self) -> tuple[PartitionField, ...]:
        """The entries of `partition_by`."""
        return self.spec.partition_fields if self.spec else ()

    @property
    def metadata(self) -> MetadataColumns:
        """The columns that say where events came from."""
        return self.spec.metadata_columns if self.spec else MetadataColumns()

    def rules(self, events: pa.Schema | None) -> Rules:
        """What becomes of events that do not fit; while columns are inferred, every field is welcome."""
        assert self.spec is not None and self.shaping is not None
        evolve, rename = self.spec.evolve, self.spec.rename
        old = {new: name for name, new in rename.items()}
        return Rules(
            new_column=self.shaping.new_column(events),
            type_change=evolve.type_change,
            dropped=frozenset(self.spec.drop),
            changes=self.spec.takes_envelopes,
            taken=self._taken(),
            renamed=frozenset(rename),
            converts=frozenset(old.get(name, name) for name in self.converts),
            transforms=tuple(self.spec.transform.items()),
            exact=frozenset(old.get(name, name) for name in self._inferred(events)),
            coerces=self.spec.coerce is not None,
            names="strict" if self.has_exact_names else self.spec.names,
        )

    def _inferred(self, events: pa.Schema | None) -> set[str]:
        """Columns of the events whose type was inferred, where it may become a wider one."""
        assert self.spec is not None
        if self.spec.evolve.type_change != "widen" or self.spec.coerce:
            return set()
        return {*(events or pa.schema([])).names} - {*(self.spec.declared or pa.schema([])).names}

    def _taken(self) -> frozenset[str]:
        """Names in lower case that no new column may have, as the table makes columns by these names."""
        assert self.spec is not None and self.shaping is not None
        filled = {new for new in self.spec.rename.values() if new not in self.spec.rename}
        made = self.shaping.beside.names if self.spec.reshapes else self.made
        return frozenset(name.lower() for name in {*made, *filled})

    def named(self, proposal: pa.Schema, known: pa.Schema | None) -> pa.Schema:
        """The columns for new fields of the events, next to those that are `known`; see `columns.naming`."""
        assert self.spec is not None
        spec = self.spec
        named = [
            *(spec.routed.columns if spec.routed else ()),
            *spec.keys,
            *spec.sequence_by,
            *(one.column for one in spec.partition_fields),
            *spec.sort_by,
            *spec.cluster_by,
        ]
        wanted = {name.lower(): name for name in reversed(named)}
        cleans, taken = spec.names != "strict", self._taken()
        folds = cleans and not self.has_exact_names
        cleaned = {"lower": cleaned_in_lower_case, "keep": self._kept_name}.get(spec.names, clean_column_name)
        return Naming(cleans, folds, cleaned, spec.rename, wanted, taken).columns(proposal, known)

    def _kept_name(self, name: str) -> str:
        return self.original_names.get(name, kept_name(name))

    @property
    def rescues(self) -> bool:
        """Whether the table keeps what does not fit."""
        return self.spec is not None and self.spec.evolve.rescues

    @property
    def rename(self) -> Mapping[str, str]:
        """Fields of the events that have another name in the table."""
        return self.rename_of(self.events()) if self.spec else {}

    def rename_of(self, events: pa.Schema | None) -> Mapping[str, str]:
        """The same where events have these columns."""
        own = self.spec.rename if self.spec else {}
        # What the file renames counts, also where a column had the cleaned name before.
        others = other_names(events or ())
        cleaned = {
            old: new
            for old, new in others.items()
            if new not in own.values() and (new not in own or new in others)
        }
        return {**cleaned, **own}

    @property
    def made(self) -> dict[str, str]:
        """Columns that neither events nor `select` have, and the key of the pipeline file that makes them."""
        derived = {field.name: "partition_by" for field in self.partition_fields if field.derived}
        derived |= self.spec.interval if self.spec else {}
        if self.spec and self.spec.reshapes:
            return derived
        made = dict.fromkeys(self.metadata.schema.names, "metadata") | derived
        return made | ({RESCUED: "evolve"} if self.rescues else {})

    def columns(self) -> pa.Schema | None:
        """The columns of the table but those that are made, in declared types; None to be inferred."""
        return self._columns(self.shape)

    def _columns(self, shape: Shape | None) -> pa.Schema | None:
        declared = self.spec.declared if self.spec else None
        if self.spec and self.spec.select:
            # They are those of the events.
            declared = None
        if shape is None:
            return self._with_assumed(declared)
        known = {field.name: field for field in declared or ()}
        have = [meant(field) for field in shape.schema if field.name not in self.made]
        return pa.schema([as_declared(field, known.get(field.name)) for field in have])

    def events(self) -> pa.Schema | None:
        """The columns to decode, in declared types; None while they are to be inferred."""
        return self.events_at(self.shape)

    def events_at(self, shape: Shape | None) -> pa.Schema | None:
        """The same where the table has this shape."""
        if self.shaping is None or not self.shaping.spec.reshapes:
            return self._columns(shape)
        own = None
        if shape and self.is_fed:
            made = {*self.made, *self.shaping.beside.names}
            own = pa.schema([meant(field) for field in shape.schema if field.name not in made])
        found = self.shaping.events(shape, own)
        found = self._with_assumed(found) if shape is None else found
        return merged(found, self._learned) if len(self._learned) else found

    def learn(self, proposal: pa.Schema, returned: pa.Schema | None) -> bool:
        """Remember columns of events while the table cannot be made: its function has returned nothing."""
        if self.spec is None or not self.spec.python or returned is not None:
            return False
        self._learned = merged(self._learned, proposal)
        return True

    def beginning(self) -> tuple[pa.Schema, dict[str, str]] | None:
        """The columns of a table that the file alone says, and the properties kept; None to be inferred."""
        declared, shaping = (self.spec.declared if self.spec else None), self.shaping
        if declared is None or shaping is None:
            return None
        declared = self._with_assumed(declared)
        if not shaping.spec.python:
            for option in CONDITIONS:
                shaping.condition(option, declared)
        if not shaping.spec.reshapes:
            # What is wrong with `where` and `expect` is told before there is a table.
            shaping.projection(declared)
            return declared, {}
        if shaping.spec.python:
            # What `select` makes of what a function returns is not known before it has returned something.
            return None if shaping.spec.select else (declared, shaping.kept(self.events()))
        return shaping.made(declared), shaping.kept(shaping.needed(declared))

    def _with_assumed(self, columns: pa.Schema | None) -> pa.Schema | None:
        return merged(columns, self.assumed) if columns is not None and len(self.assumed) else columns

    def grown(
        self, proposal: pa.Schema, returned: pa.Schema | None = None
    ) -> tuple[pa.Schema, dict[str, str]]:
        """The columns of the table when events have these as well, and the properties kept.

        `returned` is what the user's function has returned.
        """
        shaping = self.shaping
        if shaping is None or not shaping.spec.reshapes:
            if shaping and self.shape is None:
                shaping.projection(proposal)
            return proposal, {}
        if self.events_of_route is not None:
            # What is proposed for one table of a route are its own columns.
            return proposal, shaping.kept(self.events_of_route)
        events = merged(self.events(), proposal)
        if shaping.spec.python:
            known = merged(shaping.returned(self.shape, self._columns(self.shape)), returned)
            made = shaping.made(known) if shaping.spec.select else known
            return made, shaping.kept(events, known)
        return shaping.made(events), shaping.kept(shaping.needed(events))

    def table_schema(self, columns: pa.Schema) -> pa.Schema:
        """What the table has when it gets these declared columns: further columns are made."""
        if self.spec is None:
            return self.letters_schema
        made = [
            pa.field(field.name, field.arrow_type(stored(columns).field(field.column).type))
            for field in self.spec.partition_fields
            if field.derived
        ]
        known = set(columns.names)
        added = [field for field in self._added_columns() if field.name not in known]
        schema = pa.schema([*stored(columns), *made, *added])
        return pa.schema([*schema, *interval_fields(self.spec, schema)])

    def _added_columns(self) -> list[pa.Field]:
        """The columns that hold what is not in the columns of the events; `select` takes those it wants."""
        if self.shaping is None or self.shaping.spec.select:
            return []
        return list(self.shaping.beside)

    def _wanted(self) -> pa.Schema:
        """The columns that the pipeline file asks for, derived ones aside."""
        assert self.spec is not None and self.shaping is not None
        if not self.spec.select:
            return pa.schema([*stored(self.spec.declared or pa.schema([])), *self._added_columns()])
        rows = self.rows_read()
        if rows is None or self.shaping.settled(rows) is None:
            return pa.schema([])
        made = self.shaping.made(rows)
        if self.spec.route and self.shaping.grows and self.shape:
            # Each table of a route has the columns that its own events fill.
            return pa.schema([one for one in made if one.name in self.shape.schema.names])
        return made

    def rows_read(self) -> pa.Schema | None:
        """The columns that `select`, `where` and `expect` read; None while they are not known."""
        assert self.spec is not None and self.shaping is not None
        if self.spec.python:
            return self.shaping.returned(self.shape, self.columns())
        return self.events()
