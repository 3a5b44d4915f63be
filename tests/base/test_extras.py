"""The core works without the extras, and says which one is missing."""

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
WITHOUT = """
import importlib.util, sys
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *more: None if name in {missing} else find(name, *more)
sys.modules.update(dict.fromkeys({missing}))  # importing None is an ImportError
"""
CORE = f"""{WITHOUT}
import jax, jax.numpy as jnp, flax.linen as nn
import mimetic_jax
from mimetic_jax import check, fit, initializers, linen, nnx, plan, schemes, zoo
layer = nn.MultiHeadDotProductAttention(num_heads=2)
params = layer.init(jax.random.key(0), jnp.ones((1, 4, 16)))["params"]
plan(params, schemes.Mimetic())
params = mimetic_jax.rewrite(jax.random.key(1), params, schemes.Mimetic())
check(params), fit(params)
print({{n.split(".")[0] for n, module in sys.modules.items() if module}} & {{heavy}}, end="")
"""
COMMAND = f"""{WITHOUT}
from mimetic_jax.command.console import main
sys.argv = ["mimetic", *sys.argv[1:]]
main()
"""
FLAX_HAS = {"absl", "etils", "optax", "orbax"}
HEAVY = {
    *("tensorflow", "tensorflow_datasets", "grain", "orbax", "cv2"),
    *("matplotlib", "sklearn", "PIL"),
}


def core(missing: set[str], program: str = CORE) -> str:
    return program.replace("{missing}", repr(missing)).replace("{heavy}", repr(HEAVY))


def test_the_core_needs_no_extra():
    """A process in which their modules can't be found, but for those that Flax itself has.

    Nor does it load anything heavy, which could be found.
    """
    missing = {*extras.EXTRAS["train"], *extras.EXTRAS["plot"]} - FLAX_HAS - HEAVY
    command = [sys.executable, "-c", core(missing)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "set()"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--help"], "  imagenet_deit "),
        (["fields", "cifar10_vit"], "^cifar10_vit_192_12_3_p2 sets"),
        (["plan", "digits_vit"], r"3 arms x 3 seeds \(0, 1, 2\)"),
        (["train", "digits_vit"], r"^error: training needs \w+: pip install .*\[train\]'\n$"),
        (["trian", "digits_vit"], "did you mean 'train'"),
    ],
)
def test_commands_with_the_core_alone(argv, words, tmp_path):
    missing = {*extras.EXTRAS["train"], *extras.EXTRAS["plot"]} - FLAX_HAS
    command = [sys.executable, "-c", core(missing, COMMAND), *argv, f"--workdir={tmp_path}/runs"]
    done = subprocess.run(
        command[: None if len(argv) > 1 else -1], capture_output=True, text=True, cwd=ROOT
    )
    assert re.search(words, done.stdout + done.stderr)
    assert done.returncode == (2 if "did you" in words or "error" in words else 0)
    assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_the_core_alone_in_a_fresh_environment(tmp_path):
    python = installed(tmp_path) / "python"
    command = [python, "-c", core(set())]
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "set()"
    listed = [python, "-m", "pip", "list", "--format=freeze"]
    names = subprocess.run(listed, capture_output=True, text=True, check=True).stdout.casefold()
    for name in ("opencv", "tensorflow", "grain", "matplotlib"):
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
