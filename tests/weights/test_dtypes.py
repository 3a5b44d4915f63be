"""Results are float32, whatever JAX's default and the dtype of the inputs."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import weights
from mimetic_jax.weights.conv import conv_covariance_2022, conv_filters, sample_filters
from mimetic_jax.weights.factor import factorize
from mimetic_jax.weights.impulse import impulse_query_key, mixer_token_mixing

DRAWS = {
    "query_key": lambda key: weights.query_key(key, 8, 2),
    "identity alone": lambda key: weights.query_key(
        key, 8, 1, head_dim=9, alpha=0.0, beta=np.float64(-0.5)
    ),
    "value_out": lambda key: weights.value_out(key, 8, 2),
    "token mixing": lambda key: mixer_token_mixing(key, (2, 2), 8, kernel_size=1),
    "impulses": lambda key: conv_filters(key, 3, 4, "impulse"),
    "covariance": lambda key: sample_filters(key, conv_covariance_2022(2, 0.5), 4),
    "norms": lambda key: weights.norm_matched(key, jnp.ones(4)),
}
READ = {
    "impulse": lambda key, table: impulse_query_key(key, table, (4, 4), 2),
    "factors": lambda key, table: factorize(table[None, :8], 4),
    "covariance": lambda key, table: sample_filters(key, jnp.diag(jnp.abs(table[0, :4])), 3),
    "norms": weights.norm_matched,
}


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
@pytest.mark.parametrize("name", DRAWS)
def test_wide_defaults(name, transform):
    with jax.enable_x64(True):
        drawn = transform(DRAWS[name])(jax.random.key(0))
    assert {array.dtype for array in jax.tree.leaves(drawn)} == {np.dtype("float32")}


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("name", READ)
def test_narrow_inputs_of_a_program(name, dtype):
    """They are computed as their values in float32 are."""
    key, draw = jax.random.key(0), jax.jit(READ[name])
    narrow = jax.random.normal(key, (16, 8)).astype(dtype)
    drawn, expected = draw(key, narrow), draw(key, narrow.astype(jnp.float32))
    jax.tree.map(np.testing.assert_array_equal, drawn, expected)
    assert {array.dtype for array in jax.tree.leaves(drawn)} == {np.dtype("float32")}


def test_norms_beyond_the_range_of_the_input():
    drawn = weights.norm_matched(jax.random.key(0), jnp.ones((512, 512), jnp.float16))
    np.testing.assert_allclose(np.linalg.norm(drawn), 512, rtol=1e-5)
