"""Sums compiled on CPUs are right under the flag that the package sets, and refused without it."""

import os

import jax
import jaxlib
import pytest

from mimetic_jax import InputError
from mimetic_jax.host import sums


@pytest.fixture
def fresh():
    sums.check_sums.cache_clear()
    yield
    sums.check_sums.cache_clear()


def test_the_compiler_of_this_process_is_right():
    assert sums.right_sums()


def test_importing_the_command_makes_a_process_sum_correctly(alone):
    """As tests/test_compiled.py shows it of mimetic_jax.train."""
    assert alone["sums"] == [512, 512, True]


@pytest.mark.parametrize(
    ("given", "left"),
    [
        (None, f"{sums.FLAG}=-reduce"),
        ("", f"{sums.FLAG}=-reduce"),
        ("--a=b", f"--a=b {sums.FLAG}=-reduce"),
        (f"{sums.FLAG}=dot --a=b", f"{sums.FLAG}=dot --a=b"),
        ("flags.txt", "flags.txt"),  # XLA reads its flags from a file of that name
    ],
)
def test_the_flag_is_appended_and_a_given_one_stays(given, left, monkeypatch):
    if given is None:
        monkeypatch.delenv("XLA_FLAGS", raising=False)
    else:
        monkeypatch.setenv("XLA_FLAGS", given)
    sums.compile_right_sums()
    assert os.environ["XLA_FLAGS"] == left
    sums.compile_right_sums()
    assert os.environ["XLA_FLAGS"] == left


def test_a_version_that_was_not_tried_gets_no_flag(monkeypatch):
    monkeypatch.setattr(jaxlib.version, "__version_info__", (0, 13, 0))
    monkeypatch.setenv("XLA_FLAGS", "--a=b")
    sums.compile_right_sums()
    assert os.environ["XLA_FLAGS"] == "--a=b"


@pytest.mark.usefixtures("fresh")
def test_wrong_sums_are_refused_with_what_cures_them(monkeypatch):
    monkeypatch.setattr(sums, "right_sums", lambda: False)
    monkeypatch.setattr(jax, "default_backend", lambda: "cpu")
    with pytest.raises(InputError, match=r"wrong on this CPU.* set XLA_FLAGS=--xla_cpu_e"):
        sums.check_sums()


@pytest.mark.usefixtures("fresh")
def test_other_devices_are_not_probed(monkeypatch):
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    monkeypatch.setattr(sums, "right_sums", lambda: pytest.fail("compiled"))
    sums.check_sums()
