"""What a machine keeps to start Spark sooner."""

from __future__ import annotations

import logging
import subprocess
from pathlib import Path

import pytest

from lakefeed.engine.spark.cache import ClassArchive, cache_folder, slim_home


def test_archive_that_is_made_is_told_with_its_place_and_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    slim_home()
    archive = ClassArchive(17)
    part = Path(archive.options().split("=")[1].strip('"'))
    part.write_bytes(bytes(150 * 1024**2))

    with caplog.at_level(logging.INFO, "lakefeed"):
        archive.keep(subprocess.Popen(["true"]))
        archive.keep(subprocess.Popen(["true"]))

    assert [record.getMessage() for record in caplog.records] == [
        "caching Spark's classes for a faster next start: some seconds, this once",
        f"cached Spark's classes in {cache_folder()} (150 MB) for a faster next start; you can delete this "
        "folder at any time",
    ]
    assert "java17.jsa" in ClassArchive(17).options()
