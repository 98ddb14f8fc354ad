"""A file that changes after it was read: the run waits for a decision, and goes on without a restart."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest

from lakefeed import Pipeline
from lakefeed.engine.run_events import SourceStopped, SourceTrouble
from lakefeed.errors import FileChanged
from lakefeed.watch.health import concerns
from lakefeed.watch.state import RunState
from support.command_line import in_process
from support.landing import Landing
from support.processes import wait_until

TABLE = "schema: {id: long}"


@pytest.fixture
def landing(tmp_path: Path) -> Landing:
    landing = Landing(tmp_path, table=TABLE + "}, others: {path: others, from: drops, schema: {id: long}")
    landing.put("a b.json", '{"id": 1}\n', at=1000)
    return landing


def command(landing: Landing, does: str) -> str:
    return f"lakefeed files {does} {landing.file} '{landing.into}/a b.json' --yes"


@pytest.mark.parametrize("does", ["forget", "retry", "reload"])
def test_run_goes_on_when_the_changed_file_is_forgotten_retried_or_reloaded(
    landing: Landing, does: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    lakefeed = in_process(capsys, monkeypatch)
    events: list[object] = []
    state = RunState(Pipeline.from_file(landing.file))

    def watch(event: object) -> None:
        events.append(event)
        state.watch(event)  # type: ignore[arg-type]

    def troubles() -> list[SourceTrouble]:
        return [one for one in events if isinstance(one, SourceTrouble) and one.text]

    def shown() -> str:
        return f"{events}"

    with landing.running(watch):
        first = landing.folder / "rows" / "_delta_log" / f"{0:020}.json"
        wait_until(lambda: first.exists() and landing.rows("id") == [1], 120, shown)
        landing.put("a b.json", '{"id": 10}\n', at=2000)
        wait_until(lambda: bool(troubles()), 120, shown)
        (concern,) = concerns(state.view(), Pipeline.from_file(landing.file))
        assert lakefeed(*shlex.split(command(landing, does))[1:])[0] == 0
        wait_until(lambda: landing.rows("id") == ([10] if does == "reload" else [1, 10]), 120, shown)

    assert troubles()[0].waits
    assert troubles()[0].text.endswith(command(landing, "reload"))
    assert concern.remedy.endswith("The source goes on by itself then.")
    assert not [one for one in events if isinstance(one, SourceStopped)]


def test_run_that_ends_by_itself_stops_at_the_changed_file(landing: Landing) -> None:
    landing.run()
    landing.put("a b.json", '{"id": 10}\n', at=2000)

    with pytest.raises(FileChanged) as stopped:
        landing.run()

    assert str(stopped.value).endswith(f"To replace those of this one: {command(landing, 'reload')}")
