"""`lakefeed rebuild`: a table is made anew with the options of now, in one commit, whatever is killed."""

from __future__ import annotations

import gzip
import json
import re
import signal
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from lakefeed import Pipeline, SourceError
from lakefeed.dead_letters.find import DeadLetterFilter
from lakefeed.engine.inline import run_inline
from lakefeed.engine.instance import only_instance
from lakefeed.errors import DataLoss, Fenced, TableError, UsageError
from lakefeed.reports.plan.plan import plan_run
from lakefeed.reports.status import status
from lakefeed.reports.verify import verify
from lakefeed.reprocess.files import retry_or_forget
from lakefeed.reprocess.rebuild import RebuildReport, rebuild
from lakefeed.reprocess.replay import replay
from lakefeed.reprocess.rewind import rewind
from lakefeed.tables.data_files import data_files, read_rows
from support.command_line import Lakefeed
from support.delta_tables import clean_log, open_any
from support.forks import ended, start
from support.landing import Landing
from support.ledger import assert_each_once, dead_letters, table_ids

FILE = """\
name: shop
sources: {events: {type: generate, rows: ROWS}}
tables:
  bronze: {path: bronze, from: events}
  silver: {path: silver, from: bronze, evolve: ignore, OPTIONS}
flush: {rows: 70}
"""
OLD = "schema: {event_id: long, price: double}, expect: {cheap: price < 300}"
NEW = "schema: {event_id: long, price: double}, expect: {cheap: price < 900}"


