"""The command line as a user runs it."""

import pathlib
import re
import subprocess
import sys

import pytest

from mimetic_jax.command import experiment

ROOT = pathlib.Path(__file__).parent.parent


@pytest.fixture
def main(monkeypatch, own_flags):
    """The command in this process."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)

    def call(*arguments: str) -> None:
        monkeypatch.setattr(sys, "argv", ["main.py", *arguments])
        experiment.run()

    return call


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--config=configs/digits_vit.py", "--config.optimiser.eps=1"],
            "did you mean 'optimizer'",
        ),
        (["--config=configs/digits_vit.py:patch=3"], "patch 3 does not divide"),
        (
            ["--config=configs/digits_vit.py", "--mode=trian"],
            "train|eval|compare|plan|fields|compile|analyze",
        ),
        (["--config=configs/digits_vit.py", "--mode=compile"], "and --target, such as h200"),
        (
            ["--config=configs/digits_vit.py", "--mode=plan", "--tensorboard=DIR"],
            "--tensorboard is for train, not for plan",
        ),
        (
            ["--config=configs/digits_vit.py", "--mode=analyze", "--what=product"],
            "unknown analysis 'product': choose one of attention, curves, products; did you mean "
            "'products'?",
        ),
        ([], "give a config"),
        (["--config="], "--config is empty: give a path"),
        (["--config", "--mode=train"], "unknown config '--mode=train'"),
        (["--config=nowhere.py"], "there is no config file 'nowhere.py'"),
        (["--config=configs/digits_vit.py", "--workdir="], "--workdir is empty: give a path"),
    ],
)
def test_bad_input_is_one_line(arguments, words, tmp_path, main, capsys):
    with pytest.raises(SystemExit) as ended:
        main(f"--workdir={tmp_path / 'workdir'}", *arguments)
    said = capsys.readouterr()
    assert_refused(ended.value.code, said.out, said.err, words)
    assert not (tmp_path / "workdir").exists()


def test_the_advice_for_rules_can_be_typed(main, capsys):
    given = ["--config=configs/own_model.py:model=tests.plugged:FlatAttention", "--mode=plan"]
    with pytest.raises(SystemExit):
        main(*given)
    said = capsys.readouterr().err.partition("; if it is no attention")[0]
    rules = re.search(r"rules=.*\)(?=, num_heads=…)", said)[0]
    with pytest.raises(SystemExit) as ended:
        main(*given, f"--config.{rules}", "--config.num_heads=2")
    assert not ended.value.code
    assert "wo/kernel  out" in capsys.readouterr().out


def test_a_process_ends_with_that_line(tmp_path):
    flags = f"--workdir={tmp_path / 'workdir'}", "--config=configs/nothing.py"
    command = [sys.executable, "main.py", *flags]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert_refused(done.returncode, done.stdout, done.stderr, "there is no config file")
    assert not (tmp_path / "workdir").exists()


def assert_refused(code: object, out: str, err: str, words: str) -> None:
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert words in err


def test_a_config_plans(main, capsys):
    config = "configs/cifar10_vit.py:width=24,depth=1,patch=8,init=positive"
    with pytest.raises(SystemExit) as ended:
        main(f"--config={config}", "--mode=plan")
    assert not ended.value.code
    assert "FLOPs per step" in capsys.readouterr().out
