"""`lakefeed verify`: what is printed, and with which exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from deltalake import DeltaTable

from lakefeed.text import counted
from support.command_line import Lakefeed
from support.offline import drain


def test_verify_prints_what_it_proved(lakefeed: Lakefeed, shop: Path) -> None:
    code, out, said = lakefeed("verify", shop)

    assert (code, said) == (0, "")
    assert out.splitlines() == [
        "events: 0 rows in 0 files, versions 0 to 1",
        "  clicks/0: offsets 0 to 49, 50 events read, 50 dead letters",
        "  clicks/1: offsets 0 to 49, 50 events read, 50 dead letters",
        "dead letters: 100 rows in 1 file, versions 0 to 1",
        "shop: sound: nothing lost, nothing twice",
    ]


def test_verify_counts_dead_letters_as_they_are_after_a_replay(lakefeed: Lakefeed, shop: Path) -> None:
    lakefeed("dead-letters", "replay", shop, "--yes")

    code, out, _ = lakefeed("verify", shop)

    assert code == 0
    left = [len(at) for at in (dead_letters_of(shop, 0), dead_letters_of(shop, 1))]
    assert sum(left) == 10
    assert out.splitlines()[1:3] == [
        f"  clicks/{number}: offsets 0 to 49, 50 events read, {counted(count, 'dead letter')}, "
        f"{50 - count} more replayed or discarded"
        for number, count in enumerate(left)
    ]


def dead_letters_of(shop: Path, partition: int) -> list[int]:
    letters = DeltaTable(shop.parent / "shop_dead_letters").to_pyarrow_table().to_pylist()
    return [letter["offset"] for letter in letters if letter["partition"] == partition]


def test_verify_names_the_pipelines_that_feed_a_table(lakefeed: Lakefeed, shop: Path) -> None:
    file = shop.parent / "store.yaml"
    file.write_text(
        shop.read_text().replace("name: shop", "name: store").replace("from:", "share: true, from:")
    )
    drain(file)

    code, out, _ = lakefeed("verify", shop)

    assert code == 3
    assert "  fed by pipelines shop and store\n  shop/clicks/0: offsets 0 to 49, 50 events read" in out
    assert "  store/clicks/1: offsets 0 to 49, 50 events read" in out
    assert (
        "pipelines shop and store both feed the table from the same events: 50 events of partition 1 there "
        "twice, offsets 0 to 49.\n" in out
    )
    # Once for all partitions.
    assert out.count("To take the second copy out, stop pipeline 'store' and this one, and type:") == 1


def test_verify_exits_with_3_and_names_what_is_wrong(lakefeed: Lakefeed, shop: Path) -> None:
    lakefeed("dead-letters", "replay", shop, "--yes")
    file = next((shop.parent / "events").glob("part-*.parquet"))
    file.unlink()

    code, out, _ = lakefeed("verify", shop)
    json_code, json_out, _ = lakefeed("verify", shop, "--deep", "--json")

    assert code == json_code == 3
    assert f"  ! file: version 3: {file.name} with 90 rows is missing\n" in out
    assert out.endswith("shop: 1 finding, marked with !\n")
    found = json.loads(json_out)
    assert found["sound"] is False
    assert found["tables"][0]["findings"][0]["kind"] == "file"


def test_verify_does_not_call_sound_what_it_could_not_count(lakefeed: Lakefeed, shop: Path) -> None:
    lakefeed("dead-letters", "replay", shop, "--yes")
    for entry in (shop.parent / "events" / "_delta_log").glob("*.json"):
        entry.write_text(entry.read_text().replace('"stats":', '"unknown":'))

    code, out, _ = lakefeed("verify", shop)

    assert code == 3
    assert "  not checked: some files have no statistics, so rows could not be counted; the first" in out
    assert out.endswith("shop: no problem found, but some checks were not possible: see `not checked`\n")


def test_verify_and_plan_import_neither_spark_nor_pandas(shop: Path) -> None:
    looks = """
import sys
sys.argv = ["lakefeed", *sys.argv[1:]]
from lakefeed.commands.app import main
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(sorted(name for name in sys.modules if name.split(".")[0] in ("pyspark", "py4j", "pandas")))
"""

    for command in ("verify", "plan"):
        done = subprocess.run(
            [sys.executable, "-c", looks, command, str(shop)], capture_output=True, text=True, timeout=120
        )

        assert done.returncode == 0, done.stderr
        assert done.stdout.splitlines()[-1] == "[]"
