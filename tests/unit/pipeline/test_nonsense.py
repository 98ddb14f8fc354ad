from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakefeed.errors import PipelineFileError
from lakefeed.pipeline.loading.load import load

SOUND: dict[str, Any] = {
    "name": "shop",
    "sources": {
        "clicks": {
            "type": "queue",
            "brokers": "here",
            "topics": ["a"],
            "start": {"a": 1},
            "format": {"type": "framed", "header": 1},
            "options": {"a": "b"},
            "flush": {"rows": 5},
        }
    },
    "tables": {
        "one": {
            "path": "lake/one",
            "from": ["clicks"],
            "schema": {"a": "long", "t": "timestamp"},
            "partition_by": ["day(t)"],
            "metadata": True,
            "properties": {"delta.appendOnly": True},
            "storage": {"a": "b"},
        },
        "two": {"path": "s3://lake/two", "from": "clicks"},
    },
    "flush": {"interval": "5s", "bytes": "1MB", "idle": "1s"},
    "dead_letters": {"path": "lake/letters"},
    "spark": {"master": "local", "conf": {}},
    "state": ".state",
}


def _places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if path:
        yield path
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for step, item in items:
        yield from _places(item, (*path, step))


_texts = st.sampled_from(
    ["", "/", "..", "s3://", "file://", "day(", "struct<", "${", "${X}", "a\0b", "5s", "0"]
)
_scalars = st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | _texts
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(max_size=4) | st.sampled_from(["type", "path", "from"]), inner, max_size=2)
    ),
    max_leaves=4,
)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(changes=st.lists(st.tuples(st.sampled_from(list(_places(SOUND))), _values), min_size=1, max_size=3))
def test_nonsense_anywhere_in_a_file_is_a_problem_with_a_line(tmp_path: Path, changes: list[Any]) -> None:
    data = copy.deepcopy(SOUND)
    for path, value in changes:
        parent: Any = data
        for step in path[:-1]:
            parent = parent.get(step) if isinstance(parent, dict) else None
        if isinstance(parent, dict):
            parent[path[-1]] = value
    (tmp_path / "shop.yaml").write_text(json.dumps(data))

    try:
        load(tmp_path / "shop.yaml", environment={})
    except PipelineFileError as error:
        assert error.problems
        for problem in error.problems:
            assert problem.line >= 1
            assert "Input should" not in problem.message
            assert "Value error" not in problem.message
