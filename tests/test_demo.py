"""The README's demo, one seed of it; the first commands of docs/training.md end in a table."""

import json
import pathlib
import re
import subprocess
import sys

import pytest

from tests import words
from tests.images import class_folders

ROOT = pathlib.Path(__file__).parent.parent
ARMS = ["default", "norm_matched_mimetic", "mimetic"]


def scores(config: str, score: str, workdir: pathlib.Path) -> dict[str, float]:
    command = [sys.executable, "main.py", f"--config=configs/{config}.py", "--config.seeds=(0,)"]
    said = subprocess.run(
        [*command, f"--workdir={workdir}"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert f"\nrun 1 of {len(ARMS)}, default seed 0: starts\n" in said
    rows = json.loads((workdir / "summary.json").read_text())
    return {row["arm"]: row[f"{score}_mean"] for row in rows}


# Margins are a third or more below the differences in the README's tables, over three seeds.


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_mimetic_beats_default_on_digits(tmp_path):
    accuracy = scores("digits_vit", "accuracy", tmp_path)
    assert list(accuracy) == ARMS
    assert accuracy["default"] > 85
    assert accuracy["mimetic"] > accuracy["default"] + 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_arm_learns_the_text(tmp_path):
    """Three seeds don't tell the arms apart: with an embedding that positions drown, all miss 3."""
    bits = scores("python_docs", "test_bpc", tmp_path)
    assert list(bits) == ARMS
    assert max(bits.values()) < 2.85


MIMETIC = (sys.executable, "-c", "from mimetic_jax.command.console import main; main()")


def images(folder: pathlib.Path) -> str:
    return str(class_folders(folder, 30, side=20))


def text(folder: pathlib.Path) -> str:
    return words.numbered(folder / "mine.txt", 2000)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "data", "shorter"),
    [
        ("FOLDER", images, "--config.epochs=2 --config.model.width=24"),
        ("FILE_OR_FOLDER", text, "--config.steps=4 --config.optimizer.warmup=1"),
    ],
)
def test_the_first_commands_make_a_table(tmp_path, place, data, shorter):
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
    assert "| mimetic " in done.stdout
