"""A made-up shop's clickstream: JSON payloads that depend on nothing but the seed and the row number."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

Rows = npt.NDArray[np.int64]
Hashes = npt.NDArray[np.uint64]

MILLISECONDS_PER_ROW = 100
_FIRST_EVENT = np.datetime64("2026-01-01T00:00:00.000", "ms")
_DAY = 86_400_000

_PRODUCTS = 4_000
_TYPES = ("view", "cart", "purchase")
_SHARE_OF_VIEWS, _SHARE_OF_VIEWS_AND_CARTS = 0.90, 0.97
_CATALOGUE = (
    ("electronics.smartphone", 489.0, ("samsung", "apple", "xiaomi", "huawei", "oppo")),
    ("electronics.audio.headphone", 95.0, ("sony", "jbl", "apple", "sennheiser")),
    ("computers.notebook", 730.0, ("lenovo", "asus", "acer", "hp", "apple")),
    ("appliances.kitchen.refrigerators", 540.0, ("bosch", "lg", "samsung", "haier")),
    ("appliances.environment.vacuum", 140.0, ("dyson", "philips", "xiaomi", "karcher")),
    ("furniture.living_room.sofa", 420.0, ("brw", "ikea", "ashley")),
    ("apparel.shoes.sneakers", 70.0, ("nike", "adidas", "puma", "asics")),
    ("kids.toys", 24.0, ("lego", "hasbro", "ravensburger")),
)

# A session is one of a few that are open at a time, so that its events lie close together.
_ROWS_PER_WINDOW, _SESSIONS_PER_WINDOW = 5_000, 800
_FIRST_USER, _USERS = 512_000_000, 1_000_000


def payloads(seed: int, rows: Rows) -> list[bytes]:
    """The payload of each row number, byte for byte the same wherever and whenever it is asked for."""
    hashes = _hash(rows.astype(np.uint64), seed)
    sessions = _hash(_session_numbers(rows, hashes), seed + 1)
    users = (sessions % np.uint64(_USERS)).astype(np.int64) + _FIRST_USER
    days, times = _days_and_times(rows)
    joined = pc.binary_join_element_wise(
        '{"event_id":',
        pa.array(rows).cast(pa.string()),
        ',"event_time":"',
        days,
        "T",
        times,
        'Z","event_type":"',
        _offers(seed).take(pa.array(_choices(hashes))),
        pa.array(users).cast(pa.string()),
        ',"user_session":"',
        _uuids(sessions),
        '"}',
        "",
    )
    # By way of numpy, a list is made in two thirds of the time that `to_pylist` takes.
    found: list[bytes] = joined.cast(pa.binary()).to_numpy(zero_copy_only=False).tolist()
    return found


def event_times(rows: Rows) -> pa.Array:
    """When each row number happened, in UTC microseconds."""
    times = _FIRST_EVENT + rows.astype("timedelta64[ms]") * MILLISECONDS_PER_ROW
    return pa.array(times.astype("datetime64[us]")).cast(pa.timestamp("us", "UTC"))


def _days_and_times(rows: Rows) -> tuple[pa.Array, pa.Array]:
    since_epoch = _FIRST_EVENT.astype(np.int64) + rows * MILLISECONDS_PER_ROW
    days, times = np.divmod(since_epoch, _DAY)
    # A chunk spans few days: formatting those and looking them up is cheaper than formatting every row.
    first, last = days.min(), days.max()
    texts = pa.array(np.arange(first, last + 1).astype(np.int32), pa.date32()).cast(pa.string())
    times_of_day = pa.array(times.astype(np.int32), pa.time32("ms"))
    return texts.take(pa.array(days - first)), times_of_day.cast(pa.string())


def _session_numbers(rows: Rows, hashes: Hashes) -> Hashes:
    window, open_at_once = rows.astype(np.uint64) // _ROWS_PER_WINDOW, np.uint64(_SESSIONS_PER_WINDOW)
    return window * open_at_once + (hashes >> np.uint64(40)) % open_at_once


def _choices(hashes: Hashes) -> Rows:
    """Which offer: few products are looked at most, and most events are views."""
    luck = (hashes & np.uint64(0xFFFFF)).astype(np.float64) / 0x100000
    products = (luck**3 * _PRODUCTS).astype(np.int64)
    luck = ((hashes >> np.uint64(20)) & np.uint64(0xFFFF)).astype(np.float64) / 0x10000
    kinds = (luck >= _SHARE_OF_VIEWS).astype(np.int64) + (luck >= _SHARE_OF_VIEWS_AND_CARTS)
    found: Rows = kinds * _PRODUCTS + products
    return found


@cache
def _offers(seed: int) -> pa.Array:
    """The middle of a payload, from the event's type to the price, for each type and product of the shop."""
    hashes = [int(value) for value in _hash(np.arange(_PRODUCTS, dtype=np.uint64), seed + 2)]
    middles = [_offer(product, value) for product, value in enumerate(hashes)]
    return pa.array([kind + middle for kind in _TYPES for middle in middles])


def _offer(product: int, value: int) -> str:
    category, (code, price, brands) = value % len(_CATALOGUE), _CATALOGUE[value % len(_CATALOGUE)]
    brand = brands[(value >> 8) % len(brands)]
    cents = round(price * (40 + (value >> 16) % 160))
    return (
        f'","product_id":{1_000_000 + product},"category_id":{2_053_013_555_631_882_655 + category},'
        f'"category_code":"{code}","brand":"{brand}","price":{cents // 100}.{cents % 100:02},"user_id":'
    )


_HEX = np.array([f"{byte:02x}".encode() for byte in range(256)], dtype="S2").view(np.uint16)


def _uuids(hashes: Hashes) -> pa.Array:
    """Text that looks like a random UUID, from two hashes a row."""
    halves = np.stack([hashes, _hash(hashes, 0)], axis=1)
    digits = np.take(_HEX, halves.view(np.uint8).reshape(-1, 16)).view(np.uint8)
    text = np.full((len(hashes), 36), ord("-"), dtype=np.uint8)
    for at, start, end in ((0, 0, 8), (9, 8, 12), (14, 12, 16), (19, 16, 20), (24, 20, 32)):
        text[:, at : at + end - start] = digits[:, start:end]
    text[:, 14], text[:, 19] = ord("4"), ord("a")
    return _fixed_width_text(text)


def _fixed_width_text(text: npt.NDArray[np.uint8]) -> pa.Array:
    count, width = text.shape
    offsets = np.arange(0, (count + 1) * width, width, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(np.ascontiguousarray(text)))


def _hash(values: Hashes, seed: int) -> Hashes:
    """Splitmix64: every bit of the result depends on every bit of the value and of the seed."""
    start = np.uint64((seed * 0x9E3779B97F4A7C15 + 0x2545F4914F6CDD1D) % 2**64)
    mixed: Any = values * np.uint64(0x9E3779B97F4A7C15) + start
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    found: Hashes = mixed ^ (mixed >> np.uint64(31))
    return found
