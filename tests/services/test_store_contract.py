"""What every store keeps, whoever made it: the disk, and the emulators of the clouds."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import pyarrow.fs as pafs
import pytest

from lakefeed.stores import names_after, open_store, put_new, read_tagged, store_path, tag
from support.object_server import ObjectServer


@dataclass(frozen=True)
class Room:
    """A place for one table in one store."""

    path: str
    storage: Mapping[str, str]

    @property
    def store(self) -> pafs.FileSystem:
        return open_store(self.path, self.storage)


@pytest.fixture(params=["disk", "s3", "gcs", "azure"])
def room(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Room]:
    name = uuid4().hex[:8]
    if request.param == "disk":
        (tmp_path / name / "_delta_log").mkdir(parents=True)
        yield Room(str(tmp_path / name), {})
        return
    server: ObjectServer = request.getfixturevalue(request.param)
    server.create_bucket(f"lake-{name}")
    yield Room(server.url(f"lake-{name}", "deep/a table"), server.storage)


def test_what_is_written_is_read_whole_in_pieces_and_as_a_stream(room: Room) -> None:
    content = bytes(range(256)) * 120_000
    for size in (0, 5, len(content)):
        with room.store.open_output_stream("data.bin") as sink:
            sink.write(content[:size])

        with room.store.open_input_stream("data.bin") as stream:
            whole = stream.read()
        with room.store.open_input_file("data.bin") as pieces:
            pieces.seek(size // 2)
            rest, length = pieces.read(), pieces.size()

        assert (whole, rest, length) == (content[:size], content[size // 2 : size], size)


def test_of_many_that_make_one_file_one_succeeds(room: Room) -> None:
    stores = [room.store for _ in range(8)]
    start = threading.Barrier(len(stores))

    def write(number: int) -> bool:
        start.wait()
        try:
            put_new(stores[number], "_delta_log/entry.json", str(number).encode())
        except FileExistsError:
            return False
        return True

    with ThreadPoolExecutor(len(stores)) as pool:
        won = list(pool.map(write, range(len(stores))))

    content, _ = read_tagged(room.store, "_delta_log/entry.json")
    assert [number for number, one in enumerate(won) if one] == [int(content)]


def test_a_tag_tells_a_file_from_the_one_that_replaced_it(room: Room) -> None:
    made = put_new(room.store, "_delta_log/entry.json", b"one")
    _, read = read_tagged(room.store, "_delta_log/entry.json")
    seen = tag(room.store, "_delta_log/entry.json")
    with room.store.open_output_stream("_delta_log/entry.json") as sink:
        sink.write(b"two")

    assert made == read == seen is not None
    assert tag(room.store, "_delta_log/entry.json") not in (seen, None)
    assert tag(room.store, "_delta_log/none.json") is None


def test_names_are_listed_from_one_on(room: Room) -> None:
    for number in range(5):
        put_new(room.store, f"_delta_log/{number:02d}.json", b"{}")

    assert names_after(room.store, "_delta_log/02.json") == ["03.json", "04.json"]


def test_a_file_that_is_not_there_is_told_as_such(room: Room) -> None:
    with pytest.raises(FileNotFoundError):
        read_tagged(room.store, "none.json")
    with pytest.raises(FileNotFoundError):
        room.store.open_input_stream("none.json")
    with pytest.raises(FileNotFoundError):
        room.store.open_input_file("none.json")
    assert room.store.get_file_info("none.json").type == pafs.FileType.NotFound


def test_directories_are_listed_and_emptied(room: Room) -> None:
    names = ["top.bin", "c=a b/x.bin", "c=a b/y.bin", "c=x%y ü/z.bin"]
    for name in names:
        if "://" not in room.path:
            (Path(room.path) / name).parent.mkdir(exist_ok=True)
        with room.store.open_output_stream(name) as sink:
            sink.write(b"12345")

    every = room.store.get_file_info(pafs.FileSelector("", recursive=True))
    files = {info.path: info.size for info in every if info.type == pafs.FileType.File}
    top = room.store.get_file_info(pafs.FileSelector("", recursive=False))
    room.store.delete_file("top.bin")
    room.store.delete_dir_contents("c=a b")
    left = room.store.get_file_info(pafs.FileSelector("", recursive=True))

    assert files == dict.fromkeys(names, 5)
    assert {"top.bin", "c=a b", "c=x%y ü"} <= {info.path for info in top}
    assert [info.path for info in left if info.type == pafs.FileType.File] == ["c=x%y ü/z.bin"]


def test_a_file_is_copied_and_moved(room: Room) -> None:
    put_new(room.store, "one", b"content")

    room.store.copy_file("one", "two")
    room.store.move("one", "three")

    assert read_tagged(room.store, "two")[0] == read_tagged(room.store, "three")[0] == b"content"
    assert tag(room.store, "one") is None


def test_a_store_says_where_it_is(room: Room) -> None:
    assert store_path(room.store) == room.path
