"""The demo on digits; the first commands of docs/training.md end in a table."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

from tests import words
from tests.images import class_folders

ROOT = pathlib.Path(__file__).parent.parent


# The margin is a third or more below the difference over three seeds.
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_mimetic_beats_default_on_digits(tmp_path):
    command = (sys.executable, "main.py", "--config=configs/digits_vit.py", "--config.seeds=(0,)")
    subprocess.run([*command, f"--workdir={tmp_path}"], cwd=ROOT, check=True, capture_output=True)
    rows = json.loads((tmp_path / "summary.json").read_text())
    accuracy = {row["arm"]: row["accuracy_mean"] for row in rows}
    assert accuracy["default"] > 85
    assert accuracy["mimetic"] > accuracy["default"] + 2


MIMETIC = (sys.executable, "-c", "from mimetic_jax.command.console import main; main()")


def images(folder: pathlib.Path) -> str:
    return str(class_folders(folder, 30, side=20))


def text(folder: pathlib.Path) -> str:
    return words.numbered(folder / "mine.txt", 2000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "data", "shorter", "last"),
    [
        ("FOLDER", images, "--config.epochs=2 --config.model.width=24", "whitened_zero_mlp"),
        (
            "FILE_OR_FOLDER",
            text,
            "--config.steps=4 --config.optimizer.warmup=1",
            "counts_std_25",
        ),
    ],
)
def test_the_first_commands_make_a_table(tmp_path, place, data, shorter, last):
    page = (ROOT / "docs/training.md").read_text()
    found = re.search(rf"^mimetic (train .*--data-dir=){place}$", page, re.MULTILINE)
    assert found
    (tmp_path / "data").mkdir()
    shorter += f" --config.model.depth=1 --config.seeds=(0,) --workdir={tmp_path / 'runs'}"
    done = subprocess.run(
        [*MIMETIC, *f"{found[1]}{data(tmp_path / 'data')} {shorter}".split()],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^\| (\w+)", done.stdout, re.MULTILINE)[:2] == ["arm", "default"]
    assert f"| {last} " in done.stdout
