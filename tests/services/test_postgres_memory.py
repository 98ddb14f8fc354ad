"""A transaction needs no more memory than the same rows in many: it is read in steps, however large it is."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from deltalake import DeltaTable

from support.postgres import PostgresServer
from support.postgres_shop import APPEND, ORDERS, PostgresShop

ROWS = 250_000
MORE = 60
"""Megabytes that it may need beyond the other: what the allocator leaves to chance."""
RUN = r"""
import re, sys
from pathlib import Path
from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
run_inline(Pipeline.from_file(sys.argv[1]))
# The largest that this program was; what getrusage says begins with the size of the test that started it.
print(int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""
INSERT = "INSERT INTO orders SELECT i, 'customer ' || i, i, repeat('x', 500) FROM generate_series({}, {}) i"


def peak(server: PostgresServer, folder: Path, rows_each: int) -> int:
    """Megabytes that a run needs for all rows, in transactions of so many each."""
    folder.mkdir()
    with server.database() as database:
        shop = PostgresShop(server, database, folder)
        shop.execute(ORDERS, "INSERT INTO orders VALUES (0, 'first', 1, 'n')")
        shop.run(APPEND)
        shop.execute(*(INSERT.format(at, at + rows_each - 1) for at in range(1, ROWS, rows_each)))
        done = subprocess.run([sys.executable, "-c", RUN, str(shop.file)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        assert DeltaTable(str(folder / "orders")).to_pyarrow_table(columns=["id"]).num_rows == ROWS + 1
        return int(done.stdout)


def test_one_large_transaction_needs_no_more_memory_than_many_small_ones(
    postgres: PostgresServer, tmp_path: Path
) -> None:
    small, large = peak(postgres, tmp_path / "small", 1_000), peak(postgres, tmp_path / "large", ROWS)

    assert large <= small + MORE, f"{large} MB for one transaction, {small} MB for {ROWS // 1000}"
