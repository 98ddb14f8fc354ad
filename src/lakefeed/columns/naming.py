"""Naming: which column each new field of the events gets, once and for all.

A field keeps its name if a Delta table takes it. Else the column has the cleaned name, with a number where
that is the name of another column, and its metadata holds the name of the field. Fields whose names differ
only by case are one column, called as most values call it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial, reduce

import pyarrow as pa

from lakefeed.columns.column_types import EVENT_NAME, NEW, event_name
from lakefeed.columns.evidence import Evidence, evidence_of, pruned
from lakefeed.columns.names import clean_column_name, free_name
from lakefeed.columns.widening import widen
from lakefeed.text import few


def as_new(fields: pa.Schema) -> pa.Schema:
    """New fields of events, marked: they have no columns yet, and so no names of columns."""
    return pa.schema([one.with_metadata({**(one.metadata or {}), NEW: b"true"}) for one in fields])


def renames_inside(rename: Mapping[str, str], path: Sequence[str]) -> dict[str, str]:
    """The entries of `rename` for the fields at a path: `{a.b: a.c}` has `{b: c}` at `a`."""
    start = "".join(f"{part}." for part in path)
    return {
        old.removeprefix(start): new.removeprefix(start)
        for old, new in rename.items()
        if old.startswith(start) and new.startswith(start)
    }


def is_nested_rename(old: str, new: str) -> bool:
    """Whether an entry of `rename` may be about a field inside a column: both names have one parent."""
    parent = old.rpartition(".")[0]
    return bool(parent) and parent == new.rpartition(".")[0]


def renamed(rename: Mapping[str, str], name: str) -> str | None:
    """The new name of a field, by the name that the events have or by the cleaned one; None without one."""
    if name in rename:
        return rename[name]
    forms = {name.lower(), clean_column_name(name).lower()}
    return next((new for old, new in rename.items() if old.lower() in forms), None)


@dataclass
class _Name:
    """The column of a field, and those of the fields inside it."""

    column: str
    event: str | None
    """The name that the column's metadata holds, if any."""
    inside: dict[str, _Name] = field(default_factory=dict)


_Names = dict[str, _Name]


@dataclass(frozen=True)
class Naming:
    """How the new fields of one table are named."""

    cleans: bool
    folds: bool
    """Whether fields whose names differ only by case are one."""
    cleaned: Callable[[str], str]
    """The name of the column of a field, where no other column has it."""
    rename: Mapping[str, str]
    wanted: Mapping[str, str]
    """Names that options of the table have for its columns, by these names in lower case."""
    taken: frozenset[str]
    """Names in lower case of columns that the table makes itself."""

    def columns(self, proposal: pa.Schema, known: pa.Schema | None) -> pa.Schema:
        """The columns for what events have beyond the `known` ones; a proposal without new fields stays."""
        new = [one for one in proposal if NEW in (one.metadata or {})]
        if not new:
            return proposal
        evidence = {one.name: seen for one in new if (seen := evidence_of(one)) is not None}
        names = self._level(new, evidence, known or (), [()], self.taken, self.wanted)
        found = [_column(name, group, evidence) for name, group in _by_column(new, names)]
        return pa.schema([*found, *(one for one in proposal if one not in new)])

    def _level(
        self,
        fields: Iterable[pa.Field],
        evidence: Mapping[str, Evidence],
        known: Iterable[pa.Field],
        paths: Sequence[tuple[str, ...]],
        taken: Collection[str] = (),
        wanted: Mapping[str, str] | None = None,
    ) -> _Names:
        known = list(known)
        there, types = {event_name(one): one.name for one in known}, {one.name: one.type for one in known}
        used = {one.name.lower() for one in known} | {*taken}
        used_by_others = {one.name.lower() for one in known if event_name(one) != one.name}
        rename = {old: new for path in paths for old, new in renames_inside(self.rename, path).items()}
        new_name = partial(renamed, rename) if self.folds else rename.get
        groups: dict[str, list[pa.Field]] = {}
        for one in fields:
            is_apart = self.cleans and not self.folds
            groups.setdefault(one.name if is_apart else one.name.lower(), []).append(one)
        names: _Names = {}
        for group in sorted(groups.values(), key=lambda group: _order(group[0].name)):
            event = _most_frequent([one.name for one in group], evidence)
            new = new_name(event) or there.get(event)
            column = new or self._column(event, used if self.cleans else used_by_others, wanted or {})
            used.add(column.lower())
            inner = types.get(column)
            kept = None if column == event or inner is not None or new else event
            spellings = [one.name for one in group] if self.cleans else [event]
            steps = {(*path, part) for path in paths for part in (event, column)}
            inside = self._level(
                [child for one in group if one.name in spellings for child in _members(one.type)],
                _inner_evidence(evidence.get(name) for name in spellings),
                () if inner is None else _members(inner),
                sorted(steps),
            )
            names |= dict.fromkeys(spellings, _Name(column, kept, inside))
        return names

    def _column(self, event: str, used: Collection[str], wanted: Mapping[str, str]) -> str:
        if not self.cleans:
            return free_name(event, used)
        name = self.cleaned(event)
        return free_name(wanted.get(name.lower(), name), used)


def named_as(columns: Iterable[pa.Field], known: Iterable[pa.Field]) -> list[pa.Field]:
    """The columns with the names that events have for the `known` ones, also inside columns."""
    others = {one.name: one for one in known}
    found = []
    for one in columns:
        other = others.get(one.name)
        metadata = dict(one.metadata or {})
        if other is not None and EVENT_NAME in (other.metadata or {}):
            metadata[EVENT_NAME] = other.metadata[EVENT_NAME]
        kind = one.type if other is None else _named_type_as(one.type, _members(other.type))
        found.append(pa.field(one.name, kind, one.nullable, metadata or None))
    return found


