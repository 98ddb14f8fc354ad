"""What is in files: lines, arrays, CSV, Parquet, Avro, compressed or not, and files that cannot be read."""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
from decimal import Decimal
from pathlib import Path

import cramjam
import fastavro
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakefeed import Pipeline, PipelineFileError
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.errors import SourceError
from lakefeed.formats.avro.format import AvroFormat
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.verify import verify
from lakefeed.reprocess.replay import replay
from lakefeed.sources.files.reading.avro import avro_records
from lakefeed.sources.files.reading.opening import FileOpener, Unreadable
from support.landing import Landing

LINES = b'{"id": 1}\n\n{"id": 2}\r\n{"id": 3}'
SNAPPY = b"\xff\x06\x00\x00sNaPpY"
SKIPPED = b"\xfe\x03\x00\x00xyz"


def zstd(content: bytes) -> bytes:
    return bytes(pa.Codec("zstd").compress(content, asbytes=True))


def snappy(content: bytes) -> bytes:
    return bytes(cramjam.snappy.compress(content))


def snappy_chunk(content: bytes) -> bytes:
    """A stream of one chunk, whatever its size, with a wrong checksum."""
    raw = bytes(cramjam.snappy.compress_raw(content))
    return SNAPPY + b"\x00" + (len(raw) + 4).to_bytes(3, "little") + bytes(4) + raw


def avro(records: list[dict[str, object]], codec: str = "deflate") -> bytes:
    fields = [{"name": "id", "type": "long"}, {"name": "name", "type": ["null", "string"]}]
    out = io.BytesIO()
    schema = {"type": "record", "name": "Item", "fields": fields}
    fastavro.writer(out, fastavro.parse_schema(schema), records, codec, sync_interval=20)
    return out.getvalue()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.json", LINES),
        ("a.json", b"\xef\xbb\xbf" + LINES),
        ("a.json.gz", gzip.compress(LINES[:10], mtime=0) + gzip.compress(LINES[10:], mtime=0)),
        ("a.json.zst", zstd(LINES)),
        ("a.json.bz2", bz2.compress(LINES)),
        ("a.json.XZ", lzma.compress(LINES)),
        ("a.json.sz", snappy(LINES)),
        ("a.json.snappy", snappy(LINES[:10]) + SKIPPED + snappy(b"\n" * 300_000 + LINES[10:])),
        ("a.json", b' [{"id": 1}, {"id": 2},\n{"id": 3}]\n'),
        ("a.json.gz", gzip.compress(b'[{"id": 1},{"id": 2},{"id": 3}]', mtime=0)),
        ("a.json", b'{"id": 1}\n \t\n{"id": 2}\r\n \r\n{"id": 3}\n '),
        ("a.json", b'\xef\xbb\xbf{\n  "id": 1\n}\n{\n  "id": 2\n}\n{"id": 3}\n'),
        ("a.json", b'{"id": 1}{"id": 2} {"id": 3}'),
        ("a.json", b'{"id": 1}{"id": 2}\n{"id": 3}\n'),
        ("a.json.gz", gzip.compress(b'{\n"id": 1}{"id": 2}\n{"id": 3}', mtime=0)),
        ("a.json", gzip.compress(LINES, mtime=0)),
        ("a.json", zstd(LINES)),
        ("a.json", bz2.compress(LINES)),
        ("a.json", lzma.compress(LINES)),
        ("a.json", LINES.decode().encode("utf-16")),
        ("a.json", codecs.BOM_UTF16_BE + LINES.decode().encode("utf-16-be")),
        ("a.json.gz", gzip.compress(LINES.decode().encode("utf-32"), mtime=0)),
    ],
)
def test_lines_and_arrays_are_read_however_compressed(tmp_path: Path, name: str, content: bytes) -> None:
    landing = Landing(tmp_path)
    landing.put(name, content)

    landing.run()

    assert landing.rows("id") == [1, 2, 3]
    assert [one["rows"] for one in landing.ledger()] == [3]
    assert landing.is_sound


