"""Targets by name, and what is said of a step that is compiled for one."""

import importlib.util
import pathlib
import re
import subprocess
import sys

import jax
import pytest

from mimetic_jax import InputError
from mimetic_jax.analysis import compile as compiling
from mimetic_jax.base.chips import CHIPS, Target, peak_flops
from mimetic_jax.train.comparison import Comparison
from tests.analysis.networks import small

ROOT = pathlib.Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("v5f:4x4", "unknown target 'v5f'; did you"),
        ("l4:8", "unknown target 'l4'. Choose one of a100, h100, h200, v5e, v5p, v6e"),
        ("v5e", "TPU v5e is a torus of 2 axes: write --target=v5e:4x4 for 16 chips"),
        ("v5e:8", "write --target=v5e:2x4 for 8 chips"),
        ("h200:12", "12 GPUs is not a multiple of 8"),
    ],
)
def test_bad_names(name, words):
    with pytest.raises(InputError, match=words):
        compiling.devices(Target.of(name))


@pytest.mark.parametrize(("name", "module"), [("v5e:2x2", "libtpu"), ("h200", "jax_cuda12_plugin")])
def test_a_missing_compiler_is_named(name, module, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=rf"needs {module}: pip install .*\[(gpu|tpu)\]'$"):
        compiling.devices(Target.of(name))


@pytest.mark.parametrize(("memory", "verdict"), [(16e9, "fits"), (1e5, "does not fit; try a sm")])
def test_a_step_fits_or_not(memory, verdict, monkeypatch):
    """Compiled for the CPU: two arms of one program are one step, with all of AdamW's state."""
    monkeypatch.setitem(CHIPS, "v5e", CHIPS["v5e"]._replace(memory=memory))
    config = small(width=16, depth=1)
    config.arms = {"default": {}, "other": {}}
    comparison = Comparison(config, lambda line: None, devices=jax.devices()[:1])
    title, text = compiling.describe(comparison, Target.of("v5e:1x1"))
    assert title.endswith("for 1 v5e (data 1, fsdp 1, tensor 1)")
    assert text.startswith(f"  {verdict}")
    needed, held = re.search(r"needs (\S+) of \S+ GB per device, (\S+) of it state", text).groups()
    shapes = comparison.arms["default"].program.shapes
    state = sum(leaf.size * leaf.dtype.itemsize for leaf in jax.tree.leaves(shapes))
    images = 1797 * 64  # fewer of them train
    assert state < 1e9 * float(held) < state + images
    assert float(held) < float(needed)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("target", ["v5e:2x4", "h200"])
def test_a_config_compiles_where_the_compiler_is_installed(target):
    plugin = "libtpu" if target.startswith("v") else "jax_cuda12_plugin"
    if importlib.util.find_spec(plugin) is None:
        pytest.skip(f"needs {plugin}")
    flags = ["--config=configs/digits_vit.py", "--mode=compile", f"--target={target}"]
    done = subprocess.run(
        [sys.executable, "main.py", *flags], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "  fits: a training step needs" in done.stdout


PEAKS = {
    **{"NVIDIA H200": 989e12, "NVIDIA H100 80GB HBM3": 989e12, "NVIDIA H100 PCIe": 756e12},
    **{"NVIDIA A100-SXM4-40GB": 312e12, "NVIDIA A100-SXM4-40GB MIG 1g.5gb": None},
    **{"NVIDIA L40S": 362e12, "NVIDIA L4": 121e12, "NVIDIA RTX A1000": None},
    **{"Tesla V100-SXM2-16GB": 125e12, "TPU v5 lite": 197e12, "TPU v5": 459e12},
    "TPU v4": 275e12,
    **{"TPU v6 lite": 918e12, "cpu": None},
}


def test_peak_of_a_device_kind():
    assert {kind: peak_flops(kind) for kind in PEAKS} == PEAKS
