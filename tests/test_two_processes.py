"""Two processes of four virtual devices each, over loopback, as `launch/local.sh` starts them."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest

from mimetic_jax.train.loop import Run

ROOT = pathlib.Path(__file__).parent.parent
CONFIG = """
from mimetic_jax.train.config import {default}
from mimetic_jax.schemes import Mimetic, SinCos, mimetic_language

def get_config():
    config = {default}()
    config.name, config.batch, config.steps, config.max_dispatch = "small", 64, 6, 3
    config.model.update(width=32, depth=1, heads=2)
    config.optimizer.update(clip=1.0, warmup=2)
    config.eval.batch, config.log_every, config.checkpoint_every = 72, 1, 3
    config.mesh.fsdp = FSDP
{more}
    return config
"""
IMAGES = "    config.scheme = (SinCos(), Mimetic())"
TEXT = """    config.scheme = (mimetic_language(),)
    config.data.update(name="ptb_word", length=12, valid=8)"""


def losses(workdir):
    records = Run.of(workdir, "run", 0).metrics.read()
    steps = [record["loss"] for record in records if "loss" in record]
    return np.array(steps), records[-1]["eval_loss"]


def run(command, devices):
    flags = f"--xla_force_host_platform_device_count={devices}"
    environment = os.environ | {"XLA_FLAGS": flags, "PYTHON": sys.executable}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["images", "text"])
def test_two_processes_train_as_one(tmp_path, kind):
    default, more = ("default", IMAGES) if kind == "images" else ("default_text", TEXT)
    random = np.random.default_rng(0)
    for split, lines in (("train", 400), ("valid", 30), ("test", 30)):
        words = random.integers(0, 30, (lines, 9)).astype(str)
        text = "".join(f" {' '.join(line)} \n" for line in words)
        (tmp_path / f"ptb.{split}.txt").write_text(text)
    flags = [f"--config.data.dir={tmp_path}"] if kind == "text" else []
    found = {}
    for processes, devices, fsdp in ((1, 1, 1), (1, 8, 2), (2, 4, 2)):
        config = tmp_path / f"config_{fsdp}.py"
        config.write_text(CONFIG.format(default=default, more=more).replace("FSDP", str(fsdp)))
        workdir = tmp_path / f"{processes}x{devices}"
        command = [f"--config={config}", f"--workdir={workdir}", *flags]
        if processes == 1:
            run([sys.executable, "main.py", *command], devices)
        else:
            local = ["bash", "launch/local.sh", str(processes), f"--devices={devices}"]
            run([*local, f"--logs={tmp_path / 'logs'}", "--", *command], devices)
        found[processes, devices] = losses(workdir)
    steps, tested = found[1, 1]
    assert len(steps) == 6
    for other, other_tested in found.values():
        np.testing.assert_allclose(other, steps, rtol=1e-5)
        assert other_tested == pytest.approx(tested, rel=1e-5)
    # What two processes wrote, one reads: its newest checkpoint gives the same test.
    command = [f"--config={tmp_path / 'config_2.py'}", f"--workdir={tmp_path / '2x4'}", *flags]
    said = run([sys.executable, "main.py", *command, "--mode=eval"], 8)
    shown = f"{tested:.4f}" if kind == "images" else f"{np.exp(tested):.3f}"
    assert shown in said
