"""The core works without the extras, and says which one is missing."""

import pathlib
import re
import subprocess
import sys
import tomllib

import pytest

import mimetic_jax
from mimetic_jax import extras
from mimetic_jax.analysis import style
from mimetic_jax.extras import MissingExtra, need
from tests.installing import installed

ROOT = pathlib.Path(__file__).parent.parent
CORE = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in {missing} else find(name, *more)
sys.modules.update(dict.fromkeys({missing}))  # importing None is an ImportError
import jax, jax.numpy as jnp, flax.linen as nn
import mimetic_jax
from mimetic_jax import check, fit, initializers, linen, nnx, plan, schemes, zoo
layer = nn.MultiHeadDotProductAttention(num_heads=2)
params = layer.init(jax.random.key(0), jnp.ones((1, 4, 16)))["params"]
plan(params, schemes.Mimetic())
params = mimetic_jax.rewrite(jax.random.key(1), params, schemes.Mimetic())
check(params), fit(params)
try:
    from mimetic_jax.train import Comparison
except ImportError as error:
    print(error)
print({name.split(".")[0] for name, module in sys.modules.items() if module} & {heavy}, end="")
"""
HEAVY = {
    *("tensorflow", "tensorflow_datasets", "grain", "orbax", "cv2"),
    *("matplotlib", "sklearn", "PIL"),
}
SAID = r"training needs \w+: pip install .*\[train\].*\nset\(\)"


def core(missing: set[str]) -> str:
    return CORE.replace("{missing}", repr(missing)).replace("{heavy}", repr(HEAVY))


def test_the_core_needs_no_extra():
    """A process in which their modules can't be found, but for those that Flax itself has.

    Nor does it load anything heavy, which could be found.
    """
    flax_has = {"absl", "etils", "optax", "orbax"}
    missing = {*extras.EXTRAS["train"], *extras.EXTRAS["plot"]} - flax_has - HEAVY
    command = [sys.executable, "-c", core(missing)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(SAID, done.stdout), done.stdout


@pytest.mark.slow
def test_the_core_alone_in_a_fresh_environment(tmp_path):
    python = installed(tmp_path) / "python"
    command = [python, "-c", core(set())]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert re.fullmatch(SAID, done.stdout)
    listed = [python, "-m", "pip", "list", "--format=freeze"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.casefold()
    for name in ("opencv", "tensorflow", "grain", "ml_collections", "matplotlib"):
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


def test_types_are_shipped():
    assert (ROOT / "mimetic_jax" / "py.typed").exists()
