"""Files: a folder, prefix or glob of files, read as they arrive, each once."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self
from urllib.parse import unquote

from pydantic import Field, ModelWrapValidatorHandler, PrivateAttr, field_validator, model_validator

from lakefeed.events import Events, OffsetRange, Offsets, SharedEvents
from lakefeed.pipeline.connectors import Connector, FormatField
from lakefeed.pipeline.options.client_options import Options
from lakefeed.pipeline.options.paths import Location, is_inside, sibling
from lakefeed.pipeline.pipeline import Pipeline
from lakefeed.pipeline.section import UtcTime
from lakefeed.sources import Source, SourceClient
from lakefeed.sources.files.offset import file_number, offset_text
from lakefeed.sources.files.scope import Scope
from lakefeed.stores.location import cloud_of
from lakefeed.text import counted, listed, shown
from lakefeed.units import Duration, DurationOrZero

if TYPE_CHECKING:
    import pyarrow as pa

    from lakefeed.sources.files.ledger import LedgerLocation

Move = Annotated[dict[Literal["move"], Location], Field(min_length=1)]
_NULLS: dict[str, str | None] = {"__HIVE_DEFAULT_PARTITION__": None}
Start = Literal["all", "new"] | UtcTime
_CUTTING = {"type", "delimiter", "quote", "header"}
"""Options of formats that decide where records begin."""


class FilesSource(Source):
    """Files of a folder, prefix or glob: those that are there, and those that arrive.

    An item is a record of a file: a line, an element of a JSON array. Files are read in parallel, and byte
    ranges of a large one too. It guarantees each file once and whole: a batch ends between two files, and
    what was read of a file that changed meanwhile is never committed.
    """

    keeps_parts: ClassVar[bool] = True
    reads_files: ClassVar[bool] = True
    event_marks: ClassVar[tuple[str, ...] | None] = ()
    line_formats: ClassVar[tuple[str, ...]] = ("json", "debezium", "event", "text")
    """Formats whose payload is a line, or an element of an array."""
    type: Literal["files"] = "files"
    path: Location = Field(
        description="A folder with all that is below it, a file, or a glob: `*` and `?` within a name, `**` "
        "for any folders. Files and folders whose names begin with `.` or `_`, `*.tmp`, `*.crc`, empty "
        "files, and Delta tables do not count.",
        examples=["landing/orders", "s3://landing/orders/2026-*/*.json"],
    )
    pattern: str | None = Field(
        None,
        min_length=1,
        description="What the name of a file must match. Left out: any name.",
        examples=["*.json.gz"],
    )
    recursive: bool = Field(True, description="Whether files in folders below `path` count.")
    format: FormatField = Field(
        description="What is in the files: `json` (also `debezium`, `event`) is a value on each line, or one "
        "array of values; `csv` records, with `columns` or `header: true`; `text` lines; `parquet` and "
        "`avro` (`encoding: container`) rows; `bytes` a file as one payload. `.gz`, `.zst`, `.bz2`, `.xz`, "
        "and `.sz` or `.snappy` (framed) at the end of a name say how a file is compressed.",
        examples=["json", {"type": "csv", "header": True}],
    )
    records: str | None = Field(
        None,
        pattern=r"^[^.]+(\.[^.]+)*$",
        description="In JSON files: the path of the array whose elements are the records, such as `data` "
        'in `{"data": [...]}`. The rest of the file is not read. Left out: each line, each element of an '
        "array, or each object over several lines is a record.",
        examples=["data", "response.items", "features"],
    )
    encoding: str | None = Field(
        None,
        description="The encoding of text files, by a name that Python knows. Left out: UTF-8, or what the "
        "byte order mark of a file says.",
        examples=["latin-1", "utf-16"],
    )
    start: Start = Field(
        "all",
        description="Where a table without a position begins: `all` (with the first file), `new` (with files "
        "that come from now on), or a timestamp (with the first file that was modified then or later; in "
        "UTC unless it names a zone).",
        examples=["new", "2026-11-01T00:00:00Z"],
    )
    settle: DurationOrZero = Field(
        2.0,
        description="On a local disk, how long a file must not have changed before it is read, as it may "
        "still be written; `0s` where files are renamed into the folder when they are whole. An object store "
        "shows a file when it is whole.",
        examples=["10s"],
    )
    on_change: Literal["fail", "ignore", "reload"] = Field(
        "fail",
        description="What to do with a file that has changed since it was found: `fail` stops and names it, "
        "`ignore` keeps what was read, and `reload` replaces its rows by what it holds now.",
    )
    on_move: Literal["fail", "keep", "read"] = Field(
        "fail",
        description="What to do with files that look like files that were read from another folder, by their "
        "name and size: `fail` stops and says so, `keep` takes them for those that were read, but for those "
        "whose old file is still there and differs, and `read` reads them again. A folder that was moved "
        "with the times of its files is recognised by itself.",
    )
    after: Literal["keep", "delete"] | Move = Field(
        "keep",
        description="What becomes of a file when every table of its source has it: `keep`, `delete`, or "
        "`{move: PATH}` to another folder.",
        examples=["delete", {"move": "s3://landing/done"}],
    )
    after_delay: Duration | None = Field(
        None,
        description="How long a file stays after it was read, with `after`. Left out: not at all.",
        examples=["1d"],
    )
    forget_after: Duration | None = Field(
        None,
        description="How long the ledger keeps files that are gone: those that `after` has taken away, and "
        "those that were read and are not listed any more. Left out: for ever.",
        examples=["90d"],
    )
    notify: Annotated[dict[Literal["sqs"], str], Field(min_length=1)] | None = Field(
        None,
        description="`{sqs: URL}`: an SQS queue with the events `s3:ObjectCreated:*` of the bucket, which "
        "tells of new files; all files are listed only every `backfill`. Needs `lakefeed[sqs]`.",
        examples=[{"sqs": "https://sqs.eu-west-1.amazonaws.com/123456789012/landing"}],
    )
    backfill: Duration | None = Field(
        None,
        description="In an object store, how often all files are listed. Between, only files whose names "
        "sort behind the last one are, or those are looked at that `notify` tells of. Left out: 1h with "
        "`notify`; without, when 20 times as long as a listing takes has passed, 1h at most.",
        examples=["1h"],
    )
    max_files: int = Field(1000, gt=0, description="The maximum number of files in one batch.")
    partitions: Literal["hive"] | None = Field(
        None,
        description="`hive`: folders such as `day=2026-11-17` are columns of their files, converted as a CSV "
        "field is, but whole numbers may begin with zeros, as in `month=09`; a field of that name in a "
        "record does not count.",
        examples=["hive"],
    )
    ledger: Location | None = Field(
        None,
        description="The path of the ledger, a Delta table that knows every file. Left out: next to the "
        "first table, named `<pipeline>_<source>_files`.",
        examples=["s3://lake/shop_drops_files"],
    )
    storage: Options = Field(
        default={},
        description="Options of the store, in addition to those of the pipeline.",
        examples=[{"AWS_REGION": "eu-west-1"}],
    )

    _ledger_storage: dict[str, str] = PrivateAttr(default_factory=dict)
    _sync: bool = PrivateAttr(True)
    _folder: str = PrivateAttr("/")
    _file: str = PrivateAttr("FILE")
    _is_relative: bool = PrivateAttr(False)
    """Whether the file spells `path` relative to itself."""

    @model_validator(mode="wrap")
    @classmethod
    def _remember_spelling(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        found = handler(data)
        path = data.get("path") if isinstance(data, dict) else None
        found._is_relative = isinstance(path, str) and not path.startswith("/") and "://" not in path
        return found

    @field_validator("format")
    @classmethod
    def _format_of_files(cls, value: Connector) -> Connector:
        known = (*cls.line_formats, "csv", "parquet", "avro", "bytes")
        if value.type not in known:
            raise ValueError(f"files of {value.type} are not read; there are {listed(known)}")
        if getattr(value, "encoding", "container") != "container":
            raise ValueError("Avro files are containers: set `encoding: container`")
        if getattr(value, "decompress", None):
            raise ValueError("the end of a file's name says how it is compressed; remove `decompress`")
        return value

    @field_validator("encoding")
    @classmethod
    def _encoding_is_known(cls, value: str | None) -> str | None:
        try:
            found = None if value is None else codecs.lookup(value).name
        except LookupError:
            raise ValueError(f"unknown encoding {shown(value)}; expected one such as latin-1") from None
        return None if found == "utf-8" else found

    @model_validator(mode="after")
    def _only_text_has_an_encoding(self) -> Self:
        if self.encoding is not None and self.format.type not in (*self.line_formats, "csv"):
            raise ValueError(f"encoding has no effect on {self.format.type}; remove it")
        return self

    @model_validator(mode="after")
    def _only_json_has_a_path_of_records(self) -> Self:
        if self.records is not None and self.format.type not in ("json", "debezium", "event"):
            raise ValueError(f"records has no effect on {self.format.type}; remove it")
        return self

    @model_validator(mode="after")
    def _is_no_workbook(self) -> Self:
        name = self.pattern or self.path
        if name.lower().endswith((".xlsx", ".xls", ".xlsm")) and self.format.type != "bytes":
            raise ValueError(f"{name}: Excel workbooks are not read; save each sheet as CSV")
        return self

    @model_validator(mode="after")
    def _looks_make_sense(self) -> Self:
        cloud = cloud_of(self.path)
        if self.notify and cloud != "s3":
            raise ValueError(f"notify.sqs tells of files in S3, and {self.path} is not there; remove notify")
        if self.notify and not self.notify["sqs"].startswith(("https://", "http://")):
            raise ValueError(
                "notify.sqs is the URL of a queue, such as https://sqs.eu-west-1.amazonaws.com/…"
            )
        if self.backfill is not None and cloud is None:
            raise ValueError("backfill has an effect only in an object store; remove it")
        return self

    @model_validator(mode="after")
    def _after_makes_sense(self) -> Self:
        if self.after_delay is not None and self.after == "keep":
            raise ValueError("after_delay has an effect only with `after: delete` or `move`; remove it")
        if self.moves_to is not None and is_inside(self.moves_to, self.scope.base):
            raise ValueError("after.move lies inside `path`, where files would be found again")
        return self

    @property
    def file_argument(self) -> str:
        """The pipeline file as it is typed in a shell."""
        return self._file

    def reads_folder(self) -> str:
        """The folder below which all files are."""
        return self.scope.base

    @property
    def moves_to(self) -> str | None:
        """Where files go that were read."""
        return None if isinstance(self.after, str) else self.after["move"]

    def takes_away(self) -> bool:
        """Whether files are deleted or moved."""
        return self.after != "keep"

    def within(self, pipeline: Pipeline, name: str) -> Self:
        """With the options of the store, and the path of the ledger, that it takes from the pipeline."""
        storage = {**pipeline.storage, **self.storage}
        first, table = next(iter(pipeline.tables.items()))
        beside = sibling(table.neighbour, f"{pipeline.name}_{name}_files")
        found = self.model_copy(update={"storage": storage, "ledger": self.ledger or beside})
        found._ledger_storage = storage if self.ledger else pipeline.storage_for(first)
        found._sync, found._folder = pipeline.sync, str(pipeline.folder)
        found._file = pipeline.file_argument
        return found

    @property
    def has_columns(self) -> bool:
        """Whether files bring columns, and no payloads."""
        return self.format.type == "parquet"

    @property
    def path_of_records(self) -> list[str]:
        """The keys of `records`."""
        return self.records.split(".") if self.records else []

    @property
    def scope(self) -> Scope:
        """Which files are meant."""
        return Scope.of(self.path, self.pattern, recursive=self.recursive)

    def missing(self) -> str | None:
        """The folder, on a disk. One that is empty is there, and so is that of a glob without a match."""
        from lakefeed.sources.files.finding.listing import missing_folder

        folder = missing_folder(self.scope.base)
        return folder and f"the folder {folder} does not exist.\nCreate it, or correct `path`."

    def client(self, pipeline: str, name: str) -> SourceClient:
        """Look at the ledger and at the files, on the driver."""
        from lakefeed.sources.files.client import FilesClient

        return FilesClient(self, name, self.ledger_location(pipeline, name))

    @property
    def own_table(self) -> str | None:
        """The ledger."""
        return self.ledger

    def ledger_location(self, pipeline: str, name: str) -> LedgerLocation:
        """Where the ledger is."""
        from lakefeed.sources.files.ledger import LedgerLocation
        from lakefeed.sources.files.spelling import Spelling

        assert self.ledger is not None, "a source within its pipeline has a ledger"
        spelling = Spelling(self._folder, self.scope.base, self._is_relative)
        return LedgerLocation(self.ledger, self._ledger_storage, pipeline, name, spelling, self._sync)

    def shared_with(
        self,
        ours: tuple[str, str],
        theirs: tuple[str, str],
        marks: Mapping[str, int],
        spans: tuple[OffsetRange, OffsetRange],
    ) -> SharedEvents | None:
        """The files that both ledgers have."""
        from lakefeed.sources.files.ledger import LEDGER_MARK
        from lakefeed.sources.files.shared_files import shared_files

        here = self.ledger_location(*ours)
        path = sibling(here.path, f"{theirs[0]}_{theirs[1]}_files")
        there = replace(here, path=path, pipeline=theirs[0], source=theirs[1])
        return shared_files(here, there, marks.get(LEDGER_MARK), self.scope.base, spans)

    @property
    def has_stream_columns(self) -> bool:
        """Whether folders are columns."""
        return self.partitions is not None

    def stream_columns(self, stream: str) -> dict[str, str | None]:
        """The columns of a file by its folders, with `partitions: hive`."""
        folders = stream.removeprefix(self.scope.base).split("/")[:-1]
        pairs = [folder.partition("=") for folder in folders if "=" in folder]
        return {unquote(name): _NULLS.get(value, unquote(value)) for name, _, value in pairs if name}

    def shown(self, origin: pa.RecordBatch, pipeline: str, name: str) -> pa.RecordBatch:
        """With the offset in the file."""
        from lakefeed.sources.files.letters import in_their_files

        return in_their_files(origin, self.ledger_location(pipeline, name))

    def offset_rules(self) -> str:
        """The options that decide where records begin and how they are counted."""
        options = {"records": self.records, "encoding": self.encoding}
        return str(self.format.model_dump(include=_CUTTING) | options)

    def part_of(self, offset: int) -> str:
        """The number of the file."""
        return str(file_number(offset))

    def describe_offset(self, offset: int) -> str:
        """`file 12`."""
        return offset_text(offset)

    def describe_lag(self, position: Offsets, ends: Offsets, rows: Mapping[str, int]) -> str | None:
        """`about 50 records`: how many a file holds is known once it was read."""
        waiting = sum(rows[name] for name in position)
        return f"about {counted(waiting, 'record')}" if waiting else None

    def read(self, ranges: Sequence[OffsetRange]) -> Iterator[Events]:
        """Yield the records of the files that ranges name. Runs on a worker."""
        from lakefeed.sources.files.reading.read import read

        return read(self, ranges)
