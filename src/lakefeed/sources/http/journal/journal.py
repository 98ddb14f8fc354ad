"""The journal: events that were received and are not in every table yet, durable before any answer."""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from lakefeed.errors import Fenced, LakefeedError, SourceError, SourceUnavailable
from lakefeed.events import Offsets
from lakefeed.sources.http.journal.frame import Batch, Frame, opening
from lakefeed.sources.http.journal.index import Piece, Segment
from lakefeed.sources.http.journal.keys import Keys
from lakefeed.sources.http.journal.scan import OLDEST, SEEN, Contents, scan
from lakefeed.sources.http.journal.segments import Segments, epoch_of
from lakefeed.text import counted

_log = logging.getLogger("lakefeed")
_SEGMENT = 64 * 2**20
_FORMAT = 1
_SEGMENTS_IN_QUOTA = 8
_LINGER = 0.1
"""Seconds that requests are gathered for where each write is an object of its own."""
_RETRY = 1.0
"""Seconds after which a journal that could not be written is tried."""
_LOOK_AROUND = 2.0
"""Seconds after which a run that receives nothing looks whether another one has taken over."""
_DELETED_AT_ONCE = 10
"""Segments that go between two writes: requests wait meanwhile, and a store takes its time for each."""


@dataclass(slots=True, eq=False)
class Append:
    """A batch on its way into the journal: when it is settled, it has its first number or an error."""

    batch: Batch
    waiter: Any = None
    """Whatever its sender needs to find whoever waits for it."""
    first: int | None = None
    error: str | None = None


