"""The installed command: what it makes of its arguments, and a package as a user installs it."""

import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys
import types

import pytest
from absl import flags

from mimetic_jax import InputError
from mimetic_jax.base import extras
from mimetic_jax.command import console, experiment, shipped, usage
from tests.installing import installed

pytestmark = pytest.mark.usefixtures("own_flags")
ROOT = pathlib.Path(__file__).parents[2]


def run(monkeypatch: pytest.MonkeyPatch, *argv: str) -> None:
    monkeypatch.setattr(sys, "argv", ["mimetic", *argv])
    console.main()


def planned(monkeypatch, *argv):
    """The configuration that `mimetic plan` would plan."""
    found = []

    def main(words):
        found.append(experiment._configuration(experiment._CONFIG.value, words[1:]))

    monkeypatch.setattr(experiment, "main", main)
    with pytest.raises(SystemExit):
        run(monkeypatch, "plan", *argv)
    return found[0]


@pytest.mark.parametrize("flag", ["--data-dir", "--data_dir", "--config.data.dir"])
def test_the_data_folder_reaches_the_config(monkeypatch, flag):
    """Of a configuration that comes with the package, by its name."""
    config = planned(monkeypatch, "digits_vit:steps=7", f"{flag}=a-b/c=d", "--config.batch=3")
    assert (config.data.dir, config.batch, config.steps) == ("a-b/c=d", 3, 7)


def test_a_model_is_found_in_the_current_folder(monkeypatch, tmp_path):
    (tmp_path / "mine_alone.py").write_text(
        "import flax.linen as nn\n\n\nclass Net(nn.Module):\n    depth: int = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path])
    assert planned(monkeypatch, "own_model:model=mine_alone:Net").model.depth == 3


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["trian", "digits_vit"], "did you mean 'train'?"),
        (["train"], "mimetic train needs a config: mimetic train digits_vit"),
        (["plan", "images", "--data-dir=gs:/x"], "gs:/x is not on a local disk"),
        (["train", "digits_vit", "--target=h200"], "--target is for compile and plan, not for"),
        (["plan", "digits_vti"], "did you mean 'digits_vit'?"),
        (["configs", "images"], "mimetic configs takes no arguments, but got 'images'"),
        (
            ["rewrite", "a.npz", "b.npz", "--seed=4294967296"],
            "--seed must be an integer in [0, 4294967295]; got 4294967296",
        ),
    ],
)
def test_mistakes_are_one_line(monkeypatch, capsys, argv, words):
    with pytest.raises(SystemExit) as ended:
        run(monkeypatch, *argv)
    said = capsys.readouterr().err
    assert ended.value.code == 2
    assert words in said
    assert said.startswith("error: ")
    assert said.count("\n") == 1


@pytest.mark.parametrize("argv", [[], ["help"], ["--help"]])
def test_help_is_a_screen_with_an_example_of_each_command(monkeypatch, capsys, argv):
    run(monkeypatch, *argv)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    assert max(map(len, lines)) <= 90
    shown = {words[1] for line in lines if (words := line[37:].split())[:1] == ["mimetic"]}
    assert shown == {*experiment.MODES, *console._OTHERS, "configs", "--version"}


def test_help_of_a_command_lists_flags_and_configurations(monkeypatch, capsys):
    for command, absent in (("train", "--what"), ("analyze", "--tensor"), ("fields", "--dist")):
        run(monkeypatch, command, "--help")
        said = capsys.readouterr().out
        assert said.startswith(f"usage: mimetic {command} CONFIG")
        assert absent not in said
    run(monkeypatch, "train", "--help")
    said = capsys.readouterr().out
    for words in ("--workdir", "--config.FIELD=VALUE", "--rates=", "--data-dir=", "(default: "):
        assert words in said


def test_the_help_has_every_flag_of_its_commands():
    declared = {flag.name for flag in flags.FLAGS.get_key_flags_for_module(experiment.__name__)}
    written = " ".join(f"{flag.written} {flag.meaning}" for flag in usage.FLAGS)
    for name in declared - {"config", "mode"}:
        assert f"--{name.replace('_', '-')}" in written, name
    assert {*usage.EXPERIMENTS} == {*experiment.MODES}
    for name, modes in experiment._ONLY_FOR.items():
        (flag,) = [flag for flag in usage.FLAGS if flag.written.startswith(f"--{name}")]
        assert {*flag.commands} == {*modes}


