"""A step's temporary arrays stay with the process; beside an accelerator nothing is changed."""

import importlib.metadata
import platform
import subprocess
import sys

import jax
import pytest

from mimetic_jax.host import memory

_CALLS = """
import resource
import jax, jax.numpy as jnp
from mimetic_jax.host.memory import keep_freed_memory

# A matrix of 36 MiB, which a product of matrices reads from memory. It is freed while the next call
# begins: some calls pass until the process has as much as it ever needs.
step = jax.jit(lambda x: abs(x[:, None] - x[None, :]) @ abs(x[:, None] - x[None, :16]))
x = jnp.arange(3072.0)
for prepare in (lambda: None, keep_freed_memory):
    prepare()
    for _ in range(30):
        step(x).block_until_ready()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        step(x).block_until_ready()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator than glibc's")
def test_pages_of_a_step_are_faulted_in_once():
    """Ten calls take 10 x 36 MiB, in pages of 4 KiB, or of 2 MiB where the system gives those."""
    command = [sys.executable, "-c", _CALLS]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    returned, kept = map(int, said.split())
    assert returned >= 10 * 18
    assert kept <= returned / 5


@pytest.mark.parametrize(
    ("chosen", "plugins", "expected"),
    [("cpu", ["xla_cuda12"], True), ("cuda,cpu", [], False), ("", ["xla_cuda12"], False)],
)
def test_an_accelerator_is_known_without_starting_one(monkeypatch, chosen, plugins, expected):
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: plugins)
    before = jax.config.jax_platforms
    jax.config.update("jax_platforms", chosen)
    try:
        assert memory._computes_on_cpu() is expected
    finally:
        jax.config.update("jax_platforms", before)
