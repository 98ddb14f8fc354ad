"""What is served to whom: over real connections, without an engine."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

from lakefeed import Pipeline, UsageError
from lakefeed.engine.run_events import SourceSeen, SourceTrouble, TableReached
from lakefeed.events import Outstanding
from lakefeed.reports.status import PipelineStatus, TableStatus, status
from support.watched import Site, WatchedRun, served, shop

TOKEN = "correct-horse"


@pytest.fixture
def site() -> Iterator[Site]:
    run = WatchedRun()
    run.trouble_everywhere()
    with served(run) as site:
        yield site


@pytest.fixture
def guarded() -> Iterator[Site]:
    run = WatchedRun(shop(http={"listen": "127.0.0.1:0", "token": TOKEN}))
    run.all_is_well()
    with served(run) as site:
        yield site


def test_healthz_answers_while_readyz_says_what_is_missing(site: Site) -> None:
    alive, ready = site.get("healthz"), site.get("readyz")

    assert (alive.code, alive.text) == (200, "ok\n")
    assert ready.code == 503
    assert ready.text.splitlines() == [
        "source orders: broker:9092 does not answer: Connection refused",
        "table refunds: takes no events: /lake/refunds is partitioned by ['day'], "
        "the pipeline file says nothing",
        "table clicks: 25 of the last 125 events (20.0%) became dead letters, most often bad_json: "
        "the text ends inside a string",
    ]


def test_readyz_of_a_run_in_which_all_is_well(guarded: Site) -> None:
    ready = guarded.get("readyz", Authorization=f"Bearer {TOKEN}")

    assert (ready.code, ready.text) == (200, "ready\n")


def test_metrics_are_in_the_format_of_prometheus(site: Site) -> None:
    metrics = site.get("metrics")

    assert metrics.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# HELP lakefeed_up 1 while the source answers and the table can be written" in metrics.text
    assert "# TYPE lakefeed_commit_seconds histogram" in metrics.text


def test_the_status_that_is_served_has_the_keys_of_the_command(site: Site, tmp_path: Path) -> None:
    pipeline = shop(
        sources={"clicks": {"type": "generate", "rows": 10}},
        tables={"clicks": {"path": str(tmp_path / "clicks"), "from": "clicks"}},
    )

    answer = site.get("api/status").json()
    command = asdict(status(pipeline))

    assert answer.keys() - {"run"} == command.keys() == set(PipelineStatus.__dataclass_fields__)
    assert answer["tables"][0].keys() == command["tables"][0].keys() == set(TableStatus.__dataclass_fields__)
    clicks, _, refunds = answer["tables"]
    place = {"next_place": None, "end_place": None, "lag_words": None}
    assert clicks["offsets"] == {"clicks": {"0": {"next": 100, "end": 100, "lag": 0, **place}}}
    assert (clicks["rows"], clicks["version"], clicks["lag"]) == (100, 1, 0)
    assert refunds["error"].startswith("table refunds: /lake/refunds is partitioned by")
    assert answer["sources"]["orders"] == "source orders: broker:9092 does not answer: Connection refused"
    assert answer["run"]["ready"] is False


@pytest.mark.parametrize("path", ["", "live", "metrics", "readyz", "api/status", "nothing-here"])
def test_without_the_token_only_healthz_answers(guarded: Site, path: str) -> None:
    assert guarded.get(path).code == 401
    assert guarded.get(path, Authorization="Bearer wrong-horse").code == 401
    assert guarded.get(path, Cookie="lakefeed_80=x").code == 401
    assert TOKEN not in guarded.get(path).text
    assert guarded.get("healthz").code == 200


def test_a_token_in_the_address_becomes_a_cookie_that_is_not_the_token(guarded: Site) -> None:
    first = guarded.get(f"?token={TOKEN}")
    cookie = first.headers["set-cookie"]
    second = guarded.get("metrics", Cookie=cookie.partition(";")[0])

    assert first.code == second.code == 200
    assert cookie.endswith("; Path=/; HttpOnly; SameSite=Strict")
    assert TOKEN not in cookie
    assert TOKEN not in first.text
    assert guarded.get("?token=wrong-horse").text.count("This is not the token.") == 1


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "localhost.evil.example", "", "[::1"])
def test_a_foreign_name_that_points_to_this_machine_gets_nothing(site: Site, host: str) -> None:
    answer = site.get("api/status", Host=host)

    assert answer.code == 403
    assert answer.text == "ask under the name localhost or 127.0.0.1\n"


@pytest.mark.parametrize("host", ["localhost:8088", "127.0.0.1", "[::1]:8088"])
def test_the_names_of_this_machine_are_answered(site: Site, host: str) -> None:
    assert site.get("healthz", Host=host).code == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_nothing_can_be_changed(site: Site, method: str) -> None:
    answer = site.get(method=method)

    assert (answer.code, answer.headers["allow"]) == (405, "GET, HEAD")


def test_the_page_runs_its_own_script_only(site: Site) -> None:
    answers = [site.get(), site.get()]
    policies = [answer.headers["content-security-policy"] for answer in answers]

    nonces = [policy.partition("script-src 'nonce-")[2].partition("'")[0] for policy in policies]

    assert policies[0].startswith("default-src 'none'; script-src 'nonce-")
    assert nonces[0] != nonces[1]
    for answer, nonce in zip(answers, nonces, strict=True):
        assert answer.text.count(f'nonce="{nonce}"') == 2
        assert " style=" not in answer.text and "http://" not in answer.text.replace("http://www.w3.org", "")
        assert answer.headers["referrer-policy"] == "no-referrer"


def test_what_is_in_the_data_cannot_become_part_of_the_page() -> None:
    run = WatchedRun()
    run.all_is_well()
    run.letters("clicks", "clicks", 1, error="</main><script>alert(1)</script>")
    run.tell(SourceTrouble("orders", '"><img src=x onerror=alert(1)>'))

    with served(run) as site:
        text = site.get().text

    assert "<script>alert" not in text and "<img" not in text
    assert "&lt;/main&gt;&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_the_pipeline_file_on_the_page_has_defaults_and_no_secret() -> None:
    run = WatchedRun(shop(http={"listen": "127.0.0.1:0", "token": TOKEN}))

    with served(run) as site:
        text = site.get(Authorization=f"Bearer {TOKEN}").text

    assert "hunter22" not in text and TOKEN not in text
    assert "sasl.password</i>: &#39;***&#39;" in text
    assert "<i>give_up_after</i>: 10m" in text


def test_a_port_that_is_taken_is_told_before_anything_starts() -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = f"127.0.0.1:{other.getsockname()[1]}"
        pipeline = shop(http={"listen": taken})

        with pytest.raises(UsageError) as refused:
            pipeline.run(once=True)

    assert str(refused.value) == (
        f"http: another program listens on {taken} already.\n"
        "Stop it, or choose another address: --set http.listen=127.0.0.1:0 takes a free port."
    )


def test_an_address_of_another_machine_is_told(caplog: pytest.LogCaptureFixture) -> None:
    run = WatchedRun(shop(http={"listen": "192.0.2.1:8088"}))

    with pytest.raises(UsageError) as refused, served(run):
        pass

    assert str(refused.value) == (
        "http: cannot listen on 192.0.2.1:8088: Cannot assign requested address.\n"
        "Set `http.listen` to an address of this machine, such as 127.0.0.1:8088."
    )


def test_an_open_address_without_a_token_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    run = WatchedRun(shop(http={"listen": "0.0.0.0:0"}))

    with served(run) as site:
        port = site.address.rstrip("/").rpartition(":")[2]
        named = Site(f"http://127.0.0.1:{port}/").get("healthz", Host="lake.example")

    assert named.code == 200
    assert (
        f"everyone who can connect to http://0.0.0.0:{port}/ can see this pipeline; set http.token"
        in caplog.text
    )


def test_payloads_are_on_the_page_and_not_in_what_programs_fetch() -> None:
    run = WatchedRun()
    run.all_is_well()
    run.letters("clicks", "clicks", 1, payload="the payload of somebody")

    with served(run) as site:
        assert "the payload of somebody" in site.get().text
        assert "the payload of somebody" not in site.get("api/status").text
        assert site.get("api/status").json()["run"]["recent_dead_letters"][0]["code"] == "bad_json"


def test_files_that_wait_are_counted_beside_the_lag() -> None:
    run = WatchedRun()
    run.all_is_well()

    with served(run) as site:
        before = site.get().text
        run.tell(SourceSeen("clicks", {"0": 150}, outstanding=lambda at, ends: Outstanding(12, 7)))
        found = site.get().text

    assert "<small>events wait</small>" in before
    assert "<small>events wait, in 12 files</small>" in found


def test_positions_of_a_database_are_told_as_the_database_writes_them() -> None:
    db = {"type": "postgres", "connection": "postgresql://db/shop", "tables": "public.orders"}
    tables = {"orders": {"path": "/lake/orders", "from": "db"}}
    run = WatchedRun(
        Pipeline.model_validate(
            {"name": "shop", "sources": {"db": db}, "tables": tables, "http": {"listen": "127.0.0.1:0"}}
        )
    )
    run.tell(SourceSeen("db", {"changes": 0x16B3800}))
    run.tell(TableReached("orders", "db", {"changes": 0x16B3748}))

    with served(run) as site:
        page, told = site.get().text, site.get("api/status").json()

    assert "<td>0/16B3748</td><td>0/16B3800</td>" in page
    assert told["tables"][0]["offsets"]["db"]["changes"]["next_place"] == "0/16B3748"


def test_freshness_is_that_of_tables_that_get_events() -> None:
    run = WatchedRun()
    run.all_is_well()
    run.clock.now += 3600
    run.commit("clicks", "clicks", newest=run.clock.now - 2)

    with served(run) as site:
        fed = site.get().text
        run.clock.now += 3600
        quiet = site.get().text

    assert '<b data-figure="freshness">2 s</b><small>since the newest event of clicks</small>' in fed
    assert (
        '<b data-figure="freshness">60 min</b><small>no events now; the newest is in clicks</small>' in quiet
    )


@pytest.mark.parametrize("asked", ["", "?range=7d", "?range=%3Cscript%3E"])
def test_a_range_that_there_is_not_is_an_hour(site: Site, asked: str) -> None:
    assert '<a href="?range=1h" title="the last hour" aria-current="true">' in site.get(asked).text


def test_what_is_fetched_again_and_again_has_payloads_of_opened_reasons_only() -> None:
    run = WatchedRun()
    run.all_is_well()
    run.letters("clicks", "clicks", 1, payload="the payload of somebody")

    with served(run) as site:
        assert "the payload of somebody" not in site.get("live").text
        assert "the payload of somebody" in site.get("live?open=letters-clicks-decode-bad_json").text
