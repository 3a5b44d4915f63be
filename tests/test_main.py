"""The command line as a user runs it."""

import pathlib
import sys

import pytest

from mimetic_jax.command import experiment
from tests.images import class_folders

ROOT = pathlib.Path(__file__).parent.parent
DIGITS = "--config=configs/digits_vit.py"


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
        ([DIGITS, "--config.optimiser.eps=1"], "did you mean 'optimizer'"),
        ([DIGITS, "--mode=trian"], "train|eval|compare|plan|fields|compile|analyze"),
        ([DIGITS, "--mode=compile"], "and --target, such as h200"),
        ([DIGITS, "--mode=plan", "--tensorboard=DIR"], "--tensorboard is for train, not for plan"),
        ([DIGITS, "--mode=plan", "--what=curves"], "--what is for analyze, not for plan"),
        ([DIGITS, "--mode=analyze", "--what=product"], "'product'; did you mean 'products'?"),
        ([], "pass a configuration"),
        (["--config="], "--config is empty; pass a path"),
        (["--config", "--mode=train"], "unknown configuration '--mode=train'"),
        ([DIGITS, "--workdir="], "--workdir is empty; pass a path"),
    ],
)
def test_bad_input_is_one_line(arguments, words, tmp_path, main, capsys):
    with pytest.raises(SystemExit) as ended:
        main(f"--workdir={tmp_path / 'workdir'}", *arguments)
    said = capsys.readouterr()
    assert_refused(ended.value.code, said.out, said.err, words)
    assert not (tmp_path / "workdir").exists()


def test_a_plan_names_broken_images_before_anything_else(tmp_path, main, capsys):
    class_folders(tmp_path / "images", 20, "a", "b")
    broken = next((tmp_path / "images" / "a").iterdir())
    broken.write_bytes(broken.read_bytes()[:40])
    config = "--config=configs/images.py:size=8,patch=4,width=8,depth=1,heads=2,batch=8"
    with pytest.raises(SystemExit) as ended:
        main(config, f"--config.data.dir={tmp_path / 'images'}", "--mode=plan")
    said = capsys.readouterr()
    assert_refused(ended.value.code, said.out, said.err, f"{broken} can't be decoded")


def test_the_advice_for_rules_can_be_typed(main, capsys):
    given = ["--config=configs/own_model.py:model=tests.plugged:FlatAttention", "--mode=plan"]
    with pytest.raises(SystemExit):
        main(*given)
    assert "pass num_heads" in capsys.readouterr().err
    rules = 'attention_rules(query="wq",key="wk",value="wv",out="wo",flat=True)'
    with pytest.raises(SystemExit) as ended:
        main(*given, f"--config.rules={rules}", "--config.num_heads=2")
    assert not ended.value.code
    assert "wo/kernel  out" in capsys.readouterr().out


def test_a_process_ends_with_that_line(alone):
    assert_refused(*alone["main.py"], "there is no config file")
    assert "runs" not in alone["left"]


def assert_refused(code: object, out: str, err: str, words: str) -> None:
    assert code == 2
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert words in err
