"""The same changes through Debezium's engine, which Debezium Server wraps, with a sink that forgets them.

It reads with pgoutput from a slot of its own and hands JSON to the sink, at least once; nothing is written.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from figure import Figure, say

from support.jars import Artifact, fetch, java

HERE = Path(__file__).resolve().parent
VERSION = "3.6.1.Final"
"""Its engine and connector are of Java 17. Debezium Server's own classes are of Java 21, and none of its
twenty sinks takes events for nothing."""
JARS = [
    Artifact("io.debezium", name, VERSION) for name in ("debezium-embedded", "debezium-connector-postgres")
]
LIMIT_SECONDS = 600
PROPERTIES = """\
name=bench
connector.class=io.debezium.connector.postgresql.PostgresConnector
database.hostname=127.0.0.1
database.port={port}
database.user=postgres
database.password=
database.dbname=postgres
topic.prefix=bench
table.include.list=public.{table}
plugin.name=pgoutput
slot.name=debezium
publication.name=debezium
publication.autocreate.mode=disabled
snapshot.mode=no_data
offset.storage=org.apache.kafka.connect.storage.MemoryOffsetBackingStore
key.converter.schemas.enable=false
value.converter.schemas.enable=false
"""


class Debezium:
    """A slot that keeps the changes of a table from now on, until they are read through Debezium."""

    def __init__(self, server: Any, table: str) -> None:
        self._properties = PROPERTIES.format(port=server.port, table=table)
        server.execute(f"CREATE PUBLICATION debezium FOR TABLE {table}")
        server.execute("SELECT pg_create_logical_replication_slot('debezium', 'pgoutput')")

    def figures(self, count: int, ours: dict[str, float], folder: Path) -> Iterator[Figure]:
        """How fast it reads so many changes and for how much CPU, beside our `wall` and `cpu` for them."""
        if "jdk.compiler" not in subprocess.check_output([java(), "--list-modules"], text=True):
            say("Debezium is left out: a JDK is needed to compile its sink ('openjdk-17-jdk-headless')")
            return
        yield from compared(self._read(count, folder), ours, count)

    def _read(self, count: int, folder: Path) -> dict[str, Any]:
        file = folder / "debezium.properties"
        file.write_text(self._properties)
        classes = ":".join(f"{fetch(one)}/*" for one in JARS)
        command = [java(), "-cp", classes, str(HERE / "NullSink.java"), str(file), str(count)]
        say(f"{count:,} changes through Debezium {VERSION} ...")
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_SECONDS)
        assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
        read: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        assert read["all"]["events"] == count, f"Debezium gave {read['all']['events']:,} of {count:,} changes"
        return read


def compared(theirs: dict[str, Any], ours: dict[str, float], count: int) -> Iterator[Figure]:
    """The figures of Debezium; those of the second half because the JVM compiles its code in the first."""
    for part, when in (("all", ""), ("second_half", ", second half")):
        read = theirs[part]
        rate, cpu = read["events"] / read["wall"], read["cpu"] / read["events"] * 1e6
        yield Figure(
            f"changes read in a second by Debezium with a null sink{when}",
            rate,
            "rows",
            count / ours["wall"] / rate,
            "as many by Lakefeed into a table",
        )
        yield Figure(
            f"a change through Debezium to a null sink{when}",
            cpu,
            "us CPU",
            cpu / (ours["cpu"] / count * 1e6),
            "as much as Lakefeed into a table",
        )
