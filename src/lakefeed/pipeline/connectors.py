"""Connectors: the models of sources and formats, found by their `type`."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from importlib import import_module
from typing import Annotated, Any, ClassVar

from pydantic import (
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    SerializeAsAny,
    ValidationError,
    ValidationInfo,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, InitErrorDetails, PydanticCustomError, core_schema

from lakefeed.columns.change_columns import ChangeColumns
from lakefeed.pipeline.section import Section
from lakefeed.text import did_you_mean, one_of, shown, suggestion

_ROOMS = {
    "source": {
        "kafka": "lakefeed.sources.kafka.source:KafkaSource",
        "files": "lakefeed.sources.files.source:FilesSource",
        "delta": "lakefeed.sources.delta.source:DeltaSource",
        "http": "lakefeed.sources.http.source:HttpSource",
        "postgres": "lakefeed.sources.postgres.source:PostgresSource",
        "generate": "lakefeed.sources.generate.source:GenerateSource",
        "spark": "lakefeed.sources.spark.source:SparkSource",
    },
    "format": {
        "json": "lakefeed.formats.json.format:JsonFormat",
        "avro": "lakefeed.formats.avro.format:AvroFormat",
        "protobuf": "lakefeed.formats.protobuf.format:ProtobufFormat",
        "debezium": "lakefeed.formats.debezium.format:DebeziumFormat",
        "csv": "lakefeed.formats.csv.format:CsvFormat",
        "parquet": "lakefeed.formats.parquet:ParquetFormat",
        "text": "lakefeed.formats.text:TextFormat",
        "int64": "lakefeed.formats.int64:Int64Format",
        "bytes": "lakefeed.formats.bytes:BytesFormat",
        "event": "lakefeed.formats.event:EventFormat",
    },
}


class Connector(Section):
    """A source or a format: a frozen model whose fields are its options, declared once.

    A connector is looked up by name and imported only when a pipeline uses it, so that this package
    imports neither Spark nor a client library, and a new connector is one file and one line above.
    """

    room: ClassVar[str]
    of_files: ClassVar[bool] = False
    """Whether it is a format of files only, and not of payloads."""
    types_by_stream: ClassVar[bool] = False
    """Whether each stream of a source has columns with types of its own. Events that are read together are
    then of one stream, and say of which."""
    type: str

    def known_streams(self) -> tuple[str, ...] | None:
        """The streams of a source where its options name them; none where it has none.

        None where only the source itself knows them.
        """
        return ()

    def stream_patterns(self) -> tuple[str, ...] | None:
        """Names and wild cards, one of which every stream of a source has; None where nobody knows any."""
        return self.known_streams()

    @property
    def change_columns(self) -> ChangeColumns | None:
        """By which columns events say what they do; None where they are no changes of rows."""
        return None

    def event_name(self, name: str) -> str:
        """The name that a field of the source has in its events, where not every name is good in Delta."""
        return name

    @property
    def brings_changes(self) -> bool:
        """Whether events are changes of rows, with a key and an order of their own."""
        return self.change_columns is not None

    @property
    def key_format(self) -> Connector | None:
        """How the keys of events are read, where one without a payload deletes; None where it does not."""
        return None

    @property
    def is_change_feed(self) -> bool:
        """Whether the changes are those of a Delta table's change data feed."""
        return False

    @property
    def brings_whole_rows(self) -> bool:
        """Whether its changes can name their row by all columns: `keys: all`."""
        return False

    @property
    def shares_partitions(self) -> bool:
        """Whether several processes read a source together, each some of its partitions."""
        return False

    def keeps_events_at(self) -> str | None:
        """Where a source keeps events that it has answered for, until tables have them; None if nowhere."""
        return None

    def reads_folder(self) -> str | None:
        """The folder whose files a source reads; None where it reads none."""
        return None

    def takes_away(self) -> bool:
        """Whether a source removes files that it has read."""
        return False

    def reads_slot(self) -> tuple[str, Hashable] | None:
        """The replication slot that a source reads, and of which server; None where it shares none."""
        return None

    def reads_table(self) -> str | None:
        """The path of the Delta table that a source reads; None where it reads none."""
        return None


def connector_types(room: str) -> list[str]:
    """The names that `type` may take for a source or a format."""
    return list(_ROOMS[room])


