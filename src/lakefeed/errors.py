"""Every exception that Lakefeed raises.

LakefeedError                    the root; `exit_code` is what the command line returns
├── PipelineFileError            the file, or a model in code, is wrong; nothing was started    exit 2
├── UsageError                   the command or its arguments are wrong                        exit 2
├── JavaError                    Java is missing or of the wrong version
├── SourceError                  the source cannot continue until somebody decides something
│   ├── SourceUnavailable        broker or database away                                       retryable
│   ├── RegistryError            the schema registry refuses to answer, or is none
│   │   └── RegistryUnavailable  the schema registry is away                                   retryable
│   ├── FileChanged              a file changed after a table has read it                      waits
│   └── DataLoss                 offsets that the table wants no longer exist at the source
│       ├── StreamsLost          the same of some streams: a table goes on with its others
│       └── TopicDeleted         a deleted topic had events that were not read
├── TableError                   one table cannot be written until somebody decides something
│   ├── SqlError                 `select`, `where` or `expect` of a table are none in Spark SQL  exit 2
│   ├── UnknownValues            changes leave out what no row of the table has; the batch is read again
│   ├── RowsNotReplaced          rows of a file that is read anew cannot be told or replaced
│   ├── ColumnsLost              a stream has no column any more that an option of the table names
│   ├── Conflict                 another writer was faster; nothing of the operation is there   retryable
│   └── StoreUnavailable         the object store or disk does not answer                      retryable
├── Fenced                       another instance of this pipeline has written; this one stops
├── Reassigned                   other processes read the partitions now; the flow starts anew  retryable
├── Defect                       Lakefeed itself is wrong; tried a few times more               retryable
├── BatchFailed                  Spark lost the batch (a worker died, a task was killed)       retryable
└── GaveUp                       a retryable error lasted longer than `give_up_after`

The engine retries a `retryable` error with back-off, from the positions that the tables hold. A
source that `waits` is looked at again for as long as the run lasts, unless the run ends by itself. Any other
`SourceError`, a `Defect` or a `GaveUp` ends the flow of its source and a `TableError` the flow of its table;
the others continue. An exception that is none of these becomes a `Defect`. Anything else ends the run, and so
does a JVM that is gone.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


class LakefeedError(Exception):
    """The root of all errors whose text is meant for the user."""

    exit_code = 1
    retryable = False
    waits = False
    """Whether a decision that needs no restart ends it: a run that goes on waits for that."""
    reported = False
    """Whether it was shown when it happened, while the rest of the run continued."""
    untried = False
    """Whether it came before a commit was tried, so that nothing can refer to the files of the batch."""


@dataclass(frozen=True)
class Problem:
    """One thing wrong in a pipeline file, printed as `file:line: path.to.key: what is wrong`.

    Line 0 stands for the file as a whole, and is not printed.
    """

    file: str
    line: int
    key: str
    message: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        return f"{where}: {self.key}: {self.message}" if self.key else f"{where}: {self.message}"


class PipelineFileError(LakefeedError):
    """The pipeline file is wrong, or a model that was built in code; holds every problem that was found."""

    exit_code = 2

    def __init__(self, problems: list[Problem], pipeline: Any = None) -> None:
        """`pipeline` is what the file says, where all that is wrong are names in a `query`."""
        self.pipeline = pipeline
        self.problems = sorted(problems, key=lambda problem: (problem.file, problem.line, problem.key))
        super().__init__("\n".join(str(problem) for problem in self.problems))


class UsageError(LakefeedError):
    """The command or its arguments are wrong."""

    exit_code = 2


class JavaError(LakefeedError):
    """Java is missing or of the wrong version."""


class SourceError(LakefeedError):
    """The source cannot continue until somebody decides something."""


class SourceUnavailable(SourceError):
    """The broker or database is away; the engine tries again with back-off."""

    retryable = True


class RegistryError(SourceError):
    """The schema registry refuses to answer, or what listens there is none."""


class RegistryUnavailable(RegistryError):
    """The schema registry is away or broken; the engine tries again with back-off."""

    retryable = True


class FileChanged(SourceError):
    """A file changed after a table has read it, and the source says `on_change: fail`."""

    waits = True


class DataLoss(SourceError):
    """Offsets that the table wants next no longer exist at the source."""


class StreamsLost(DataLoss):
    """Some streams cannot be read on; a table goes on with its others. `streams` has what to say of each."""

    def __init__(self, source: str, streams: Mapping[str, str]) -> None:
        self.source, self.streams = source, dict(streams)
        super().__init__("\n".join(f"source {source}: {text}" for text in self.streams.values()))


class TopicDeleted(DataLoss):
    """A deleted topic had events that the table wants. `ends` has the end of each partition that was seen."""

    def __init__(self, text: str, ends: Mapping[str, int]) -> None:
        self.ends = dict(ends)
        super().__init__(text)


class TableError(LakefeedError):
    """One table cannot be written until somebody decides something; other tables continue."""


class SqlError(TableError):
    """A text of `select`, `where` or `expect` cannot be used.

    `key` is where it stands, below the table (`select[1]`, `where`, `expect.positive`); `reason` says why, in
    Spark's own words where they are Spark's. `others` are those of further texts of the table. With
    `lacks_column`, the text names a column that nobody has.
    """

    exit_code = 2

    def __init__(
        self, key: str, reason: str, others: tuple[SqlError, ...] = (), *, lacks_column: bool = False
    ) -> None:
        super().__init__(f"{key}: {reason}")
        self.key = key
        self.reason = reason
        self.others = others
        self.lacks_column = lacks_column

    @property
    def may_come(self) -> bool:
        """Whether all that is wrong are columns that events may still bring."""
        return self.lacks_column and all(one.lacks_column for one in self.others)


class UnknownValues(TableError):
    """Changes of a batch leave out values that no row of the table has. The table got nothing of it."""

    def __init__(self, text: str, changes: frozenset[tuple[str, int, int]] = frozenset()) -> None:
        """`changes` are those changes, each by its partition, its offset and its ordinal."""
        super().__init__(text)
        self.changes = changes


class RowsNotReplaced(TableError):
    """A table cannot replace the rows of a file that is read anew; it got nothing of it.

    `commands` make the table anew from all its files; without them, `by_hand` says what is left to do.
    """

    def __init__(self, problem: str, commands: tuple[str, ...], by_hand: str) -> None:
        self.problem, self.commands = problem, commands
        anew = f"Stop the pipeline, and make it anew from the files of now: {' && '.join(commands)}"
        super().__init__(f"{problem}.\n{anew if commands else by_hand}")


class ColumnsLost(TableError):
    """A stream does not have columns any more that options of a table name; the table got nothing of it."""

    def __init__(self, text: str, stream: str = "", *, is_only: bool = True) -> None:
        """`is_only`: whether the table has no other stream that it could go on with."""
        super().__init__(text)
        self.stream, self.is_only = stream, is_only


class Conflict(TableError):
    """An operation on a table met another writer's commit; it changed nothing and may be run again."""

    retryable = True


class StoreUnavailable(TableError):
    """The store does not answer; the engine tries again with back-off."""

    retryable = True


class Fenced(LakefeedError):
    """Another instance of this pipeline has written to the table; this one must stop."""


class Reassigned(LakefeedError):
    """Processes that share a source have got other partitions while a batch was read; nothing was written."""

    retryable = True


class Defect(LakefeedError):
    """Lakefeed itself has failed where it should not; its source stops when trying again does not help."""

    retryable = True

    def __init__(self, text: str, traceback: str = "") -> None:
        super().__init__(text)
        self.traceback = traceback


class BatchFailed(LakefeedError):
    """Spark lost the batch; nothing of it was committed and it is run again."""

    retryable = True


class GaveUp(LakefeedError):
    """A retryable error lasted longer than `give_up_after`."""
