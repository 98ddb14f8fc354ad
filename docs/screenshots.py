"""Makes the pictures of the status page again: `make screenshots`.

A real run with a broker that is stopped under way, a table that is refused, and one bad record in ten; and
the medallion template with some prices below zero. `medallion` as an argument makes only the last one.
"""

from __future__ import annotations

import json
import sys
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import pyarrow as pa  # noqa: E402
from deltalake import write_deltalake  # noqa: E402
from playwright.sync_api import expect  # noqa: E402

from lakefeed.commands.init import init  # noqa: E402
from support.browser import browsing  # noqa: E402
from support.kafka import Broker  # noqa: E402
from support.lakefeed import start  # noqa: E402
from support.processes import free_port  # noqa: E402

IMAGES = HERE / "images"
MINUTES = 4
"""How long the run has gone well before something is broken: the charts want something to draw."""

PIPELINE = """\
name: shop
sources:
  clicks: {{type: generate, rate: 4000, bad_ratio: 0.1, partitions: 4}}
  orders: {{type: kafka, brokers: "{broker}", topics: [orders], format: json}}
tables:
  clicks: {{path: lake/clicks, from: clicks}}
  carts: {{path: lake/carts, from: clicks, partition_by: [event_type]}}
  refunds: {{path: lake/refunds, from: clicks}}
  orders: {{path: lake/orders, from: orders}}
flush: {{interval: 2s}}
http: {{listen: "127.0.0.1:{port}"}}
"""


def main() -> None:
    """Run, break, look."""
    with tempfile.TemporaryDirectory(prefix="shop-") as folder, Broker() as broker:
        file, port = Path(folder) / "shop.yaml", free_port()
        file.write_text(PIPELINE.format(broker=broker.address, port=port))
        write_deltalake(
            Path(folder) / "lake" / "refunds", pa.table({"id": [1], "day": ["x"]}), partition_by=["day"]
        )
        broker.create_topic("orders", 2)
        enough = threading.Event()
        orders = threading.Thread(target=keep_ordering, args=(broker, enough), daemon=True)
        orders.start()
        with start("run", str(file), cwd=Path(folder)) as process:
            process.wait_for(lambda: "orders: version 2" in process.stderr, 180)
            time.sleep(MINUTES * 60)
            enough.set()
            orders.join()
            broker.stop()
            look(f"http://127.0.0.1:{port}/")
            process.terminate()
            process.wait()


def medallion() -> None:
    """Run the template for a while, with rows that silver refuses, and take its picture."""
    with tempfile.TemporaryDirectory(prefix="shop-") as above:
        folder, port = Path(above) / "shop", free_port()
        init(folder, "medallion")
        file = folder / "shop.yaml"
        text = file.read_text().replace("    rows: ${ROWS:-100000} ", "    rate: 3000 ")
        price = "cast(price AS decimal(10,2)) AS price"
        spoilt = "cast(if(event_id % 100 = 7, concat('-', price), price) AS decimal(10,2)) AS price"
        file.write_text(text.replace(price, spoilt).replace("user_id IS NOT NULL", "user_id % 50 > 0"))
        with start("run", str(file), "--set", f"http.listen=127.0.0.1:{port}", cwd=folder) as process:
            process.wait_for(lambda: "gold: version 2" in process.stderr, 240)
            time.sleep(60)
            with browsing() as browser:
                page = browser.new_page(viewport={"width": 1280, "height": 800}, color_scheme="light")
                page.goto(f"http://127.0.0.1:{port}/")
                page.wait_for_timeout(5000)
                page.screenshot(path=IMAGES / "medallion.png", full_page=True)
                print(f"wrote {IMAGES / 'medallion.png'}")
            process.terminate()
            process.wait()


def keep_ordering(broker: Broker, enough: threading.Event) -> None:
    """Some hundred orders a second, more or fewer as time goes by."""
    number = 0
    while not enough.wait(1):
        many = 300 + 200 * (int(time.time()) // 20 % 3)
        made = [{"order_id": number + at, "amount": at * 7 % 900, "at": time.time()} for at in range(many)]
        broker.produce("orders", [json.dumps(one).encode() for one in made])
        number += many


def look(address: str) -> None:
    """Take the pictures once the page tells all three."""
    looks = {
        "page-light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
        "page-dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
        "page-phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "light"},
    }
    IMAGES.mkdir(exist_ok=True)
    with browsing() as browser:
        for name, how in looks.items():
            page = browser.new_page(**how)
            page.goto(address)
            expect(page.locator(".concern")).to_have_count(3, timeout=90_000)
            if name == "page-dark":
                page.locator("#table-carts > summary").click()
                page.locator(".reason > summary").first.click()
                page.locator(".reason[open] .letter > summary").first.click()
            page.wait_for_timeout(2500)
            page.screenshot(path=IMAGES / f"{name}.png", full_page=name != "page-phone")
            page.close()
            print(f"wrote {IMAGES / f'{name}.png'}")


if __name__ == "__main__":
    if "medallion" not in sys.argv:
        main()
    medallion()
