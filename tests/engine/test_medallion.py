"""The medallion template as a user tests it. tests/faults/test_medallion.py runs it."""

from __future__ import annotations

import re
from pathlib import Path

from support.lakefeed import run


def test_medallion_passes_its_tests(tmp_path: Path) -> None:
    code, _, said = run("init", "shop", "--template", "medallion", cwd=tmp_path)
    assert code == 0, said
    file = str(tmp_path / "shop" / "shop.yaml")

    code, out, said = run("test", file)
    assert code == 0, (out, said)
    assert "starting Spark: a query computes gold" in said
    assert re.search(r"^4 passed, 0 failed$", out, re.MULTILINE)
