"""Writers add, overwrite, append to, rename and delete files while the process that reads them is killed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from faults.files_model import FilesModel
from support.landing import Landing


@pytest.mark.parametrize("seed", [1])
def test_each_file_is_in_the_table_as_one_of_its_versions_whenever_a_run_is_killed(
    tmp_path: Path, seed: int
) -> None:
    options = "format: json, on_change: reload, max_files: 3"
    landing = Landing(tmp_path, options, "schema: {id: long}, metadata: {_topic: _file}")
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

    model.assert_each_file_is_one_of_its_versions()
    assert landing.is_sound
