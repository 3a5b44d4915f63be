"""Threads change neither the results nor, afterward, the BLAS limit."""

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


def test_blas_limit_is_one_inside_and_what_it_was_after():
    before = blas_threads()

    def task(_):
        with limited_blas():
            np.linalg.qr(np.eye(8))
        return blas_threads()

    assert all(set(inside) == {1} for inside in on_cores(task, range(4)))
    assert blas_threads() == before


def test_errors_propagate_and_end_the_limit():
    before = blas_threads()

    def task(item):
        if item == 1:
            raise ValueError("one")
        return item

    with pytest.raises(ValueError, match="one"):
        list(on_cores(task, range(4)))
    assert blas_threads() == before


def test_default_device_goes_with_the_tasks():
    device = jax.devices()[-1]
    with jax.default_device(device):
        found = list(on_cores(lambda _: jax.config.jax_default_device, range(3)))
    assert found == [device] * 3


def test_a_blas_that_comes_later_is_limited():
    """SciPy's is loaded by the first draw that needs it, in a process that has nothing of it."""
    program = """
from mimetic_jax.host.cores import limited_blas
with limited_blas():
    import scipy.linalg, threadpoolctl
    print({found["num_threads"] for found in threadpoolctl.threadpool_info()
           if found["user_api"] == "blas"})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "{1}\n", done.stderr


def test_results_do_not_pile_up_before_a_slow_caller():
    started = []
    results = on_cores(started.append, range(200))
    next(results)
    time.sleep(0.2)  # in which the cores could do all of them
    assert len(started) <= cores() + 1
    list(results)
    assert sorted(started) == list(range(200))
