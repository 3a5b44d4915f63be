"""Processes get signals at random moments, again and again: nothing is lost or recorded twice."""

import contextlib
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

from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.runs import Run
from tests.images import class_folders
from tests.processes import small
from tests.words import penn_treebank

ROOT = pathlib.Path(__file__).parent.parent
SIGNALS = 10  # of each kind of run and mix of signals
MIXES = {
    "kill": [(signal.SIGKILL,)],
    "every": [
        (signal.SIGINT,),
        (signal.SIGINT, signal.SIGINT),
        (signal.SIGTERM,),
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGHUP,),
        (signal.SIGSTOP, signal.SIGCONT),
        (signal.SIGSTOP, signal.SIGTERM, signal.SIGCONT),
        (signal.SIGTERM, signal.SIGKILL),
    ],
}
FIELDS = {
    **{"batch": 32, "steps": 2400, "eval.batch": 360, "eval.every": 36, "log_every": 6},
    **{"checkpoint_every": 24, "model.dropout": 0.1},
}
KINDS = {
    "images": {},
    "text": {"data.name": "text_char"},
    "streamed": {"data.name": "folder_streamed", "batch": 8, "steps": 240, "eval.batch": 10},
    "together": {"together": 2, "seeds": (0, 1), "steps": 1200},
}


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """What a kind of run reads, if it isn't digits."""
    folder = tmp_path_factory.mktemp("data")
    text = penn_treebank(folder) / "ptb.train.txt"
    return {"text": text, "streamed": class_folders(folder / "images", 30, side=40)}


def campaign(tmp_path, signals, command):
    """Folders of one undisturbed process, then of those that got signals until they ended."""
    chance = random.Random(int(os.environ.get("MIMETIC_CAMPAIGN_SEED", "0")))
    environment = os.environ | {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "PYTHONPATH": str(ROOT),
        "PYTHONUNBUFFERED": "1",
    }

    def start(folder):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        arguments = [sys.executable, *command(folder)]
        process = subprocess.Popen(arguments, cwd=ROOT, env=environment, **pipes)
        return process, process.stdout.readline()

    for name in ("compiles", "whole"):
        process, said = start(tmp_path / name)
        began = time.monotonic()
        said += process.communicate()[0]
        seconds = time.monotonic() - began
        assert process.returncode == 0, said
    sent, folders = [], []
    while len(sent) < SIGNALS:
        folders.append(tmp_path / f"stopped_{len(folders)}")
        code = None
        while code != 0:
            process, said = start(folders[-1])
            with contextlib.suppress(subprocess.TimeoutExpired):
                # Reads meanwhile: a process whose pipe is full stands still.
                process.communicate(timeout=chance.uniform(0, seconds))
            numbers = chance.choice(signals)
            for number in numbers:
                process.send_signal(number)
                time.sleep(chance.uniform(0, 0.1))
            said += process.communicate()[0]
            code = process.returncode
            # One that had finished exits with 0, one that doesn't listen yet or anymore otherwise.
            assert code in (0, 75, 130, *(-number for number in numbers)), said
            sent.append((" ".join(number.name for number in numbers), code))
    print(f"{len(sent)} signals in {len(folders)} folders: {json.dumps(sent)}")
    return tmp_path / "whole", folders


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("mix", MIXES)
@pytest.mark.parametrize("kind", KINDS)
def test_runs(kind, mix, tmp_path, data):
    fields = FIELDS | KINDS[kind]
    if kind in data:
        fields["data.dir"] = str(data[kind])
    flags = [f"--config.{name}={value}" for name, value in fields.items()]
    flags.append(f"--config=tests/processes/small.py:kind={kind},fsdp=1")
    whole, stopped = campaign(
        tmp_path, MIXES[mix], lambda folder: ["main.py", *flags, f"--workdir={folder}"]
    )
    config = small.get_config(kind, fsdp=1)
    config.update_from_flattened_dict(fields)
    comparison = Comparison(config, say=lambda line: None)

    def final(run):
        clocks = dict.fromkeys(("seconds", "examples_per_second"))
        lines = [{**line, **clocks} for line in run.metrics.read()]
        lines[-1] = lines[-1] | {"record": lines[-1]["record"] | {"seconds": None}}
        return comparison.restored(run), lines

    for seed in config.seeds:
        state, lines = final(Run.of(whole, "run", seed))
        for workdir in stopped:
            run = Run.of(workdir, "run", seed)
            again, found = final(run)
            jax.tree.map(np.testing.assert_array_equal, again, state)
            assert found == lines
            assert len([*run.checkpoints.iterdir()]) <= config.keep_checkpoints
    tables = [str(comparison.table(workdir)).splitlines() for workdir in (whole, *stopped)]
    assert all("train s" in lines[0] for lines in tables)
    # The last column is the time, which is measured.
    assert len({tuple(line[: line.rindex(" | ")] for line in lines) for lines in tables}) == 1
