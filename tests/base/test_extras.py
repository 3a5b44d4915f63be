"""The core works without the extras, and says which one is missing."""

import os
import pathlib
import re
import subprocess
import sys
import tomllib

import jax
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import initializers
from mimetic_jax.analysis import style
from mimetic_jax.base import extras
from mimetic_jax.base.extras import MissingExtra, need
from mimetic_jax.schemes import Mimetic
from tests.installing import installed

ROOT = pathlib.Path(__file__).parents[2]
WITHOUT = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in {missing} else find(name, *more)
sys.modules.update(dict.fromkeys({missing}))  # importing None is an ImportError
"""
CORE = f"""{WITHOUT}
import jax
import mimetic_jax
from mimetic_jax import check, draw, fit, initializers, plan, rewrite, schemes, torch, zoo
scheme, key = schemes.Mimetic(), jax.random.key(0)
params = {{"attention": initializers.attention(scheme)(key, dim=16, num_heads=2)}}
plan(params, scheme), draw(key, jax.eval_shape(lambda: params), scheme)
params = rewrite(key, params, scheme)
check(params), fit(params)
for name in ("linen", "nnx"):
    try:
        getattr(mimetic_jax, name)
    except mimetic_jax.InputError as error:
        assert f"mimetic_jax.{{name}} needs flax: pip install " in str(error), error
    else:
        raise AssertionError(name)
print({{n.split(".")[0] for n, module in sys.modules.items() if module}} & {{heavy}}, end="")
"""
COMMAND = f"""{WITHOUT}
from mimetic_jax.command.console import main
sys.argv = ["mimetic", *sys.argv[1:]]
main()
"""
HEAVY = {
    *("tensorflow", "tensorflow_datasets", "grain", "orbax", "cv2"),
    *("matplotlib", "sklearn", "PIL", "flax", "optax"),
}


def core(missing: set[str], program: str = CORE) -> str:
    return program.replace("{missing}", repr(missing)).replace("{heavy}", repr(HEAVY))


def test_the_core_needs_no_extra():
    """A process in which their modules can't be found."""
    missing = set(extras.EXTRAS["train"])
    command = [sys.executable, "-c", core(missing)]
    fast = os.environ | {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}  # to compile is most of its time
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=fast)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "set()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--help"], "mimetic check FILE"),
        (["configs"], "imagenet_deit "),
        (["train", "digits_vit"], r"^error: training needs \w+: pip install .*\[train\]'\n$"),
        (["check", "weights.npz"], "(?s)layer .* W_V W_out .*aligned"),
    ],
)
def test_commands_with_the_core_alone(argv, words, tmp_path):
    layer = initializers.attention(Mimetic())(jax.random.key(0), dim=16, num_heads=2)
    names = {f"{role}/kernel": layer[role]["kernel"] for role in layer}
    np.savez(tmp_path / "weights.npz", **names)
    command = [sys.executable, "-c", core(set(extras.EXTRAS["train"]), COMMAND), *argv]
    path = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=path)
    assert re.search(words, done.stdout + done.stderr)
    assert done.returncode == (2 if "error" in words else 0)
    assert [path.name for path in tmp_path.iterdir()] == ["weights.npz"]


def test_what_the_report_needs_is_checked_before_the_training(tmp_path):
    argv = ["train", "digits_vit", f"--workdir={tmp_path}/runs"]
    command = [sys.executable, "-c", core({"jinja2"}, COMMAND), *argv]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert re.fullmatch(r"error: training needs jinja2: pip install .*\[train\]'\n", done.stderr)
    assert (done.returncode, list(tmp_path.iterdir())) == (2, [])


@pytest.mark.slow
def test_the_core_alone_in_a_fresh_environment(tmp_path):
    python = installed(tmp_path) / "python"
    command = [python, "-c", core(set())]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "set()"
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
