"""LAPACK is called with sizes that it can count."""

import ctypes

import numpy as np
import pytest

from mimetic_jax.host import lapack


def test_work_space_beyond_32_bits_takes_the_routine_that_needs_less():
    """Up to the largest width that ssyevd's 1 + 6 D + 2 D² numbers allow."""
    last = lapack._solver(32_766, 32_766), lapack._solver(32_767, 32_767)
    assert last == (lapack._divide_and_conquer, lapack._relatively_robust)
    for size in (32_766, 46_340, 200_000):
        work = 1 + 6 * size + 2 * size**2
        assert (ctypes.c_int(work).value == work) == (size == 32_766)


def test_both_routines_give_the_same_spaces(monkeypatch):
    matrix = np.random.default_rng(0).standard_normal((24, 24))
    gram = matrix @ matrix.T
    vectors = lapack.leading_eigenvectors(gram, 20)
    monkeypatch.setattr(lapack, "_solver", lambda size, rank: lapack._relatively_robust)
    others = lapack.leading_eigenvectors(gram, 20)
    np.testing.assert_allclose(vectors @ vectors.T, others @ others.T, atol=1e-5)


def test_a_number_that_a_c_int_would_wrap_is_an_error():
    with pytest.raises(OverflowError, match="32 bits, not to 2,147,680,257"):
        lapack._by_address(1 + 6 * 32_768 + 2 * 32_768**2)
