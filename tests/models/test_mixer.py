import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax.models import Mixer
from mimetic_jax.models.mixer import Block
from tests.golden import convolutions
from tests.golden.convolutions import CLASSES, DEPTH, PATCH, WIDTH
from tests.models.originals import variables_of

KEY = jax.random.key(0)
SMALL = {"num_classes": CLASSES, "width": WIDTH, "depth": DEPTH, "patch": PATCH}


def logits(model, variables):
    return jax.jit(model.apply)(variables, convolutions.images())


def test_logits_are_those_of_the_original(golden):
    model = Mixer(**SMALL)
    found = logits(model, variables_of(model))
    np.testing.assert_allclose(found, golden("mixer")["logits"], atol=1e-5)


def test_everything_starts_from_pytorchs_defaults():
    """Weights and biases U(±1/√fan-in), those of token mixing by the number of tokens."""
    block = Block(token_ratio=4.0, mlp_ratio=0.5, base="torch", dtype=jnp.float32)
    block = jax.jit(block.init)(KEY, jnp.ones((1, 64, 96)))["params"]
    for layer, fan_in in (("token_mixing", 64), ("mlp", 96)):
        for leaf in block[layer]["fc1"].values():
            assert float(jnp.abs(leaf).max()) <= fan_in**-0.5
            assert float(leaf.std()) == pytest.approx((3 * fan_in) ** -0.5, rel=0.15)
    assert float(jnp.abs(block["token_mixing"]["fc2"]["bias"]).max()) <= 256**-0.5
