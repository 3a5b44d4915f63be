"""Sums compiled on CPUs are right under the flag that the package sets, and refused without it."""

import os
import subprocess
import sys
import textwrap

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


def in_a_process(code: str, flags: str | None) -> str:
    """What a program prints whose XLA_FLAGS are the given ones, in a process of its own."""
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    environment |= {} if flags is None else {"XLA_FLAGS": flags}
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def test_the_compiler_of_this_process_is_right():
    assert sums.right_sums()


@pytest.mark.slow
def test_importing_the_command_makes_a_process_sum_correctly():
    # As tests/test_compiled.py shows it of mimetic_jax.train. The gradient of a class token of T
    # tokens, at 512 examples. Without the flag jaxlib 0.10.1 gives 8704 for T = 17, and ends the
    # process for T = 65.
    code = """
        import jax, jax.numpy as jnp
        import mimetic_jax.command.console
        from mimetic_jax.host import sums
        f = lambda T: jax.jit(lambda x: jnp.sum(jnp.pad(x, ((0, 0), (0, T - 1), (0, 0))), (0, 1)))
        x = jnp.ones((512, 1, 96))
        print(f(17)(x)[0], f(65)(x)[0], sums.right_sums())
    """
    assert in_a_process(code, None) == "512.0 512.0 True\n"


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