def connector_class(room: str, type_name: str) -> type[Connector]:
    """The model of one connector; KeyError for an unknown name."""
    module, _, name = _ROOMS[room][type_name].partition(":")
    found: Any = getattr(import_module(module), name)
    model: type[Connector] = found
    return model


def connector_names(room: str) -> list[str]:
    """The names of the classes of all sources or formats; imports none of them."""
    return [home.partition(":")[2] for home in _ROOMS[room].values()]


def connector_named(room: str, name: str) -> type[Connector]:
    """The model of a connector by the name of its class, as `lakefeed.sources` has them; AttributeError."""
    classes = {home.partition(":")[2]: type_name for type_name, home in _ROOMS[room].items()}
    if name not in classes:
        near = "" if name.startswith("_") else did_you_mean(name, classes)
        raise AttributeError(f"module 'lakefeed.{room}s' has no attribute '{name}'{near}")
    return connector_class(room, classes[name])


@dataclass(frozen=True)
class ConnectorOf:
    """Marks a field that holds a connector of one room, and reads it: a mapping with a `type`, or a model.

    With `by_name`, the type alone will do: `format: json`.
    """

    room: str
    by_name: bool = False

    def model_for(self, value: object) -> type[Connector] | None:
        """The model that a value of the file is read by, or None if its type is missing or unknown."""
        name = value.get("type") if isinstance(value, dict) else value
        known = isinstance(name, str) and name in _ROOMS[self.room]
        return connector_class(self.room, str(name)) if known else None

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        """Read first, then let pydantic check that a connector came out."""
        return core_schema.with_info_before_validator_function(self._read, handler(source))

    def __get_pydantic_json_schema__(self, _: CoreSchema, handler: GetJsonSchemaHandler) -> JsonSchemaValue:
        """The union of all connectors of the room; they are imported here, when a schema is asked for."""
        choices, names = [], []
        for name in connector_types(self.room):
            model = connector_class(self.room, name)
            reference = handler(model.__pydantic_core_schema__)
            described = handler.resolve_ref_schema(reference)
            described["properties"]["type"] |= {"const": name}
            described["required"] = ["type", *(key for key in described.get("required", []) if key != "type")]
            choices.append(reference)
            if not any(field.is_required() for key, field in model.model_fields.items() if key != "type"):
                names.append(name)
        union: JsonSchemaValue = {"oneOf": choices, "discriminator": {"propertyName": "type"}}
        return {"anyOf": [{"enum": names, "type": "string"}, union]} if self.by_name else union

    def _read(self, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, Connector):
            if value.room != self.room:
                raise PydanticCustomError("connector", f"expected a {self.room}, got a {value.room}")
            return value
        if self.by_name and isinstance(value, str):
            model = self.model_for(value)
            if model is None:
                raise self._unknown(value)
            return model.model_validate({"type": value}, context=info.context)
        if not isinstance(value, dict):
            expected = f"{one_of(connector_types(self.room))}, or a mapping" if self.by_name else "a mapping"
            raise PydanticCustomError("connector", f"expected {expected} with a `type`, got {shown(value)}")
        return self._read_mapping(value, info)

    def _read_mapping(self, value: dict[str, Any], info: ValidationInfo) -> Connector:
        model = self.model_for(value)
        if model is not None:
            return model.model_validate(value, context=info.context)
        known = one_of(connector_types(self.room))
        missing = PydanticCustomError("connector", f"missing; the type of the {self.room}: {known}")
        problem = self._unknown(value["type"]) if "type" in value else missing
        # Raised as a validation error of its own, so that its line in the file is that of the `type` key.
        details = InitErrorDetails(type=problem, loc=("type",), input=value.get("type"))
        raise ValidationError.from_exception_data(self.room, [details], hide_input=True)

    def _unknown(self, name: object) -> PydanticCustomError:
        near = suggestion(str(name), connector_types(self.room))
        return PydanticCustomError("connector", f"unknown {self.room} type {shown(name)}{near}")


SourceField = Annotated[SerializeAsAny[Connector], ConnectorOf("source")]
"""A source in the file: a mapping whose `type` names the connector."""

FormatField = Annotated[SerializeAsAny[Connector], ConnectorOf("format", by_name=True)]
"""A format in the file: `json`, or a mapping with a `type` and options."""
