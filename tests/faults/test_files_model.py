"""Writers add, overwrite, append to, rename and delete files while the process that reads them is killed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from faults.files_model import FilesModel
from support.landing import Landing


@pytest.mark.parametrize("seed", [1])
def test_every_version_of_a_file_that_counts_is_in_the_table_once(tmp_path: Path, seed: int) -> None:
    options = "format: json, on_change: reload, max_files: 3"
    landing = Landing(tmp_path, options, "schema: {id: long}")
    model = FilesModel(landing, random.Random(seed))

    for _ in range(4):
        for _ in range(model.chance.randint(2, 6)):
            model.meddle()
        model.kill()
        for _ in range(model.chance.randint(0, 3)):
            model.meddle()
        if model.chance.random() < 0.6:
            model.run()
    model.run()

    model.assert_each_version_once()
    assert landing.is_sound
