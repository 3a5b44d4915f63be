from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.weights import norm_matched


@pytest.mark.parametrize("shape", [(8,), (4, 6), (3, 5, 7)])
def test_norm_is_matched_and_direction_is_not(shape):
    like = jax.random.normal(jax.random.key(1), shape) + 2
    drawn = norm_matched(jax.random.key(0), like)
    assert drawn.shape == shape
    np.testing.assert_allclose(
        np.linalg.norm(drawn.ravel()), np.linalg.norm(like.ravel()), rtol=1e-5
    )
    cosine = jnp.vdot(drawn, like) / jnp.vdot(like, like)
    assert abs(cosine) < 0.9


def test_zero_stays_zero():
    np.testing.assert_array_equal(norm_matched(jax.random.key(0), jnp.zeros((2, 3))), 0)
