"""The README's demo, one seed of it."""

import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parent.parent
ARMS = ["default", "norm_matched", "mimetic"]


def scores(config: str, score: str, workdir: pathlib.Path) -> dict[str, float]:
    command = [sys.executable, "main.py", f"--config=configs/{config}.py", "--config.seeds=(0,)"]
    said = subprocess.run(
        [*command, f"--workdir={workdir}"], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout
    assert said.startswith(f"[1/{len(ARMS)}] default seed 0: starts\n"), "sizes are as expected"
    rows = json.loads((workdir / "summary.json").read_text())
    return {row["arm"]: row[f"{score}_mean"] for row in rows}


# Margins are a third or more below the differences in the README's tables, over three seeds.


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_mimetic_beats_default_on_digits(tmp_path: pathlib.Path) -> None:
    accuracy = scores("digits_vit", "accuracy", tmp_path)
    assert list(accuracy) == ARMS
    assert accuracy["default"] > 85
    assert accuracy["mimetic"] > accuracy["default"] + 2


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_arm_learns_the_text(tmp_path: pathlib.Path) -> None:
    """Three seeds don't tell the arms apart: with an embedding that positions drown, all miss 3."""
    bits = scores("python_docs", "test_bpc", tmp_path)
    assert list(bits) == ARMS
    assert max(bits.values()) < 2.85
