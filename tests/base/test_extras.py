"""The core works without the extras, and says which one is missing."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

import mimetic_jax
from mimetic_jax.analysis import style
from mimetic_jax.base import extras
from mimetic_jax.base.extras import MissingExtra, need
from tests.installing import installed

ROOT = pathlib.Path(__file__).parents[2]


def test_the_core_needs_no_extra(alone):
    """It loads none of their modules, and names the one that a part of it needs."""
    assert alone["core"]["loaded"] == []
    for name, said in zip(("linen", "nnx"), alone["core"]["said"], strict=True):
        assert said.startswith(f"mimetic_jax.{name} needs flax: pip install ")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("--help", "mimetic check FILE"),
        ("configs", "imagenet_deit "),
        ("train digits_vit", r"^error: training needs \w+: pip install .*\[train\]'\n$"),
        ("check weights.npz", "(?s)layer .* W_V W_out .*aligned"),
        # Of what only the report needs nothing is trained first.
        ("report", r"^error: training needs jinja2: pip install .*\[train\]'\n$"),
    ],
)
def test_commands_with_the_core_alone(alone, command, words):
    code, out, err = alone[command]
    assert re.search(words, out + err)
    assert code == (2 if "error" in words else 0)
    assert alone["left"] == ["weights.npz"]


@pytest.mark.slow
def test_the_core_alone_in_a_fresh_environment(tmp_path):
    python = installed(tmp_path) / "python"
    command = [python, "-P", ROOT / "tests" / "alone.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["loaded"] == []
    listed = [python, "-m", "pip", "list", "--format=freeze"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.casefold()
    for name in ("opencv", "tensorflow", "grain", "matplotlib", "flax", "orbax", "optax"):
        assert name not in names


def test_extras_are_those_of_the_package():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(extras.EXTRAS) <= set(project["optional-dependencies"])


def test_a_missing_module_is_one_line(monkeypatch):
    monkeypatch.setitem(extras.EXTRAS, "plot", ("no_such_module",))
    expected = f"^drawing needs no_such_module: {re.escape(extras.advice('plot'))}$"
    with pytest.raises(MissingExtra, match=expected):
        need("drawing", "plot")
    with pytest.raises(mimetic_jax.InputError, match=expected), style.canvas(1, 1):
        pass


def test_a_file_in_the_current_folder_is_no_extra(monkeypatch, tmp_path):
    """`mimetic` has the folder on its path, for a user's models."""
    (tmp_path / "no_such_module.py").write_text("raise AssertionError")
    monkeypatch.setitem(extras.EXTRAS, "plot", ("no_such_module",))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*filter(None, sys.path), ""])
    assert importlib.util.find_spec("no_such_module")
    with pytest.raises(MissingExtra, match="drawing needs no_such_module"):
        need("drawing", "plot")
