"""Fixtures. No environment variable is set here: the library must work in a clean one."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable

import jax
import numpy as np
import pytest

# Tests that need eight devices run in a process of their own: see test_multidevice.py.
collect_ignore = [] if "MIMETIC_EIGHT_DEVICES" in os.environ else ["multidevice"]


@pytest.fixture(scope="session", autouse=True)
def compiled_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Tests build the same small programs again and again: each is compiled once a session."""
    folder = tmp_path_factory.getbasetemp()
    # All workers'; but the process of eight devices, which a worker starts, has its own.
    if "PYTEST_XDIST_WORKER" in os.environ and "MIMETIC_EIGHT_DEVICES" not in os.environ:
        folder = folder.parent
    jax.config.update("jax_compilation_cache_dir", str(folder / "compiled"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.fixture
def golden() -> Callable[[str], dict[str, np.ndarray]]:
    """Arrays computed independently, in float64 NumPy, from the papers' formulas."""

    def load(name: str) -> dict[str, np.ndarray]:
        with np.load(pathlib.Path(__file__).parent / "golden" / f"{name}.npz") as file:
            return dict(file)

    return load
