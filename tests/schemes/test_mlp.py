from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import mimetic_jax
from mimetic_jax import InputError
from mimetic_jax.schemes.mlp import AntiCorrelated, ConstantBias, MeanShift

KEY = jax.random.key(0)


def mlps(dim=8, hidden=16, layers=2):
    def layer(index):
        keys = jax.random.split(jax.random.key(index))
        return {
            "fc1": {
                "kernel": jax.random.normal(keys[0], (dim, hidden)),
                "bias": jnp.ones(hidden),
            },
            "fc2": {
                "kernel": jax.random.normal(keys[1], (hidden, dim)),
                "bias": jnp.ones(dim),
            },
        }

    return {f"block_{i}": {"mlp": layer(i)} for i in range(layers)} | {"norm": jnp.ones(dim)}


def test_values():
    first, second = (np.asarray(mlps()["block_1"]["mlp"][n]["kernel"]) for n in ("fc1", "fc2"))

    def kernel(scheme):
        return mimetic_jax.rewrite(KEY, mlps(), scheme)["block_1"]["mlp"]["fc1"]["kernel"]

    np.testing.assert_allclose(kernel(MeanShift(-0.5)), first - 0.5 * first.std(), atol=1e-6)
    rows = np.asarray(kernel(MeanShift(0.5, per_input=True))) - first
    np.testing.assert_allclose(rows, rows[:, :1].repeat(16, axis=1), atol=1e-6)
    np.testing.assert_allclose(kernel(AntiCorrelated()), (first - second.T) / 2, atol=1e-6)
    tree = mimetic_jax.rewrite(KEY, mlps(), ConstantBias(0.02))
    np.testing.assert_allclose(tree["block_1"]["mlp"]["fc1"]["bias"], 0.02)


def test_layers_draw_different_numbers_and_shifts_add_up():
    scheme = MeanShift(per_input=True)
    before, after = mlps(), mimetic_jax.rewrite(KEY, mlps(), scheme)
    shift = jax.tree.map(jnp.subtract, after, before)
    rows = [shift[block]["mlp"]["fc1"]["kernel"][:, 0] for block in ("block_0", "block_1")]
    assert np.abs(rows[0] - rows[1]).max() > 0.1
    twice = mimetic_jax.rewrite(KEY, mlps(), (MeanShift(), MeanShift()))
    first = np.asarray(before["block_0"]["mlp"]["fc1"]["kernel"])
    expected = first + 2 * 0.5 * first.std()
    np.testing.assert_allclose(twice["block_0"]["mlp"]["fc1"]["kernel"], expected, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda: AntiCorrelated().writes(frozenset({"mlp_in", "mlp_in_bias"})),
            "only mlp_in was found",
        ),
        (
            lambda: mimetic_jax.plan(
                {
                    "mlp": {
                        "fc1": {"kernel": jnp.ones((4, 8))},
                        "fc2": {"kernel": jnp.ones((8, 1, 4))},
                    }
                },
                AntiCorrelated(),
            ),
            r"^mlp/fc2/kernel has shape \(8, 1, 4\), which doesn't fit layout 'f d'",
        ),
    ],
)
def test_bad_input(call, words):
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value)
