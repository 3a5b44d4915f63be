"""A population that is killed at random moments becomes what an undisturbed one becomes."""

from __future__ import annotations

import os
import pathlib
import random
import subprocess
import sys
import time

import numpy as np
import pytest

from mimetic_jax.analysis.covariance import from_population
from mimetic_jax.train.workdir.members import MembersFolder

ROOT = pathlib.Path(__file__).parent.parent
KILLS = 10
FLAGS = (
    "--config=configs/mlp_population.py:model=vit,init=mean_shift",
    "--config.data.name=digits",
    "--config.members=64",
    "--config.chunk=16",
    "--config.epochs=0.0",
    "--config.steps=80",
    "--config.batch=32",
    "--config.model.width=8",
    "--config.model.depth=1",
    "--config.model.patch=4",
    "--config.max_dispatch=4",
    "--config.log_every=8",
    "--config.checkpoint_every=8",
    "--config.eval.every=40",
    "--config.eval.batch=360",
)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_ten_kills(tmp_path):
    chance = random.Random(int(os.environ.get("MIMETIC_CAMPAIGN_SEED", "0")))
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONUNBUFFERED": "1",
    }

    def start(workdir):
        command = [sys.executable, "main.py", *FLAGS, f"--workdir={workdir}"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)

    def finish(process):
        said, _ = process.communicate()
        assert process.returncode == 0, said
        return said

    finish(start(tmp_path / "compiles"))
    began = time.monotonic()
    finish(start(tmp_path / "whole"))
    seconds = time.monotonic() - began
    kills, rounds = 0, 0
    while kills < KILLS:
        rounds += 1
        workdir = tmp_path / f"killed_{rounds}"
        while kills < KILLS:
            process = start(workdir)
            try:
                process.communicate(timeout=chance.uniform(0.2, 1.0) * seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                kills += 1
            else:
                break
        finish(start(workdir))
        assert_same(tmp_path / "whole", workdir)


def assert_same(one, other):
    """All weights, scores and statistics, to the bit."""
    folders = [MembersFolder.of(workdir, "mean_shift") for workdir in (one, other)]
    chunks = [list(folder.chunks()) for folder in folders]
    for ours, theirs in zip(*chunks, strict=True):
        np.testing.assert_array_equal(ours.seeds, theirs.seeds)
        for tree in ("initial", "final"):
            for path, array in getattr(ours, tree).items():
                np.testing.assert_array_equal(array, getattr(theirs, tree)[path])
        for name, (_, values) in ours.curve.items():
            np.testing.assert_array_equal(values, theirs.curve[name][1])
    statistics = [from_population(chunk.final for chunk in part) for part in chunks]
    for layer, moments in statistics[0].items():
        np.testing.assert_array_equal(moments.products, statistics[1][layer].products)
