"""The command line as a user runs it."""

from __future__ import annotations

import json
import os
import pathlib
import signal
import subprocess
import sys
import time
from collections.abc import Mapping

import jax
import numpy as np
import pytest
from ml_collections import ConfigDict

from mimetic_jax.command import experiment
from mimetic_jax.train.comparison import Comparison
from mimetic_jax.train.store.runs import Run

ROOT = pathlib.Path(__file__).parent.parent
CONFIG = """
from mimetic_jax.schemes import Mimetic, SinCos
from configs.default import default


def get_config(text=""):
    config = default()
    config.name = "tiny"
    config.batch, config.steps, config.max_dispatch = 32, 400, 2
    config.model.width, config.model.depth, config.model.heads = 16, 1, 2
    config.eval.batch, config.eval.every = 360, 40
    config.log_every, config.checkpoint_every = 4, 20
    config.scheme = (SinCos(), Mimetic())
    return config
"""


def command(*arguments: str) -> list[str]:
    return [sys.executable, "main.py", *arguments]


def run(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command(*arguments), cwd=ROOT, capture_output=True, text=True, env=env)


@pytest.fixture
def config_file(tmp_path: pathlib.Path) -> pathlib.Path:
    path = tmp_path / "tiny.py"
    path.write_text(CONFIG)
    return path


@pytest.mark.usefixtures("own_flags")
@pytest.mark.filterwarnings("ignore:the load_module:DeprecationWarning")  # config_flags's
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--config=configs/digits_vit.py", "--config.optimiser.eps=1"],
            "did you mean 'optimizer'",
        ),
        (
            ["--config=configs/digits_vit.py", "--config.model.widht=1"],
            "did you mean 'model.width'",
        ),
        (["--config=configs/digits_vit.py:patch=3"], "patch 3 does not divide the image 8x8"),
        (
            ["--config=configs/digits_vit.py:heads=5"],
            "heads 5 does not divide width 64",
        ),
        (
            ["--config=configs/digits_vit.py", "--config.optimizer.learning_rate=-1"],
            "learning_rate -1.0 is not a finite number of at least 0",
        ),
        (["--config=configs/cifar10_vit.py:init=mimetik"], "did you mean 'mimetic'"),
        (
            ["--config=configs/cifar10_vit.py:width=24,depth=1", "--config.data.dir=/nowhere"],
            "no cifar10 in /nowhere",
        ),
        (["--config=configs/nothing.py"], "there is no config file 'configs/nothing.py'"),
        (
            ["--config=configs/digits_vit.py", "--mode=trian"],
            "train|eval|compare|plan|fields|compile|analyze",
        ),
        (["--config=configs/digits_vit.py", "--mode=compile"], "and --target, such as h200"),
        (
            ["--config=configs/digits_vit.py", "--mode=compile", "--target=h20"],
            "did you mean 'h200'",
        ),
        (
            ["--config=configs/digits_vit.py", "--mode=analyze", "--what=fits"],
            "unknown analysis 'fits': choose one of attention, covariance, curves, filters, fit, "
            "health, products, rank, schemes, span; did you mean 'fit'?",
        ),
        ([], "give a config"),
        (["--config=", "--config.batch=64"], "--config is empty: give a config file"),
        (["--config=configs/digits_vit.py", "--workdir="], "--workdir is empty: give a path"),
        (
            ["--config=configs/cifar10_vit.py:width=24,depth=1", "--config.data.dir="],
            "data.dir is empty",
        ),
        (
            ["--config=configs/digits_vit.py", "--config.seeds=(0,4294967296)"],
            "seeds[1] 4294967296 is not an integer of at least 0 and at most 4,294,967,295",
        ),
        (
            ["--config=configs/digits_vit.py", "--config.stall_seconds=nan"],
            "stall_seconds nan is not a finite number",
        ),
    ],
)
def test_bad_input_is_one_line(
    arguments: list[str],
    words: str,
    tmp_path: pathlib.Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "argv", ["main.py", f"--workdir={tmp_path / 'workdir'}", *arguments])
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    with pytest.raises(SystemExit) as ended:
        experiment.run()
    said = capsys.readouterr()
    assert_refused(ended.value.code, said.out, said.err, words)
    assert not (tmp_path / "workdir").exists()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--config=configs/digits_vit.py", "--config.model.widht=1"], "'model.width'"),  # a flag
        (["--config=configs/digits_vit.py:patch=3"], "patch 3 does not divide"),  # a check
    ],
)
def test_a_process_ends_with_that_line(
    arguments: list[str], words: str, tmp_path: pathlib.Path
) -> None:
    done = run(f"--workdir={tmp_path / 'workdir'}", *arguments)
    assert_refused(done.returncode, done.stdout, done.stderr, words)
    assert not (tmp_path / "workdir").exists()