class Shop:
    """Bronze feeds silver, whose options change."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "shop.yaml"

    def pipeline(self, options: str, rows: int = 400) -> Pipeline:
        self.file.write_text(FILE.replace("ROWS", str(rows)).replace("OPTIONS", options))
        return Pipeline.from_file(self.file)

    def run(self, options: str, rows: int = 400) -> None:
        run_inline(self.pipeline(options, rows))

    def rebuild(self, options: str, rows: int = 400) -> RebuildReport:
        return rebuild(self.pipeline(options, rows), "silver", run_inline, who="ada")

    def killed(self, options: str, point: str) -> None:
        """A rebuild that is killed when it passes a point."""
        self.pipeline(options)
        given = Pipeline.from_file(self.file), "silver", run_inline
        process = start(rebuild, *given, env={"LAKEFEED_KILL_AT": point})
        assert ended(process) == -signal.SIGKILL

    @property
    def silver(self) -> DeltaTable:
        return DeltaTable(self.folder / "silver")

    def rows(self) -> list[dict[str, Any]]:
        batches = read_rows(table := open_any(self.folder / "silver"), data_files(table), table.schema)
        return [row for batch in batches for row in batch.to_pylist()]

    def dead(self) -> list[int]:
        letters = dead_letters(self.folder / "shop_dead_letters")
        return [json.loads(one["payload"])["event_id"] for one in letters if one["table"] == "silver"]

    def check(self, options: str, below: float, rows: int = 400) -> None:
        """Each event is one row or one dead letter, as the new rule says, and the logs prove it."""
        assert_each_once(range(rows), table_ids(self.folder / "silver"), self.dead())
        assert max(one["price"] for one in self.rows()) < below
        verdict = verify(self.pipeline(options, rows))
        assert verdict.sound, [one.text for table in verdict.tables for one in table.findings]


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    shop = Shop(tmp_path)
    shop.run(OLD, 200)
    shop.run(OLD)
    return shop


def test_a_rebuilt_table_is_as_if_the_new_options_had_been_there_from_the_beginning(shop: Shop) -> None:
    before, refused = shop.silver.version(), len(shop.dead())
    report = shop.rebuild(NEW)

    info = json.loads(shop.silver.history(1)[0]["lakefeed"])
    assert report.version == shop.silver.version() == before + 1
    assert (report.rows_now, report.rows_then, report.dead_letters) == (
        400 - refused,
        400 - len(shop.dead()),
        len(shop.dead()),
    )
    assert (info["kind"], info["who"]) == ("rebuild", "ada")
    assert len(shop.dead()) < refused
    shop.check(NEW, 900)
    shop.run(NEW, 600)
    shop.check(NEW, 900, 600)


def test_status_counts_what_the_new_rows_left_out(shop: Shop) -> None:
    shop.rebuild(f"{NEW}, where: event_id >= 100")
    (silver,) = (one for one in status(Pipeline.from_file(shop.file)).tables if one.name == "silver")

    assert silver.shaped is not None
    assert silver.shaped.filtered == 100
    assert silver.shaped.expectations == {"cheap": {"passed": silver.rows, "dead_letter": len(shop.dead())}}
    assert silver.rows + len(shop.dead()) == 300


def test_the_old_version_is_whole_until_the_one_commit(shop: Shop) -> None:
    before, rows = shop.silver.version(), sorted(table_ids(shop.folder / "silver"))
    shop.killed(NEW, "rebuild_staged")

    assert (shop.silver.version(), sorted(table_ids(shop.folder / "silver"))) == (before, rows)
    shop.rebuild(NEW)
    old = DeltaTable(shop.folder / "silver", version=before).to_pyarrow_table()
    assert sorted(old["event_id"].to_pylist()) == rows


@pytest.mark.parametrize("point", ["table_committed:2", "letters_committed:2", "rebuild_staged"])
def test_a_rebuild_that_is_killed_leaves_the_table_and_a_repeat_continues(shop: Shop, point: str) -> None:
    before, refused = shop.silver.version(), shop.dead()
    shop.killed(NEW, point)
    untouched = (shop.silver.version(), shop.dead()) == (before, refused)
    shop.run(OLD)
    report = shop.rebuild(NEW)

    assert untouched
    assert report.continues
    assert shop.silver.version() == before + 1
    shop.check(NEW, 900)


def test_dead_letters_follow_a_rebuild_that_is_killed_after_its_commit(shop: Shop) -> None:
    refused = len(shop.dead())
    shop.killed(NEW, "rebuild_committed")
    still = len(shop.dead())
    interrupted = [one.kind for table in verify(shop.pipeline(NEW)).tables for one in table.findings]
    # What is left to do may be half done: the old letters are gone, the new ones have not come.
    DeltaTable(shop.folder / "shop_dead_letters").delete("\"table\" = 'silver'")
    shop.run(NEW)

    assert still == refused
    assert interrupted
    assert_each_once(range(400), table_ids(shop.folder / "silver"), shop.dead())


def test_another_text_after_a_kill_begins_anew(shop: Shop) -> None:
    shop.killed(NEW, "rebuild_staged")
    newer = NEW.replace("900", "500")
    report = shop.rebuild(newer)

    assert not report.continues
    shop.check(newer, 500)
    assert [one.name for one in (shop.folder / "silver").glob("rebuild-*/_delta_log")] == []


@pytest.mark.parametrize(
    ("options", "columns", "partitioned"),
    [
        (f"{NEW}, partition_by: [price_band], select: ['*', 'price > 100 AS price_band']", 3, ["price_band"]),
        ("schema: {event_id: long, price: double, brand: string}, partition_by: [brand]", 3, ["brand"]),
        ("schema: {event_id: long}, where: event_id < 300", 1, []),
        ("schema: {event_id: long, price: double}, python: 'shape:cheaper'", 2, []),
    ],
    ids=["select", "partition_by", "schema", "python"],
)
def test_columns_types_and_layout_change_in_the_same_commit(
    shop: Shop, options: str, columns: int, partitioned: list[str]
) -> None:
    (shop.folder / "shape.py").write_text(
        "def cheaper(batch):\n    return batch.slice(0, batch.num_rows - 1)\n"
    )
    before = shop.silver.version()
    report = shop.rebuild(options)

    assert shop.silver.version() == before + 1 == report.version
    assert shop.silver.metadata().partition_columns == partitioned
    assert len(shop.silver.schema().fields) == columns
    assert len(shop.rows()) == report.rows_then != report.rows_now
    assert verify(shop.pipeline(options)).sound
    shop.run(options, 500)
    ids = Counter(one["event_id"] for one in shop.rows())
    assert set(ids.values()) == {1}
    assert verify(shop.pipeline(options, 500)).sound


@pytest.mark.parametrize("updates", ["copy_on_write", "merge_on_read"])
def test_tables_with_keys_are_rebuilt_with_what_was_deleted(tmp_path: Path, updates: str) -> None:
    shop = Shop(tmp_path)
    keyed = (
        f"schema: {{user_id: long, event_id: long, price: double}}, mode: upsert, keys: user_id, "
        f"sequence_by: event_id, delete_when: price < 50, updates: {updates}"
    )
    changed = keyed.replace("price < 50", "price < 200")
    shop.run(keyed)
    report = shop.rebuild(changed)
    shop.run(changed, 500)
    fresh = Shop(tmp_path / "fresh")
    fresh.folder.mkdir()
    fresh.run(changed, 500)

    assert report.rows_then != report.rows_now
    assert sorted(shop.rows(), key=str) == sorted(fresh.rows(), key=str)
    assert verify(shop.pipeline(changed, 500)).sound


def test_plan_counts_the_rows_of_other_options_and_names_the_command(shop: Shop) -> None:
    count = len(shop.rows())
    same = [text for text in plan_run(shop.pipeline(OLD)).tables[1].warnings if "made with" in text]
    (told,) = (text for text in plan_run(shop.pipeline(NEW)).tables[1].warnings if "made with" in text)
    shop.run(NEW, 500)
    (later,) = (text for text in plan_run(shop.pipeline(NEW, 500)).tables[1].warnings if "made with" in text)
    report = shop.rebuild(NEW, 500)

    assert same == []
    assert told == (
        f"{count} of {count} rows were made with other options (`select`, `where`, `schema` ...) than the "
        f"file has now; to make all rows anew: lakefeed rebuild {shop.file} --table silver --yes"
    )
    assert later.startswith(
        f"{count} of {len(table_ids(shop.folder / 'silver', 'event_id')) and report.rows_now}"
    )
    assert report.other_rows == count
    assert not any("made with" in text for text in plan_run(shop.pipeline(NEW, 500)).tables[1].warnings)


def test_a_source_without_all_events_is_refused_before_anything_is_written(shop: Shop) -> None:
    DeltaTable(shop.folder / "bronze").delete("event_id = 7")
    before = sorted(one.name for one in (shop.folder / "silver").iterdir())

    with pytest.raises(
        DataLoss, match=r"source bronze no longer has all events it was made of: rows were deleted or changed"
    ):
        shop.rebuild(NEW)

    assert sorted(one.name for one in (shop.folder / "silver").iterdir()) == before


def test_a_log_of_bronze_that_proves_nothing_is_refused(shop: Shop) -> None:
    clean_log(shop.folder / "silver")
    assert shop.rebuild(NEW).version
    clean_log(shop.folder / "silver")
    clean_log(shop.folder / "bronze")

    with pytest.raises(DataLoss, match=r"or the log of .*bronze is too short to tell"):
        shop.rebuild(OLD)


def test_a_start_that_leaves_rows_out_is_refused(shop: Shop) -> None:
    text = FILE.replace("sources: {", "sources: {late: {type: delta, path: bronze START}, ")
    text = text.replace("from: bronze", "from: late").replace("ROWS", "400").replace("OPTIONS", NEW)
    for begins in ("", ", start: {version: 3}", ", start: latest"):
        shop.file.write_text(text.replace(" START", begins).replace("path: silver", "path: other"))
        if not begins:
            run_inline(Pipeline.from_file(shop.file))
            continue
        with pytest.raises(DataLoss, match="its `start` leaves rows out"):
            rebuild(Pipeline.from_file(shop.file), "silver", run_inline)


CORRECTED = """\
name: shop
sources: {events: {type: files, path: in, format: json, settle: 0s, max_files: 1, on_change: reload}}
tables: {silver: {path: silver, from: events, metadata: {_topic: _file}, where: a > LIMIT}}
"""


def corrected(tmp_path: Path, by: str = "run") -> Path:
    """A pipeline whose file `a` was read, corrected and read again."""
    (tmp_path / "in").mkdir()
    file = tmp_path / "shop.yaml"
    file.write_text(CORRECTED.replace("LIMIT", "3"))
    for name, value in (("a", 5), ("b", 6), ("a", 77)):
        (tmp_path / "in" / f"{name}.json").write_text(f'{{"a": {value}}}\n{{"a": 1}}\n')
        if value == 77 and by == "retry":
            retry_or_forget(Pipeline.from_file(file), None, ["a.json"], forget=False, who="me")
        run_inline(Pipeline.from_file(file))
    file.write_text(CORRECTED.replace("LIMIT", "0"))
    return file


def test_a_table_is_rebuilt_from_corrected_files_as_they_are_now(tmp_path: Path) -> None:
    file = corrected(tmp_path)

    rebuild(Pipeline.from_file(file), "silver", run_inline)

    assert sorted(table_ids(tmp_path / "silver", "a")) == [1, 1, 6, 77]
    assert verify(Pipeline.from_file(file), deep=True).sound


@pytest.mark.parametrize("on_change", ["fail", "ignore"])
def test_file_that_has_changed_since_it_was_read_leaves_the_rows_of_a_rebuild(
    tmp_path: Path, on_change: str
) -> None:
    landing = Landing(tmp_path, f"format: json, on_change: {on_change}", "schema: {id: long}")
    landing.put("a.json", '{"id": 1}\n', 1000)
    landing.put("b.json", '{"id": 2}\n{"id": 3}\n{"id": 4}\n', 1500)
    landing.run()
    landing.put("a.json", '{"id": 10}\n', 2000)

    with pytest.raises(SourceError):
        rebuild(Pipeline.from_file(landing.file), "rows", run_inline)

    assert landing.rows("id") == [1, 2, 3, 4]


def test_files_whose_former_rows_are_in_the_table_are_refused(tmp_path: Path) -> None:
    file = corrected(tmp_path, by="retry")

    with pytest.raises(DataLoss, match="1 file that it has read is another by now"):
        rebuild(Pipeline.from_file(file), "silver", run_inline)

    assert sorted(table_ids(tmp_path / "silver", "a")) == [5, 6, 77]


def test_corrected_file_that_cannot_be_read_replaces_nothing_of_a_rebuild(tmp_path: Path) -> None:
    file = corrected(tmp_path)
    (tmp_path / "in" / "a.json").write_bytes(gzip.compress(b'{"a": 78}\n')[:-9])
    before = table_ids(tmp_path / "silver", "a")

    for _ in range(2):
        with pytest.raises((DataLoss, TableError)):
            rebuild(Pipeline.from_file(file), "silver", run_inline)

    assert sorted(table_ids(tmp_path / "silver", "a")) == sorted(before)


def test_files_that_are_gone_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    text = """\
name: shop
sources: {events: {type: files, path: in, format: json, settle: 0s}}
tables: {silver: {path: silver, from: events, where: a > LIMIT}}
"""
    for name in ("a", "b"):
        (tmp_path / "in" / f"{name}.json").write_text('{"a": 1}\n{"a": 5}\n')
    file = tmp_path / "shop.yaml"
    file.write_text(text.replace("LIMIT", "3"))
    run_inline(Pipeline.from_file(file))
    file.write_text(text.replace("LIMIT", "0"))
    rebuild(Pipeline.from_file(file), "silver", run_inline)
    rows = table_ids(tmp_path / "silver", "a")
    (tmp_path / "in" / "a.json").unlink()

    file.write_text(text.replace("LIMIT", "1"))
    with pytest.raises(DataLoss, match="all events it was made of: 1 file that it has read is gone"):
        rebuild(Pipeline.from_file(file), "silver", run_inline)

    assert sorted(rows) == [1, 1, 5, 5]
    assert sorted(table_ids(tmp_path / "silver", "a")) == [1, 1, 5, 5]


def test_a_rebuild_that_would_refuse_most_events_replaces_nothing(shop: Shop) -> None:
    before = shop.silver.version()

    with pytest.raises(TableError, match="of 400 events would become dead letters, so nothing was replaced"):
        shop.rebuild(NEW.replace("900", "20"))
    with pytest.raises(TableError, match=r"no row would be left of .*, so nothing was replaced"):
        shop.rebuild("schema: {event_id: long, price: double}, where: event_id < 0")

    assert shop.silver.version() == before


def test_a_rewind_does_not_go_behind_a_rebuild(shop: Shop) -> None:
    version = shop.rebuild(NEW).version
    shop.run(NEW, 600)

    with pytest.raises(TableError, match=f"version {version} rebuilt the table"):
        rewind(shop.pipeline(NEW, 600), "silver", to_version=2)
    assert version is not None
    rewind(shop.pipeline(NEW, 600), "silver", to_version=version)
    shop.run(NEW, 600)
    shop.check(NEW, 900, 600)


def test_letters_of_a_rebuilt_table_are_replayed_once(shop: Shop) -> None:
    shop.rebuild(NEW)
    done = replay(shop.pipeline(NEW.replace("900", "100000")), DeadLetterFilter())

    assert done[1].past == 0
    assert_each_once(range(400), table_ids(shop.folder / "silver"), shop.dead())
    assert shop.dead() == []


def test_a_running_pipeline_is_not_rebuilt_and_the_plan_is_shown_all_the_same(shop: Shop) -> None:
    pipeline = shop.pipeline(NEW)
    with only_instance(pipeline):
        planned = rebuild(pipeline, "silver", run_inline, dry_run=True)
        with pytest.raises(Fenced, match="pipeline shop is already running on this machine"):
            rebuild(pipeline, "silver", run_inline)

    assert planned.version is None
    assert not list((shop.folder / "silver").glob("rebuild-*"))


def test_a_changed_type_of_bronze_needs_no_drop_of_silver(lakefeed: Lakefeed, shop: Shop) -> None:
    column = ("--column", "user_id string", "--yes")
    assert lakefeed("table", "replace", shop.folder / "bronze", *column)[0] == 0
    with pytest.raises(SourceError, match="changes or deletes rows that were read already"):
        shop.run(OLD)
    shop.rebuild(OLD)

    shop.check(OLD, 300)
    shop.run(OLD)
    shop.check(OLD, 300)


def test_files_that_are_deleted_after_they_were_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.json").write_text('{"a": 1}\n')
    file = tmp_path / "shop.yaml"
    file.write_text(
        "name: shop\nsources: {events: {type: files, path: in, format: json, settle: 0s, after: delete}}\n"
        "tables: {silver: {path: silver, from: events}}\n"
    )
    run_inline(Pipeline.from_file(file))

    with pytest.raises(DataLoss, match="`after` deletes or moves files that were read"):
        rebuild(Pipeline.from_file(file), "silver", run_inline)


def test_a_table_that_is_fed_from_the_rebuilt_one_is_named_and_rebuilt_afterwards(shop: Shop) -> None:
    gold = "\n  gold: {path: gold, from: silver, evolve: ignore, schema: {event_id: long}}\nflush"

    def pipeline(options: str, rows: int = 400) -> Pipeline:
        shop.pipeline(options, rows)
        shop.file.write_text(shop.file.read_text().replace("\nflush", gold))
        return Pipeline.from_file(shop.file)

    run_inline(pipeline(OLD))
    (note,) = rebuild(pipeline(NEW), "silver", run_inline).notes
    with pytest.raises(SourceError, match="table silver: version"):
        run_inline(pipeline(NEW))
    rebuild(pipeline(NEW), "gold", run_inline)
    run_inline(pipeline(NEW, 500))

    assert note == (
        "table gold is fed from silver; rebuild it afterwards: "
        f"lakefeed rebuild {shop.file} --table gold --yes"
    )
    assert sorted(table_ids(shop.folder / "gold")) == sorted(table_ids(shop.folder / "silver"))
    assert verify(pipeline(NEW, 500)).sound


NARROW = "schema: {event_id: long, event_type: string}"


@pytest.mark.parametrize(
    ("table", "why", "then"),
    [
        (
            "path: silver, mode: overwrite",
            "`mode: overwrite` replaces all its rows",
            "path: silver, mode: overwrite",
        ),
        ("path: silver, share: true", "other programs write to it", "path: other, share: true"),
        ("route: 'silver/{event_type}'", "it has a `route`", "route: 'silver/{event_type}'"),
    ],
)
def test_what_is_said_of_a_table_that_cannot_be_rebuilt_makes_it_anew(
    tmp_path: Path, lakefeed: Lakefeed, table: str, why: str, then: str
) -> None:
    file = tmp_path / "shop.yaml"

    def pipeline(table: str, limit: int) -> Pipeline:
        text = FILE.replace(
            "silver: {path: silver", f"silver: {{{table}, where: event_id < {limit}, {NARROW}"
        )
        file.write_text(text.replace("OPTIONS", "").replace("ROWS", "400"))
        return Pipeline.from_file(file)

    run_inline(pipeline(table, 150))
    code, _, refused = lakefeed("rebuild", pipeline(table, 300).folder / "shop.yaml", "--table", "silver")
    for arguments in re.findall(r"lakefeed (table drop /\S+ --yes)", refused):
        assert lakefeed(*arguments.split())[0] == 0
    run_inline(pipeline(then, 300))

    assert code == 2 and f"table silver cannot be rebuilt: {why}" in refused
    assert ("another `path`" in refused) == ("share" in then)
    found = [one.parent for name in ("silver", "other") for one in tmp_path.glob(f"{name}/**/_delta_log")]
    made = [path for path in found if "share" not in then or path.name == "other"]
    assert_each_once(range(300), [number for path in made for number in table_ids(path)])


def test_table_of_a_query_cannot_be_rebuilt_and_says_what_replaces_its_rows(tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    file.write_text(
        FILE.replace(
            "path: silver, from: bronze, evolve: ignore, OPTIONS",
            "path: silver, query: SELECT 1 AS a FROM bronze",
        ).replace("ROWS", "10")
    )

    with pytest.raises(UsageError, match="Run the pipeline: a run with another query replaces them all"):
        rebuild(Pipeline.from_file(file), "silver", run_inline)
