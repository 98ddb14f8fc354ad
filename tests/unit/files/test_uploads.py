from __future__ import annotations

import threading

import pytest

from lakefeed.files.uploads import Uploads


def test_ends_of_files_are_sent_side_by_side() -> None:
    meeting = threading.Barrier(3)
    uploads = Uploads()

    for _ in range(3):
        # Each waits for the others: one after the other, none would ever end.
        uploads.add(lambda: meeting.wait(120) and None)
    uploads.wait()

    assert not meeting.broken


def test_more_than_may_run_at_once_wait_for_their_turn() -> None:
    most = running = 0
    lock = threading.Lock()
    uploads = Uploads()

    def send() -> None:
        nonlocal most, running
        with lock:
            running += 1
            most = max(most, running)
        threading.Event().wait(0.01)
        with lock:
            running -= 1

    for _ in range(40):
        uploads.add(send)
    uploads.wait()

    assert running == 0
    assert most <= 8


def test_what_one_raises_is_raised_when_none_is_under_way_any_more() -> None:
    ended = []
    uploads = Uploads()

    def fail() -> None:
        raise OSError("connection reset")

    uploads.add(fail)
    uploads.add(lambda: ended.append(1))

    with pytest.raises(OSError, match="connection reset"):
        uploads.wait()
    assert ended == [1]
    uploads.wait()
