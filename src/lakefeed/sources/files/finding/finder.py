"""Where and when files are looked for: all of them, those behind the last name, and what a queue tells of."""

from __future__ import annotations

import logging
import time
from contextlib import suppress

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from lakefeed.errors import SourceError, SourceUnavailable
from lakefeed.sources import Finding
from lakefeed.sources.files.discovery import FoundFiles, is_settled
from lakefeed.sources.files.finding.listing import Listing, is_local
from lakefeed.sources.files.finding.notices import created_objects
from lakefeed.sources.files.finding.queue import Message, Queue
from lakefeed.sources.files.ledger import Ledger
from lakefeed.sources.files.source import FilesSource
from lakefeed.stores.location import bucket_of
from lakefeed.text import counted

_log = logging.getLogger("lakefeed")
_SOONEST = 0.5
_SELDOMEST = 60.0
_PATIENCE = 20
"""A look is repeated when so many times as long as it took has passed, within these seconds."""
_BETWEEN = 1.0
"""Seconds between two looks that do not list everything."""
_HOUR = 3600.0
_SILENCE = 30.0
"""Seconds until a queue that did not answer is asked again."""


class Finder:
    """Looks for files of one source, as often as that is cheap. Used by one thread.

    What a look finds counts when `done` is called: whoever fails before finds the same again. Nothing is
    lost by a look at a part, as everything is listed again and again: a file whose name sorts before others,
    or that was overwritten, waits for that.
    """

    def __init__(self, source: FilesSource, whose: str, ledger: Ledger) -> None:
        self._source, self._whose, self._ledger = source, whose, ledger
        self.local = is_local(source.scope, source.storage)
        self._listing = Listing(source.scope, source.storage, self._is_of_interest)
        self._queue: Queue | None = None
        """Only a run takes messages: those who look would hide them from it for a while."""
        self.remark = ""
        """Why the queue does not tell of files; empty while it does."""
        self.young = 0
        """Files that the last look has left out, as they may still be written."""
        self.listings = 0
        """How often everything was listed, and what was found is in the ledger."""
        self._listed_at: float | None = None
        self._looked_at, self._silent_at = 0.0, 0.0
        self._listing_took, self._look_took = 0.0, 0.0
        self._began: float | None = None
        self._whole = False
        self._last: str | None = None
        """The last name that the ledger has, in the order of a store."""
        self._messages: list[Message] = []
        self._strangers: set[str] = set()

    @property
    def has_listed(self) -> bool:
        """Whether everything was listed once."""
        return self._listed_at is not None

    def begin(self) -> None:
        """A run begins: it takes messages, and files that came this moment get the time to be whole."""
        if self._source.notify:
            self._queue = Queue(self._source.notify["sqs"], self._source.storage)
        if not (self.local and self._source.settle):
            return
        with suppress(FileNotFoundError):
            self.young = 0
            self._listing.everything()
            if self.young:
                time.sleep(self._source.settle)

    def is_due(self) -> bool:
        """Whether it is time to look again."""
        pause = min(self._listing_pause(), max(_BETWEEN, min(_SELDOMEST, _PATIENCE * self._look_took)))
        return self._listed_at is None or time.monotonic() - self._looked_at >= pause

    def look(self) -> FoundFiles:
        """Files that may be new or changed: everything now and then, and between only what is cheap."""
        now, listed_at = time.monotonic(), self._listed_at
        if listed_at is None or now - listed_at >= self._listing_pause() or not self._part_is_possible():
            return self.everything()
        paths = self._take_messages()
        self._began, self._whole = now, False
        tells = self._queue is not None and not self.remark
        return self._listing.at(paths) if tells else self._listing.after(self._last or "")

    def everything(self) -> FoundFiles:
        """List all files. What messages of before tell of is among them."""
        self._take_messages()
        self._began, self._whole, self.young = time.monotonic(), True, 0
        self._ledger.known.watch()
        try:
            return self._listing.everything()
        except BaseException as error:
            self._ledger.known.unwatch()
            if not isinstance(error, FileNotFoundError):
                raise
            kind = SourceUnavailable if self.has_listed else SourceError
            raise kind(f"{self._whose}: {self._source.missing() or error}") from None

    def done(self) -> None:
        """What was found is in the ledger: it is not looked for again, and its messages go."""
        if self._began is None:
            return
        self._looked_at = time.monotonic()
        if self._whole:
            self.listings += 1
            self._listed_at, self._listing_took = self._looked_at, self._looked_at - self._began
        else:
            self._look_took = self._looked_at - self._began
        self._last = None if self.local else self._listing.last
        self._began = None
        self._delete_messages()

    def findings(self) -> list[Finding]:
        """Whether the queue answers; for those who only look, so no message is taken."""
        if not self._source.notify:
            return []
        try:
            waiting = Queue(self._source.notify["sqs"], self._source.storage).waiting()
        except SourceError as error:
            text, _, remedy = str(error).partition("\n")
            if error.retryable:
                return [Finding("warn", f"{text}; the files are listed instead", remedy)]
            return [Finding("fail", text, remedy)]
        return [Finding("ok", f"the queue answers, with about {counted(waiting, 'message')}")]

    def _is_of_interest(self, files: pa.Table) -> npt.NDArray[np.bool_]:
        """Which listed files are new or changed, and may be read."""
        new = ~self._ledger.known.is_as_known(files)
        if not (self.local and self._source.settle):
            return new
        old_enough = is_settled(files, self._source.settle)
        self.young += int(np.count_nonzero(new & ~old_enough))
        return new & old_enough

    def _part_is_possible(self) -> bool:
        """Whether there is a way to look for new files without a listing of all."""
        return not self.local and (self._queue is not None or self._last is not None)

    def _listing_pause(self) -> float:
        """Seconds between two listings of everything."""
        automatic = max(_SOONEST, _PATIENCE * self._listing_took)
        if self.local:
            return min(_SELDOMEST, automatic)
        tells = self._queue is not None and not self.remark
        return self._source.backfill or (_HOUR if tells else min(_HOUR, automatic))

    def _take_messages(self) -> list[str]:
        """The paths that messages tell of; nothing where the queue does not answer."""
        self._messages = []
        if self._queue is None or (self.remark and time.monotonic() - self._silent_at < _SILENCE):
            return []
        bucket, paths, unknown = bucket_of(self._source.scope.base), [], 0
        below = f"{bucket.prefix}/" if bucket.prefix else ""
        try:
            for message in self._queue.receive():
                created = created_objects(message.body)
                if created is None:
                    unknown += 1
                    continue
                self._messages.append(message)
                own = [key for name, key in created if self._is_own(name, bucket.name)]
                paths += [key.removeprefix(below) for key in own if key.startswith(below)]
        except SourceUnavailable as error:
            self._tell_silence(error)
        else:
            self._tell_answer()
        if unknown:
            self._tell_unknown(unknown)
        head = self._source.scope.base.rstrip("/")
        return [f"{head}/{path}" for path in dict.fromkeys(paths)]

    def _delete_messages(self) -> None:
        messages, self._messages = self._messages, []
        if self._queue is None or not messages:
            return
        try:
            self._queue.delete(messages)
        except SourceUnavailable as error:
            self._tell_silence(error)

    def _is_own(self, bucket: str, own: str) -> bool:
        if bucket != own and bucket not in self._strangers:
            self._strangers.add(bucket)
            _log.warning(
                "%s: the queue has events of the bucket %s, which this source does not read: they are taken "
                "out of it; give each source a queue of its own",
                self._whose,
                bucket,
            )
        return bucket == own

    def _tell_unknown(self, count: int) -> None:
        if "" not in self._strangers:
            self._strangers.add("")
            _log.warning(
                "%s: the queue has %s that S3 has not sent: they stay there; look at who sends to it, or "
                "give it a redrive policy",
                self._whose,
                counted(count, "message"),
            )

    def _tell_silence(self, error: SourceUnavailable) -> None:
        first, _, remedy = str(error).partition("\n")
        if not self.remark:
            _log.warning("%s: %s; the files are listed instead. %s", self._whose, first, remedy)
        self.remark = f"{first}; the files are listed instead\n{remedy}"
        self._silent_at = time.monotonic()

    def _tell_answer(self) -> None:
        if self.remark:
            _log.info("%s: the queue answers again", self._whose)
        self.remark = ""
