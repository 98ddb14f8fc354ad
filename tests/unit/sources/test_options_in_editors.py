"""What `lakefeed schema` tells editors about the options of sources."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator

from lakefeed.pipeline.json_schema import json_schema


@pytest.mark.parametrize(
    "source",
    [
        {"type": "kafka", "brokers": "b", "topics": "clicks"},
        {"type": "postgres", "connection": "postgresql://db/shop", "tables": "public.orders"},
        {"type": "http", "listen": "127.0.0.1:8090", "streams": "orders", "token": "secret-secret-secret"},
    ],
    ids=lambda source: source["type"],
)
def test_one_name_is_as_good_as_a_list_of_it(source: dict[str, Any]) -> None:
    file = {"name": "shop", "sources": {"s": source}, "tables": {"t": {"path": "t", "from": "s"}}}

    validator: Any = Draft202012Validator(json_schema())

    assert [error.message for error in validator.iter_errors(file)] == []
