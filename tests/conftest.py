"""Fixtures. No environment variable stays set but the folder of prepared data, which isn't the
user's: the library must work in a clean environment."""

import contextlib
import gc
import json
import os
import pathlib
import resource
import subprocess
import sys
from collections.abc import Iterator
from unittest import mock

import jax
import jaxlib
import numpy as np
import pytest
from absl.testing import flagsaver
from threadpoolctl import threadpool_limits

from mimetic_jax.base.errors import InputError
from tests import training
from tests.golden import formulas

ROOT = pathlib.Path(__file__).parents[1]
# Tests that need eight devices run in a process of their own: see test_multidevice.py.
collect_ignore = [] if "MIMETIC_EIGHT_DEVICES" in os.environ else ["multidevice"]


# XLA's own loops for fusions instead of MLIR's, and one LLVM module for each program, take a third
# of the time to compile. XLA reads its flags once, when JAX first asks for devices; from jaxlib
# 0.12 on it has MLIR's loops alone. tests/compiled compiles as users do.
CHEAP = "--xla_cpu_parallel_codegen_split_count=1"
if jaxlib.version.__version_info__ < (0, 12):
    CHEAP += " --xla_cpu_use_fusion_emitters=false"
with mock.patch.dict(os.environ, XLA_FLAGS=f"{os.environ.get('XLA_FLAGS', '')} {CHEAP}"):
    jax.devices()
# Most of the suite's time is compilation of programs that run for milliseconds.
jax.config.update("jax_disable_most_optimizations", True)


# Tests build the same small programs again and again, in all workers and in each session: what one
# compiled is kept in the checkout. `make clean` removes it.
jax.config.update("jax_compilation_cache_dir", str(ROOT / ".cache"))
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture(scope="session", autouse=True)
def own_cache(tmp_path_factory):
    with mock.patch.dict(os.environ, XDG_CACHE_HOME=str(tmp_path_factory.mktemp("cache"))):
        yield


@pytest.fixture(scope="session", autouse=True)
def one_blas_thread():
    """Workers share the cores: what tests compute with NumPy took ninety times as long otherwise.

    OpenBLAS's threads spin while they wait. What the library does about them is tested in processes
    of its own, tests/host/test_cores.py.
    """
    with threadpool_limits(1, user_api="blas"):
        yield


@pytest.fixture(scope="session", autouse=True)
def rarely_collected():
    """Modules, tests and traces stay; to look through all of them for garbage took a fifth."""
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def errors_of_one_line():
    """The message of every InputError that a test meets has one line."""

    def checked(self, *message):
        assert "\n" not in str(message[0])
        ValueError.__init__(self, *message)

    with mock.patch.object(InputError, "__init__", checked):
        yield


@pytest.fixture(scope="session", autouse=True)
def programs():
    """Programs that one test traced are kept for the others of the session."""
    with mock.patch.object(training, "programs", training.Programs()) as kept:
        yield kept


@pytest.fixture(scope="session")
def alone(tmp_path_factory):
    """What a process without the extras did: see alone.py."""
    command = [sys.executable, "-W", "error", "-m", "tests.alone", tmp_path_factory.mktemp("alone")]
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    options = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
    done = subprocess.run(command, timeout=250, **options)
    assert (done.returncode, done.stderr) == (0, "")
    return json.loads(done.stdout)


@pytest.fixture
def own_flags():
    """A process has one command line: flags and fields that a test sets end with that test."""
    with flagsaver.flagsaver():
        yield


@pytest.fixture
def golden():
    """Arrays of formulas in NumPy, and stored ones of other programs: see golden/formulas.py."""

    def load(name: str) -> dict[str, np.ndarray]:
        if name in formulas.FORMULAS:
            return formulas.FORMULAS[name]()
        with np.load(formulas.FOLDER / f"{name}.npz") as file:
            return dict(file)

    return load


@pytest.fixture(scope="session")
def tiny():
    """Makes configurations of it."""
    return training.tiny


@pytest.fixture
def full_disk():
    """A disk that takes no file of more than so many bytes, while the block lasts."""

    @contextlib.contextmanager
    def limited(size: int) -> Iterator[None]:
        before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
        try:
            yield
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, before)

    return limited
