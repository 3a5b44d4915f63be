"""The README's main job, one seed of it."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_mimetic_beats_default_on_digits(tmp_path):
    command = [sys.executable, "main.py", "--config=configs/digits_vit.py", "--config.seeds=(0,)"]
    subprocess.run([*command, f"--workdir={tmp_path}"], cwd=ROOT, check=True)
    rows = {row["arm"]: row for row in json.loads((tmp_path / "summary.json").read_text())}
    assert list(rows) == ["default", "sincos", "norm_matched", "mimetic"]
    assert rows["default"]["accuracy_mean"] > 40
    # 66.0 ± 2.3 against 94.9 ± 1.0 over three seeds: far apart.
    assert rows["mimetic"]["accuracy_mean"] > rows["default"]["accuracy_mean"] + 15
