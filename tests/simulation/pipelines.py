"""Random pipelines: tables whose options are drawn from a list that names every field of their models."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from types import MappingProxyType
from typing import Any

from simulation.events import DECLARED, MISFITS

Spec = dict[str, Any]
KEYED = ("upsert", "history", "deduplicate")
_ORDERED = {"sequence_by": ["seq"], "delete_when": "op = 1"}
FOCUS: Mapping[str, tuple[Spec, ...]] = {
    "keys": ({"mode": "upsert"} | _ORDERED, {"mode": "upsert"}, {"mode": "history"} | _ORDERED),
    "letters": tuple({"mode": one} for one in ("append", "append", "upsert", "history", "deduplicate")),
    "resent": tuple({"mode": one} for one in ("upsert", "upsert", "upsert", "history", "append")),
    "marks": ({"mode": "upsert", "updates": "merge_on_read"},),
}
"""What a life may be about, with options of its table. Letters are written, or sent again."""
_NEEDED = ("id", "seq", "op")
"""The fields by which changes are told apart, ordered and taken for deletions."""


def draw_tables(random: Random, focus: str | None = None) -> dict[str, Spec]:
    """One to three tables of one source; with a focus one table, of the modes that it is about."""
    if focus is not None:
        return {"a": draw_table(random, "a", random.choice(FOCUS[focus]))}
    return {name: draw_table(random, name) for name in "abc"[: random.choice((1, 1, 2, 2, 3))]}


def draw_table(random: Random, name: str, given: Mapping[str, Any] = MappingProxyType({})) -> Spec:
    """A table in which every option is valid beside the others."""
    spec: Spec = {"path": name, "from": "k", **given}
    for draw in DRAWN.values():
        draw(random, spec)
    return spec


def loose_fields(tables: Mapping[str, Spec]) -> tuple[str, ...]:
    """The fields that every table declares: values of another type have one meaning in them."""

    def declares(spec: Spec, name: str) -> bool:
        return spec.get("rename", {}).get(name, name) in spec.get("schema", ())

    return tuple(name for name in MISFITS if all(declares(spec, name) for spec in tables.values()))


def _mode(random: Random, spec: Spec) -> None:
    if "mode" not in spec:
        spec["mode"] = random.choices(
            ("append", "upsert", "history", "deduplicate", "overwrite"), (6, 6, 4, 3, 1)
        )[0]


def _keys(random: Random, spec: Spec) -> None:
    if spec["mode"] in KEYED:
        more = [name for name in spec["schema"] if spec["schema"][name] in ("string", "boolean")]
        spec["keys"] = ["id", random.choice(more)] if more and random.random() < 0.25 else ["id"]


def _sequence_by(random: Random, spec: Spec) -> None:
    if spec["mode"] == "history" or (spec["mode"] == "upsert" and random.random() < 0.6):
        spec["sequence_by"] = ["seq"]


def _rename(random: Random, spec: Spec) -> None:
    if random.random() < 0.3:
        old = random.choice(("name", "amount", "at", "note", "odd f"))
        spec["rename"] = {old: random.choice(("label", "Other"))}


def _columns(random: Random, spec: Spec) -> None:
    if spec["mode"] == "append" and random.random() < 0.2:
        return
    others = [name for name in DECLARED if name not in _NEEDED and random.random() < 0.7]
    names = [*_NEEDED, *others]
    if random.random() < 0.2:
        random.shuffle(names)
    renamed = spec.get("rename", {})
    spec["schema"] = {renamed.get(name, name): DECLARED[name] for name in names}
    if spec["mode"] == "append" and random.random() < 0.2:
        spec["schema"]["id"] += " not null"


def _evolve(random: Random, spec: Spec) -> None:
    if "schema" in spec and random.random() < 0.5:
        spec["evolve"] = {
            "new_column": random.choice(("add", "ignore", "rescue", "dead_letter")),
            "type_change": random.choice(("dead_letter", "rescue")),
        }


def _names(random: Random, spec: Spec) -> None:
    if random.random() < 0.25:
        spec["names"] = random.choice(("clean", "lower", "keep", "keep", "strict"))


def _drop(random: Random, spec: Spec) -> None:
    # A field that fills a declared column, or gets another name, must not be dropped: the file is refused.
    fields = [
        name for name in ("flag", "note", "more", "deep", "odd f") if name not in spec.get("rename", ())
    ]
    fields = [name for name in fields if name not in spec.get("schema", ())]
    if random.random() < 0.2:
        spec["drop"] = random.sample(fields, 2)


def _metadata(random: Random, spec: Spec) -> None:
    if random.random() < 0.35:
        spec["metadata"] = random.choice(
            (True, ["_topic", "_offset"], {"_partition": "number", "_key": "key"}, ["_headers", "_timestamp"])
        )


def _condition(random: Random, spec: Spec) -> str:
    nullable = [name for name in spec["schema"] if name not in spec.get("drop", ())]
    return random.choice(("id > 1", "seq < 40", "op < 1", f"{random.choice(nullable)} IS NOT NULL"))


def _where(random: Random, spec: Spec) -> None:
    if "schema" in spec and random.random() < 0.25:
        spec["where"] = _condition(random, spec)


def _select(random: Random, spec: Spec) -> None:
    if "schema" in spec and random.random() < 0.2:
        needed = {*_NEEDED, *spec.get("keys", ())}
        some = [name for name in spec["schema"] if name in needed or random.random() < 0.5]
        spec["select"] = random.choice((["*", "id AS twin"], some, [*some, "seq AS twin"]))


def _expect(random: Random, spec: Spec) -> None:
    if "schema" in spec and random.random() < 0.25:
        selected = spec.get("select")
        names = [name for name in spec["schema"] if not selected or "*" in selected or name in selected]
        rules = {}
        for rule in ("first", "second")[: random.choice((1, 2))]:
            that = random.choice(("id > 0", "seq > 2", f"{random.choice(names)} IS NOT NULL"))
            rules[rule] = {"that": that, "otherwise": random.choice(("warn", "drop", "dead_letter"))}
        spec["expect"] = rules


def _partition_by(random: Random, spec: Spec) -> None:
    if "schema" not in spec or random.random() < 0.65:
        return
    selected = spec.get("select")
    names = [name for name in spec["schema"] if not selected or "*" in selected or name in selected]
    plain = [name for name in names if spec["schema"][name] in ("string", "boolean", "decimal(10,2)")]
    moments = [name for name in names if spec["schema"][name] == "timestamp"]
    choices = [[name] for name in plain] + [["id"]]
    choices += [[f"{function}({name})"] for name in moments for function in ("day", "month")]
    spec["partition_by"] = random.choice(choices)


def _delete_when(random: Random, spec: Spec) -> None:
    if spec["mode"] in ("upsert", "history") and random.random() < 0.7:
        spec["delete_when"] = "op = 1"


def _truncate_when(random: Random, spec: Spec) -> None:
    if spec.get("sequence_by") and random.random() < 0.3:
        spec["truncate_when"] = "op = 2"


def _within(random: Random, spec: Spec) -> None:
    moments = [name for name, kind in spec.get("schema", {}).items() if kind == "timestamp"]
    selected = spec.get("select")
    moments = [name for name in moments if not selected or "*" in selected or name in selected]
    if spec["mode"] == "deduplicate" and moments and random.random() < 0.5:
        spec["within"] = {"column": moments[0], "age": "1d"}


def _interval(option: str, name: str) -> Callable[[Random, Spec], None]:
    def draw(random: Random, spec: Spec) -> None:
        if spec["mode"] == "history" and random.random() < 0.3:
            spec[option] = name

    return draw


def _track(random: Random, spec: Spec) -> None:
    if spec["mode"] == "history" and "track_except" not in spec and random.random() < 0.2:
        spec["track"] = ["op"]


def _ignore_nulls(random: Random, spec: Spec) -> None:
    partial = spec["mode"] == "upsert" and "metadata" not in spec and "truncate_when" not in spec
    if partial and random.random() < 0.2:
        spec["ignore_nulls"] = True


def _updates(random: Random, spec: Spec) -> None:
    if spec["mode"] in ("upsert", "history") and random.random() < 0.4:
        spec["updates"] = "merge_on_read"


def _track_except(random: Random, spec: Spec) -> None:
    if spec["mode"] == "history" and random.random() < 0.3:
        spec["track_except"] = ["op"]


def _sort_by(random: Random, spec: Spec) -> None:
    names = [name for name in _NEEDED if name not in spec.get("partition_by", ())]
    if random.random() < 0.2 and "schema" in spec:
        spec["sort_by"] = [random.choice(names)]


def _compression(random: Random, spec: Spec) -> None:
    if random.random() < 0.2:
        spec["compression"] = random.choice(("snappy", "none", "zstd"))


def _max_rows_per_file(random: Random, spec: Spec) -> None:
    if random.random() < 0.3:
        spec["max_rows_per_file"] = random.choice((1, 2, 5))


def _properties(random: Random, spec: Spec) -> None:
    if random.random() < 0.5:
        spec["properties"] = {"delta.checkpointInterval": random.choice(("2", "3", "7"))}
    if spec["mode"] in ("upsert", "history") and random.random() < 0.2:
        spec.setdefault("properties", {})["delta.enableChangeDataFeed"] = "true"


DRAWN: Mapping[str, Callable[[Random, Spec], None]] = {
    "mode": _mode,
    "sequence_by": _sequence_by,
    "rename": _rename,
    "columns": _columns,
    "keys": _keys,
    "evolve": _evolve,
    "names": _names,
    "drop": _drop,
    "metadata": _metadata,
    "where": _where,
    "select": _select,
    "expect": _expect,
    "partition_by": _partition_by,
    "delete_when": _delete_when,
    "truncate_when": _truncate_when,
    "within": _within,
    "valid_from": _interval("valid_from", "since"),
    "valid_to": _interval("valid_to", "until"),
    "is_current": _interval("is_current", "is_current"),
    "ignore_nulls": _ignore_nulls,
    "updates": _updates,
    "track_except": _track_except,
    "track": _track,
    "sort_by": _sort_by,
    "compression": _compression,
    "max_rows_per_file": _max_rows_per_file,
    "properties": _properties,
}
"""What draws each field of a table, in an order in which later ones see what earlier ones have chosen."""


def _file_name(random: Random, spec: Spec) -> None:
    if random.random() < 0.3:
        strategies = ("uuid", "uuid7", "serial")
        spec["file_name"] = {"prefix": "p.1-_x", "strategy": random.choice(strategies)}


def _cluster_by(random: Random, spec: Spec) -> None:
    names = [name for name in ("seq", "id") if name not in spec.get("partition_by", ())]
    if "schema" in spec and not spec.get("select") and random.random() < 0.2:
        spec["cluster_by"] = random.sample(names, random.choice((1, len(names))))


def _target_file_size(random: Random, spec: Spec) -> None:
    if random.random() < 0.2:
        spec["target_file_size"] = "1MB"


def _shuffle(random: Random, spec: Spec) -> None:
    appends = spec["mode"] in ("append", "overwrite") and spec.get("partition_by")
    if appends and random.random() < 0.3:
        spec["shuffle_by_partition"] = True


LAYOUT: Mapping[str, Callable[[Random, Spec], None]] = {
    "file_name": _file_name,
    "cluster_by": _cluster_by,
    "target_file_size": _target_file_size,
    "shuffle_by_partition": _shuffle,
}
"""What draws the fields that change no row, and only how files lie: for lives of a broker."""


def draw_layout(random: Random, spec: Spec) -> None:
    """Draw them for a table."""
    for draw in LAYOUT.values():
        draw(random, spec)