class Journal:
    """Writes for one process, from one thread: all that waits while the disk is busy becomes one write.

    `settled` is called from that thread with batches that are durable, or cannot be.
    """

    def __init__(self, segments: Segments, contents: Contents, keys: Keys, owner: str, quota: int) -> None:
        self.keys = keys
        self.id = contents.id or secrets.randbits(62) + 1
        self.settled: Callable[[Sequence[Append]], None] = lambda group: None
        self.watch_sync: Callable[[float], None] = lambda seconds: None
        self._segments = segments
        self._owner = owner
        self._contents = contents
        self._opened_at = dict(contents.next)
        self._seen = max(contents.index.segments, default=-1)
        """The last segment before the first one of this epoch."""
        self._fenced: Fenced | None = None
        self._size = contents.index.size
        self._most = min(_SEGMENT, quota // _SEGMENTS_IN_QUOTA)
        self._broken: tuple[int, int] | None = contents.torn
        self._trouble = ""
        self._condition = threading.Condition()
        self._waiting: list[Append] = []
        self._positions: Offsets = {}
        self._forget_now = False
        self._undeleted = False
        """Whether segments that may go could not be deleted. Nobody may tell of positions again: a journal at
        its quota takes no events, so tables get none."""
        self._keys_kept = -1
        """The last segment whose keys are kept elsewhere: it may go."""
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="journal", daemon=True)

    def __str__(self) -> str:
        return str(self._segments)

    def begin(self) -> None:
        """Bring the journal to a state that can be written. Raises OSError."""
        self._heal()
        # In a store, the opening says what this run has seen, before anything depends on that.
        if self._contents.id is None or self._contents.gives_up or not self._segments.grows:
            self._write([], anew=True)
        self._contents.id, self._contents.owner = self.id, self._owner
        self._thread.start()

    def close(self) -> None:
        """Write what waits, then end."""
        with self._condition:
            self._closing = True
            self._condition.notify()
        self._thread.join()

    def append(self, append: Append) -> None:
        """Hand over a batch; `settled` tells when it is durable."""
        with self._condition:
            self._waiting.append(append)
            self._condition.notify()

    def acknowledge(self, positions: Offsets) -> None:
        """All tables have the events before these positions: what only they needed may go."""
        with self._condition:
            self._positions = dict(positions)
            self._forget_now = True
            self._condition.notify()

    @property
    def size(self) -> int:
        """Its bytes."""
        return self._size

    @property
    def is_shared(self) -> bool:
        """Whether a run on another machine can take it over."""
        return not self._segments.grows

    @property
    def is_fenced(self) -> bool:
        """Whether a run on another machine has taken it over."""
        return self._fenced is not None

    @property
    def trouble(self) -> str:
        """Why nothing can be written now; empty when it can."""
        return self._trouble

    def waiting_since(self) -> int | None:
        """When the oldest event came that some table lacks, about, in microseconds since 1970."""
        with self._condition:
            return self._contents.index.received(self._positions)

    def contents(self) -> Contents:
        """What is durable, as it is now."""
        with self._condition:
            now = self._contents
            return Contents(now.id, now.owner, dict(now.next), now.group, now.index)

    def locate(self, stream: str, start: int, end: int) -> list[Piece]:
        """Where the events of a range lie."""
        with self._condition:
            self._opened_at[stream] = max(end, self._opened_at.get(stream, 0))
            return self._contents.index.locate(stream, start, end)

    def advance(self, stream: str, number: int) -> None:
        """Give no number before this one any more: a table has passed them, with a newer journal than this.

        Called before events are taken. It is not written down: the first event behind it does that, and
        until then every start finds the same.
        """
        with self._condition:
            for known in (self._contents.next, self._opened_at):
                known[stream] = max(number, known.get(stream, 0))

    def readable(self) -> Offsets:
        """How far anybody can have read: what was there when this process began, and what it gave out."""
        with self._condition:
            return dict(self._opened_at)

    def confirm(self) -> None:
        """Raise Fenced where another run has taken the journal over."""
        if self._fenced is not None:
            raise self._fenced

    def confirm_now(self) -> None:
        """As `confirm`, and the store is asked. Called from any thread. Raises SourceUnavailable."""
        self.confirm()
        try:
            self._segments.confirm()
        except OSError as error:
            raise SourceUnavailable(f"the journal {self._segments} does not answer: {error}") from error

    def _run(self) -> None:
        while True:
            with self._condition:
                while not (self._waiting or self._forget_now or self._closing):
                    if not self._condition.wait(self._patience()):
                        self._forget_now |= self._undeleted
                        break
                if self._waiting and not self._segments.grows and not self._closing:
                    self._condition.wait_for(lambda: self._closing, _LINGER)
                group, self._waiting = self._waiting, []
                positions, forget, self._forget_now = self._positions, self._forget_now, False
                closing = self._closing
            if group or (self._trouble and not closing):
                self._commit(group)
            elif not self._segments.grows:
                self._look_around()
            if forget and self._fenced is None:
                self._forget(positions)
            if closing and not group:
                return
            # Until the next write nothing of this one is held.
            group = []

    def _patience(self) -> float | None:
        """How long nothing may happen until the journal is looked at."""
        if self._trouble or self._undeleted:
            return _RETRY
        return None if self._segments.grows else _LOOK_AROUND

    def _look_around(self) -> None:
        """Notice a run that has taken over, also while no requests come."""
        try:
            self._segments.confirm()
        except Fenced as error:
            self._fenced = error
            self._tell(str(error))
        except Exception as error:
            _log.debug("the epoch of the journal could not be read", exc_info=error)

    def _commit(self, group: list[Append]) -> None:
        """One write for all; without any, one that only shows whether the journal can be written again.

        Nobody may come to try: whoever sees that requests are refused sends none.
        """
        try:
            self.confirm()
            self._heal()
            self._write(group, anew=not group)
        except Exception as error:
            if isinstance(error, Fenced):
                self._fenced = error
            if not isinstance(error, OSError | LakefeedError):
                # A defect: whoever waits must hear of it, and the next write may succeed.
                _log.exception("the journal %s could not be written", self._segments)
            self._tell(str(getattr(error, "strerror", None) or error) or type(error).__name__)
            for append in group:
                append.error = self._trouble
            self._try_to_heal()
        else:
            self._tell("")
        self.settled(group)

    def _write(self, group: list[Append], *, anew: bool = False) -> None:
        now, number = self._contents, self._contents.group + 1
        last = max(now.index.segments, default=-1)
        segment = now.index.segments.get(last)
        parts: list[bytes] = []
        if anew or segment is None or segment.size >= self._most or not self._segments.grows:
            segment = Segment(max(last + 1, self._segments.first))
            if epoch_of(segment.number) != epoch_of(last):
                self._seen = last
            meta = {"format": _FORMAT, "journal": self.id, "owner": self._owner, "next": now.next}
            meta |= {"given_up": now.given_up, SEEN: self._seen, OLDEST: now.index.oldest(segment.number)}
            parts = opening(meta, number, ends=not group)
        start, at = segment.size, segment.size + sum(map(len, parts))
        ends, added = dict(now.next), []
        for append in group:
            batch, append.first = append.batch, ends.get(append.batch.stream, 0)
            parts += batch.framed(append.first, number, ends=append is group[-1])
            added.append((batch.stream, append.first, batch.count, batch.received, at))
            ends[batch.stream] = append.first + batch.count
            at += len(batch)
        self._broken = segment.number, start
        began = time.monotonic()
        self._segments.append(segment.number, start, parts)
        self._broken = None
        self.watch_sync(time.monotonic() - began)
        with self._condition:
            for frame in added:
                segment.add(*frame)
            self._size += at - segment.size
            segment.size, now.next, now.group = at, ends, number
            now.index.segments[segment.number] = segment
        for append in group:
            batch = append.batch
            if append.first is not None and (meta := batch.kept()):
                self.keys.note(batch.stream, meta, append.first, batch.count, batch.received)

    def _heal(self) -> None:
        """Take back what a failed write has left: its numbers are given out again."""
        if self._broken is not None:
            self._segments.cut(*self._broken)
            self._broken = None

    def _try_to_heal(self) -> None:
        if self._fenced is not None:
            return
        try:
            self._heal()
        except (OSError, LakefeedError) as error:
            _log.debug("the journal could not be healed yet", exc_info=error)

    def _tell(self, trouble: str) -> None:
        trouble = trouble.partition("\n")[0].rstrip(".")
        if bool(trouble) != bool(self._trouble):
            if trouble:
                _log.warning(
                    "the journal %s cannot be written: %s; requests get 503", self._segments, trouble
                )
            else:
                _log.info("the journal %s can be written again", self._segments)
        self._trouble = trouble

    def _forget(self, positions: Offsets) -> None:
        """Delete segments, oldest first, that every table holds; the last one stays, as it is written to."""
        index, held = self._contents.index, {**positions, **self._contents.untaken}
        gone: list[int] = []
        for segment in list(index.segments.values())[:-1]:
            if not segment.is_held(held):
                break
            if not (segment.streams or self._segments.grows or epoch_of(segment.number)):
                # A run of an earlier release ends at it; without it, that would go on there.
                continue
            gone.append(segment.number)
        if not gone:
            self._undeleted = False
            return
        try:
            self._segments.confirm()
            if len(self.keys) and gone[-1] > self._keys_kept:
                self._segments.save_keys(self.keys.dump())
            self._keys_kept = gone[-1]
            for number in gone[:_DELETED_AT_ONCE]:
                self._segments.delete(number)
                with self._condition:
                    self._size -= index.segments.pop(number).size
        except Exception as error:
            # Whatever it is: without this thread, every request would wait for ever.
            if not self._undeleted:
                _log.warning("segments of the journal %s cannot be deleted: %s", self._segments, error)
            self._undeleted = True
            return
        self._undeleted = False
        if len(gone) > _DELETED_AT_ONCE:
            with self._condition:
                self._forget_now = True


