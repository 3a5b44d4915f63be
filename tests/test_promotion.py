"""The library under JAX's checks for a user's own code: no implicit ranks, no implicit dtypes."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import Rule, check, fit, plan, rewrite, schemes, weights
from mimetic_jax.weights.impulse import offsets
from tests.schemes.test_schemes import EVERY
from tests.test_library_calls import INITIALIZERS
from tests.weights.test_contract import DRAWS

KEY = jax.random.key(0)
HOST = (
    *("query_key", "random basis", "value_out", "factorize"),
    *("impulse_query_key", "sample_filters"),
)
OF_OTHER_TREES = [
    (schemes.ConvFilters(), "depthwise", (3, 3, 4)),
    (schemes.ConvMimetic(), "depthwise", (3, 3, 4)),
    (schemes.ImpulseMixing(), "token_in token_out", (16, 16)),
    (schemes.ImpulseBias(), "relative_bias", (25, 2)),
    (schemes.ImpulseBias(), "shared_bias", (5, 5)),
    (schemes.MimeticSSM(correlation=0.5), "ssm_b ssm_c", (8, 4)),
    (schemes.MimeticSSM(power=2.0), "ssm_a ssm_dt_bias", (4,)),
    (schemes.MimeticSSM(noise=0.1), "ssm_conv", (4, 6)),
]
"""A scheme, the roles that it writes, and the shape of their arrays."""


@pytest.fixture(autouse=True)
def _strict():
    with jax.numpy_rank_promotion("raise"), jax.numpy_dtype_promotion("strict"):
        yield


def noise(*shape, dtype=jnp.float32):
    return jnp.asarray(np.random.default_rng(0).normal(size=shape, scale=0.1), dtype)


def tree(dtype):
    draw = functools.partial(noise, dtype=dtype)
    attention = {
        name: {"kernel": draw(16, 2, 8), "bias": draw(2, 8)} for name in ("query", "key", "value")
    }
    block = {
        "attention": {**attention, "out": {"kernel": draw(2, 8, 16), "bias": draw(16)}},
        "mlp": {
            "fc1": {"kernel": draw(16, 64), "bias": draw(64)},
            "fc2": {"kernel": draw(64, 16), "bias": draw(16)},
        },
    }
    patches = {"kernel": draw(12, 16), "bias": draw(16)}
    return {"block_0": block, "patch_embed": patches, "pos_embed": draw(1, 17, 16)}


def test_draws():
    """Inside a program; outside of it, too, those that then compute with NumPy."""
    for draw in (*DRAWS.values(), *INITIALIZERS.values()):
        jax.eval_shape(draw, KEY)
    for name in HOST:
        DRAWS[name](KEY)


@pytest.mark.parametrize(
    "scheme",
    [
        *EVERY,
        schemes.AntiCorrelated(),
        schemes.ConstantBias(0.1),
        schemes.DCT(),
        schemes.Impulse(),
        schemes.Layers(schemes.Mimetic.port(), 0.0, 1.0),
        schemes.MeanShift(per_input=True),
        schemes.NormMatched(schemes.MeanShift()),
        schemes.Orthogonal(),
        schemes.SinCos(axes=1),
        schemes.Sinusoidal(),
    ],
    ids=str,
)
def test_schemes(scheme):
    for dtype in (jnp.float32, jnp.bfloat16):
        params = tree(dtype)
        jax.eval_shape(lambda key, params: rewrite(key, params, scheme), KEY, params)


@pytest.mark.parametrize(("scheme", "roles", "shape"), OF_OTHER_TREES, ids=str)
def test_schemes_of_other_trees(scheme, roles, shape):
    params = {role: noise(*shape) for role in roles.split()}
    layouts = {"depthwise": "u v c", "token_in": "n f", "token_out": "f n"}
    layouts |= {"relative_bias": "r h", "shared_bias": "u v", "ssm_b": "d s", "ssm_c": "d s"}
    layouts |= {"ssm_a": "m", "ssm_dt_bias": "m", "ssm_conv": "u c"}
    rules = [Rule(role, role, layouts[role]) for role in params]
    jax.eval_shape(lambda key, params: rewrite(key, params, scheme, rules=rules), KEY, params)


def test_what_reads_a_tree():
    params = rewrite(KEY, tree(jnp.bfloat16), schemes.Mimetic())
    for text in (plan(params, schemes.Mimetic()), check(params), fit(params)):
        assert "attention" in str(text)


@pytest.mark.parametrize(
    "call",
    [
        lambda x: weights.anti_correlated(x, x.T),
        lambda x: weights.factorize(x[None], 1, "fast"),
        lambda x: weights.mean_shift(x),
        lambda x: weights.polar(x[None]),
        lambda x: weights.sample_filters(KEY, x[:4, :4] @ x[:4, :4].T, 3),
        lambda x: weights.swin_bias(jnp.zeros((9, 2)), offsets(3, 2)),
        lambda x: weights.impulse_matrices((2, 2), x[:1, :2].astype(int)),
        lambda x: weights.query_key(KEY, 16, 2, alpha=0, degenerate="random_basis", head_dim=20),
        lambda x: (weights.zero_init(4, 8), weights.dct(4, 8), weights.sinusoidal(4, 8)),
    ],
)
def test_functions_of_arrays(call):
    array = noise(8, 8)
    call(array)
    jax.eval_shape(call, array)
