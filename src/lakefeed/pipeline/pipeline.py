"""The pipeline: what the file says, as frozen models that are the Python API as well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Literal, Self

from pydantic import Field, PrivateAttr, model_validator
from pydantic_core import PydanticCustomError

from lakefeed.columns.names import PartName, PipelineName
from lakefeed.errors import LakefeedError, Problem
from lakefeed.pipeline.connectors import Connector, SourceField
from lakefeed.pipeline.flush import Flush
from lakefeed.pipeline.http import Http, Ready
from lakefeed.pipeline.loading.checks.consistency import consistency_problems, dotted
from lakefeed.pipeline.loading.graph import Graph, feeding_tables
from lakefeed.pipeline.loading.outline import Outline
from lakefeed.pipeline.options.changes import CHANGING
from lakefeed.pipeline.options.client_options import Options
from lakefeed.pipeline.options.paths import LocalPath, Location, sibling
from lakefeed.pipeline.options.query import inputs_in_order
from lakefeed.pipeline.options.statsd import Statsd
from lakefeed.pipeline.options.transform import Transforms
from lakefeed.pipeline.section import Section
from lakefeed.pipeline.table import Table
from lakefeed.pipeline.test_file import Case
from lakefeed.pipeline.upkeep import Upkeep, UpkeepField, resolved
from lakefeed.units import Duration, Share

if TYPE_CHECKING:
    from lakefeed.pipeline.secrets import Path as KeyPath


_FOLLOWED_WITHIN = 0.2
"""Seconds that rows of a table wait at most until the tables that it feeds get them: their own batches have
ended already."""


class DeadLetters(Section):
    """The table for records that could not become rows."""

    form: Literal["lakefeed", "kafka-delta-ingest"] = Field(
        default="lakefeed",
        description="With `kafka-delta-ingest`, the table also has its columns `base64_bytes`, "
        "`json_string`, `error` and `timestamp` (when the letter was written; the time of the event is in "
        "`event_timestamp`), and may be partitioned.",
    )
    transform: Transforms = Field(
        default_factory=dict,
        description="With `form: kafka-delta-ingest`: further columns, as expressions over these four, with "
        "`timestamp` in microseconds.",
        examples=[{"date": "substr(epoch_micros_to_iso8601(timestamp), `0`, `10`)"}],
    )

    path: Location | None = Field(
        default=None,
        description="The path of the dead-letter table. Left out: in the directory of the first table, with "
        "the name `<pipeline>_dead_letters`.",
        examples=["s3://lake/shop_dead_letters"],
    )
    storage: Options | None = Field(
        default=None, description="Options of its store, in addition to the pipeline's `storage`."
    )
    upkeep: UpkeepField | None = Field(
        default=None,
        description="Its own upkeep: each key overrides the same key of the pipeline; `off` turns upkeep "
        "off. The pipeline's `delete_after` is not for dead letters.",
    )
    stop_above: Share | None = Field(
        default=None,
        description="A table stops when more than this share of its events would become dead letters, "
        "counted over the last 1,000 events or more, and over at least 20. Left out: dead "
        "letters never stop a table; only rows that replace those of a table are not committed above 50%.",
        examples=["50%"],
    )

    @model_validator(mode="after")
    def _transform_has_an_effect(self) -> Self:
        if self.transform and self.form == "lakefeed":
            raise ValueError("transform has an effect only with `form: kafka-delta-ingest`; add that")
        return self


class Spark(Section):
    """The Spark session that runs the pipeline."""

    master: str = Field(
        default="local[*]",
        min_length=1,
        description="The Spark master.",
        examples=["local[*]", "spark://host:7077"],
    )
    shared_disk: bool = Field(
        default=False,
        description="Whether local paths of tables are the same disk on every machine of the cluster. "
        "Without it, local paths are refused if the master runs tasks on other machines.",
    )
    conf: Options = Field(
        default_factory=dict,
        description="Spark settings, passed to the session.",
        examples=[{"spark.driver.memory": "4g"}],
    )


@dataclass(frozen=True)
class Lines:
    """The file and the line of each key; pipelines that differ in nothing else are equal."""

    by_key: Mapping[KeyPath, tuple[str, int]] = field(default_factory=dict, compare=False)


class Pipeline(Section):
    """One pipeline: where events come from, and which tables they go to."""

    name: PipelineName = Field(
        description="The pipeline's name. Positions belong to this name: a renamed pipeline starts from the "
        "beginning.",
        examples=["shop"],
    )
    sources: dict[PartName, SourceField] = Field(
        min_length=1,
        description="Where events come from, by name. The `type` decides which other keys there are.",
    )
    tables: dict[PartName, Table] = Field(
        min_length=1, description="The Delta tables that are written, by name."
    )
    flush: Flush = Field(default=Flush(), description="When a batch ends; a source may have its own.")
    dead_letters: DeadLetters = Field(
        default=DeadLetters(),
        description="The path of the dead-letter table, and when many dead letters stop a table.",
    )
    storage: Options = Field(
        default_factory=dict,
        description="Options of the object store, for every table; a table may have its own in addition.",
        examples=[{"AWS_REGION": "eu-west-1"}],
    )
    http: Http | None = Field(
        default=None,
        description="Serves the status page, `/metrics`, `/healthz`, `/readyz` and `/api/status` while the "
        "pipeline runs. Left out: no port is opened.",
        examples=[{"listen": "127.0.0.1:8088"}],
    )
    statsd: Statsd | None = Field(
        default=None,
        description="Sends metrics to a statsd server while the pipeline runs, under the names of "
        "kafka-delta-ingest. Left out: nothing is sent.",
    )
    ready: Ready = Field(default=Ready(), description="When `/readyz` returns 503.")
    upkeep: UpkeepField = Field(
        default=Upkeep(),
        description="Maintenance of the tables while the pipeline runs; a table may have its own. `off` "
        "turns it off.",
        examples=["off"],
    )
    spark: Spark = Field(default=Spark(), description="Which Spark runs the pipeline, and its settings.")
    state: LocalPath = Field(
        default=".lakefeed",
        validate_default=True,
        description="Where Spark's checkpoints are, relative to the file. May be deleted at any time: "
        "positions are in the tables.",
    )
    sync: bool = Field(
        default=True,
        description="Whether a commit on a local disk survives a power cut: data files and entries of the "
        "log are synced. `false` is a little faster. Object stores do not need it.",
    )
    stop_timeout: Duration = Field(
        default=30.0,
        description="How long a stop waits for the current batch before dropping it.",
        examples=["30s"],
    )
    give_up_after: Duration = Field(
        default=600.0,
        description="How long a source or a store may be down before the source, or the tables on the "
        "store, stop.",
        examples=["10m"],
    )
    tests: dict[str, Case] = Field(
        default_factory=dict,
        exclude=True,
        repr=False,
        description="Tests by name, for `lakefeed test`: events, and the rows that must be in the tables "
        "then. They may also be in a file next to this one: `shop.test.yaml` for `shop.yaml`.",
    )

    _hidden_paths: frozenset[KeyPath] = PrivateAttr(frozenset())
    _file: str | None = PrivateAttr(None)
    _lines: Lines = PrivateAttr(default_factory=Lines)

    @property
    def file_argument(self) -> str:
        """The pipeline file as it is typed in a shell; `FILE` for a pipeline that was built in code."""
        return "FILE" if self._file is None else quote(self._file)

    def with_file(self, text: str) -> str:
        """A message whose commands name this file in place of `FILE`."""
        return text.replace(" FILE ", f" {self.file_argument} ")

    def name_file(self, error: LakefeedError) -> None:
        """Let the commands of an error name this file, wherever it is printed."""
        error.args = (self.with_file(str(error)), *error.args[1:])

    @property
    def folder(self) -> Path:
        """Where the pipeline file is; the working directory for a pipeline that was built in code."""
        return Path.cwd() if self._file is None else Path(self._file).absolute().parent

    def problem(self, path: KeyPath, message: str) -> Problem:
        """Something wrong at a key, with its line, for what is found out after loading."""
        known = (path[:length] for length in range(len(path), 0, -1))
        lines = self._lines.by_key
        near = next((each for each in known if each in lines), None)
        file, line = lines[near] if near else (self._file or "Pipeline", 0)
        return Problem(file, line, dotted(path), message)

    @model_validator(mode="after")
    def _check_consistency(self) -> Pipeline:
        found = [str(problem) for problem in consistency_problems(Outline.of(self))]
        if found:
            raise PydanticCustomError("inconsistent", "{text}", {"text": "\n".join(found)})
        return self

    @classmethod
    def from_file(cls, path: str | Path, overrides: Iterable[str] = ()) -> Self:
        """Load a pipeline file; `overrides` are `a.b=value`, as for `--set`. Raises PipelineFileError."""
        # Here, as the loader imports this module.
        from lakefeed.pipeline.loading.load import load_and_warn

        return load_and_warn(path, overrides, cls)

    @property
    def dead_letters_path(self) -> str:
        """The location of the dead-letter table, given or next to the first table."""
        first = next(iter(self.tables.values()))
        return self.dead_letters.path or sibling(first.neighbour, f"{self.name}_dead_letters")

    @property
    def dead_letters_storage(self) -> dict[str, str]:
        """The store options of the dead-letter table; next to the first table, those of the first table."""
        own = self.dead_letters.storage
        if own is None and self.dead_letters.path is None:
            return self.storage_for(next(iter(self.tables)))
        return {**self.storage, **(own or {})}

    @property
    def hidden_paths(self) -> frozenset[KeyPath]:
        """The paths of options and connections whose whole value came from a `${VARIABLE}`; never shown."""
        return self._hidden_paths

    def storage_for(self, table: str) -> dict[str, str]:
        """The store options of a table: the pipeline's, then its own."""
        return {**self.storage, **(self.tables[table].storage or {})}

    @property
    def inputs(self) -> dict[str, Connector]:
        """Every source that feeds a table: those of the file, and tables of the file that feed others.

        Whoever goes through all sources goes through these.
        """
        wanted = {name: table.from_ for name, table in self.tables.items()}
        feeding = feeding_tables(self.sources, wanted)
        return {**self.sources, **{name: self._table_input(name) for name in feeding}}

    def _table_input(self, name: str) -> Connector:
        """A table as a source of others."""
        # By name: sources are above this room.
        model = import_module("lakefeed.sources.delta.source").TableSource
        followed = self.flush.model_copy(update={"interval": min(self.flush.interval, _FOLLOWED_WITHIN)})
        made: Connector = model(
            path=self.tables[name].path,
            storage=self.storage_for(name),
            flush=followed,
            change_feed=self.tables[name].mode in CHANGING,
        )
        return made

    def keys_of_feeders(self, table: str) -> tuple[str, ...]:
        """What tells rows apart in the tables that a table is fed from; nothing where they differ."""
        graph = self.graph
        read = [graph.table_read_by(source) for source in self.tables[table].from_]
        found = {() if name is None else self._keys_of(name) for name in read}
        return found.pop() if len(found) == 1 else ()

    def _keys_of(self, name: str) -> tuple[str, ...]:
        spec = self.tables[name]
        keys = spec.keys or (self.keys_of_feeders(name) if spec.takes_envelopes else ())
        return (*keys, spec.valid_from or "valid_from") if keys and spec.mode == "history" else keys

    def tells_changes(self, table: str) -> bool:
        """Whether other tables of the file read the changes of a table."""
        graph = self.graph
        return any(
            one.is_change_feed and graph.table_read_by(name) == table for name, one in self.inputs.items()
        )

    @property
    def graph(self) -> Graph:
        """Which table feeds which."""
        return Graph(self)

    def flush_for(self, source: str) -> Flush:
        """When a batch of the source ends: its own `flush`, else the pipeline's."""
        own: Flush | None = getattr(self.inputs[source], "flush", None)
        return own or self.flush

    def upkeep_for(self, table: str) -> Upkeep | None:
        """The upkeep of a table: the pipeline's, with its own keys instead; None where it is off.

        Which rows a query makes is for the query to say: `delete_after` is not for its table.
        """
        given = self._upkeep_without_deletion if self.tables[table].query else self.upkeep
        return resolved(given, self.tables[table].upkeep)

    @property
    def dead_letters_upkeep(self) -> Upkeep | None:
        """The upkeep of the dead-letter table, whose rows only its own `delete_after` deletes."""
        return resolved(self._upkeep_without_deletion, self.dead_letters.upkeep)

    @property
    def _upkeep_without_deletion(self) -> UpkeepField:
        return self.upkeep if self.upkeep == "off" else self.upkeep.model_copy(update={"delete_after": "off"})

    def queries(self) -> dict[str, list[str]]:
        """Tables with a `query` and the tables that they read, each behind those that it reads."""
        return inputs_in_order({name: table.query for name, table in self.tables.items()})

    def tables_of(self, source: str) -> dict[str, Table]:
        """The tables that the source feeds, by name, in the order of the file."""
        return {name: table for name, table in self.tables.items() if source in table.from_}


__all__ = ["DeadLetters", "Flush", "Pipeline", "Spark", "Table", "Upkeep"]
