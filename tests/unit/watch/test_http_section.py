"""`http`, `ready` and the consumer group in a pipeline file."""

from __future__ import annotations

from pathlib import Path

import pytest

from lakefeed import Pipeline, PipelineFileError
from lakefeed.pipeline.http import is_loopback, split_address
from lakefeed.pipeline.loading.load import load

SHOP = """\
name: shop
sources: {clicks: {type: generate}}
tables: {events: {path: events, from: clicks}}
"""


def loaded(folder: Path, more: str) -> Pipeline:
    file = folder / "shop.yaml"
    file.write_text(SHOP + more)
    return load(file, environment={"TOKEN": "correct-horse"}).pipeline


def test_nothing_listens_unless_http_is_given_and_then_on_loopback(tmp_path: Path) -> None:
    without, empty = loaded(tmp_path, ""), loaded(tmp_path, "http: {}")

    assert without.http is None
    assert empty.http is not None
    assert (empty.http.listen, empty.http.token) == ("127.0.0.1:8088", None)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            "http: {listen: 8088}",
            "http.listen: expected an address such as 127.0.0.1:8088 or 0.0.0.0:8088, got '8088'",
        ),
        (
            "http: {listen: localhost}",
            "http.listen: expected an address such as 127.0.0.1:8088 or 0.0.0.0:8088, got 'localhost'",
        ),
        ("http: {listen: '127.0.0.1:70000'}", "http.listen: expected an address such as 127.0.0.1:8088"),
        ("http: {token: short}", "http.token: "),
        ("ready: {max_lag: 0}", "ready.max_lag: "),
        ("ready: {maxlag: 5}", "did you mean 'max_lag'?"),
    ],
)
def test_what_cannot_be_is_told_with_its_line(tmp_path: Path, given: str, said: str) -> None:
    with pytest.raises(PipelineFileError) as refused:
        loaded(tmp_path, given)

    assert f"{tmp_path / 'shop.yaml'}:4: " in str(refused.value)
    assert said in str(refused.value)


def test_the_token_comes_from_a_variable_and_is_shown_to_nobody(tmp_path: Path) -> None:
    pipeline = loaded(tmp_path, "http: {token: '${TOKEN}'}")

    assert pipeline.http is not None and pipeline.http.token == "correct-horse"
    assert "correct-horse" not in repr(pipeline)


def test_a_token_written_in_the_file_is_warned_of(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(SHOP + "http: {token: correct-horse}")

    (warning,) = load(file).warnings

    assert str(warning) == (
        f"{file}:4: http.token: a secret is written in the file; put it in a variable: ${{TOKEN}}"
    )


def test_the_group_is_not_set_among_the_options(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    kafka = "{type: kafka, brokers: b, topics: [t], format: json, options: {group.id: mine}}"
    file.write_text(SHOP.replace("{type: generate}", kafka))

    with pytest.raises(PipelineFileError) as refused:
        load(file)

    assert "sources.clicks.options: group.id is set by `group` of the source" in str(refused.value)


@pytest.mark.parametrize(
    ("text", "address", "loopback"),
    [
        ("127.0.0.1:8088", ("127.0.0.1", 8088), True),
        ("localhost:0", ("localhost", 0), True),
        ("[::1]:80", ("::1", 80), True),
        ("0.0.0.0:80", ("0.0.0.0", 80), False),
        ("lake.example:80", ("lake.example", 80), False),
    ],
)
def test_addresses_are_split_into_host_and_port(text: str, address: tuple[str, int], loopback: bool) -> None:
    assert split_address(text) == address
    assert is_loopback(address[0]) is loopback