@pytest.mark.parametrize(
    ("path", "content"),
    [
        ("data", b'{"next": null, "data": [{"id": 1}, {"id": 2}, {"id": 3}], "data2": [{"id": 4}]}'),
        (
            "data",
            b'{\n "data": [\n {"id": 1},\n {"id": 2}]\n}\n{"data": []}\n{"data": null}{"data":[{"id":3}]}\n',
        ),
        (
            "a.b\u00fc",
            '{"x": {"b\u00fc": [9]}, "a": {"c": "}", "b\\u00fc": [{"id": 1},{"id": 2},{"id": 3}]}}'.encode(),
        ),
        ("data", gzip.compress(b'{"data": [{"id": 1}, {"id": 2}, {"id": 3}]}', mtime=0)),
    ],
)
def test_records_are_the_elements_of_the_array_at_a_path(tmp_path: Path, path: str, content: bytes) -> None:
    landing = Landing(tmp_path, f"format: json, records: {path}")
    landing.put("a.json", content)

    landing.run()

    assert landing.rows("id") == [1, 2, 3]
    assert landing.letters() == []
    assert landing.is_sound


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ('{"type": "x", "meta": 1}', "records: no key data; the object has type and meta"),
        ('{"data": {"id": 1}}', 'records: expected an array at data, got {"id": 1}'),
        ('{"data": [1]} and {"data": [2]}', "byte 14: expected an object or an array, got and"),
        ('[{"id": 1}]', "records: expected an object at the outermost value, got"),
        ('{"data": [], "data": []}', "the object has the key data twice"),
        ('{"data": [{"id": 1}', "the last object has no end"),
        ('{"data": [{"id": 1}] [{"id": 2}]}', "byte 21: expected a comma or the end of the object"),
    ],
)
def test_file_without_the_array_of_records_is_one_dead_letter(
    tmp_path: Path, content: str, error: str
) -> None:
    landing = Landing(tmp_path, "format: json, records: data")
    landing.put("bad.json", content, 1)
    landing.put("good.json", '{"data": [{"id": 7}]}', 2)

    landing.run()

    assert landing.rows("id") == [7]
    (letter,) = landing.letters()
    assert error in letter["error"]


