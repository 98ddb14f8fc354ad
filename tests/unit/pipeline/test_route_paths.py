"""Paths of tables that a route of the same file may make, too."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.errors import PipelineFileError

FILE = """\
name: shop
sources:
  db: {{type: postgres, connection: "host=127.0.0.1", tables: {tables}}}
tables:
  copies: {{route: "lake/{{_stream}}", from: db}}
  past: {{path: "{path}", from: db, streams: ["public.orders"], mode: history}}
"""


def load(folder: Path, tables: str, path: str) -> Pipeline:
    (folder / "shop.yaml").write_text(FILE.format(tables=tables, path=path))
    return Pipeline.from_file(folder / "shop.yaml")


@pytest.fixture(autouse=True)
def small_connectors() -> None:
    """The real ones."""


@pytest.mark.parametrize("tables", ["[public.orders, public.tags]", '"public.*"'])
def test_a_table_may_lie_where_the_route_makes_none(tables: str, tmp_path: Path) -> None:
    assert load(tmp_path, tables, "lake/past").tables["past"].path == str(tmp_path / "lake/past")


@pytest.mark.parametrize(
    "tables", ["[public.orders, public.tags]", '"public.*"', '["pub lic.tags", "public.*"]']
)
def test_a_table_where_the_route_may_make_one_is_refused(tables: str, tmp_path: Path) -> None:
    path = "lake/pub_lic.tags" if "pub lic" in tables else "lake/public.tags"

    with pytest.raises(PipelineFileError, match=r"tables.copies.route: would put a table at '.*tags'"):
        load(tmp_path, tables, path)