def _named_type_as(kind: pa.DataType, known: Sequence[pa.Field]) -> pa.DataType:
    return _with_structs(kind, lambda struct: pa.struct(named_as(struct, known)))


def _with_structs(kind: pa.DataType, made: Callable[[pa.StructType], pa.StructType]) -> pa.DataType:
    """The type with another struct for its outermost ones, those that lists and maps hold included."""
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_with_structs(kind.value_type, made)))
    if pa.types.is_map(kind):
        return pa.map_(kind.key_type, kind.item_field.with_type(_with_structs(kind.item_type, made)))
    return made(kind) if pa.types.is_struct(kind) else kind


def cleaned_names(columns: Iterable[pa.Field], path: str = "") -> Iterator[tuple[str, str]]:
    """The fields whose columns have another name, each with that name, also inside columns."""
    for one in columns:
        name = event_name(one)
        if name != one.name:
            yield f"{path}{name}", f"{path}{one.name}"
        yield from cleaned_names(_members(one.type), f"{path}{one.name}.")


def cleaned_text(names: Mapping[str, str]) -> str:
    """Fields and their columns in words: `US Gross` is the column US_Gross."""
    pairs = few(f"`{old}` is {new}" for old, new in names.items())
    return f"columns have other names than their fields: {pairs}"


def last_names(columns: Iterable[pa.Field]) -> Iterator[tuple[str, str]]:
    """The same without paths, those that are outside first."""
    columns = list(columns)
    yield from ((event_name(one), one.name) for one in columns if event_name(one) != one.name)
    for one in columns:
        yield from last_names(_members(one.type))


def _order(name: str) -> tuple[bool, str]:
    """Names that need no cleaning come first: they stay as they are."""
    return clean_column_name(name) != name, name


def _most_frequent(names: Iterable[str], evidence: Mapping[str, Evidence]) -> str:
    return min(names, key=lambda name: (-evidence[name].total if name in evidence else 0, name))


def _members(kind: pa.DataType) -> list[pa.Field]:
    """The fields of the structs in a type, those that lists and maps hold included."""
    if pa.types.is_list(kind):
        return _members(kind.value_type)
    if pa.types.is_map(kind):
        return _members(kind.item_type)
    return list(kind) if pa.types.is_struct(kind) else []


def _inner_evidence(parts: Iterable[Evidence | None]) -> dict[str, Evidence]:
    found: dict[str, Evidence] = {}
    for part in parts:
        while part is not None and not part.fields:
            part = part.inside
        for name, one in (part.fields if part else {}).items():
            found[name] = found[name].with_(one) if name in found else one
    return found


def _by_column(fields: Iterable[pa.Field], names: _Names) -> list[tuple[_Name, list[pa.Field]]]:
    """The fields of each column, in order of appearance; of spellings that no column takes none."""
    found: dict[str, tuple[_Name, list[pa.Field]]] = {}
    for one in fields:
        if (name := names.get(one.name)) is not None:
            found.setdefault(name.column, (name, []))[1].append(one)
    return list(found.values())


def _column(name: _Name, fields: Sequence[pa.Field], evidence: Mapping[str, Evidence]) -> pa.Field:
    metadata = {EVENT_NAME: name.event.encode()} if name.event is not None else {}
    if all(one.name in evidence for one in fields):
        total = reduce(Evidence.with_, (_evident(evidence[one.name], name.inside) for one in fields))
        found = total.to_field(name.column)
        found = next(iter(pruned([found])), found)
        metadata |= found.metadata
        kind = _annotated(found.type, {one.column: one for one in name.inside.values()})
    else:
        kind = reduce(widen, (_typed(one.type, name.inside) for one in fields))
        kind = _annotated(kind, {one.column: one for one in name.inside.values()})
    return pa.field(name.column, kind, metadata=metadata or None)


def _evident(one: Evidence, names: _Names) -> Evidence:
    """The evidence with what is inside objects under the names of the columns."""
    inside = _evident(one.inside, names) if one.inside else None
    fields: dict[str, Evidence] = {}
    for name, found in one.fields.items():
        known = names.get(name)
        if names and known is None and name.lower() in {each.lower() for each in names}:
            continue
        column, found = (known.column, _evident(found, known.inside)) if known else (name, found)
        fields[column] = fields[column].with_(found) if column in fields else found
    return Evidence(one.counts, fields, inside)


def _typed(kind: pa.DataType, names: _Names) -> pa.DataType:
    """The type with the fields of structs under the names of the columns."""

    def typed(struct: pa.StructType) -> pa.StructType:
        return pa.struct(
            [
                pa.field(name.column, reduce(widen, (_typed(one.type, name.inside) for one in group)))
                for name, group in _by_column(struct, names)
            ]
        )

    return _with_structs(kind, typed)


def _annotated(kind: pa.DataType, names: _Names) -> pa.DataType:
    """The type with the names of the events in the metadata of its fields; `names` are by column."""

    def annotated(struct: pa.StructType) -> pa.StructType:
        fields = []
        for one in struct:
            name = names.get(one.name)
            inside = {each.column: each for each in name.inside.values()} if name else {}
            metadata = {EVENT_NAME: name.event.encode()} if name and name.event is not None else None
            fields.append(pa.field(one.name, _annotated(one.type, inside), one.nullable, metadata))
        return pa.struct(fields)

    return _with_structs(kind, annotated)
