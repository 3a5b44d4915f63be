"""Processes are killed at random moments, again and again: no step is lost or recorded twice."""

from __future__ import annotations

import json
import os
import pathlib
import random
import signal
import subprocess
import sys
import time

import jax
import numpy as np
import pytest

from mimetic_jax.train.compare import Comparison
from mimetic_jax.train.loop import Run

ROOT = pathlib.Path(__file__).parent.parent
KILLS, SECONDS = 50, 4.0
CONFIG = """
from mimetic_jax.schemes import Mimetic, SinCos
from configs.default import default


def get_config(text=""):
    config = default()
    config.name = "tiny"
    config.batch, config.steps, config.max_dispatch = 32, 2400, 3
    config.model.update(width=16, depth=1, heads=2, dropout=0.1)
    config.data.augment.crop = 1
    config.eval.batch, config.eval.every = 360, 36
    config.log_every, config.checkpoint_every = 6, 24
    config.scheme = (SinCos(), Mimetic())
    return config
"""


def final(workdir, namespace):
    config = namespace["get_config"]()
    return Comparison(config, say=lambda line: None).restored(Run.of(workdir, "run", 0))


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_fifty_kills(tmp_path):
    seed = int(os.environ.get("MIMETIC_CAMPAIGN_SEED", "0"))
    chance = random.Random(seed)
    config = tmp_path / "tiny.py"
    config.write_text(CONFIG)
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONUNBUFFERED": "1",
    }

    def start(workdir):
        command = [sys.executable, "main.py", f"--config={config}", f"--workdir={workdir}"]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=ROOT, env=environment, **pipes)

    whole = start(tmp_path / "whole")
    said, _ = whole.communicate()
    assert whole.returncode == 0, said
    table, workdirs = [], []  # signal, exit code, last step that is recorded
    while len(table) < KILLS:
        workdirs.append(tmp_path / f"killed_{len(workdirs)}")
        code = None
        while code != 0:
            process = start(workdirs[-1])
            said = ""
            while "starts" not in said and "finished before" not in said:
                line = process.stdout.readline()
                assert line, said
                said += line
            time.sleep(chance.uniform(0, SECONDS))
            number = chance.choice([signal.SIGKILL, signal.SIGTERM])
            process.send_signal(number)
            rest, _ = process.communicate()
            code = process.returncode
            # A process that had finished, or got SIGTERM too late, exits with 0.
            assert code in (0, 75, -signal.SIGTERM, -signal.SIGKILL), said + rest
            lines = Run.of(workdirs[-1], "run", 0).metrics.read()
            table.append((number.name, code, lines[-1]["step"] if lines else 0))
    print(f"campaign of seed {seed}: {len(table)} signals in {len(workdirs)} runs")
    print(json.dumps(table))

    namespace = {}
    exec(CONFIG, namespace)
    expected = final(tmp_path / "whole", namespace)
    records = Run.of(tmp_path / "whole", "run", 0).metrics.read()
    clocks = ("seconds", "examples_per_second", "input_bound")
    for workdir in workdirs:
        found = final(workdir, namespace)
        jax.tree.map(np.testing.assert_array_equal, found, expected)
        again = Run.of(workdir, "run", 0).metrics.read()
        for one, other in zip(again, records, strict=True):
            assert {**one, **dict.fromkeys(clocks)} == {**other, **dict.fromkeys(clocks)}
