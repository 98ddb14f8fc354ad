"""`make bench`: how fast it is, beside others, part by part in one run.

Only the ratios mean something: they are taken on one machine, one after the other.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "tests")]
os.environ |= {"PYTHONPATH": f"{HERE}:{HERE.parent / 'tests'}", "TZ": "UTC"}

from figure import Asked, Figure, as_json, say, table  # noqa: E402

PARTS = [
    "throughput",
    "freshness",
    "growth",
    "start",
    "watching",
    "compaction",
    "upserts",
    "memory",
    "copying",
    "lasting",
    "stores",
    "receiving",
    "files",
    "postgres",
]


def main() -> None:
    options = argparse.ArgumentParser(prog="make bench", description=__doc__)
    options.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; by default all")
    options.add_argument("--scale", type=float, default=1.0, help="0.1 measures a tenth, for a first look")
    options.add_argument(
        "--only", default="", help="of a part, only what has one of these in its name: narrow,Avro"
    )
    options.add_argument("--json", type=Path, help="a file for the figures")
    given = options.parse_args()
    if unknown := set(given.parts) - set(PARTS):
        options.error(f"no part is called {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    asked = Asked(given.scale, given.only)
    found: dict[str, list[Figure]] = {}
    for name in given.parts or PARTS:
        began = time.monotonic()
        say(f"{name} ...")
        found[name] = list(importlib.import_module(name).measure(asked))
        print(table(name, found[name]), flush=True)
        say(f"{name} took {(time.monotonic() - began) / 60:.1f} minutes")
    print(as_json(found))
    if given.json:
        given.json.write_text(as_json(found))


if __name__ == "__main__":
    main()
