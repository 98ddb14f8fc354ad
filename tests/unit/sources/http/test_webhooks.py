"""The webhooks of the documentation take payloads with the traits of real ones: deep, wide, each another."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import re
import time
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline
from lakefeed.engine.inline import run_inline
from lakefeed.errors import PipelineFileError, TableError
from lakefeed.sources.http.receiver.server import receiving
from support.http_source import append, journal_of, post, shop
from support.ledger import dead_letters

PAGE = Path(__file__).parents[4] / "docs" / "sources" / "http.md"
SECRET = "a-shared-secret"


def documented(name: str, folder: Path) -> Pipeline:
    """One of the pipelines of the page, on a free port and with a secret."""
    webhooks = PAGE.read_text().partition("### Webhooks")[2].partition("\n### ")[0]
    (text,) = [one for one in re.findall(r"```yaml\n(.*?)```", webhooks, re.S) if f"name: {name}\n" in one]
    text = re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", re.sub(r"\$\{\w+\}", SECRET, text))
    (folder / "hooks.yaml").write_text(text)
    return Pipeline.from_file(folder / "hooks.yaml")


def digest(body: bytes) -> bytes:
    return hmac.new(SECRET.encode(), body, hashlib.sha256).digest()


def urls(kind: str) -> dict[str, str]:
    return {f"{kind}_{at}_url": f"https://api.example/{kind}{{/{at}}}" for at in range(40)}


REPOSITORY = {"id": 186853002, "node_id": "MDEw", "full_name": "o/r", "private": False, **urls("repos")}
SENDER = {"login": "o", "id": 21031067, "type": "User", "site_admin": False, **urls("user")}


def github(event: int) -> dict[str, Any]:
    """A push has numbers where other kinds have times as texts; a ping has no repository."""
    kind = {"id": event, "user": SENDER, "labels": [{"name": "a"}] if event % 2 else [], "body": None}
    others = {"action": "opened", f"kind_{event}": {**kind, f"only_{event}": event}, "sender": SENDER}
    match event % 4:
        case 0:
            commits = [{"id": "c" * 40, "added": [], "author": {"name": "o", "email": None}}]
            repository = {
                **REPOSITORY,
                "created_at": 1557933565,
                "pushed_at": 1557933657,
                "master_branch": "m",
            }
            push = {"ref": "refs/tags/t", "before": "a" * 40, "base_ref": None, "commits": commits}
            return {**push, "head_commit": commits[0], "repository": repository, "pusher": {"name": "o"}}
        case 1:
            return {"zen": "Keep it simple.", "hook_id": 109948940, "hook": {"events": ["*"], "config": {}}}
        case 2:
            return {**others, "repository": {**REPOSITORY, "created_at": "2019-05-15T15:19:25Z"}}
    installed = {"installation": {"id": 5}, "organization": {"login": "o", **urls("org")}}
    return {**others, **installed, "deployment": {"payload": "" if event % 8 == 3 else {"a": [1]}}}


def stripe(event: int) -> dict[str, Any]:
    """What can be expanded is a text or an object, and a request was a text in old versions of the API."""
    customer: Any = [None, "cus_1", {"id": "cus_1", "object": "customer", "address": {"city": None}}][
        event % 3
    ]
    lines = {"object": "list", "data": [{"id": "il_1", "period": {"end": 1, "start": 0}}], "has_more": False}
    data: dict[str, Any] = {"object": {"id": f"o_{event}", "object": f"kind_{event}", "customer": customer}}
    data["object"] |= {"lines": lines, "metadata": {"order id": "6735", f"new.{event}": "x"}}
    if event % 2:
        data["previous_attributes"] = {"default_source": None, "items": {"data": [{"quantity": event}]}}
    request = [None, "req_1", {"id": None, "idempotency_key": None}, {"id": "req_1", "idempotency_key": "k"}]
    return {
        **{"id": f"evt_{event}", "object": "event", "api_version": ["2024-06-20", None][event % 2]},
        **{"created": 1731900000 + event, "data": data, "livemode": False, "pending_webhooks": event % 3},
        **{"request": request[event % 4], "type": "customer.subscription.updated"},
        **({"account": "acct_1"} if event % 5 == 0 else {}),
    }


def shopify(event: int) -> dict[str, Any]:
    """A deleted order has its number alone; one from a till has no customer, and some money has no cents."""
    number = 820982911946154508 + event
    if event % 10 == 9:
        return {"id": number}
    money = {at: {"amount": "398.00", "currency_code": "USD"} for at in ("shop_money", "presentment_money")}
    lines = [
        {"id": at, "price": "1.50", "price_set": money, "properties": [{"name": "n", "value": event}]}
        for at in range(event % 3)
    ]
    order = {"id": number, "admin_graphql_api_id": f"gid://shopify/Order/{number}", "name": f"#{event}"}
    order |= {"created_at": "2026-11-18T10:00:00-05:00", "total_price": ["199.50", "1000000"][event % 2]}
    order |= {"currency": ["EUR", "VND"][event % 2], "line_items": lines, "total_price_set": money}
    customer = {"id": 115310627314723954, "email": "a@example.com", "default_address": {"country": None}}
    order |= {"customer": None if event % 4 == 0 else customer, "client_details": None, "tax_lines": []}
    return {**order, "note_attributes": [{"name": "n", "value": "v"}], f"new_{event}": {"a": 1}}


CASES = [
    ("hooks", "github", github, lambda body: {"X-Hub-Signature-256": f"sha256={digest(body).hex()}"}),
    ("payments", "stripe", stripe, lambda body: stripe_signature(body)),
    (
        "store",
        "orders",
        shopify,
        lambda body: {"X-Shopify-Hmac-Sha256": base64.b64encode(digest(body)).decode()},
    ),
]


def stripe_signature(body: bytes) -> dict[str, str]:
    now = str(int(time.time()))
    return {"Stripe-Signature": f"t={now},v1={digest(now.encode() + b'.' + body).hex()}"}


@pytest.mark.parametrize(("name", "stream", "payload", "signed"), CASES)
def test_documented_webhook_takes_payloads_of_every_shape(
    name: str, stream: str, payload: Any, signed: Any, tmp_path: Path
) -> None:
    pipeline = documented(name, tmp_path)
    bodies = [json.dumps(payload(event)).encode() for event in range(60)]

    with receiving(pipeline, {}, listen=True) as received:
        (api,) = received.values()
        answers = {post(api, f"/{stream}", body, signed(body))[0] for body in bodies}
        run_inline(pipeline)

    rows = DeltaTable(tmp_path / "lake" / stream).to_pyarrow_table().to_pylist()
    assert (answers, len(rows)) == ({202}, 60)
    assert len(rows[0]) < 12 and not dead_letters(tmp_path / "lake" / f"{name}_dead_letters")
    assert [whole(row) for row in rows] == [typed(payload(event)) for event in range(60)]


EMPTY: tuple[Any, ...] = (None, [], {})
JSON = {"repository", "organization", "installation", "sender", "data", "request", "customer", "line_items"}


def whole(row: dict[str, Any]) -> dict[str, Any]:
    """The payload that a row was made of, without what is empty."""
    columns = {name: value for name, value in row.items() if value is not None and name[0] != "_"}
    # A text is stored as it is.
    parsed = {name: json.loads(value) for name, value in columns.items() if name in JSON and value[0] in "[{"}
    found = {**columns, **parsed, **json.loads(row["_rescued"] or "{}")}
    return {name: value for name, value in found.items() if value not in EMPTY}


def typed(payload: dict[str, Any]) -> dict[str, Any]:
    """A payload with its time and its money as the columns have them, without what is empty."""
    types = {"created_at": datetime.fromisoformat, "total_price": Decimal}
    found = {name: types[name](value) for name, value in payload.items() if name in types}
    return {name: value for name, value in {**payload, **found}.items() if value not in EMPTY}


def test_max_columns_is_counted_by_table_and_can_be_set(tmp_path: Path) -> None:
    journal = tmp_path / ".lakefeed" / "journal"

    def send(*events: dict[str, Any]) -> None:
        with journal_of(journal, owner="shop/api") as written:
            for event in events:
                append(written, "orders", [json.dumps(event).encode()])

    send({"id": 1, "meta": {"a": 1, "b": 2}})
    run_inline(Pipeline.from_file(shop(tmp_path, table="max_columns: 4")))
    send({"id": 2, "meta": {"a": 1, "c": 3}})
    run_inline(Pipeline.from_file(shop(tmp_path, table="max_columns: 4")))
    send({"id": 3, "meta": {"d": 4}})
    with pytest.raises(
        TableError, match=r"1 new column \(meta, ...\), 5 in all .* at most 4 .*`max_columns`"
    ):
        run_inline(Pipeline.from_file(shop(tmp_path, table="max_columns: 4")))
    run_inline(Pipeline.from_file(shop(tmp_path, table="max_columns: 5")))

    assert sorted(DeltaTable(tmp_path / "orders").to_pyarrow_table()["id"].to_pylist()) == [1, 2, 3]


def test_columns_of_a_route_are_counted_for_each_of_its_tables(tmp_path: Path) -> None:
    (tmp_path / "shop.yaml").write_text(
        "name: shop\n"
        'sources: {api: {type: http, listen: "127.0.0.1:0", streams: [orders]}}\n'
        "tables: {kinds: {route: 'lake/{kind}', from: api, max_columns: 4}}\n"
    )
    with journal_of(tmp_path / ".lakefeed" / "journal", owner="shop/api") as written:
        for at in range(5):
            append(written, "orders", [json.dumps({"kind": f"k{at}", f"a{at}": 1, f"b{at}": 2}).encode()])

    run_inline(Pipeline.from_file(tmp_path / "shop.yaml"))

    widths = [len(DeltaTable(tmp_path / "lake" / f"k{at}").schema().fields) for at in range(5)]
    assert max(widths) <= 4


def test_short_secret_is_told_from_one_that_is_not_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = shop(tmp_path, 'hmac: {preset: github, secret: "${HOOK_SECRET}"}')
    monkeypatch.setenv("HOOK_SECRET", "s3cr!")

    with pytest.raises(PipelineFileError) as refused:
        Pipeline.from_file(file)

    assert "expected at least 8 characters, got 5" in str(refused.value)
    assert "s3cr!" not in str(refused.value) and "HOOK_SECRET" not in str(refused.value)
