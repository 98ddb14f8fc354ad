"""The `csv` format: one record of separated values per payload."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

import pyarrow as pa
from pydantic import AfterValidator, Field, model_validator

from lakefeed.columns.names import ColumnName
from lakefeed.formats import Decoder, Format, Rules
from lakefeed.formats.csv.columns import (
    has_fraction,
    json_value,
    read_column,
    refuse_other_sign,
    with_points,
)
from lakefeed.formats.csv.header import HeaderDecoder
from lakefeed.formats.csv.records import RecordReader
from lakefeed.formats.fit.conversions import Conversions
from lakefeed.formats.fit.doubt import Doubt, either
from lakefeed.formats.fit.values import converter
from lakefeed.formats.fixed import FixedDecoder
from lakefeed.formats.json.columns import CONVERSIONS as JSON_CONVERSIONS
from lakefeed.formats.refusal import VALUES, codes
from lakefeed.text import shown

CODES = codes("empty_payload", "not_utf8", "bad_csv", "many_records", "bad_fields", "bad_base64", *VALUES)
"""Every code of a refused payload and what it means, in the order of the checks."""


def _one_character(text: str) -> str:
    if len(text) != 1 or text in "\r\n\0":
        raise ValueError(f"expected one character that is no line break, got {shown(text)}")
    return text


def _different(names: tuple[str, ...]) -> tuple[str, ...]:
    seen: dict[str, str] = {}
    for name in names:
        if name.lower() in seen:
            raise ValueError(f"names '{seen[name.lower()]}' and '{name}', which are one column in a table")
        seen[name.lower()] = name
    return names


Character = Annotated[str, AfterValidator(_one_character)]


class CsvFormat(Format):
    """One record of separated values per payload; those of files may have a header."""

    type: Literal["csv"] = "csv"
    columns: Annotated[tuple[ColumnName, ...], AfterValidator(_different)] = Field(
        default=(),
        description="The names of the fields, in the order of the record. Their types are those of the "
        "table's `schema`; a column that is not declared there is a string. Needed unless there is a header.",
        examples=[["event_id", "price", "event_time"]],
    )
    header: bool = Field(
        default=False,
        description="Whether the first line of each file names the fields. A payload of another source then "
        "is a header, a line break, and a record.",
    )
    delimiter: Character = Field(default=",", description="The character between two fields.", examples=[";"])
    quote: Character = Field(
        default='"',
        description="The character around a field that contains delimiters or line breaks. Written twice, "
        "it is a part of the field.",
        examples=["'"],
    )
    decimal: Literal[".", ","] = Field(
        default=".",
        description="The decimal sign of numbers in columns that `schema` declares as `double`, `float` or "
        "`decimal`.",
        examples=[","],
    )
    null: str = Field(
        default="",
        description="A field with this text is null, also in quotes. Left out: an empty field is null.",
        examples=["\\N"],
    )

    @model_validator(mode="after")
    def _quote_is_no_delimiter(self) -> Self:
        if self.quote == self.delimiter:
            raise ValueError(f"delimiter and quote are both {shown(self.quote)}; they must differ")
        return self

    @model_validator(mode="after")
    def _delimiter_is_no_decimal_sign(self) -> Self:
        if self.decimal == self.delimiter == ",":
            raise ValueError(
                "delimiter and decimal are both ','; set `delimiter` to what is between two fields"
            )
        return self

    @model_validator(mode="after")
    def _fields_have_names(self) -> Self:
        if bool(self.columns) == self.header:
            raise ValueError("give either columns or `header: true`, which takes the names from each file")
        return self

    def plain_decoder(self, schema: pa.Schema, rules: Rules) -> Decoder:
        """A decoder of payloads that are records as they are."""

        def of(names: tuple[str, ...]) -> Decoder:
            made = pa.schema([(name, pa.string()) for name in names])
            records = RecordReader(names, self.delimiter, self.quote, self.null)
            return FixedDecoder(schema, rules, made, records.read, conversions(self.decimal))

        if not self.header:
            return of(self.columns)
        return HeaderDecoder(of, self.delimiter, self.quote, strict=rules.names == "strict")


def conversions(decimal: str | None = None) -> Conversions:
    """How text becomes values of other types: by the rules of JSON.

    With `decimal`, numbers have that decimal sign, and a number with the other one says which key to set.
    """

    def convert(texts: pa.Array, declared: pa.DataType) -> tuple[pa.Array, Doubt]:
        signed = with_points(texts) if decimal == "," and has_fraction(declared) else texts
        read, unclear = read_column(signed, declared)
        convert = JSON_CONVERSIONS.conversion(read.type, declared)
        assert convert is not None, "text is read as JSON reads its values"
        converted, doubt = convert(read, declared)
        return converted, either(unclear, doubt)

    def decide(texts: pa.Array, index: int, declared: pa.DataType) -> Any:
        text = texts[index].as_py()
        if decimal and has_fraction(declared):
            refuse_other_sign(text, declared, decimal)
            text = text and text.replace(decimal, ".")
        return converter(pa.field("", declared))(json_value(text, declared))

    return Conversions(lambda _, declared: None if pa.types.is_nested(declared) else convert, decide)


CONVERSIONS = conversions()
"""How text of no CSV file becomes values of other types."""