def assert_refused(code: object, out: str, err: str, words: str) -> None:
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert words in err


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JAX_ENABLE_X64", "True"),
        pytest.param("JAX_DEFAULT_PRNG_IMPL", "rbg", marks=pytest.mark.slow),
        pytest.param("JAX_THREEFRY_PARTITIONABLE", "False", marks=pytest.mark.slow),
    ],
)
def test_an_environment_that_changes_numbers_is_one_line(
    name: str, value: str, tmp_path: pathlib.Path
) -> None:
    done = subprocess.run(
        command("--config=configs/digits_vit.py", f"--workdir={tmp_path / 'workdir'}"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {name: value},
    )
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {name} is {value}, which changes every run's numbers")
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "workdir").exists()


def test_batch_must_divide_over_devices() -> None:
    flags = "--xla_force_host_platform_device_count=3"
    done = subprocess.run(
        command("--config=configs/digits_vit.py"),
        cwd=ROOT,
        capture_output=True,
        text=True,
        env=os.environ | {"XLA_FLAGS": flags},
    )
    assert "batch 128 is not divisible by accumulate 1 x 3 devices" in done.stderr


@pytest.mark.parametrize(
    "config",
    [
        pytest.param("digits_vit.py", marks=pytest.mark.slow),
        pytest.param("cifar10_vit.py", marks=pytest.mark.slow),
        "cifar10_vit.py:width=96,depth=2,patch=8,init=positive",
        pytest.param("cifar100_vit.py", marks=pytest.mark.slow),
    ],
)
def test_every_config_plans(config: str) -> None:
    done = run(f"--config=configs/{config}", "--mode=plan")
    assert done.returncode == 0, done.stderr
    assert "FLOPs per step" in done.stdout


@pytest.mark.slow
def test_kill_and_the_same_command_again(config_file: pathlib.Path, tmp_path: pathlib.Path) -> None:
    """SIGTERM, then kill -9; then parameters equal, bit for bit, those of a run left alone."""
    compiled_fast = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path / "compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "1",
    }
    env = os.environ | compiled_fast
    flags = [f"--config={config_file}", f"--workdir={tmp_path / 'killed'}"]
    folder = tmp_path / "killed" / "runs" / "run" / "0" / "checkpoints"

    def stopped(number: signal.Signals) -> tuple[int, str]:
        """Exit code and output of a process that is sent the signal once there is a checkpoint."""
        process = subprocess.Popen(
            command(*flags), cwd=ROOT, stdout=subprocess.PIPE, text=True, env=env
        )
        assert process.stdout is not None
        said = ""
        while " images/s" not in said:  # it trains, and hears
            line = process.stdout.readline()
            assert line, "ended before it could be stopped"
            said += line
        deadline = time.monotonic() + 100
        while not any(path.name.isdigit() for path in folder.glob("*")):
            assert time.monotonic() < deadline, "no checkpoint in 100 s"
            time.sleep(0.02)
        process.send_signal(number)
        rest, _ = process.communicate()
        return process.returncode, said + rest

    code, said = stopped(signal.SIGTERM)
    assert code == 75, said
    assert "which is saved: the same command continues" in said
    code, said = stopped(signal.SIGKILL)
    assert code == -signal.SIGKILL
    assert "continues at step" in said
    assert not Run.of(tmp_path / "killed", "run", 0).finished()
    again = run(*flags, env=env)
    assert again.returncode == 0, again.stderr
    assert "continues at step" in again.stdout
    whole = run(flags[0], f"--workdir={tmp_path / 'whole'}", env=env)
    assert whole.returncode == 0, whole.stderr
    namespace: dict[str, object] = {}
    exec(CONFIG, namespace)
    config = namespace["get_config"]()  # type: ignore[operator]
    assert isinstance(config, ConfigDict)
    comparison = Comparison(config, say=lambda line: None)
    killed, left_alone = (
        comparison.restored(Run.of(tmp_path / name, "run", 0)) for name in ("killed", "whole")
    )
    assert killed is not None
    assert left_alone is not None
    for a, b in zip(*(_leaves(state) for state in (killed, left_alone)), strict=True):
        np.testing.assert_array_equal(a, b)
    steps = [record["step"] for record in Run.of(tmp_path / "killed", "run", 0).evaluations()]
    assert steps == list(range(0, 401, 40))
    summary = json.loads((tmp_path / "killed" / "summary.json").read_text())
    assert summary[0]["n"] == 1


def _leaves(state: object) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
