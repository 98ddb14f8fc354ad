from __future__ import annotations

import json
from pathlib import Path

import pytest

from lakefeed.pipeline.json_schema import json_schema
from reference_page import reference_markdown


@pytest.fixture(autouse=True)
def small_connectors() -> None:
    """Leave the real connectors in their place."""


def test_the_schema_holds_the_real_connectors_with_every_option_described() -> None:
    schema = json_schema()

    assert '"const": "kafka"' in json.dumps(schema)
    assert '"const": "generate"' in json.dumps(schema)
    for name in ("KafkaSource", "GenerateSource"):
        for key, field in schema["$defs"][name]["properties"].items():
            assert key == "type" or field.get("description"), key


def test_the_reference_page_is_up_to_date() -> None:
    page = Path(__file__).parents[3] / "docs" / "reference.md"

    written = reference_markdown()

    assert page.read_text() == written, "run: make docs"