def test_object_that_follows_the_one_with_the_records_without_a_comma_is_not_left_out(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: json, records: a.data")
    landing.put("bad.json", '{"a": {"data": []} {"data": [{"id": 1}]}}', 1)
    landing.put("good.json", '{"a": {"data": [{"id": 7}] } }', 2)

    landing.run()

    assert landing.rows("id") == [7]
    (letter,) = landing.letters()
    assert "byte 19: expected a comma or the end of the object" in letter["error"]


def test_truncated_first_line_costs_one_line_and_a_truncated_object_the_file(tmp_path: Path) -> None:
    landing = Landing(tmp_path)
    landing.put("lines.json", '{"id": 1, "na\n{"id": 2}\n{"id": 3}\n', 1)
    landing.put("object.json", '{\n"id": 4\n}\n{\n"id": 5', 2)

    landing.run()

    assert landing.rows("id") == [2, 3]
    lines, objects = sorted(landing.letters(), key=lambda letter: letter["offset"])
    assert lines["payload"] == b'{"id": 1, "na'
    assert (objects["code"], objects["payload"]) == ("bad_json", None)
    assert "the last object has no end" in objects["error"]


def test_csv_of_a_spreadsheet_on_windows_is_read(tmp_path: Path) -> None:
    landing = Landing(
        tmp_path,
        "format: {type: csv, header: true, delimiter: ';', decimal: ','}",
        "schema: {id: long, price: 'decimal(10,2)', weight: double}",
    )
    text = "id;price;weight\r\n1;12,50;-0,5\r\n  \r\n2;3;1e3\r\n3;1.5;1\r\n"
    landing.put("utf-16.csv", text.encode("utf-16"), 1)
    landing.put("zipped.csv", gzip.compress(b" \r\n" + text.replace("1;", "4;").encode(), mtime=0), 2)

    landing.run()

    assert landing.rows("id", "price", "weight") == [
        {"id": 1, "price": Decimal("12.50"), "weight": -0.5},
        {"id": 2, "price": Decimal("3.00"), "weight": 1000.0},
        {"id": 2, "price": Decimal("3.00"), "weight": 1000.0},
        {"id": 4, "price": Decimal("12.50"), "weight": -0.5},
    ]
    assert {letter["error"] for letter in landing.letters()} == {
        'price: expected decimal(10,2), got "1.5"; '
        "set `decimal: '.'` on the format if that is the decimal sign"
    }


@pytest.mark.parametrize(
    ("options", "content", "error"),
    [
        ("header: true", "id\n1;2", None),
        (
            "header: true",
            "id;name;x\n1;2;3",
            'the header is one field, "id;name;x"; with \';\' it has 3: set `delimiter: ";"`',
        ),
        ("header: true", "id\tname\n1\t2", "with '\\t' it has 2: set `delimiter: \"\\t\"`"),
        (
            "header: true",
            "'id','name'\n'1','2'",
            'the header has names in quotes, "\'id\'"; set `quote: "\'"`',
        ),
        (
            "header: true",
            "id,price,,\n1,2,,",
            "2 of 4 fields have no name in the header; name the fields with `columns` in place of `header`",
        ),
        (
            "header: true",
            "id,price,ID\n1,2,3",
            "the header names 'id' twice, which is one column in a table; name the fields with `columns`",
        ),
        (
            "header: true, delimiter: ';'",
            "sep=;\n1;2",
            'the header is "sep=;", a line for Excel; remove it from the file',
        ),
        ("columns: [id, name]", "1|2", "expected 2 fields, got 1; with '|' it has 2: set `delimiter: \"|\"`"),
        ("columns: [id, price]", "1,2|3", 'price: expected double, got "2|3"'),
        ("columns: [id, price], delimiter: ';'", "1;2,5", "got \"2,5\"; set `decimal: ','` on the format"),
    ],
)
def test_dead_letter_of_csv_names_the_option_that_fits(
    tmp_path: Path, options: str, content: str, error: str | None
) -> None:
    landing = Landing(tmp_path, f"format: {{type: csv, {options}}}", "schema: {price: double}")
    landing.put("a.csv", content)

    landing.run()

    assert (len(landing.letters()), bool(landing.rows())) == ((1, False) if error else (0, True))
    assert error is None or error in landing.letters()[0]["error"]


def test_columns_take_the_place_of_a_header_that_names_no_columns(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: {type: csv, header: true}")
    landing.put("a.csv", "id,price,price,,\n1,2,3,,\n2,4,5,,\n")
    landing.run()
    refused = len(landing.letters())
    landing.set("format: {type: csv, columns: [id, net, gross, x, y]}", "drop: [x, y], where: \"id <> 'id'\"")

    landing.run()

    assert refused == 2
    assert landing.letters() == []
    assert landing.rows() == [{"id": "1", "net": "2", "gross": "3"}, {"id": "2", "net": "4", "gross": "5"}]


def test_plan_names_the_option_for_files_that_are_not_utf8(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: {type: csv, header: true}")
    landing.put("a.csv", "id,town\n1,Köln\n2,Bonn\n3,Fürth\n".encode("latin-1"))

    ((warning,),) = (one.warnings for one in plan_run(Pipeline.from_file(landing.file)).tables)
    landing.set("encoding: latin-1, format: {type: csv, header: true}")
    landing.run()

    assert warning == (
        "drops: 2 sampled records are not UTF-8; to read another encoding, such as latin-1, set "
        "`sources.drops.encoding: latin-1`"
    )
    assert landing.rows("town") == ["Bonn", "Fürth", "Köln"]
    assert plan_run(Pipeline.from_file(landing.file)).tables[0].warnings == []


def test_the_type_that_plan_advises_for_csv_is_string(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: {type: csv, header: true}", "schema: {id: long, price: double}")
    landing.put("a.csv", "id,price\n1,1.234\n2,n/a\n")

    ((warning,),) = (one.warnings for one in plan_run(Pipeline.from_file(landing.file)).tables)
    landing.set("format: {type: csv, header: true}", "schema: {id: long, price: string}")
    landing.run()

    assert warning.endswith("to take them all, declare `schema: {price: string}`")
    assert landing.rows("price") == ["1.234", "n/a"]


def test_workbook_is_refused_with_the_way_out(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: {type: csv, header: true}")
    landing.put("book.csv", b"PK\x03\x04\x14\0" + bytes(500))

    landing.run()

    (letter,) = landing.letters()
    assert "an Excel workbook or a ZIP archive, which is not read; save each sheet as CSV" in letter["error"]
    landing.set("pattern: '*.xlsx', format: {type: csv, header: true}")
    with pytest.raises(
        PipelineFileError, match=r"\*\.xlsx: Excel workbooks are not read; save each sheet as CSV"
    ):
        landing.run()


def test_numbers_of_an_array_keep_every_digit(tmp_path: Path) -> None:
    landing = Landing(tmp_path, table="schema: {'n': 'decimal(38,20)'}")
    landing.put("a.json", '[{"n": 0.12345678901234567890}]')

    landing.run()

    assert [str(value) for value in landing.rows("n")] == ["0.12345678901234567890"]


def test_csv_has_a_header_quoted_line_breaks_and_other_columns_in_the_next_file(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: {type: csv, header: true}", "schema: {id: long, name: string}")
    landing.put("a.csv", 'id,name\r\n1,"two\nlines"\r\n2,"a ""quote"""\r\nx,bad\r\n', 1)
    landing.put("b.csv", "name,colour,id\nAnn,red,3", 2)

    landing.run()

    assert landing.rows("id", "name", "colour") == [
        {"id": 1, "name": "two\nlines", "colour": None},
        {"id": 2, "name": 'a "quote"', "colour": None},
        {"id": 3, "name": "Ann", "colour": "red"},
    ]
    (letter,) = landing.letters()
    assert (letter["payload"], letter["offset"] % 2**32) == (b"id,name\nx,bad", 2)
    assert letter["topic"].endswith("/a.csv")


def test_quote_in_the_middle_of_a_csv_field_is_a_part_of_it(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: {type: csv, header: true}", "schema: {id: long, pipe: string}")
    landing.put("a.csv", 'id,pipe,5"pipe\n1,5" short,x\n2,"a\n3,4,5",y\n6,7" long,z\n')

    landing.run()

    pipes = [(row["id"], row["pipe"]) for row in landing.rows("id", "pipe")]
    assert pipes == [(1, '5" short'), (2, "a\n3,4,5"), (6, '7" long')]
    assert landing.letters() == []


def test_dead_letter_of_a_csv_file_is_replayed_with_its_header(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: {type: csv, header: true}", "schema: {id: long, size: int}")
    landing.put("a.csv", "size,id\n99999999999,7\n")
    landing.run()
    landing.set("format: {type: csv, header: true}", "schema: {id: long}, drop: [size]")

    replay(Pipeline.from_file(landing.file), DeadLetterFilter())

    assert landing.rows("id") == [7]
    assert landing.letters() == []


@pytest.mark.parametrize("encoding", ["latin-1", "utf-16"])
def test_text_in_other_encodings(tmp_path: Path, encoding: str) -> None:
    landing = Landing(tmp_path, f"format: text, encoding: {encoding}")
    landing.put("a.txt", "grün\nblau\n".encode(encoding))

    landing.run()

    assert landing.rows("data") == ["blau", "grün"]


def test_parquet_brings_its_columns_and_they_are_fitted(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: parquet", "schema: {id: long, size: int}")
    table = pa.table(
        {
            "id": pa.array([1, 2, 3], pa.int32()),
            "size": [1, 2**40, 3],
            "tag": pa.array(["a", "b", "a"]).dictionary_encode(),
            "at": pa.array([0, 1, 2], pa.timestamp("ms")),
        }
    )
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=2)
    landing.put("a.parquet", out.getvalue())

    landing.run()

    assert landing.rows("id", "tag") == [{"id": 1, "tag": "a"}, {"id": 3, "tag": "a"}]
    (letter,) = landing.letters()
    assert json.loads(letter["payload"])["id"] == 2
    assert letter["offset"] % 2**32 == 1
    assert landing.is_sound


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_avro_containers_bring_their_columns(tmp_path: Path, codec: str) -> None:
    landing = Landing(tmp_path, "format: {type: avro, encoding: container}", "schema: {id: int}")
    records: list[dict[str, object]] = [{"id": number, "name": f"n{number}"} for number in range(50)]
    landing.put("a.avro", avro([*records, {"id": 2**40, "name": None}], codec))

    landing.run()

    assert sorted(landing.rows("id")) == list(range(50))
    (letter,) = landing.letters()
    assert letter["payload"].startswith(b"Obj\x01") and letter["offset"] % 2**32 == 50


def test_file_of_bytes_is_one_payload(tmp_path: Path) -> None:
    landing = Landing(tmp_path, "format: bytes")
    landing.put("a.bin", b"\x00\n\x01")

    landing.run()

    assert landing.rows("size") == [3]


@pytest.mark.parametrize(
    ("name", "content", "code", "options"),
    [
        ("bad.json.gz", gzip.compress(LINES * 1000, mtime=0)[:-20], "bad_compression", "format: json"),
        ("bad.json.zst", zstd(LINES * 1000)[:-5], "bad_compression", "format: json"),
        ("bad.json.bz2", bz2.compress(LINES * 1000)[:-5], "bad_compression", "format: json"),
        ("bad.json.xz", lzma.compress(LINES * 1000)[:-5], "bad_compression", "format: json"),
        ("bad.json.sz", snappy(LINES * 1000)[:-5], "bad_compression", "format: json"),
        ("bad.json.sz", snappy(LINES)[:-5] + b"[1,2]", "bad_compression", "format: json"),
        ("bad.json.snappy", snappy_chunk(LINES), "bad_compression", "format: json"),
        ("bad.json.snappy", bytes(cramjam.snappy.compress_raw(LINES)), "bad_compression", "format: json"),
        ("bomb.json.snappy", snappy_chunk(bytes(70 * 2**20)), "bad_compression", "format: json"),
        ("bad.json.gz", b"no gzip", "bad_compression", "format: json"),
        ("bomb.json.gz", gzip.compress(bytes(70 * 2**20), mtime=0), "too_large", "format: json"),
        ("bad.json", b'[{"id": 1}, {"id"', "bad_json", "format: json"),
        ("bad.json", b'[{"id": 1}] {"id": 2}', "bad_json", "format: json"),
        ("bad.parquet", b"PAR1 no footer", "bad_parquet", "format: parquet"),
        ("bad.avro", avro([{"id": 1}])[:-3], "bad_avro", "format: {type: avro, encoding: container}"),
        ("bad.txt", b"\xff\xfeA", "bad_encoding", "format: text, encoding: utf-16"),
    ],
)
def test_file_that_cannot_be_read_is_one_dead_letter_and_the_others_go_on(
    tmp_path: Path, name: str, content: bytes, code: str, options: str
) -> None:
    landing = Landing(tmp_path, options, "schema: {id: long}, evolve: ignore")
    good = {"json": '{"id": 7}', "txt": "a".encode("utf-16"), "avro": avro([{"id": 7}])}
    out = io.BytesIO()
    pq.write_table(pa.table({"id": [7]}), out)
    kind = name.split(".")[1]
    landing.put(name, content, 1)
    landing.put(f"good.{kind}", {**good, "parquet": out.getvalue()}[kind], 2)

    landing.run()
    landing.run()

    assert len(landing.rows()) == 1
    (letter,) = landing.letters()
    assert letter["code"] == code and letter["topic"].endswith(name) and name in letter["error"]
    assert letter["payload"] is None
    bad, fine = landing.ledger()
    assert (bad["state"], fine["state"]) == ("unreadable", "read")
    assert name in bad["error"]
    assert landing.is_sound


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("format: protobuf", "sources.drops.format"),
        ("format: int64", "files of int64 are not read; there are json, debezium"),
        ("format: {type: avro, schema_file: x.avsc}", "sources.drops.format"),
        ("format: {type: json, decompress: gzip}", "the end of a file's name says how it is compressed"),
        ("format: json, encoding: klingon", "unknown encoding 'klingon'"),
        ("format: parquet, encoding: latin-1", "encoding has no effect on parquet"),
        ("format: csv", "give either columns or `header: true`"),
        ("format: json, on_change: maybe", "on_change"),
        ("format: json, start: soon", "start"),
    ],
)
def test_options_that_do_not_fit_are_refused_with_what_to_do(tmp_path: Path, options: str, told: str) -> None:
    landing = Landing(tmp_path, options)

    with pytest.raises(PipelineFileError) as error:
        Pipeline.from_file(landing.file)

    assert told in str(error.value)


def test_format_of_files_is_for_files_only(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        """\
name: shop
sources: {a: {type: generate, format: parquet}}
tables: {t: {path: t, from: a}}
"""
    )

    with pytest.raises(PipelineFileError, match="parquet is a format of files, for `type: files`"):
        Pipeline.from_file(file)


@pytest.mark.parametrize("count", [2**40, -1])
def test_avro_block_that_claims_more_records_than_it_can_have_is_refused_at_once(count: int) -> None:
    whole = io.BytesIO()
    fastavro.writer(whole, fastavro.parse_schema({"type": "null"}), [])
    mark = whole.getvalue()[-16:]
    claimed, bits = bytearray(), (count << 1) ^ (count >> 63)
    while bits > 127:
        claimed.append(bits & 127 | 128)
        bits >>= 7
    block = bytes([*claimed, bits, 0]) + mark

    with pytest.raises(Unreadable, match=f"a block of 0 bytes says that it has {count:,} records"):
        list(avro_records(io.BytesIO(whole.getvalue() + block)))


def test_avro_file_with_a_decimal_that_is_none_has_its_bytes() -> None:
    kind = {"type": "bytes", "logicalType": "nothing", "precision": 2, "scale": 3}
    schema = {"type": "record", "name": "r", "fields": [{"name": "d", "type": kind}]}
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema(schema), [{"d": b"x"}])

    [(payloads, _)] = avro_records(io.BytesIO(out.getvalue().replace(b"nothing", b"decimal")))

    decoded = AvroFormat(encoding="container").decoder(pa.schema([("d", pa.binary())])).decode(payloads)
    assert decoded.rows.to_pylist() == [{"d": b"x"}]


def test_many_avro_records_of_one_block_come_in_parts_with_their_numbers() -> None:
    out = io.BytesIO()
    fastavro.writer(out, fastavro.parse_schema({"type": "int"}), [1] * 60_000, sync_interval=2**20)

    parts = list(avro_records(io.BytesIO(out.getvalue())))

    assert [len(payloads) for payloads, _ in parts] == [50_000, 10_000]
    assert [int(places[-1]) for _, places in parts] == [49_999, 59_999]


def test_file_that_may_not_be_read_stops_the_source_and_says_which(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(self: FileOpener, path: str) -> pa.NativeFile:
        raise PermissionError(13, "Permission denied", path)

    landing = Landing(tmp_path)
    landing.put("a.json", LINES, 1000)
    monkeypatch.setattr(FileOpener, "open", forbidden)

    with pytest.raises(SourceError, match=r"a\.json: permission denied\.\nGive .* the right to read it"):
        landing.run()


@pytest.mark.parametrize(
    ("options", "name", "content", "offsets"),
    [
        ("format: json", "a.json", LINES, [0, 11, 22]),
        ("format: json", "a.json", b' [{"id": 1}, {"id": 2},\n{"id": 3}]\n', [2, 13, 24]),
        ("format: json", "a.json.gz", gzip.compress(LINES, mtime=0), [0, 2, 3]),
        ("format: json", "a.json.gz", gzip.compress(b'[{"id": 1},{"id": 2}]', mtime=0), [0, 1]),
        ("format: json, encoding: latin-1", "a.json", LINES, [0, 2, 3]),
        ("format: {type: csv, header: true}", "a.csv", b"id\n1\n\n2\n", [0, 2]),
    ],
)
def test_offset_is_the_byte_in_plain_json_and_the_number_of_the_record_elsewhere(
    tmp_path: Path, options: str, name: str, content: bytes, offsets: list[int]
) -> None:
    landing = Landing(tmp_path, options, table="schema: {id: long}, metadata: [_offset]")
    landing.put(name, content)

    landing.run()

    found = sorted(landing.rows("_offset"))
    assert found == offsets


@pytest.mark.parametrize(
    ("options", "content", "empty"),
    [
        ("format: {type: csv, header: true}", "id\n1\n2\n", "id\n"),
        ("format: json, records: data", '{"data": [{"id": 1}, {"id": 2}]}', '{"data": [], "next": null}'),
    ],
)
def test_a_file_without_records_is_counted_so_that_verify_compares(
    tmp_path: Path, options: str, content: str, empty: str
) -> None:
    landing = Landing(tmp_path, options)
    landing.put("a.txt", content, 1000)
    landing.put("b.txt", empty, 2000)
    landing.run()
    landing.put("c.txt", empty, 3000)
    landing.run()

    verified = verify(Pipeline.from_file(landing.file))

    assert [(one["rows"], one["dead_letters"]) for one in landing.ledger()] == [(2, 0), (0, 0), (0, 0)]
    assert verified.tables[0].notes[-1] == "drops/0: file 1 up to file 4: all 2 rows that drops has there"
