"""Values, gradients and residuals of the functions that keep few bytes."""

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.ad_checkpoint import print_saved_residuals

from mimetic_jax.models.low_memory import add_table, gelu, layer_norm

X = np.random.default_rng(0).normal(size=(3, 5, 8)).astype(np.float32)
TABLE = X[:1] / 2


SCALE, BIAS = X[0, 0] / 3, X[0, 1]


def lean_norm(x, scale, bias):
    return layer_norm(x, scale, bias, 1e-5, x.dtype)


def plain_norm(x, scale, bias):
    variables = {"params": {"scale": scale, "bias": bias}}
    return nn.LayerNorm(epsilon=1e-5, dtype=x.dtype).apply(variables, x)


CASES = {
    "gelu": (gelu, lambda x: nn.gelu(x, approximate=False), (3 * X,)),
    "norm": (lean_norm, plain_norm, (2 + 3 * X, SCALE, BIAS)),
    "table": (add_table, jnp.add, (X, TABLE)),
}


def gradients(function, arguments):
    """The value, and the gradients of a sum with weights that differ by entry."""
    value, back = jax.vjp(function, *arguments)
    return value, *back(jnp.cos(X).astype(value.dtype))


@pytest.mark.parametrize("case", CASES)
def test_is_the_plain_function(case):
    ours, plain, arguments = CASES[case]
    found, expected = gradients(ours, arguments), gradients(plain, arguments)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("case", CASES)
def test_maps_over_members(case):
    ours, _, arguments = CASES[case]
    members = [np.stack([array, 2 * array]) for array in arguments]
    together = jax.vmap(lambda *each: gradients(ours, each))(*members)
    alone = gradients(ours, [array[1] for array in members])
    for one, other in zip(together, alone, strict=True):
        np.testing.assert_allclose(one[1], other, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("case", CASES)
def test_half_precision_rounds_once(case):
    """As exact as the result's own dtype: what is between is float32."""
    ours, plain, arguments = CASES[case]
    half = [jnp.asarray(array, jnp.bfloat16) for array in arguments]
    exact = plain(*(array.astype(jnp.float32) for array in half))
    np.testing.assert_allclose(ours(*half).astype(jnp.float32), exact, rtol=2**-8, atol=1e-6)
    assert all(grad.dtype == jnp.bfloat16 for grad in gradients(ours, half))


def test_gradients_far_from_zero():
    """No gradient of GELU is NaN where its density is 0, nor of a constant row."""
    far = jnp.array([-1e4, -40.0, 40.0, 1e4])
    np.testing.assert_array_equal(jax.vmap(jax.grad(gelu))(far), [0, 0, 1, 1])
    one, zero = jnp.ones(4), jnp.zeros(4)
    flat = jax.grad(lambda x: layer_norm(x, one, zero, 1e-6, x.dtype)[0])(one)
    np.testing.assert_allclose(flat, [750, -250, -250, -250], rtol=1e-5)


@pytest.mark.parametrize("case", ["gelu", "norm"])
def test_keeps_its_input_alone(case, capsys):
    ours, _, (x, *rest) = CASES[case]
    print_saved_residuals(lambda x: ours(jnp.sin(x), *rest), x.astype(jnp.bfloat16))
    kept = capsys.readouterr().out.splitlines()
    assert sum("bf16[3,5,8]" in line for line in kept) == 2, kept  # its input, and cos for sin
    assert not any("f32[3,5,8]" in line for line in kept), kept
