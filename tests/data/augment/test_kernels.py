"""Kernels whose weights over the pixels around any position sum to 1."""

import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.data.augment.kernels import interpolating


@pytest.mark.parametrize(("cubic", "a"), [(False, -1.0), (True, -0.5), (True, -1.0)])
def test_weights_sum_to_one_and_are_one_on_a_pixel(cubic: bool, a: float) -> None:
    part = jnp.linspace(0, 1, 11)[:, None]
    weights = interpolating(part - jnp.arange(-2, 4), cubic, a)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
    np.testing.assert_array_equal(weights[0], [0, 0, 1, 0, 0, 0])
