"""Real programs for real hardware, where its compilers are installed: minutes each."""

from __future__ import annotations

import importlib.util
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[3]


def command(config, target, *flags):
    plugin = "libtpu" if target.startswith("v") else "jax_cuda12_plugin"
    if importlib.util.find_spec(plugin) is None:
        pytest.skip(f"needs {plugin}")
    given = [f"--config=configs/{config}", "--mode=compile", f"--target={target}", *flags]
    return subprocess.run(
        [sys.executable, "main.py", *given], cwd=ROOT, capture_output=True, text=True
    )


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("config", "target", "flags", "bound"),
    [
        ("cifar10_vit.py", "v5e:2x4", ["--config.model.scan=True"], "memory"),
        ("cifar10_vit.py", "h200", [], "memory"),
        ("imagenet_deit.py:variant=Ti", "v5e:4x4", ["--config.model.scan=True"], "memory"),
        ("swin_cifar.py", "h200", [], "memory"),
        ("mlp_population.py", "h200", [], "memory"),
    ],
)
def test_a_config_compiles(config, target, flags, bound):
    images = [] if "population" in config else ["--config.model.dtype=bfloat16"]
    done = command(config, target, *flags, *images)
    assert done.returncode == 0, done.stderr
    assert re.search(r"training step: at best \S+ ms = \S+ images/s", done.stdout)
    assert re.search(r"evaluation of a batch: at best \S+ ms", done.stdout)
    assert f"bound by {bound}" in done.stdout
    assert "error:" not in done.stdout
    used, room = re.search(r"memory per device: (\S+) of (\S+) GB", done.stdout).groups()
    assert float(used) < float(room)


@pytest.mark.slow
def test_a_mesh_that_does_not_fit_the_topology():
    done = command("digits_vit.py", "v5e:2x4", "--config.mesh.fsdp=3")
    assert done.returncode == 2
    assert "a mesh of data -1 x fsdp 3 x tensor 1 doesn't fit 8 devices" in done.stderr
    assert done.stderr.count("\n") == 1
