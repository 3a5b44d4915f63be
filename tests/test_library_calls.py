"""Arguments of library calls that are none: InputError in one line, with the value in it."""

from __future__ import annotations

import inspect
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mimetic_jax import InputError, Rule, block_key, initializers, rewrite, weights
from mimetic_jax.schemes import Mimetic, SinCos

KEY = jax.random.key(0)
KERNEL = jnp.ones((16, 2, 8))
PARAMS = {
    "attention": {
        **{name: {"kernel": KERNEL} for name in ("query", "key", "value")},
        "out": {"kernel": jnp.ones((2, 8, 16))},
    }
}
TABLE = {"pos_embed": jnp.ones((1, 16, 8))}
NO_NUMBERS = ("x", None, [], "0.7", 1j, {}, object(), np.ones(3), math.nan, math.inf)
NO_KEYS = (0, None, "x", 1.5, np.zeros(3), np.array([0, 1], np.int32), jax.random.split(KEY))
POSITIONS = np.random.default_rng(0).normal(size=(16, 8)).astype(np.float32)
SQUARE = np.eye(4, dtype=np.float32)
DRAWS = {
    "conv_filters": lambda key: weights.conv_filters(key, 3, 4),
    "correlated": lambda key: weights.correlated(key, SQUARE, 0.5),
    "exchangeable_mlp": lambda key: weights.exchangeable_mlp(
        key, 4, 8, np.zeros(2), np.zeros((3, 4))
    ),
    "identity_filters": lambda key: weights.identity_filters(key, 4, 3, 0.1),
    "impulse_query_key": lambda key: weights.impulse_query_key(key, POSITIONS, (4, 4), 2),
    "log_decay": lambda key: weights.log_decay(key, 4, 1e-3, 2.0),
    "mean_shift_per_input": lambda key: weights.mean_shift_per_input(key, SQUARE),
    "mixer_token_mixing": lambda key: weights.mixer_token_mixing(key, (2, 2), 8),
    "norm_matched": lambda key: weights.norm_matched(key, SQUARE),
    "query_key": lambda key: weights.query_key(key, 16, 2),
    "same_noise_query_key": lambda key: weights.same_noise_query_key(key, 16, 2),
    "same_noise_value_out": lambda key: weights.same_noise_value_out(key, 16, 2),
    "sample_filters": lambda key: weights.sample_filters(key, SQUARE, 3),
    "semi_orthogonal": lambda key: weights.semi_orthogonal(key, 4, 4),
    "shuffled": lambda key: weights.shuffled(key, SQUARE),
    "tfixup": lambda key: weights.tfixup(key, 4, 4, 2),
    "uniform_noise": lambda key: weights.uniform_noise(key, (3,), 1.0),
    "value_out": lambda key: weights.value_out(key, 16, 2),
}
"""A call of every function of `weights` that takes a key."""
INITIALIZERS = {
    "attention": lambda key: initializers.attention(Mimetic())(key, 16, 2),
    "fused_query_key_value": lambda key: initializers.fused_query_key_value(2)(key, (16, 48)),
    "identity_gauge": lambda key: initializers.identity_gauge()(key, (16, 16)),
    "mean_shift": lambda key: initializers.mean_shift()(key, (16, 16)),
}
NO_GRIDS = ((3,), 4, "4x4", (0, 4), (4, -4), (2.5, 2), (1, 2, 3), ())
NO_KERNELS = ((16,), (), (0, 3), (3, 0), 3, "x", (-1, 2), (2.5, 3), (2, 3, 4))
NO_RULES = ("flax", 3, (("a", "query", "d h k"),), [None])


def refused(call, bad, words=None):
    with pytest.raises(InputError, match=words) as caught:
        call(bad)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize("bad", NO_NUMBERS, ids=lambda bad: repr(bad)[:12])
@pytest.mark.parametrize(
    "call",
    [
        lambda bad: weights.query_key(KEY, 16, 2, alpha=bad),
        lambda bad: weights.value_out(KEY, 16, 2, beta=bad),
        lambda bad: weights.sincos_2d(4, 4, 8, scale=bad),
        lambda bad: rewrite(KEY, TABLE, SinCos(scale=bad)),
        lambda bad: weights.query_key(KEY, bad, 2),
        lambda bad: weights.query_key(KEY, 16, bad),
        lambda bad: weights.sincos_2d(4, bad, 8),
    ],
)
def test_what_is_no_number(call, bad):
    refused(call, bad)


@pytest.mark.parametrize("bad", ["x", 1j, {}, object(), np.ones(3), math.nan, -1])
def test_a_scheme_without_numbers(bad):
    refused(lambda bad: rewrite(KEY, PARAMS, Mimetic(alpha_qk=bad)), bad)


@pytest.mark.parametrize("bad", NO_KEYS, ids=lambda bad: repr(bad)[:12])
@pytest.mark.parametrize(
    "call",
    [
        lambda bad: rewrite(bad, PARAMS, Mimetic()),
        lambda bad: block_key(bad, "a"),
        *DRAWS.values(),
        *INITIALIZERS.values(),
    ],
)
def test_what_is_no_key(call, bad):
    refused(call, bad, "the key must be")


def test_every_draw_is_among_them():
    functions = {name: inspect.signature(getattr(weights, name)) for name in weights.__all__}
    assert {name for name, call in functions.items() if "key" in call.parameters} == set(DRAWS)


@pytest.mark.parametrize("bad", ["a(", "*", 3, None, "(?P<x>a)(?P<x>b)", "a{5000000000}"])
@pytest.mark.parametrize("field", ["path", "within", "exclude"])
def test_what_is_no_expression(field, bad):
    refused(lambda bad: Rule(**{"path": "a", "role": "query", "layout": "d h k", field: bad}), bad)


@pytest.mark.parametrize("bad", ["a b", 3, None, "", "d (h", "d h k z"])
def test_what_is_no_layout(bad):
    refused(lambda bad: Rule("query/kernel", "query", bad), bad)


@pytest.mark.parametrize("bad", NO_RULES, ids=repr)
def test_what_are_no_rules(bad):
    refused(lambda bad: rewrite(KEY, PARAMS, Mimetic(), rules=bad), bad)


@pytest.mark.parametrize("bad", NO_GRIDS, ids=repr)
@pytest.mark.parametrize(
    "call",
    [
        lambda bad: rewrite(KEY, TABLE, SinCos(), grid=bad),
        lambda bad: weights.impulse_query_key(KEY, jnp.ones((16, 8)), bad, 2),
    ],
)
def test_what_is_no_grid(call, bad):
    refused(call, bad)


@pytest.mark.parametrize("bad", NO_KERNELS, ids=repr)
@pytest.mark.parametrize(
    "make",
    [lambda: initializers.mean_shift(0.1), lambda: initializers.fused_query_key_value(2)],
)
def test_what_is_no_kernels_shape(make, bad):
    refused(lambda bad: make()(KEY, bad), bad)
