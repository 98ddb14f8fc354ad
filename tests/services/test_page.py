"""The status page in a real Chromium: what somebody sees and clicks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from lakefeed.engine.run_events import FilesCounted, SourceSeen, TableChanged, TableReached
from support.watched import Site, WatchedRun, served, shop

PHONE: Any = {"viewport": {"width": 390, "height": 844}}


@contextmanager
def looking(browser: Browser, site: Site, path: str = "", **how: Any) -> Iterator[Page]:
    """A page of its own on which nothing may go wrong, a refused script or style included."""
    context = browser.new_context(**how)
    page = context.new_page()
    wrong: list[str] = []
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    try:
        page.goto(site.address + path)
        yield page
    finally:
        context.close()
    assert wrong == []


@pytest.fixture
def run() -> WatchedRun:
    run = WatchedRun()
    run.trouble_everywhere()
    return run


def fifty_tables() -> WatchedRun:
    names = [f"events_{number:02}" for number in range(50)]
    run = WatchedRun(
        shop(
            sources={f"s{number}": {"type": "generate"} for number in range(4)},
            tables={
                name: {"path": f"/lake/{name}", "from": f"s{number % 4}"} for number, name in enumerate(names)
            },
        )
    )
    run.all_is_well()
    return run


def test_the_page_alone_tells_what_is_wrong_and_what_to_do(browser: Browser, run: WatchedRun) -> None:
    with served(run) as site, looking(browser, site) as page:
        expect(page).to_have_title("shop · Lakefeed")
        expect(page.locator("#state")).to_have_text("2 problems")
        assert page.locator(".concern h3").all_text_contents() == [
            "source ordersfor <0.1 s",
            "table refundsfor <0.1 s",
            "table clicksfor <0.1 s",
        ]
        said = page.locator(".concerns").inner_text()
        for words in (
            "broker:9092 does not answer: Connection refused",
            "Check that it runs, and that this machine reaches it.",
            "is partitioned by ['day'], the pipeline file says nothing",
            "Change `partition_by` or choose another path.",
            "25 of the last 125 events (20.0%) became dead letters, most often bad_json",
            "Each dead letter is in /lake/shop_dead_letters",
        ):
            assert words in said
        assert "the text ends inside a string at byte 93" in page.locator("#letters").inner_text()
        happened = page.locator("#happenings").inner_text()
        assert "new column referrer string" in happened
        assert "compact: 40 to 2 files, 3.8 MB to 2.9 MB, in 1.5 s" in happened


def test_the_drawing_shows_what_flows_and_what_is_broken(browser: Browser, run: WatchedRun) -> None:
    run.clock.now += 5

    with served(run) as site, looking(browser, site) as page:
        drawing = page.locator("svg.drawing.wide")

        expect(drawing).to_be_visible()
        assert drawing.locator(".edge.moving:not(.letters)").count() == 1
        assert drawing.locator(".edge.broken").count() == 3
        assert drawing.locator(".edge.letters").count() == 1
        assert drawing.locator(".node.down .name").all_text_contents() == ["orders", "refunds"]
        assert drawing.locator(".node.down .said").all_text_contents() == [
            "kafka · does not answer",
            "refused",
        ]


def test_numbers_change_while_one_looks_and_an_open_row_stays_open(browser: Browser, run: WatchedRun) -> None:
    with served(run) as site, looking(browser, site) as page:
        row = page.locator("#table-clicks")
        row.locator("summary").click()
        expect(row.locator(".more")).to_contain_text("1 at 12:00:00")
        assert page.locator("#table-orders .more").is_hidden()

        run.commit("clicks", "clicks", rows=1_000_000, version=2)

        expect(row.locator("[data-label=rows]")).to_have_text("1.0M", timeout=60_000)
        expect(row.locator(".more")).to_contain_text("2 at 12:00:00")
        expect(row.locator(".more")).to_be_visible()


def test_the_pipeline_file_opens_and_shows_no_secret(browser: Browser, run: WatchedRun) -> None:
    with served(run) as site, looking(browser, site) as page:
        assert page.locator("#file pre").is_hidden()

        page.locator("#file summary").click()

        expect(page.locator("#file pre")).to_contain_text("sasl.password: '***'")


def test_one_of_fifty_tables_is_found_and_opened(browser: Browser) -> None:
    with served(fifty_tables()) as site, looking(browser, site) as page:
        rows = page.locator("#tables > details")
        assert rows.count() == 50
        assert page.locator("#table-events_42 table").count() == 0

        page.get_by_label("find a table").fill("_42")
        expect(rows.locator("visible=true").locator("summary")).to_have_count(1)
        page.locator("#table-events_42 summary").click()

        expect(page.locator("#table-events_42 .more")).to_contain_text("1 at 12:00:00")


def test_the_list_of_fifty_tables_is_in_sight(browser: Browser) -> None:
    with served(fifty_tables()) as site, looking(browser, site) as page:
        heading = page.locator("#tables h2").bounding_box()

        assert heading is not None and heading["y"] < 400
        assert page.locator("#flow svg.wide").is_hidden()
        page.locator("#flow > summary").click()
        expect(page.locator("#flow svg.wide")).to_be_visible()


def routed_tables() -> WatchedRun:
    run = WatchedRun(
        shop(
            sources={"db": {"type": "generate"}},
            tables={
                "all": {"route": "/lake/{_stream}", "from": "db", "metadata": True},
                "log": {"path": "/lake/log", "from": "db"},
            },
        )
    )
    run.tell(SourceSeen("db", {"0": 100}))
    for number in range(45):
        name = f"all/public.t{number:02}"
        run.tell(TableChanged(name, f"created at /lake/public.t{number:02}"))
        run.tell(TableReached(name, "db", {"0": 100 - number}))
        run.commit(name, "db", rows=number)
    run.commit("log", "db")
    return run


def test_a_route_is_one_line_that_opens_to_its_tables(browser: Browser) -> None:
    run = routed_tables()
    with served(run) as site, looking(browser, site) as page:
        rows = page.locator("#tables .table").locator("visible=true")
        expect(rows).to_have_count(2)
        route = page.locator("#route-all > summary")
        expect(route).to_contain_text("45 tables")
        expect(route.locator("[data-label=rows]").first).to_have_text("990")
        expect(route.locator("[data-label=lag]")).to_have_text("44")
        assert page.locator("svg.wide g.node title").count() == 4
        expect(page.locator("#happenings li")).to_have_count(1)
        expect(page.locator("#happenings")).to_contain_text("the same for 44 other tables")

        route.click()
        expect(rows).to_have_count(47)
        page.locator('[id="table-all/public.t07"] > summary').click()
        expect(page.locator('[id="table-all/public.t07"] .more')).to_contain_text("/lake/public.t07")
        route.click()
        page.get_by_label("find a table").fill("t42")

        expect(rows).to_have_count(2)
        expect(page.locator('[id="table-all/public.t42"]')).to_be_visible()


_CUT_OFF = """() => {
    const texts = [...document.querySelectorAll("svg text, b, small, p, code, td, h1, h3, pre, span, a")];
    const leaves = (inner, outer) =>
        inner.left < outer.left - 1 || inner.right > outer.right + 1 || inner.bottom > outer.bottom + 1;
    return texts.filter((one) => {
        const at = one.getBoundingClientRect();
        if (!at.width || !one.checkVisibility()) return false;
        const box = one.closest("g.node")?.querySelector("rect")?.getBoundingClientRect();
        return (box && leaves(at, box)) || at.right > document.documentElement.clientWidth + 1;
    }).map((one) => one.textContent);
}"""


def cut_off(page: Page) -> list[str]:
    """The texts that are visible and reach out of the window, or out of their box in the drawing."""
    found: list[str] = page.evaluate(_CUT_OFF)
    return found


LONG = "customer_profile_changes_of_the_european_market_v2"


@pytest.mark.parametrize("how", [{"viewport": {"width": 1280, "height": 900}}, PHONE], ids=["desk", "phone"])
def test_long_names_are_shown_whole(browser: Browser, how: dict[str, Any]) -> None:
    run = WatchedRun(
        shop(
            sources={"orders_of_all_regional_shops": {"type": "generate"}},
            tables={
                LONG: {"path": f"s3://a-lake-with-a-long-name/{LONG}", "from": "orders_of_all_regional_shops"}
            },
        )
    )
    run.all_is_well()
    run.letters(LONG, "orders_of_all_regional_shops", 1, payload="x" * 500)

    with served(run) as site, looking(browser, site, **how) as page:
        page.locator(f"#table-{LONG} > summary").click()
        page.locator(".reason > summary").click()
        page.locator(".letter > summary").click()
        drawing = page.locator("svg.drawing").locator("visible=true")

        assert page.evaluate("document.documentElement.scrollWidth") == how["viewport"]["width"]
        assert cut_off(page) == []
        assert "".join(drawing.locator(".node.up .name").all_text_contents()).startswith(
            f"orders_of_all_regional_shops{LONG}"
        )


def test_dead_letters_are_grouped_by_table_and_reason_and_open_to_their_payload(browser: Browser) -> None:
    run = WatchedRun()
    run.all_is_well()
    run.letters("clicks", "clicks", 7, error="the text ends", payload='{"user": "hunter22')
    run.letters(
        "clicks", "clicks", 2, code="wrong_type", error="price: not a number", payload='{"price": []}'
    )
    run.letters("orders", "orders", 1, error="not JSON", payload="<b>order</b>")

    with served(run) as site, looking(browser, site) as page:
        assert page.locator(".refusals h3").all_text_contents() == [
            "clicks9 new dead letters, 8.3% of its records",
            "orders1 new dead letter, 1.0% of its records",
        ]
        assert page.locator("#letters-clicks .reason > summary b").all_text_contents() == ["7", "2"]
        payload = page.locator("#letters-clicks-decode-bad_json pre")
        assert payload.is_hidden()

        page.locator("#letters-clicks-decode-bad_json > summary").click()
        page.locator("#letters-clicks-decode-bad_json .letter > summary").click()
        expect(payload).to_have_text('{"user": "***')

        # The group that grows becomes the first; what is open stays open.
        run.letters("clicks", "clicks", 20, code="wrong_type", error="price: not a number")
        expect(page.locator("#letters-clicks .reason > summary b").first).to_have_text("22", timeout=60_000)
        expect(payload).to_be_visible()
        expect(payload).to_have_text('{"user": "***')


def test_dead_letters_open_without_a_script(browser: Browser, run: WatchedRun) -> None:
    with served(run) as site:
        context = browser.new_context(java_script_enabled=False)
        page = context.new_page()
        page.goto(f"{site.address}?range=6h")
        page.locator(".reason > summary").click()
        page.locator(".letter > summary").click()
        expect(page.locator(".letter pre")).to_have_text("{broken")
        expect(page.locator(".ranges [aria-current]")).to_have_text("6h")
        context.close()


def test_a_table_opens_to_its_columns_its_partitions_its_versions_and_its_positions(
    browser: Browser, run: WatchedRun
) -> None:
    run.tell(
        FilesCounted(
            "clicks",
            version=1,
            rows=100,
            files=31,
            small_files=0,
            size=4000,
            columns=(("event_id", "long not null"), ("meta", "struct<ip: string>"), ("day", "date")),
            partition_by=("day",),
            partitions=31,
        )
    )

    with served(run) as site, looking(browser, site) as page:
        page.locator("#table-clicks > summary").click()
        said = page.locator("#table-clicks .more").inner_text()

    assert (
        "version 1 · 100 rows · 3.9 KB in 31 files · from clicks · partitioned by day, 31 partitions" in said
    )
    assert "3 columns\nevent_id long not null\nmeta struct<ip: string>\nday date partition" in said
    assert "Positions in 1 source partition" in said
    assert "clicks 0\t100\t100\t0" in said
    assert "Newest versions of this run" in said


def test_a_time_range_is_chosen_and_kept_while_one_looks(browser: Browser, run: WatchedRun) -> None:
    run.clock.now += 7200

    with served(run) as site, looking(browser, site) as page:
        chart = page.locator("svg.chart").first
        expect(chart).to_have_attribute("aria-label", "rows a second, the last hour")
        page.get_by_role("link", name="6h").click()
        expect(chart).to_have_attribute("aria-label", "rows a second, the last 6 hours")
        run.commit("clicks", "clicks", rows=1_000_000, version=2)
        expect(page.locator("#table-clicks [data-label=rows]")).to_have_text("1.0M", timeout=60_000)

        expect(chart).to_have_attribute("aria-label", "rows a second, the last 6 hours")
        expect(page.locator(".ranges [aria-current]")).to_have_text("6h")


@pytest.mark.parametrize("tables", ["three", "fifty"])
def test_a_phone_shows_everything_without_scrolling_sideways(
    browser: Browser, run: WatchedRun, tables: str
) -> None:
    shown = run if tables == "three" else fifty_tables()

    with served(shown) as site, looking(browser, site, **PHONE) as page:
        for row in page.locator("#tables > details > summary, .pair details > summary").all()[:4]:
            row.click()
        if tables == "fifty":
            page.locator("#flow > summary").click()
        assert page.evaluate("document.documentElement.scrollWidth") == 390
        assert cut_off(page) == []
        expect(page.locator("svg.drawing.narrow")).to_be_visible()
        assert page.locator("svg.drawing.wide").is_hidden()
        label = page.locator("[data-label=lag]").first.evaluate(
            "one => getComputedStyle(one, '::before').content"
        )
        assert label == '"lag"'


def test_dark_follows_the_system_until_somebody_chooses(browser: Browser, run: WatchedRun) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"

    with served(run) as site, looking(browser, site, color_scheme="dark") as page:
        dark = page.evaluate(ground)
        page.locator("#theme").click()
        light = page.evaluate(ground)
        page.reload()
        kept = page.evaluate(ground)

    assert (dark, light, kept) == ("rgb(11, 18, 23)", "rgb(243, 246, 248)", "rgb(243, 246, 248)")


def test_the_token_is_asked_for_once_and_does_not_stay_in_the_address(browser: Browser) -> None:
    run = WatchedRun(shop(http={"listen": "127.0.0.1:0", "token": "correct-horse"}))
    run.all_is_well()

    with served(run) as site:
        page = browser.new_page()
        page.goto(site.address)
        asked = page.locator("form").inner_text()
        page.get_by_label("token").fill("correct-horse")
        page.get_by_role("button").click()
        expect(page.locator("#state")).to_have_text("waiting for events")
        address = page.url
        page.reload()
        expect(page.locator("#state")).to_have_text("waiting for events")
        cookies = page.context.cookies()
        page.close()

    assert "This page asks for the token of the pipeline file." in asked
    assert address == site.address
    assert [(one["httpOnly"], one["sameSite"]) for one in cookies] == [(True, "Strict")]


def test_a_page_whose_run_has_ended_says_so(browser: Browser, run: WatchedRun) -> None:
    page = browser.new_page()

    with served(run) as site:
        page.goto(site.address)

    expect(page.locator("#state")).to_have_text("the run has ended or cannot be reached", timeout=60_000)
    page.close()