_open: dict[str, Journal] = {}
"""The journals that this process writes, by path."""


def open_journal(path: str) -> Journal | None:
    """The journal at a path if this process writes it."""
    return _open.get(path)


@contextmanager
def writing(
    path: str,
    segments: Segments,
    keys: Keys,
    owner: str,
    quota: int,
    *,
    skip_damaged: bool,
    takes: Callable[[str], bool] = lambda stream: True,
) -> Iterator[Journal]:
    """Open a journal for writing, for the length of a run. Raises Fenced or SourceError.

    `takes` says whether any table takes a stream.
    """
    with segments.locked():
        contents = _recovered(segments, keys, owner, skip_damaged=skip_damaged)
        _give_up_untaken(segments, contents, takes, skip=skip_damaged)
        journal = Journal(segments, contents, keys, owner, quota)
        try:
            journal.begin()
        except OSError as error:
            raise SourceError(
                f"the journal {segments} cannot be written: {error.strerror or error}.\n"
                "Free some space or correct its permissions, then start again; nothing in it is lost."
            ) from error
        _open[path] = journal
        try:
            yield journal
        finally:
            journal.close()
            del _open[path]


def _recovered(segments: Segments, keys: Keys, owner: str, *, skip_damaged: bool) -> Contents:
    def note(frame: Frame) -> None:
        if meta := frame.meta():
            keys.note(frame.stream, meta, frame.first, frame.count, frame.received)

    contents = scan(segments, checked=True, note=note)
    # A run that was paused saves the keys before it deletes segments: what the scan has missed is here.
    if not keys.load(segments.keys()):
        _log.warning(
            "the journal %s has lost idempotency keys of deleted segments: `keys` is damaged", segments
        )
    for number in contents.superseded:
        # They count for nothing, whether or not they are there.
        with suppress(OSError):
            segments.delete(number)
    if contents.id is not None and contents.owner != owner:
        raise SourceError(
            f"the journal {segments} belongs to {contents.owner}, and this is {owner}.\n"
            "Give each `http` source a `journal` of its own."
        )
    if contents.torn:
        _log.info("the journal %s ended in a write that was cut off and never acknowledged", segments)
    if contents.damaged:
        number, start, end = contents.damaged[0]
        text = f"the journal {segments} is damaged: segment {number}, bytes {start:,} to {end:,}"
        if not skip_damaged:
            raise SourceError(
                f"{text}.\nBring the file back from a backup. To go on without the events in it, set "
                "`on_data_loss: skip`: each becomes a dead letter without a payload."
            )
        _log.warning("%s; its events become dead letters without a payload (`on_data_loss: skip`)", text)
    return contents


def _give_up_untaken(
    segments: Segments, contents: Contents, takes: Callable[[str], bool], *, skip: bool
) -> None:
    """Let go of streams that no table takes any more, whose events would keep the journal from forgetting.

    Only when asked: some of them may be in no table. What was given up once is not asked again.
    """
    first = contents.index.earliest()
    contents.untaken = {stream: contents.next[stream] for stream in sorted(first) if not takes(stream)}
    new = {name: at for name, at in contents.untaken.items() if contents.given_up.get(name, 0) < at}
    if not new:
        return
    counts = ", ".join(f"{counted(at - first[name], 'event')} of stream {name}" for name, at in new.items())
    text = f"the journal {segments} holds {counts}, which no table takes any more"
    if not skip:
        raise SourceError(
            f"{text}; those that were not written yet are nowhere else.\nPut {', '.join(new)} back into "
            "`streams` of the source and of a table until they are written. If they are, or nobody needs "
            "them, start once with `on_data_loss: skip`: they are given up."
        )
    _log.warning(
        "%s: they are given up, and those that were not written yet are lost (`on_data_loss: skip`)", text
    )
    contents.given_up, contents.gives_up = {**contents.given_up, **new}, True
