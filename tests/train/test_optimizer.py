from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from mimetic_jax import InputError
from mimetic_jax.train.optimizer import adamw

PARAMS = {
    "a": {"kernel": jnp.arange(6.0).reshape(2, 3), "bias": jnp.ones(3)},
    "frozen": jnp.ones(2),
}


def gradients(step):
    return jax.tree.map(lambda p: jnp.cos(p * (step + 1)) * 3, PARAMS)


def run(optimizer, steps=5):
    params, state = PARAMS, optimizer.init(PARAMS)
    for step in range(steps):
        updates, state = optimizer.update(gradients(step), state, params)
        params = optax.apply_updates(params, updates)
    return params


def numpy_adamw(name, steps, rate, decay, norms, clip, betas=(0.9, 0.999), eps=1e-8):
    """AdamW by its formula, in float64."""
    get = (lambda t: t["frozen"]) if name == "frozen" else (lambda t: t["a"][name])
    p = np.asarray(get(PARAMS), np.float64)
    m = v = np.zeros_like(p)
    for step in range(steps):
        g = np.asarray(get(gradients(step)), np.float64) * min(1, clip / norms[step])
        m, v = betas[0] * m + (1 - betas[0]) * g, betas[1] * v + (1 - betas[1]) * g * g
        hat = (m / (1 - betas[0] ** (step + 1))) / (np.sqrt(v / (1 - betas[1] ** (step + 1))) + eps)
        p = p - rate * (hat + decay * p)
    return p


def test_update_is_adamw_by_its_formula():
    optimizer = adamw(
        optax.constant_schedule(0.01),
        weight_decay=0.1,
        clip=1.0,
        decay_rules=((r"bias$", 0.0), (r".", 0.5)),
        rate_rules=((r"frozen", 0.0), (r"kernel", 2.0)),
    )
    params = run(optimizer)
    # Frozen gradients don't count in the norm that is clipped.
    norms = [float(optax.tree.norm(gradients(step)["a"])) for step in range(5)]
    expected = numpy_adamw("kernel", 5, 0.02, 0.05, norms, clip=1.0)
    np.testing.assert_allclose(params["a"]["kernel"], expected, rtol=1e-5)
    expected = numpy_adamw("bias", 5, 0.01, 0.0, norms, clip=1.0)
    np.testing.assert_allclose(params["a"]["bias"], expected, rtol=1e-5)
    np.testing.assert_array_equal(params["frozen"], PARAMS["frozen"])


def test_without_rules_it_is_optax_adamw():
    ours = run(adamw(optax.constant_schedule(0.01), weight_decay=0.1))
    theirs = run(optax.adamw(0.01, weight_decay=0.1))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), ours, theirs)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"weight_decay": -1.0}, "weight decay -1.0"),
        ({"clip": -1.0}, "clip norm -1.0"),
        ({"rate_rules": ((r"x", -2.0),)}, "factor -2.0 of rule 'x'"),
    ],
)
def test_bad_input(options, words):
    with pytest.raises(InputError, match=words):
        adamw(optax.constant_schedule(1.0), **options)
