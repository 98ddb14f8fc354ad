from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import lakefeed

HOUSE = Path(lakefeed.__file__).parent

# From the ground up; rooms of one floor do not know each other.
FLOORS = [
    {"errors", "text", "figures", "events", "backoff"},
    {"units"},
    {"columns", "stores"},
    {"sql"},
    {"pipeline"},
    {"files"},
    {"formats", "rows", "tables"},
    {"sources"},  # a Delta table is one of them
    {"handles"},
    {"dead_letters"},
    {"engine"},
    {"upkeep", "refresh", "reprocess", "reports"},
    {"watch"},
    {"run"},
    {"testing", "doctor"},
    {"api"},
    {"commands"},
]


def _floor(room: str) -> int:
    return next(at for at, rooms in enumerate(FLOORS) if room in rooms)


def _modules() -> Iterator[tuple[str, Path]]:
    """Every module with the room that it lives in; the front door and `python -m` belong to none."""
    for path in sorted(HOUSE.rglob("*.py")):
        room = path.relative_to(HOUSE).parts[0].removesuffix(".py")
        if room not in ("__init__", "__main__"):
            yield room, path


def _imported_rooms(path: Path) -> Iterator[tuple[str, int]]:
    """Every room that a module imports, lazily and for type checking too, with the line."""
    package = ["lakefeed", *path.relative_to(HOUSE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*above, *([node.module] if node.module else [])])
            names = [f"{origin}.{alias.name}" for alias in node.names]
        for name in names:
            parts = name.split(".")
            if parts[0] == "lakefeed" and len(parts) > 1:
                yield parts[1], getattr(node, "lineno", 0)


def test_rooms_import_only_what_lies_below_them() -> None:
    known = set().union(*FLOORS)

    wrong = [
        f"{path.relative_to(HOUSE)}:{line}: {room} imports {imported}"
        for room, path in _modules()
        for imported, line in _imported_rooms(path)
        if {room, imported} <= known and imported != room and _floor(imported) >= _floor(room)
    ]

    assert wrong == []


def test_every_room_is_on_a_floor() -> None:
    known = set().union(*FLOORS)

    homeless = sorted({room for room, _ in _modules()} - known)

    assert homeless == []


def test_only_the_engine_and_what_stands_on_it_imports_spark() -> None:
    """But for the source that reads what Spark reads, and does so only where a run has started Spark.

    And for variants: nobody else has a decoder of them, which starts no JVM.
    """
    apart = {HOUSE / "sources" / "spark" / "query.py", HOUSE / "columns" / "variants.py"}
    below = set().union(*FLOORS[: FLOORS.index({"engine"})])

    wrong = [
        f"{path.relative_to(HOUSE)}: {room} imports pyspark"
        for room, path in _modules()
        if room in below and path not in apart
        if "import pyspark" in path.read_text() or "from pyspark" in path.read_text()
    ]

    assert wrong == []
