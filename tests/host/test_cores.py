"""Threads change neither results nor, afterward, the BLAS limit; freed memory is kept."""

import platform
import subprocess
import sys
import threading
import time

import jax
import numpy as np
import pytest

from mimetic_jax.host import cores as cores_module
from mimetic_jax.host.cores import concurrency, cores, limited_blas, on_cores


def blas_threads():
    """Of NumPy's and SciPy's libraries; later libraries of other tests don't matter here."""
    known = cores_module._blas().info()
    return [library["num_threads"] for library in known if library["user_api"] == "blas"]


def test_results_keep_their_order_and_tasks_run_elsewhere():
    results = list(on_cores(lambda item: (item, threading.get_ident()), range(20)))
    assert [item for item, _ in results] == list(range(20))
    assert threading.get_ident() not in {thread for _, thread in results}


def test_nested_tasks_stay_in_their_thread():
    """A task that waits for other tasks of its pool could wait forever."""

    def outer(item):
        here = threading.get_ident()
        inner = list(on_cores(lambda _: threading.get_ident(), range(3)))
        assert inner == [here] * 3
        return concurrency()

    assert set(on_cores(outer, range(4 * cores()))) == {cores()}
    assert concurrency() == 1


def test_blas_limit_is_one_inside_and_what_it_was_after_also_an_error():
    before = blas_threads()

    def task(_):
        with limited_blas():
            np.linalg.qr(np.eye(8))
        return blas_threads()

    assert all(set(inside) == {1} for inside in on_cores(task, range(4)))
    assert blas_threads() == before
    with pytest.raises(ZeroDivisionError):
        list(on_cores(lambda item: 1 // item, range(4)))
    assert blas_threads() == before


def test_of_limits_that_overlap_the_least_holds_and_the_last_restores():
    """As two threads of a program enter and leave them: A in, B in, A out, B out."""
    before = blas_threads()
    first, second = limited_blas(1), limited_blas(2)
    found = []
    for step in (first.__enter__, second.__enter__):
        step()
        found.append(set(blas_threads()))
    first.__exit__(None, None, None)
    found.append(set(blas_threads()))
    second.__exit__(None, None, None)
    assert found == [{1}, {1}, {2}]
    assert blas_threads() == before


def test_default_device_goes_with_the_tasks():
    device = jax.devices()[-1]
    with jax.default_device(device):
        found = list(on_cores(lambda _: jax.config.jax_default_device, range(3)))
    assert found == [device] * 3


def test_a_process_without_our_tests_limits_is_limited_too(alone):
    assert set(alone["blas"]) == {1}


def test_results_do_not_pile_up_before_a_slow_caller():
    started = []
    results = on_cores(started.append, range(200))
    next(results)
    time.sleep(0.2)  # in which the cores could do all of them
    assert len(started) <= cores() + 1
    list(results)
    assert sorted(started) == list(range(200))


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


@pytest.mark.slow
@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="another allocator than glibc's")
def test_pages_of_a_step_are_faulted_in_once():
    """Ten calls take 10 x 36 MiB, in pages of 4 KiB, or of 2 MiB where the system gives those."""
    command = [sys.executable, "-c", _CALLS]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    returned, kept = map(int, said.split())
    assert returned >= 10 * 18
    assert kept <= returned / 5