def test_configurations_are_listed(monkeypatch, capsys):
    run(monkeypatch, "configs")
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    named = [line for line in lines if line[2] != " "]
    assert [line.split()[0] for line in named] == shipped.names()
    assert all(len(line.split()) > 3 for line in named)


@pytest.mark.parametrize("name", ["cifar10_vit", "digits_vit", "own_model", "ptb_char"])
def test_arguments_of_a_configuration_are_listed(name):
    said = shipped.explained(shipped.path_of(name)).splitlines()
    assert max(map(len, said)) <= 80
    named = dict(line.strip().split("=", 1) for line in said if re.match(r"  \w+=", line))
    given = ",".join(f"{argument}={value}" for argument, value in named.items())
    assert shipped.load(f"{name}:{given}").to_dict() == shipped.load(name).to_dict()


def test_arguments_are_listed_in_place_of_the_work(monkeypatch, capsys):
    run(monkeypatch, "train", "digits_vit:help")
    title, arguments, arms = capsys.readouterr().out.split("\n\n")
    assert title.startswith("A ViT on scikit-learn's 8×8 digits")
    assert "\n  depth=4\n" in arguments
    assert arms == "Arms are default, norm_matched_mimetic and mimetic.\n"


def test_fields_are_listed_and_of_two_values_the_last_one_counts(monkeypatch, capsys):
    given = ["--config.batch=8", "--config.seeds=1", "--config.seeds=2,3"]
    with pytest.raises(SystemExit):
        run(monkeypatch, "fields", "digits_vit:width=24", *given)
    said = capsys.readouterr().out
    assert re.search(r"^  model.width=24 +D, ", said, re.M)
    assert re.search(r"^  batch=8 +examples per step", said, re.M)
    assert re.search(r"^  seeds=\(2, 3\) ", said, re.M)


@pytest.mark.parametrize(
    ("record", "origin"),
    [
        (None, ""),
        ({"url": "file:///x/m.whl"}, " @ file:///x/m.whl"),
        ({"url": "https://a.org/m", "vcs_info": {"vcs": "git"}}, " @ git+https://a.org/m"),
    ],
)
def test_an_extra_is_added_from_where_the_package_came(monkeypatch, tmp_path, record, origin):
    assert extras.advice("gcs") == f"pip install -e '{ROOT}[gcs]'"
    text = json.dumps(record) if record else None
    installed = types.SimpleNamespace(read_text=lambda name: text)
    monkeypatch.setattr(extras, "__file__", str(tmp_path / "mimetic_jax" / "extras.py"))
    monkeypatch.setattr(importlib.metadata, "distribution", lambda name: installed)
    assert extras.advice("gcs") == f"pip install 'mimetic-jax[gcs]{origin}'"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("redirected", "code"), [("| head -n 1", 0), (">&- 2>&-", 0), (">/dev/full", 1)]
)
def test_an_output_that_is_closed_or_full(redirected, code):
    program = "from mimetic_jax.command.console import main; main()"
    line = f"{sys.executable} -c '{program}' configs {redirected}"
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == code
    assert done.stderr == ("error: [Errno 28] No space left on device\n" if code else "")


def test_a_package_without_configurations_says_so(monkeypatch, tmp_path):
    monkeypatch.setattr(shipped, "_PACKAGE", tmp_path / "mimetic_jax")
    with pytest.raises(InputError, match="has no configurations; pass the path"):
        shipped.path_of("digits_vit")


@pytest.mark.slow
def test_an_installed_package_trains_its_own_configurations(tmp_path):
    """A wheel in an environment of its own, from a directory that has no checkout."""
    programs, work = installed(tmp_path, "--no-deps"), tmp_path / "work"
    # What the package imports is this environment's.
    site = next((tmp_path / "env").glob("lib/*/site-packages"))
    (site / "needs.pth").write_text("\n".join(p for p in sys.path if p.endswith("-packages")))
    work.mkdir()
    flags = ["--config.steps=2", "--config.optimizer.warmup=1", "--config.seeds=(0,)"]
    flags += ["--config.model.depth=1", "--config.model.width=16"]
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [programs / "mimetic", "train", "digits_vit", *flags],
        cwd=work,
        capture_output=True,
        text=True,
        env=given | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "norm_matched" in done.stdout
    assert (work / "runs" / "digits_vit" / "config.json").is_file()
    assert (site / "mimetic_jax" / "shipped" / "configs" / "digits_vit.py").is_file()
