"""Compiled sums are right, or a warning says so: those of jaxlib 0.10.2 on CPUs are wrong."""

from collections.abc import Iterator

import jax
import numpy as np
import pytest

from mimetic_jax.host import sums


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    sums.warn_of_wrong_sums.cache_clear()
    yield
    sums.warn_of_wrong_sums.cache_clear()


def test_the_compiler_of_this_machine_is_right() -> None:
    assert sums.wrong_sums() == []


@pytest.mark.parametrize("name", ["rows", "all", "squares"])
def test_a_pattern_alone_is_right(name: str) -> None:
    E = np.random.default_rng(0).normal(size=(100, 100)).astype(np.float32)
    compiled = jax.jit(lambda E, c: sums.patterns(E, c)[name])(E, 0.5)
    rows = E.astype(np.float64).sum(-1)
    truth = {"rows": rows**2 / 2, "all": (rows**2).sum(), "squares": (rows / 100) ** 2}[name]
    np.testing.assert_allclose(compiled, truth, rtol=1e-3, atol=1e-3)


def test_wrong_sums_are_said_once_with_what_cures_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sums, "wrong_sums", lambda: ["rows"])
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    with pytest.warns(RuntimeWarning, match=r"install jax and jaxlib 0\.10\.1, or set XLA_FLAGS="):
        sums.warn_of_wrong_sums()
    sums.warn_of_wrong_sums()


def test_other_devices_are_not_probed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(sums, "wrong_sums", lambda: pytest.fail("compiled"))
    sums.warn_of_wrong_sums()
